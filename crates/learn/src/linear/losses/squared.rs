//! Half the squared error (Legendre, 1805; Gauss, 1809): (z − y)²/2.

use super::{RowLoss, Told};

/// Half the squared error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Squared;

impl RowLoss for Squared {
    const BOUNDED: bool = false;

    #[inline(always)]
    fn residuals<const N: usize>(self, scores: &mut [f64], rows: Told<N>) -> f64 {
        let mut sum = 0.0;
        for ((score, label), weight) in scores.iter_mut().zip(rows.labels).zip(rows.weights) {
            let error = *score - label;
            *score = weight * error;
            sum += 0.5 * weight * error * error;
        }
        sum
    }

    #[inline(always)]
    fn bend<const N: usize>(self, _: &[f64], along: &mut [f64], rows: Told<N>) {
        along.iter_mut().zip(rows.weights).for_each(|(along, weight)| *along *= weight);
    }
}
