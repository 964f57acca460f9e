//! Sums of errors over rows, and the metrics of regression that they make.

/// How many sums.
pub(crate) const SUMS: usize = 4;

/// Errors of answers that are numbers.
pub(crate) struct Errors;

impl Errors {
    /// Adds a row: its error squared and in magnitude, its label and the label squared.
    pub(crate) fn add(sums: &mut [f64], (label, answer, weight): (f64, f64, f64)) {
        let error = answer - label;
        sums[0] += weight * error * error;
        sums[1] += weight * error.abs();
        sums[2] += weight * label;
        sums[3] += weight * label * label;
    }

    /// rmse, mae and, unless all labels are the same, r2.
    pub(crate) fn metrics(sums: &[f64], weight: f64) -> Vec<(&'static str, f64)> {
        let mut found = vec![("rmse", (sums[0] / weight).sqrt()), ("mae", sums[1] / weight)];
        let spread = sums[3] - sums[2] * sums[2] / weight;
        if spread > 1e-12 * sums[3] {
            found.push(("r2", 1.0 - sums[0] / spread));
        }
        found
    }

    /// How many sums.
    pub(crate) const fn sums() -> usize {
        SUMS
    }
}
