//! Nesterov's accelerated gradient ("A method for solving the convex programming problem with convergence rate
//! O(1/k²)", 1983), in the form of Sutskever et al. (2013) that PyTorch uses: v ← μ·v + g, w ← w − η·(g + μ·v). The
//! step is the one that momentum would take next, corrected before it is taken.

use super::Real;
use super::fading::faded;
use super::momentum::Momentum;

/// One step on some weights with their gradient and velocity.
#[inline(always)]
pub fn step<T: Real>(options: Momentum, weights: &mut [T], gradient: &[T], velocity: &mut [T]) {
    let (rate, momentum) = (T::of(options.rate), T::of(options.momentum));
    for ((weight, &slope), speed) in weights.iter_mut().zip(gradient).zip(velocity) {
        *speed = faded(momentum * *speed + slope, T::FAINT);
        *weight -= rate * (slope + momentum * *speed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2.15.0 in float64: `torch.optim.SGD([w], lr=0.02, momentum=0.9, nesterov=True)` from
    /// w = (1, −2) with loss (w²·(1, 3)).sum(), five steps.
    #[test]
    fn steps_are_those_of_torch() {
        let (mut weights, mut velocity) = ([1.0, -2.0], [0.0; 2]);
        for _ in 0..5 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            step(Momentum { rate: 0.02, momentum: 0.9 }, &mut weights, &gradient, &mut velocity);
        }
        for (weight, expected) in weights.iter().zip(TORCH) {
            assert!((weight - expected).abs() < 1e-14, "{weights:?}");
        }
    }

    const TORCH: [f64; 2] = [0.42928716408422396, 0.42923690809753623];
}
