//! AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019): Adam's step on the gradient of the
//! loss alone; weights decay beside it by η·λ, so that the decay is not divided by the gradient's size.

use super::Real;
use super::adam::{self, Adam, Means};

/// One step on some weights with their gradient. `decay` is λ, times the steps these weights have missed; `count` as
/// for Adam.
#[inline(always)]
pub fn step<T: Real>(
    (options, decay): (Adam, f64),
    count: i64,
    weights: &mut [T],
    gradient: &[T],
    means: Means<'_, T>,
) {
    let kept = T::of((1.0 - options.rate * decay).max(0.0));
    weights.iter_mut().for_each(|weight| *weight *= kept);
    adam::step(options, count, weights, gradient, means);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2.15.0 in float64: `torch.optim.AdamW([w], lr=0.1, weight_decay=0.3)` from w = (1, −2) with
    /// loss (w²·(1, 3)).sum(), five steps.
    #[test]
    fn steps_are_those_of_torch() {
        let options = Adam { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        let (mut weights, mut first, mut second) = ([1.0, -2.0], [0.0; 2], [0.0; 2]);
        for count in 1..=5 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            let means = Means { first: &mut first, second: &mut second };
            step((options, 0.3), count, &mut weights, &gradient, means);
        }
        for (weight, expected) in weights.iter().zip(TORCH) {
            assert!((weight - expected).abs() < 1e-12, "{weights:?}");
        }
    }

    const TORCH: [f64; 2] = [0.39926380734775835, -1.2518651910716239];
}
