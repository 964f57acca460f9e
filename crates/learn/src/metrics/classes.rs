//! Metrics of classifiers. Everything but the area under the curve is made of sums over rows.

use super::area::{Curve, Run, areas};
use super::company::Company;
use super::{Named, Rated, calibration};
use starlings_core::{Confusion, Panel, Result};

/// Probabilities are kept this far from 0 and 1 in the log-loss, as scikit-learn does.
const PROBABILITY_MIN: f64 = f64::EPSILON;
/// Up to this many classes the whole table of which were taken for which is summed and shown.
const CONFUSION_CLASSES_MAX: usize = 256;

/// What is summed over all rows, in this order, after three tallies a class.
const LOG_LOSS: usize = 0;
const BRIER: usize = 1;
const UNUSABLE: usize = 2;
const BINS: usize = 3;
const FIXED: usize = BINS + calibration::SUMS;

pub(super) fn measure(
    company: &mut dyn Company,
    rated: &Rated<'_>,
    panel: &mut Panel,
) -> Result<()> {
    let classes = rated.width;
    let sums = company.sum(own_sums(rated))?;
    let (tallies, rest) = sums.split_at(3 * classes);
    let (fixed, confusion) = rest.split_at(FIXED);
    let tallies: Vec<Tally> = tallies.chunks_exact(3).map(Tally::of).collect();
    let weight: f64 = tallies.iter().map(|tally| tally.meant).sum();
    if weight <= 0.0 {
        return Ok(());
    }
    let brier = if classes == 2 { fixed[BRIER] / 2.0 } else { fixed[BRIER] };
    let (calibration, calibration_error) =
        calibration::table(&fixed[BINS..], whose_chance(rated.classes, classes));
    let hit: f64 = tallies.iter().map(|tally| tally.hit).sum();
    let macro_f1 = mean_f1(&tallies, |_| 1.0);
    panel.put(&[
        ("accuracy", hit / weight),
        ("balanced_accuracy", balanced_accuracy(&tallies)),
        ("f1", if classes == 2 { tallies[1].f1() } else { macro_f1 }),
        ("f1_macro", macro_f1),
        ("f1_weighted", mean_f1(&tallies, |tally| tally.meant)),
        ("log_loss", fixed[LOG_LOSS] / weight),
        ("brier", brier / weight),
    ]);
    panel.confusion = (!confusion.is_empty()).then(|| Confusion {
        classes: (0..classes).map(|class| name_of(rated.classes, class)).collect(),
        counts: confusion.chunks_exact(classes).map(<[f64]>::to_vec).collect(),
    });
    // A chance that is no number has no place in an order, nor in a bin.
    if fixed[UNUSABLE] == 0.0 {
        panel.put(&[("calibration_error", calibration_error)]);
        panel.calibration = Some(calibration);
        put_areas(&areas(company, runs(rated))?, panel);
    }
    Ok(())
}

fn own_sums(rated: &Rated<'_>) -> Vec<f64> {
    let classes = rated.width;
    let table = if classes <= CONFUSION_CLASSES_MAX { classes * classes } else { 0 };
    let mut sums = vec![0.0; 3 * classes + FIXED + table];
    let (tallies, rest) = sums.split_at_mut(3 * classes);
    let (fixed, confusion) = rest.split_at_mut(FIXED);
    for (row, truth, weight) in rows(rated) {
        let guess = largest(row);
        tallies[3 * guess + 1] += weight;
        if truth < classes {
            tallies[3 * truth] += weight;
            tallies[3 * truth + 2] += if truth == guess { weight } else { 0.0 };
            if table > 0 {
                confusion[truth * classes + guess] += weight;
            }
        }
        let right = row.get(truth).copied().unwrap_or(0.0);
        let kept = right.clamp(PROBABILITY_MIN, 1.0 - PROBABILITY_MIN);
        fixed[LOG_LOSS] -= weight * kept.ln();
        let others: f64 = row.iter().map(|chance| chance * chance).sum::<f64>() - right * right;
        fixed[BRIER] += weight * (others + (1.0 - right) * (1.0 - right));
        fixed[UNUSABLE] += f64::from(u8::from(row.iter().any(|chance| !chance.is_finite())));
        let (chance, hit) =
            if classes == 2 { (row[1], truth == 1) } else { (row[guess], truth == guess) };
        calibration::add(&mut fixed[BINS..], chance, hit, weight);
    }
    sums
}

