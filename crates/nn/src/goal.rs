//! What a network is trained for: the loss of its outputs, and what they mean. Losses are *sums* over rows, each times
//! the row's weight, so that the sums of workers add up; whoever applies them divides.

use crate::learner::append;
use crate::pass::{numbers, tensor};
use burn_tensor::{Tensor, activation};
use starlings_core::{Fault, Result};
use starlings_data::{Batch, LabelNeed, Schema, Table, Target};
use starlings_learn::{Task, refusals};
use std::ops::Range;

/// What outputs are compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Goal {
    /// A class of each row: cross-entropy of the softmax, with a share of the truth spread over all classes (Szegedy et
    /// al., "Rethinking the Inception architecture", 2016).
    Class { smoothing: f64 },
    /// The same, but rows of whose class the network is sure count less: times (1 − chance)² (Lin et al., "Focal loss
    /// for dense object detection", 2017).
    Focal,
    /// A number for each row.
    Number(Apart),
    /// The row itself: mean squared error over its numbers.
    Itself,
    /// At each token of a row the next one, of so many: mean cross-entropy (Bengio et al., "A neural probabilistic
    /// language model", 2003).
    Next { tokens: usize, smoothing: f64 },
    /// At each token of a row its neighbours within a window: mean cross-entropy over all pairs (Mikolov et al., 2013).
    Near { tokens: usize, window: usize },
}

/// How far a number is from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Apart {
    /// The square of the difference.
    Squared,
    /// Its magnitude.
    Absolute,
    /// Half its square up to 1, a line beyond (Huber, "Robust estimation of a location parameter", 1964).
    Huber,
}

impl Apart {
    fn of(self, error: f64) -> f64 {
        match self {
            Apart::Squared => error * error,
            Apart::Absolute => error.abs(),
            Apart::Huber => {
                let near = error.abs().min(1.0);
                near * (error.abs() - 0.5 * near)
            }
        }
    }

    fn tensor(self, errors: Tensor<2>) -> Tensor<2> {
        match self {
            Apart::Squared => errors.square(),
            Apart::Absolute => errors.abs(),
            Apart::Huber => {
                let size = errors.abs();
                let near = size.clone().clamp_max(1.0);
                near.clone() * (size - near * 0.5)
            }
        }
    }
}

/// Sums that [`Goal::tally`] makes: loss and weight of the rows, then what is right, off, squared labels and so on.
pub(crate) const SUMS: usize = 7;

impl Goal {
    /// What kind of answer it gives.
    pub(crate) fn task(self) -> Task {
        match self {
            Goal::Class { .. } | Goal::Focal => Task::Classification,
            Goal::Number(_) => Task::Regression,
            Goal::Itself | Goal::Next { .. } | Goal::Near { .. } => Task::Projection,
        }
    }

    /// What it wants of labels.
    pub(crate) fn label(self) -> LabelNeed {
        match self {
            Goal::Class { .. } | Goal::Focal => LabelNeed::Class,
            Goal::Number(_) => LabelNeed::Number,
            Goal::Itself | Goal::Next { .. } | Goal::Near { .. } => LabelNeed::None,
        }
    }

    /// How many numbers the network must give for a row.
    ///
    /// # Errors
    /// When labels are not such that they could be learned.
    pub(crate) fn outputs(self, schema: &Schema) -> Result<usize> {
        match (self, &schema.target) {
            (Goal::Class { .. } | Goal::Focal, Target::Classes(classes)) if classes.len() > 1 => {
                Ok(classes.len())
            }
            (Goal::Class { .. } | Goal::Focal, _) => {
                Err(Fault::caller("there are fewer than two classes to tell apart")
                    .hint("set [data] label to a column with classes, or task = \"regression\""))
            }
            (Goal::Number(_), Target::Number) => Ok(1),
            (Goal::Number(_), _) => Err(Fault::caller("labels are not numbers")
                .hint("set [data] label to a column of numbers, or task = \"classification\"")),
            (Goal::Itself, _) => Ok(schema.features),
            (Goal::Next { .. } | Goal::Near { .. }, _) if schema.features < 2 => {
                Err(Fault::caller("rows of one token have no other near it"))
            }
            (Goal::Next { tokens, .. } | Goal::Near { tokens, .. }, _) => Ok(tokens),
        }
    }

    /// Refuses rows whose labels cannot be.
    ///
    /// # Errors
    /// The first such row.
    pub(crate) fn check(self, outputs: usize, batch: &Batch<'_>) -> Result<()> {
        match self {
            Goal::Class { .. } | Goal::Focal => refusals::check_classes(outputs, batch),
            Goal::Number(_) => refusals::check_numbers(batch),
            Goal::Itself => Ok(()),
            Goal::Next { tokens, .. } | Goal::Near { tokens, .. } => check_tokens(tokens, batch),
        }
    }

