//! The log-loss of several classes with one score each: ln Σ eᶻ − z of the right class.

use super::{RowLoss, Told};

/// The log-loss of several classes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Softmax;

impl RowLoss for Softmax {
    const BOUNDED: bool = true;

    #[inline(always)]
    fn residuals<const N: usize>(self, scores: &mut [f64], rows: Told<N>) -> f64 {
        let mut total = 0.0;
        for n in 0..N {
            let (truth, weight) = (rows.labels[n] as usize, rows.weights[n]);
            let right = scores[truth * N + n];
            let (largest, sum) = exponentials::<N>(scores, n);
            scores.iter_mut().skip(n).step_by(N).for_each(|score| *score *= weight / sum);
            scores[truth * N + n] -= weight;
            total += weight * (sum.ln() + largest - right);
        }
        total
    }

    #[inline(always)]
    fn bend<const N: usize>(self, scores: &[f64], along: &mut [f64], rows: Told<N>) {
        // (diag p − p pᵀ)·along, with p ∝ eᶻ.
        for n in 0..N {
            let of_row = || scores.iter().skip(n).step_by(N);
            let largest = of_row().copied().fold(f64::NEG_INFINITY, f64::max);
            let (mut sum, mut mean) = (0.0, 0.0);
            for (score, change) in of_row().zip(along.iter().skip(n).step_by(N)) {
                let share = (score - largest).exp();
                sum += share;
                mean += share * change;
            }
            mean /= sum;
            for (score, change) in of_row().zip(along.iter_mut().skip(n).step_by(N)) {
                *change = rows.weights[n] * (score - largest).exp() / sum * (*change - mean);
            }
        }
    }
}

/// Turns a row's scores into powers of e, the largest of which is 1; gives the largest score and their sum.
#[inline(always)]
fn exponentials<const N: usize>(scores: &mut [f64], n: usize) -> (f64, f64) {
    let largest = scores.iter().skip(n).step_by(N).copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for score in scores.iter_mut().skip(n).step_by(N) {
        *score = (*score - largest).exp();
        sum += *score;
    }
    (largest, sum)
}
