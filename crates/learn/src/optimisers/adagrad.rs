//! AdaGrad (Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
//! optimization", 2011): s ← s + g², w ← w − η·g/(√s + ε). What has seen large gradients moves in small steps, so
//! that stale gradients do little harm (Dean et al., 2012).

use super::Real;

/// One step on some weights with their gradient and the sum of squared gradients.
#[inline(always)]
pub fn step<T: Real>(
    (rate, epsilon): (f64, f64),
    weights: &mut [T],
    gradient: &[T],
    squares: &mut [T],
) {
    let (rate, epsilon) = (T::of(rate), T::of(epsilon));
    for ((weight, &slope), square) in weights.iter_mut().zip(gradient).zip(squares) {
        *square += slope * slope;
        *weight -= rate * slope / (square.root() + epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a gradient that never changes the t-th step is η/√t, so t steps add up to η·Σ 1/√k.
    #[test]
    fn steps_shrink_with_the_root_of_their_number() {
        let (mut weights, mut squares) = ([0.0], [0.0]);
        for _ in 0..50 {
            step((0.1, 0.0), &mut weights, &[-3.0], &mut squares);
        }
        let expected: f64 = (1..=50).map(|t| 0.1 / f64::from(t).sqrt()).sum();
        assert!((weights[0] - expected).abs() < 1e-12, "{weights:?}");
    }

    /// Made with torch 2.15.0 in float64: `torch.optim.Adagrad([w], lr=0.1, eps=1e-8)` from w = (1, −2) with loss
    /// (w²·(1, 3)).sum(), five steps.
    #[test]
    fn steps_are_those_of_torch() {
        let (mut weights, mut squares) = ([1.0, -2.0], [0.0; 2]);
        for _ in 0..5 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            step((0.1, 1e-8), &mut weights, &gradient, &mut squares);
        }
        for (weight, expected) in weights.iter().zip(TORCH) {
            assert!((weight - expected).abs() < 1e-13, "{weights:?}");
        }
    }

    const TORCH: [f64; 2] = [0.6977148630909206, -1.686761598311512];
}
