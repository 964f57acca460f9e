//! Adam (Kingma and Ba, "Adam: a method for stochastic optimization", 2015, algorithm 1): steps of a size
//! that does not depend on the scale of the gradient, from running means of the gradient and its square.

use super::Real;
use super::fading::{faded, faint_square};

/// Constants of a step, by the paper's names.
#[derive(Clone, Copy, Debug)]
pub struct Adam {
    /// α: the learning rate.
    pub rate: f64,
    /// β₁: how much of the mean gradient stays.
    pub beta1: f64,
    /// β₂: how much of the mean squared gradient stays.
    pub beta2: f64,
    /// ε: keeps the quotient finite.
    pub epsilon: f64,
}

/// The running means of some weights.
pub struct Means<'a, T> {
    /// m: of the gradient.
    pub first: &'a mut [T],
    /// v: of its square.
    pub second: &'a mut [T],
}

/// One step on some weights with their gradient. `count` is the number of steps that these weights have
/// taken, this one included: it undoes the pull of the means towards their start at zero.
#[inline(always)]
pub fn step<T: Real>(
    options: Adam,
    count: i64,
    weights: &mut [T],
    gradient: &[T],
    means: Means<'_, T>,
) {
    let Adam { rate, beta1, beta2, epsilon } = options;
    // Powers from the count and not from a running product: replicas that join later get the same bits.
    let power = |beta: f64| 1.0 - beta.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (correction1, correction2) = (T::of(power(beta1)), T::of(power(beta2)));
    let (rate, epsilon) = (T::of(rate), T::of(epsilon));
    let (keep1, keep2) = (T::of(beta1), T::of(beta2));
    let (fresh1, fresh2) = (T::of(1.0 - beta1), T::of(1.0 - beta2));
    let faint = faint_square(epsilon);
    let moments = means.first.iter_mut().zip(means.second);
    for ((weight, &slope), (first, second)) in weights.iter_mut().zip(gradient).zip(moments) {
        *first = faded(keep1 * *first + fresh1 * slope, T::FAINT);
        *second = faded(keep2 * *second + fresh2 * slope * slope, faint);
        *weight -= rate * (*first / correction1) / ((*second / correction2).root() + epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2 in float64: `torch.optim.Adam([w], lr=0.1)` from w = (1, −2) with loss
    /// (w²·(1, 3)).sum(), after steps 1, 2 and 3.
    #[test]
    fn first_steps_are_those_of_torch() {
        let options = Adam { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 };
        let (mut weights, mut first, mut second) = ([1.0, -2.0], [0.0; 2], [0.0; 2]);
        for (count, expected) in TORCH.iter().enumerate() {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            let means = Means { first: &mut first, second: &mut second };
            step(options, count as i64 + 1, &mut weights, &gradient, means);
            for (weight, expected) in weights.iter().zip(expected) {
                assert!((weight - expected).abs() < 1e-12, "step {count}: {weights:?}");
            }
        }
    }

    const TORCH: [[f64; 2]; 3] = [
        [0.9000000005, -1.9000000000833333],
        [0.8004122286917927, -1.8001664857787731],
        [0.7015862729460302, -1.7006233915360325],
    ];
}
