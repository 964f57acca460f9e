//! The shape of a linear model's weights, and the refusal of rows that do not fit it.

use starlings_core::{Fault, Result};
use starlings_data::Batch;

/// The shape of the weights: one row a feature, then perhaps one for the intercept; one column a score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) features: usize,
    pub(crate) scores: usize,
    pub(crate) intercept: bool,
}

impl Layout {
    /// Rows of the weights.
    pub(crate) fn rows(self) -> usize {
        self.features + usize::from(self.intercept)
    }

    /// Numbers in the weights.
    pub(crate) fn len(self) -> usize {
        self.rows() * self.scores
    }

    /// Refuses rows that do not fit the weights.
    pub(crate) fn check(self, batch: &Batch<'_>) -> Result<()> {
        let width = batch.table.width();
        if width == self.features || batch.is_empty() {
            return Ok(());
        }
        Err(Fault::caller(format!("rows have {width} features, the model has {}", self.features))
            .hint("use data with the columns that the model was trained on"))
    }

    /// The weights with one row a score.
    pub(crate) fn transposed(self, weights: &[f64]) -> Vec<f64> {
        let mut columns = vec![0.0; self.len()];
        transpose(weights, self.scores, &mut columns);
        columns
    }
}

/// Writes a matrix whose rows are `width` long as its transpose.
pub(crate) fn transpose(from: &[f64], width: usize, into: &mut [f64]) {
    if width == 0 {
        return;
    }
    let height = from.len() / width;
    for (r, row) in from.chunks_exact(width).enumerate() {
        row.iter().enumerate().for_each(|(c, &value)| into[c * height + r] = value);
    }
}
