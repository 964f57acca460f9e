//! From counts to logarithms of probabilities, by the formulas of each kind.

use super::{Kind, NEVER};

/// What keeps rare things from being impossible.
#[derive(Clone, Copy, Debug)]
pub(super) struct Smoothing {
    /// Added to every count.
    pub(super) alpha: f64,
    /// Whether frequent classes are likelier.
    pub(super) fit_prior: bool,
    /// The share of the largest variance that is added to all.
    pub(super) variance: f64,
}

/// The logarithm of each class's prior. The complement kind has none: its weights speak of the other classes.
pub(super) fn log_priors(kind: Kind, smoothing: Smoothing, class_weights: &[f64]) -> Vec<f64> {
    let total: f64 = class_weights.iter().sum();
    let uniform = -(class_weights.len() as f64).ln();
    let prior = |&weight: &f64| match kind {
        Kind::Complement { .. } => 0.0,
        // A class without rows has neither means nor variances to be told by.
        Kind::Gaussian if weight == 0.0 => NEVER,
        _ if !smoothing.fit_prior => uniform,
        _ if weight == 0.0 => NEVER,
        _ => (weight / total).ln(),
    };
    class_weights.iter().map(prior).collect()
}

/// What each feature adds to the score of each class: classes × features.
pub(super) fn log_probabilities(
    kind: Kind,
    smoothing: Smoothing,
    class_weights: &[f64],
    counts: &[f64],
) -> Vec<f64> {
    let width = counts.len() / class_weights.len();
    let alpha = smoothing.alpha;
    match kind {
        Kind::Bernoulli { .. } => {
            let rows = counts.chunks_exact(width).zip(class_weights);
            rows.flat_map(|(row, weight)| {
                row.iter().map(move |count| ((count + alpha) / (weight + 2.0 * alpha)).ln())
            })
            .collect()
        }
        Kind::Complement { norm } => complement(counts, width, alpha, norm),
        Kind::Multinomial | Kind::Gaussian => {
            counts.chunks_exact(width).flat_map(|row| shares(row, alpha)).collect()
        }
    }
}

/// The logarithm of each count's share of a row's smoothed counts.
fn shares(row: &[f64], alpha: f64) -> impl Iterator<Item = f64> {
    let total = (row.iter().sum::<f64>() + alpha * row.len() as f64).ln();
    row.iter().map(move |count| (count + alpha).ln() - total)
}

/// What a feature says against all other classes (Rennie et al., 2003, table 4: complement and, with `norm`,
/// weight-normalised).
fn complement(counts: &[f64], width: usize, alpha: f64, norm: bool) -> Vec<f64> {
    let mut all = vec![0.0; width];
    for row in counts.chunks_exact(width) {
        all.iter_mut().zip(row).for_each(|(all, count)| *all += count);
    }
    let mut weights = Vec::with_capacity(counts.len());
    for row in counts.chunks_exact(width) {
        let others: Vec<f64> = all.iter().zip(row).map(|(all, count)| all - count).collect();
        let logs: Vec<f64> = shares(&others, alpha).collect();
        let sum: f64 = logs.iter().sum();
        // With one feature the logarithm of its share is zero, and so is the sum: it says nothing.
        let divide = if norm && sum != 0.0 { sum } else { -1.0 };
        weights.extend(logs.iter().map(|log| log / divide));
    }
    weights
}
