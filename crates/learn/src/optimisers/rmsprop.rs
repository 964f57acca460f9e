//! RMSProp (Tieleman and Hinton, "Lecture 6.5: divide the gradient by a running average of its recent magnitude",
//! 2012): s ← ρ·s + (1 − ρ)·g², w ← w − η·g/(√s + ε). AdaGrad that forgets, so that steps do not die out.

use super::Real;
use super::fading::{faded, faint_square};

/// Constants of a step.
#[derive(Clone, Copy, Debug)]
pub struct RmsProp {
    /// η.
    pub rate: f64,
    /// ρ: how much of the mean square stays.
    pub keep: f64,
    /// ε: keeps the quotient finite.
    pub epsilon: f64,
}

/// One step on some weights with their gradient and its mean square.
#[inline(always)]
pub fn step<T: Real>(options: RmsProp, weights: &mut [T], gradient: &[T], squares: &mut [T]) {
    let (rate, epsilon) = (T::of(options.rate), T::of(options.epsilon));
    let (keep, fresh) = (T::of(options.keep), T::of(1.0 - options.keep));
    let faint = faint_square(epsilon);
    for ((weight, &slope), square) in weights.iter_mut().zip(gradient).zip(squares) {
        *square = faded(keep * *square + fresh * slope * slope, faint);
        *weight -= rate * slope / (square.root() + epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with torch 2.15.0 in float64: `torch.optim.RMSprop([w], lr=0.01, alpha=0.9, eps=1e-8)` from w = (1, −2)
    /// with loss (w²·(1, 3)).sum(), five steps.
    #[test]
    fn steps_are_those_of_torch() {
        let (mut weights, mut squares) = ([1.0, -2.0], [0.0; 2]);
        let options = RmsProp { rate: 0.01, keep: 0.9, epsilon: 1e-8 };
        for _ in 0..5 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            step(options, &mut weights, &gradient, &mut squares);
        }
        for (weight, expected) in weights.iter().zip(TORCH) {
            assert!((weight - expected).abs() < 1e-14, "{weights:?}");
        }
    }

    const TORCH: [f64; 2] = [0.8955067110103783, -1.8945087771270877];
}
