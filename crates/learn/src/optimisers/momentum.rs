//! Gradient descent with momentum (Polyak, "Some methods of speeding up the convergence of iteration
//! methods", 1964), in the form of Sutskever et al. (2013) that PyTorch uses: v ← μ·v + g, w ← w − η·v.

use super::Real;
use super::fading::faded;

/// Learning rate and momentum of a step.
#[derive(Clone, Copy, Debug)]
pub struct Momentum {
    /// η.
    pub rate: f64,
    /// μ: how much of the velocity stays.
    pub momentum: f64,
}

/// One step on some weights with their gradient and velocity.
#[inline(always)]
pub fn step<T: Real>(options: Momentum, weights: &mut [T], gradient: &[T], velocity: &mut [T]) {
    let (rate, momentum) = (T::of(options.rate), T::of(options.momentum));
    for ((weight, &slope), speed) in weights.iter_mut().zip(gradient).zip(velocity) {
        *speed = faded(momentum * *speed + slope, T::FAINT);
        *weight -= rate * *speed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2 in float64: `torch.optim.SGD([w], lr=0.1, momentum=0.9)` from w = (1, −2) with
    /// loss (w²·(1, 3)).sum(), five steps.
    #[test]
    fn steps_are_those_of_torch() {
        let mut weights = [1.0, -2.0];
        let mut velocity = [0.0; 2];
        let options = Momentum { rate: 0.1, momentum: 0.9 };
        for _ in 0..5 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            step(options, &mut weights, &gradient, &mut velocity);
        }
        for (weight, expected) in weights.iter().zip(TORCH) {
            assert!((weight - expected).abs() < 1e-14, "{weights:?}");
        }
    }

    const TORCH: [f64; 2] = [-0.58042, 0.4601199999999997];
}
