//! How good a model is: metrics by the contract's names, and the two tables that no single number replaces (which
//! classes are taken for which, and whether chances mean what they say). Plain data, so that a screen, a report and a
//! program read the same.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How good a model is on some rows.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Panel {
    /// Rows.
    pub rows: u64,
    /// Metrics by the contract's names.
    pub metrics: BTreeMap<String, f64>,
    /// Which classes were taken for which, for classifiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
    /// Whether chances mean what they say, for classifiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
}

/// Which classes were taken for which.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Confusion {
    /// The classes, in the order of rows and columns.
    pub classes: Vec<String>,
    /// The rows of a class (first index: what it is) that were taken for a class (second index: what was said), counted
    /// by their weights.
    pub counts: Vec<Vec<f64>>,
}

/// Whether chances mean what they say: of rows that were given a chance of about p, a share of p should be right.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Calibration {
    /// Whose chance it is: the second of two classes; of more classes the likeliest of each row.
    pub of: String,
    /// Ten bins of equal width that hold any rows, from the least chance to the greatest.
    pub bins: Vec<ReliabilityBin>,
}

/// The rows that were given about the same chance.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ReliabilityBin {
    /// Chances above this (the first bin has 0 too).
    pub from: f64,
    /// And up to this.
    pub to: f64,
    /// How many rows, by their weights.
    pub weight: f64,
    /// The mean chance that was given.
    pub predicted: f64,
    /// The share that was right.
    pub observed: f64,
}

/// What cross-validation found.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Validation {
    /// Each metric over the folds.
    pub metrics: BTreeMap<String, Spread>,
    /// What was found on each held-out fold.
    pub folds: Vec<Panel>,
}

/// The mean of some numbers, and how far they spread.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation as of a whole population, as NumPy's `std`.
    pub deviation: f64,
}

impl Validation {
    /// From the panels of all folds. A metric counts where every fold has it.
    #[must_use]
    pub fn of(folds: Vec<Panel>) -> Validation {
        let mut metrics = BTreeMap::new();
        for name in folds.iter().flat_map(|fold| fold.metrics.keys()) {
            let values: Option<Vec<f64>> =
                folds.iter().map(|fold| fold.metrics.get(name).copied()).collect();
            if let Some(values) = values {
                metrics.insert(name.clone(), Spread::of(&values));
            }
        }
        Validation { metrics, folds }
    }
}

impl Spread {
    /// Mean and deviation; of no numbers both are 0.
    #[must_use]
    pub fn of(values: &[f64]) -> Spread {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Spread { mean, deviation: (squares / count).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(accuracy: f64, auc: Option<f64>) -> Panel {
        let auc = auc.map(|auc| ("auc".to_string(), auc));
        let metrics = [("accuracy".to_string(), accuracy)].into_iter().chain(auc).collect();
        Panel { rows: 10, metrics, ..Panel::default() }
    }

    #[test]
    fn a_metric_that_one_fold_lacks_has_no_mean() {
        let found = Validation::of(vec![fold(0.5, Some(0.7)), fold(0.9, None)]);
        assert_eq!(found.metrics.keys().collect::<Vec<_>>(), ["accuracy"]);
        assert!((found.metrics["accuracy"].mean - 0.7).abs() < 1e-15);
        assert!((found.metrics["accuracy"].deviation - 0.2).abs() < 1e-15);
    }
}
