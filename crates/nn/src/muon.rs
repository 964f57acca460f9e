//! Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024): the momentum of a matrix is made
//! orthogonal before it is taken as the step, so that all its directions are learned alike. Newton–Schulz iterations
//! do it with products alone. The step is scaled by 0.2·√max(rows, columns), which makes it as long as AdamW's (Liu
//! et al., "Muon is scalable for LLM training", 2025), so that one learning rate serves both.

use crate::pass::{numbers, tensor};
use burn_tensor::Tensor;
use starlings_learn::optimisers::Real;
use starlings_learn::optimisers::fading::faded;

/// Constants of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Muon {
    /// η.
    pub(crate) rate: f64,
    /// μ: how much of the momentum stays.
    pub(crate) momentum: f64,
    /// λ: weights decay beside the step.
    pub(crate) decay: f64,
}

/// Newton–Schulz iterations.
const ROUNDS: usize = 5;
/// The quintic that pushes singular values towards one.
const QUINTIC: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// One step on a matrix of `rows` rows with its gradient and velocity (Nesterov's form).
pub(crate) fn step(
    options: Muon,
    rows: usize,
    weights: &mut [f32],
    gradient: &[f32],
    velocity: &mut [f32],
) {
    let momentum = options.momentum as f32;
    let ahead = gradient.iter().zip(velocity.iter_mut()).map(|(&slope, speed)| {
        *speed = faded(momentum * *speed + slope, f32::FAINT);
        slope + momentum * *speed
    });
    let columns = weights.len() / rows.max(1);
    let direction = orthogonal(ahead.collect(), rows, columns);
    let rate = (options.rate * 0.2 * (rows.max(columns) as f64).sqrt()) as f32;
    let kept = (1.0 - options.rate * options.decay).max(0.0) as f32;
    for (weight, towards) in weights.iter_mut().zip(direction) {
        *weight = kept * *weight - rate * towards;
    }
}

/// The matrix with all its singular values near one.
fn orthogonal(matrix: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
    let length = matrix.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let scale = 1.0 / (length + 1e-7);
    let matrix: Tensor<2> = tensor(matrix, [rows, columns]) * scale;
    // Products of the smaller side are cheaper.
    let tall = rows > columns;
    let mut x = if tall { matrix.transpose() } else { matrix };
    let [a, b, c] = QUINTIC;
    for _ in 0..ROUNDS {
        let square = x.clone().matmul(x.clone().transpose());
        let mix = square.clone() * b + square.clone().matmul(square) * c;
        x = x.clone() * a + mix.matmul(x);
    }
    numbers(if tall { x.transpose() } else { x })
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    /// The iteration of the paper does not converge to one: it takes singular values into about 0.7 to 1.2.
    #[test]
    fn the_step_of_a_matrix_is_nearly_orthogonal() {
        let mut rng = Rng::named(5, "muon", &[]);
        for (rows, columns) in [(6, 10), (10, 6), (8, 8)] {
            let matrix: Vec<f32> = (0..rows * columns).map(|_| rng.normal() as f32).collect();
            let o = orthogonal(matrix, rows, columns);
            let (short, long) = (rows.min(columns), rows.max(columns));
            let at = |i: usize, k: usize| match rows <= columns {
                true => f64::from(o[i * columns + k]),
                false => f64::from(o[k * columns + i]),
            };
            for i in 0..short {
                for j in 0..short {
                    let product: f64 = (0..long).map(|k| at(i, k) * at(j, k)).sum();
                    let range = if i == j { 0.35..1.6 } else { -0.45..0.45 };
                    assert!(range.contains(&product), "{rows}×{columns} ({i}, {j}): {product}");
                }
            }
        }
    }

    #[test]
    fn the_step_is_as_long_as_its_rate_says() {
        let (mut weights, mut velocity) = ([0.0; 6], [0.0; 6]);
        let gradient = [3.0, 0.0, 0.0, 0.0, -2.0, 0.0];
        let options = Muon { rate: 0.1, momentum: 0.0, decay: 0.0 };
        step(options, 2, &mut weights, &gradient, &mut velocity);
        let length = 0.1 * 0.2 * 3f32.sqrt();
        assert!((weights[0] + length).abs() < 0.35 * length, "{weights:?}");
        assert!((weights[4] - length).abs() < 0.35 * length, "{weights:?}");
        assert!(weights[1].abs() < 1e-6 && weights[5].abs() < 1e-6);
        assert_eq!(velocity, gradient);
    }

    #[test]
    fn a_velocity_that_decays_becomes_exactly_zero() {
        let (mut weights, mut velocity) = ([0.5, -0.5, 1.0, 2.0], [1.0, -1e-9, 0.0, f32::NAN]);
        let options = Muon { rate: 0.1, momentum: 0.9, decay: 0.0 };
        for _ in 0..700 {
            step(options, 2, &mut weights, &[0.0; 4], &mut velocity);
        }
        assert_eq!(velocity[..3].iter().map(|speed| speed.to_bits()).collect::<Vec<_>>(), [0; 3]);
        assert!(velocity[3].is_nan());
    }
}
