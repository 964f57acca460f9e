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
        for n in 0..N {
            let error = scores[n] - rows.labels[n];
            scores[n] = rows.weights[n] * error;
            sum += 0.5 * scores[n] * error;
        }
        sum
    }

    #[inline(always)]
    fn bend<const N: usize>(self, _: &[f64], along: &mut [f64], rows: Told<N>) {
        for n in 0..N {
            along[n] *= rows.weights[n];
        }
    }
}