/// Each row's chances, its class and its weight.
fn rows<'a>(rated: &'a Rated<'_>) -> impl Iterator<Item = (&'a [f64], usize, f64)> + 'a {
    let labelled = rated.outputs.chunks_exact(rated.width).zip(rated.labels).enumerate();
    labelled.map(|(at, (row, &label))| (row, label as usize, rated.weight(at)))
}

/// The scores of each class against the rest; of two classes only the second's.
fn runs(rated: &Rated<'_>) -> Vec<Vec<Run>> {
    let first = if rated.width == 2 { 1 } else { 0 };
    let of_class = |class: usize| {
        let run = |(row, truth, weight): (&[f64], usize, f64)| {
            let (positive, negative) = if truth == class { (weight, 0.0) } else { (0.0, weight) };
            // Zero and minus zero are one score.
            Run { score: row[class] + 0.0, positive, negative }
        };
        rows(rated).map(run).collect()
    };
    (first..rated.width).map(of_class).collect()
}

/// Of several classes each is set against the rest, and the mean over those that occur counts: of all alike, and by
/// their weight.
fn put_areas(curves: &[Curve], panel: &mut Panel) {
    let found: Vec<(f64, f64)> =
        curves.iter().filter_map(|curve| curve.area.map(|area| (curve.positives, area))).collect();
    if found.is_empty() {
        return;
    }
    let mean = found.iter().map(|(_, area)| area).sum::<f64>() / found.len() as f64;
    panel.put(&[("auc", mean)]);
    if curves.len() > 1 {
        let weight: f64 = found.iter().map(|(weight, _)| weight).sum();
        let weighted = found.iter().map(|(weight, area)| weight * area).sum::<f64>() / weight;
        panel.put(&[("auc_weighted", weighted)]);
    }
}

fn name_of(names: &[String], class: usize) -> String {
    names.get(class).cloned().unwrap_or_else(|| class.to_string())
}

fn whose_chance(names: &[String], classes: usize) -> String {
    match classes {
        2 => name_of(names, 1),
        _ => "the likeliest class".to_string(),
    }
}

/// How much of a class was meant, guessed and both.
#[derive(Clone, Copy, Debug)]
struct Tally {
    meant: f64,
    guessed: f64,
    hit: f64,
}

impl Tally {
    fn of(sums: &[f64]) -> Tally {
        Tally { meant: sums[0], guessed: sums[1], hit: sums[2] }
    }

    /// The harmonic mean of precision and recall; 0 when the class was never hit.
    fn f1(&self) -> f64 {
        if self.hit <= 0.0 { 0.0 } else { 2.0 * self.hit / (self.meant + self.guessed) }
    }
}

/// The mean recall of the classes that occur (Brodersen et al., 2010).
fn balanced_accuracy(tallies: &[Tally]) -> f64 {
    let recalls: Vec<f64> =
        tallies.iter().filter(|t| t.meant > 0.0).map(|t| t.hit / t.meant).collect();
    recalls.iter().sum::<f64>() / recalls.len().max(1) as f64
}

/// The mean f1 of the classes that were meant or guessed, each counting as `counts` says.
fn mean_f1(tallies: &[Tally], counts: impl Fn(&Tally) -> f64) -> f64 {
    let (mut sum, mut weight) = (0.0, 0.0);
    for tally in tallies.iter().filter(|tally| tally.meant + tally.guessed > 0.0) {
        sum += counts(tally) * tally.f1();
        weight += counts(tally);
    }
    if weight > 0.0 { sum / weight } else { 0.0 }
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