    /// Whether the loss reads the rows themselves.
    pub(crate) fn reads_inputs(self) -> bool {
        matches!(self, Goal::Itself | Goal::Next { .. } | Goal::Near { .. })
    }

    /// The sum over rows of loss times weight, to be differentiated.
    pub(crate) fn loss(self, outputs: Tensor<2>, told: &Told) -> Tensor<1> {
        let [rows, width] = outputs.dims();
        match self {
            Goal::Class { smoothing } => {
                let spread = (smoothing / width as f64) as f32;
                let mut truth = Vec::with_capacity(rows * width);
                for (label, weight) in told.labels.iter().zip(&told.weights) {
                    let from = truth.len();
                    truth.resize(from + width, -weight * spread);
                    truth[from + *label as usize] -= weight * (1.0 - smoothing) as f32;
                }
                (activation::log_softmax(outputs, 1) * tensor(truth, [rows, width])).sum()
            }
            Goal::Focal => {
                let mut truth = vec![0.0; rows * width];
                for (row, (label, weight)) in told.labels.iter().zip(&told.weights).enumerate() {
                    truth[row * width + *label as usize] = -weight;
                }
                let logs = activation::log_softmax(outputs, 1);
                let doubt = (logs.clone().exp().neg() + 1.0).square();
                (logs * doubt * tensor(truth, [rows, width])).sum()
            }
            Goal::Number(apart) => {
                let errors = outputs - tensor(told.labels.clone(), [rows, 1]);
                (apart.tensor(errors) * tensor(told.weights.clone(), [rows, 1])).sum()
            }
            Goal::Itself => {
                let errors = outputs - tensor(told.inputs.clone(), [rows, width]);
                let shares = told.weights.iter().map(|weight| weight / width as f32).collect();
                (errors.square() * tensor(shares, [rows, 1])).sum()
            }
            Goal::Next { tokens, .. } | Goal::Near { tokens, .. } => {
                let steps = width / tokens;
                let truth = self.token_truth(told, steps, 0..tokens);
                let scores = outputs.reshape([rows * steps, tokens]);
                (activation::log_softmax(scores, 1) * tensor(truth, [rows * steps, tokens])).sum()
            }
        }
    }

    /// How many tokens it tells apart at each step, where it does: the vocabulary.
    pub(crate) fn vocabulary(self) -> Option<usize> {
        match self {
            Goal::Next { tokens, .. } | Goal::Near { tokens, .. } => Some(tokens),
            _ => None,
        }
    }

    /// What the logarithms of the chances of some tokens are multiplied by, step after step.
    ///
    /// # Panics
    /// If the goal has no vocabulary.
    pub(crate) fn token_truth(self, told: &Told, steps: usize, some: Range<usize>) -> Vec<f32> {
        match self {
            Goal::Near { window, .. } => near_tokens(told, (steps, some), window),
            Goal::Next { tokens, smoothing } => {
                next_tokens(told, (steps, some), (smoothing, tokens))
            }
            _ => unreachable!("only these two are about tokens"),
        }
    }

    /// Adds rows to the sums that objective and metrics are made of.
    pub(crate) fn tally(self, outputs: Tensor<2>, told: &Told, sums: &mut [f64]) {
        let width = outputs.dims()[1];
        let outputs = numbers(outputs);
        for (row, scores) in outputs.chunks_exact(width).enumerate() {
            let weight = f64::from(told.weights[row]);
            let own = match self {
                Goal::Class { smoothing } => class(scores, told.labels[row] as usize, smoothing),
                Goal::Focal => focal(scores, told.labels[row] as usize),
                Goal::Number(apart) => {
                    number(apart, f64::from(scores[0]), f64::from(told.labels[row]))
                }
                Goal::Itself => itself(scores, &told.inputs[row * width..(row + 1) * width]),
                Goal::Next { tokens, smoothing } => {
                    let steps = width / tokens;
                    next(scores, &told.inputs[row * steps..(row + 1) * steps], smoothing)
                }
                Goal::Near { tokens, window } => {
                    let steps = width / tokens;
                    near(scores, &told.inputs[row * steps..(row + 1) * steps], window)
                }
            };
            sums[0] += weight;
            sums[1..].iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        }
    }

    /// The mean loss, as [`tally`](Goal::tally) saw it.
    pub(crate) fn objective(self, sums: &[f64]) -> f64 {
        sums[1] / sums[0].max(f64::MIN_POSITIVE)
    }

