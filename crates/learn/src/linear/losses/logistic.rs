//! The log-loss of two classes with one score z: ln(1 + eᶻ) − y·z (Cox, 1958).

use super::{RowLoss, Told};

/// The log-loss of two classes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Logistic;

impl RowLoss for Logistic {
    const BOUNDED: bool = true;

    #[inline(always)]
    fn residuals<const N: usize>(self, scores: &mut [f64], rows: Told<N>) -> f64 {
        let scores: &mut [f64; N] = scores.try_into().expect("one score a row");
        let (mut sum, mut product) = (0.0, 1.0);
        // Rows of one weight share one logarithm: each factor of the product is at most 2.
        let alike = rows.weights.iter().all(|&weight| weight == rows.weights[0]);
        for ((score, truth), weight) in scores.iter_mut().zip(rows.labels).zip(rows.weights) {
            let z = *score;
            let small = (-z.abs()).exp();
            // ln(1 + eᶻ) = max(z, 0) + ln(1 + e^−|z|), without overflow.
            sum += weight * (z.max(0.0) - truth * z);
            if alike {
                product *= 1.0 + small;
            } else {
                sum += weight * (1.0 + small).ln();
            }
            let quotient = 1.0 / (1.0 + small);
            let probability = if z > 0.0 { quotient } else { small * quotient };
            *score = weight * (probability - truth);
        }
        sum + rows.weights[0] * product.ln()
    }

    #[inline(always)]
    fn bend<const N: usize>(self, scores: &[f64], along: &mut [f64], rows: Told<N>) {
        for n in 0..N {
            let small = (-scores[n].abs()).exp();
            along[n] *= rows.weights[n] * small / ((1.0 + small) * (1.0 + small));
        }
    }
}
