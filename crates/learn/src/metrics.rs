//! Metrics of predictions against labels, by the contract's names. Plain definitions over all rows in f64;
//! each is checked against scikit-learn's numbers.

use crate::Task;
use std::collections::BTreeMap;

/// Probabilities are kept this far from 0 and 1 in the log-loss, as scikit-learn does.
const PROBABILITY_MIN: f64 = f64::EPSILON;

/// Metrics of a task. `outputs` has `width` numbers a row, as the learner's `predict` gives them; `labels`
/// has one number a row, or none for tasks without labels. A metric that the rows do not define (the area
/// under the curve of one class, anything of no rows) is left out.
///
/// ```
/// use starlings_learn::{Task, metrics};
/// let found = metrics::evaluate(Task::Regression, &[1.0, 4.0], 1, &[1.0, 2.0]);
/// assert_eq!(found["mae"], 1.0);
/// ```
#[must_use]
pub fn evaluate(
    task: Task,
    outputs: &[f64],
    width: usize,
    labels: &[f32],
) -> BTreeMap<String, f64> {
    let found = match task {
        Task::Classification => classification(outputs, width, labels),
        Task::Regression | Task::Recommendation => regression(outputs, width, labels),
        Task::Clustering => clustering(outputs, width),
        // Their outputs do not say how good they are: the learner's own grade does.
        Task::Topics | Task::Projection | Task::Anomaly | Task::Ranking => Vec::new(),
        Task::Density => density(outputs, width),
    };
    found.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

fn classification(outputs: &[f64], classes: usize, labels: &[f32]) -> Vec<(&'static str, f64)> {
    if labels.is_empty() || classes < 2 {
        return Vec::new();
    }
    let truths: Vec<usize> = labels.iter().map(|&label| label as usize).collect();
    let guesses: Vec<usize> = outputs.chunks_exact(classes).map(largest).collect();
    let right = truths.iter().zip(&guesses).filter(|(truth, guess)| truth == guess).count();
    let tallies = tally(&truths, &guesses, classes);
    let mut found = vec![
        ("accuracy", right as f64 / truths.len() as f64),
        ("balanced_accuracy", balanced_accuracy(&tallies)),
        ("f1", if classes == 2 { tallies[1].f1() } else { macro_f1(&tallies) }),
        ("log_loss", log_loss(outputs, classes, &truths)),
    ];
    if classes == 2 {
        let scores: Vec<f64> = outputs.chunks_exact(2).map(|row| row[1]).collect();
        found.extend(area_under_curve(&scores, &truths).map(|area| ("auc", area)));
    }
    found
}

/// How often a class was meant, guessed and both.
#[derive(Clone, Copy, Default)]
struct Tally {
    meant: u64,
    guessed: u64,
    hit: u64,
}

impl Tally {
    /// The harmonic mean of precision and recall; 0 when the class was never hit.
    fn f1(self) -> f64 {
        if self.hit == 0 {
            return 0.0;
        }
        2.0 * self.hit as f64 / (self.meant + self.guessed) as f64
    }
}

fn tally(truths: &[usize], guesses: &[usize], classes: usize) -> Vec<Tally> {
    let mut tallies = vec![Tally::default(); classes];
    for (&truth, &guess) in truths.iter().zip(guesses) {
        if let Some(tally) = tallies.get_mut(truth) {
            tally.meant += 1;
            tally.hit += u64::from(truth == guess);
        }
        tallies[guess].guessed += 1;
    }
    tallies
}

/// The mean recall of the classes that occur (Brodersen et al., 2010).
fn balanced_accuracy(tallies: &[Tally]) -> f64 {
    let recalls: Vec<f64> =
        tallies.iter().filter(|t| t.meant > 0).map(|t| t.hit as f64 / t.meant as f64).collect();
    recalls.iter().sum::<f64>() / recalls.len().max(1) as f64
}

/// The mean f1 of the classes that were meant or guessed.
fn macro_f1(tallies: &[Tally]) -> f64 {
    let scores: Vec<f64> =
        tallies.iter().filter(|t| t.meant + t.guessed > 0).map(|t| t.f1()).collect();
    scores.iter().sum::<f64>() / scores.len().max(1) as f64
}

fn log_loss(outputs: &[f64], classes: usize, truths: &[usize]) -> f64 {
    let losses = outputs.chunks_exact(classes).zip(truths).map(|(row, &truth)| {
        let right = row.get(truth).copied().unwrap_or(0.0);
        -right.clamp(PROBABILITY_MIN, 1.0 - PROBABILITY_MIN).ln()
    });
    losses.sum::<f64>() / truths.len() as f64
}

/// The chance that a positive scores above a negative, ties counting half (Hanley and McNeil, 1982):
/// exact, by ranks. None when there is one class only.
fn area_under_curve(scores: &[f64], truths: &[usize]) -> Option<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
    let (mut negatives_below, mut wins) = (0.0, 0.0);
    for tie in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let positives = tie.iter().filter(|&&row| truths[row] == 1).count() as f64;
        let negatives = tie.len() as f64 - positives;
        wins += positives * (negatives_below + 0.5 * negatives);
        negatives_below += negatives;
    }
    let positives = scores.len() as f64 - negatives_below;
    (positives > 0.0 && negatives_below > 0.0).then(|| wins / (positives * negatives_below))
}