    /// Metrics by the contract's names.
    pub(crate) fn metrics(self, sums: &[f64]) -> Vec<(&'static str, f64)> {
        let mean = |at: usize| sums[at] / sums[0].max(f64::MIN_POSITIVE);
        match self {
            Goal::Class { .. } | Goal::Focal => vec![("accuracy", mean(2)), ("log_loss", mean(3))],
            Goal::Number(_) => {
                let spread = mean(5) - mean(4) * mean(4);
                let mut found = vec![("rmse", mean(2).sqrt()), ("mae", mean(3))];
                if spread > 0.0 {
                    found.push(("r2", 1.0 - mean(2) / spread));
                }
                found
            }
            Goal::Itself => vec![("loss", mean(1))],
            Goal::Next { .. } => {
                vec![("loss", mean(3)), ("perplexity", mean(3).exp()), ("accuracy", mean(2))]
            }
            Goal::Near { .. } => vec![("loss", mean(3)), ("perplexity", mean(3).exp())],
        }
    }

    /// What `predict` gives for rows of outputs.
    pub(crate) fn answer(self, outputs: Tensor<2>) -> Vec<f32> {
        match self {
            Goal::Class { .. } | Goal::Focal => numbers(activation::softmax(outputs, 1)),
            Goal::Number(_) | Goal::Itself => numbers(outputs),
            Goal::Next { tokens, .. } | Goal::Near { tokens, .. } => {
                let width = outputs.dims()[1];
                let last = outputs.narrow(1, width - tokens, tokens);
                numbers(activation::softmax(last, 1))
            }
        }
    }
}

/// Refuses rows with a number that is no token.
///
/// # Errors
/// The first such row, with its feature and the number.
pub(crate) fn check_tokens(tokens: usize, batch: &Batch<'_>) -> Result<()> {
    let whole = |x: f32| x >= 0.0 && x < tokens as f32 && x.fract() == 0.0;
    let what = format!("which is no token: they are whole numbers from 0 to {}", tokens - 1);
    refusals::find_number(batch, &what, whole).map_or(Ok(()), |fault| {
        Err(fault
            .hint("set tokens to how many there are, or leave tokens out if features are numbers"))
    })
}

/// What logarithms of chances are multiplied by: at each step but the last the next token counts, all steps alike.
fn next_tokens(
    told: &Told,
    (steps, some): (usize, Range<usize>),
    (smoothing, tokens): (f64, usize),
) -> Vec<f32> {
    let mut truth = vec![0.0; told.inputs.len() * some.len()];
    for (at, truth) in truth.chunks_exact_mut(some.len()).enumerate() {
        if (at + 1) % steps == 0 {
            continue;
        }
        let weight = told.weights[at / steps] / (steps - 1) as f32;
        truth.fill(-weight * (smoothing / tokens as f64) as f32);
        let next = told.inputs[at + 1] as usize;
        if some.contains(&next) {
            truth[next - some.start] -= weight * (1.0 - smoothing) as f32;
        }
    }
    truth
}

/// The same for neighbours: all pairs of a row count alike.
fn near_tokens(told: &Told, (steps, some): (usize, Range<usize>), window: usize) -> Vec<f32> {
    let mut truth = vec![0.0; told.inputs.len() * some.len()];
    let share = 1.0 / neighbours(steps, window) as f32;
    for (at, truth) in truth.chunks_exact_mut(some.len()).enumerate() {
        let (row, place) = (at / steps, at % steps);
        for other in around(place, steps, window) {
            let token = told.inputs[row * steps + other] as usize;
            if some.contains(&token) {
                truth[token - some.start] -= told.weights[row] * share;
            }
        }
    }
    truth
}

/// The places within a window around one, without it.
fn around(place: usize, steps: usize, window: usize) -> impl Iterator<Item = usize> {
    let range =
        place.saturating_sub(window)..(place.saturating_add(window).saturating_add(1)).min(steps);
    range.filter(move |other| *other != place)
}

/// Pairs of neighbours in a row.
fn neighbours(steps: usize, window: usize) -> usize {
    (0..steps).map(|place| around(place, steps, window).count()).sum()
}

/// What is known of the rows of a pass.
#[derive(Clone, Default, Debug)]
pub(crate) struct Told {
    /// Their features, row after row.
    pub(crate) inputs: Vec<f32>,
    /// Their labels; zeros where there are none.
    pub(crate) labels: Vec<f32>,
    /// How much they count.
    pub(crate) weights: Vec<f32>,
}