fn regression(outputs: &[f64], width: usize, labels: &[f32]) -> Vec<(&'static str, f64)> {
    if labels.is_empty() || width == 0 {
        return Vec::new();
    }
    let rows = labels.len() as f64;
    let mean = labels.iter().map(|&label| f64::from(label)).sum::<f64>() / rows;
    let (mut squares, mut magnitudes, mut spread) = (0.0, 0.0, 0.0);
    for (row, &label) in outputs.chunks_exact(width).zip(labels) {
        let (error, off) = (row[0] - f64::from(label), f64::from(label) - mean);
        squares += error * error;
        magnitudes += error.abs();
        spread += off * off;
    }
    let mut found = vec![("rmse", (squares / rows).sqrt()), ("mae", magnitudes / rows)];
    if spread > 0.0 {
        found.push(("r2", 1.0 - squares / spread));
    }
    found
}

/// Inertia: the sum of squared distances to the nearest centre, the last output of each row.
fn clustering(outputs: &[f64], width: usize) -> Vec<(&'static str, f64)> {
    if width == 0 || outputs.is_empty() {
        return Vec::new();
    }
    vec![("inertia", outputs.chunks_exact(width).map(|row| row[width - 1]).sum())]
}

/// The mean logarithm of the density, the last output of each row.
fn density(outputs: &[f64], width: usize) -> Vec<(&'static str, f64)> {
    if width == 0 || outputs.is_empty() {
        return Vec::new();
    }
    let rows = outputs.len() / width;
    let sum: f64 = outputs.chunks_exact(width).map(|row| row[width - 1]).sum();
    vec![("log_likelihood", sum / rows as f64)]
}

fn largest(row: &[f64]) -> usize {
    let mut best = 0;
    for (class, value) in row.iter().enumerate() {
        if *value > row[best] {
            best = class;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: &BTreeMap<String, f64>, expected: &[(&str, f64)]) {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (name, value) in expected {
            assert!((found[*name] - value).abs() < 1e-12, "{name}: {} {value}", found[*name]);
        }
    }

    /// Made with scikit-learn 1.9.1: `roc_auc_score`, `log_loss`, `f1_score`, `balanced_accuracy_score`,
    /// `accuracy_score` on these very numbers (threshold: the larger probability, class 0 on a tie).
    #[test]
    fn binary_metrics_are_those_of_scikit_learn() {
        let positive = [0.1, 0.4, 0.4, 0.8, 0.9, 0.3, 0.75, 0.5, 0.2, 0.65];
        let labels = [0., 0., 1., 1., 1., 0., 0., 1., 0., 1.];
        let outputs: Vec<f64> = positive.iter().flat_map(|p| [1.0 - p, *p]).collect();
        let found = evaluate(Task::Classification, &outputs, 2, &labels);
        close(&found, &BINARY);
    }

    /// Made with scikit-learn 1.9.1 as above, `average="macro"`.
    #[test]
    fn metrics_of_three_classes_are_those_of_scikit_learn() {
        let outputs = [
            [0.7, 0.2, 0.1],
            [0.1, 0.8, 0.1],
            [0.2, 0.3, 0.5],
            [0.3, 0.4, 0.3],
            [0.6, 0.3, 0.1],
            [0.25, 0.25, 0.5],
            [0.1, 0.2, 0.7],
        ];
        let labels = [0., 1., 2., 0., 0., 1., 2.];
        let found = evaluate(Task::Classification, &outputs.concat(), 3, &labels);
        close(&found, &THREE);
    }

    /// Made with scikit-learn 1.9.1: `root_mean_squared_error`, `mean_absolute_error`, `r2_score`.
    #[test]
    fn regression_metrics_are_those_of_scikit_learn() {
        let found = evaluate(Task::Regression, &[2.5, 0.0, 2.0, 8.0], 1, &[3.0, -0.5, 2.0, 7.0]);
        close(&found, &NUMBERS);
        assert_eq!(
            found,
            evaluate(Task::Recommendation, &[2.5, 0.0, 2.0, 8.0], 1, &[3.0, -0.5, 2.0, 7.0])
        );
    }

    #[test]
    fn inertia_sums_the_squared_distances() {
        let found = evaluate(Task::Clustering, &[0.0, 1.5, 1.0, 2.0], 2, &[]);
        close(&found, &[("inertia", 3.5)]);
    }

    #[test]
    fn undefined_metrics_are_left_out() {
        let one_class = evaluate(Task::Classification, &[0.2, 0.8, 0.6, 0.4], 2, &[1.0, 1.0]);
        assert!(!one_class.contains_key("auc") && one_class.contains_key("accuracy"));
        assert!(!evaluate(Task::Regression, &[1.0, 2.0], 1, &[3.0, 3.0]).contains_key("r2"));
        assert!(evaluate(Task::Classification, &[], 2, &[]).is_empty());
        assert!(evaluate(Task::Topics, &[0.5, 0.5], 2, &[]).is_empty());
    }

    const BINARY: [(&str, f64); 5] = [
        ("accuracy", 0.7),
        ("balanced_accuracy", 0.7),
        ("f1", 0.6666666666666666),
        ("log_loss", 0.49510238912952403),
        ("auc", 0.86),
    ];
    const THREE: [(&str, f64); 4] = [
        ("accuracy", 0.7142857142857143),
        ("balanced_accuracy", 0.7222222222222222),
        ("f1", 0.7000000000000001),
        ("log_loss", 0.6758190584233482),
    ];
    const NUMBERS: [(&str, f64); 3] =
        [("rmse", 0.6123724356957945), ("mae", 0.5), ("r2", 0.9486081370449679)];
}