impl Told {
    /// What is known of some rows of a table.
    pub(crate) fn of(table: &Table, rows: &[usize]) -> Told {
        let mut told = Told::with_room(rows.len(), table.width());
        rows.iter().for_each(|&row| told.push(table, row, true));
        told
    }

    /// Of no rows yet, with room for so many: growing would copy most of them once more.
    pub(crate) fn with_room(rows: usize, width: usize) -> Told {
        Told {
            inputs: Vec::with_capacity(rows * width),
            labels: Vec::with_capacity(rows),
            weights: Vec::with_capacity(rows),
        }
    }

    /// One row more, with its numbers where they are wanted.
    pub(crate) fn push(&mut self, table: &Table, row: usize, inputs: bool) {
        if inputs {
            append(table.row(row), table.width(), &mut self.inputs);
        }
        self.labels.push(table.labels.get(row).copied().unwrap_or_default());
        self.weights.push(table.weight(row) as f32);
    }
}

/// Loss, whether it is right, and the loss of the label alone.
fn class(scores: &[f32], truth: usize, smoothing: f64) -> [f64; SUMS - 1] {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = scores.iter().map(|&score| f64::from(score - top).exp()).sum();
    let log = |score: f32| f64::from(score - top) - total.ln();
    let plain = -log(scores[truth]);
    let spread: f64 = -scores.iter().map(|&score| log(score)).sum::<f64>() / scores.len() as f64;
    let right = scores.iter().position(|&score| score == top) == Some(truth);
    let right = f64::from(u8::from(right));
    [(1.0 - smoothing) * plain + smoothing * spread, right, plain, 0.0, 0.0, 0.0]
}

/// As [`class`], with the focal loss.
fn focal(scores: &[f32], truth: usize) -> [f64; SUMS - 1] {
    let mut sums = class(scores, truth, 0.0);
    sums[0] *= (1.0 - (-sums[2]).exp()).powi(2);
    sums
}

/// Loss, squared error, error, label and its square.
fn number(apart: Apart, answer: f64, label: f64) -> [f64; SUMS - 1] {
    let error = answer - label;
    [apart.of(error), error * error, error.abs(), label, label * label, 0.0]
}

/// The means of [`class`] over the steps of a row but the last.
fn next(scores: &[f32], inputs: &[f32], smoothing: f64) -> [f64; SUMS - 1] {
    let mut sums = [0.0; SUMS - 1];
    let steps = inputs.len() - 1;
    let tokens = scores.len() / inputs.len();
    for (scores, truth) in scores.chunks_exact(tokens).zip(&inputs[1..]) {
        let own = class(scores, *truth as usize, smoothing);
        sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / steps as f64);
    }
    sums
}

/// The means of [`class`] over all pairs of neighbours.
fn near(scores: &[f32], inputs: &[f32], window: usize) -> [f64; SUMS - 1] {
    let mut sums = [0.0; SUMS - 1];
    let (steps, tokens) = (inputs.len(), scores.len() / inputs.len());
    let pairs = neighbours(steps, window) as f64;
    for (place, scores) in scores.chunks_exact(tokens).enumerate() {
        for other in around(place, steps, window) {
            let own = class(scores, inputs[other] as usize, 0.0);
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own / pairs);
        }
    }
    sums
}

fn itself(scores: &[f32], inputs: &[f32]) -> [f64; SUMS - 1] {
    let squares = scores.iter().zip(inputs).map(|(a, b)| f64::from(a - b).powi(2));
    [squares.sum::<f64>() / scores.len() as f64, 0.0, 0.0, 0.0, 0.0, 0.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2: `cross_entropy(scores, [1, 0], label_smoothing=0.2, reduction="sum")`.
    #[test]
    fn smoothed_labels_cost_what_they_cost_in_torch() {
        const TORCH: f64 = 2.007_061_481_475_83;
        let goal = Goal::Class { smoothing: 0.2 };
        let mut told = Told::with_room(2, 0);
        (told.labels, told.weights) = (vec![1.0, 0.0], vec![1.0, 1.0]);
        let outputs = tensor(vec![1.0, 2.0, 0.5, 0.2, -0.3, 1.1], [2, 3]);
        let loss = f64::from(goal.loss(outputs.clone(), &told).into_scalar::<f32>());
        assert!((loss - TORCH).abs() < 1e-6, "{loss}");
        let mut sums = vec![0.0; SUMS];
        goal.tally(outputs, &told, &mut sums);
        assert!((goal.objective(&sums) - TORCH / 2.0).abs() < 1e-6, "{sums:?}");
    }
}
