//! AdaGrad (Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic
//! optimization", 2011): s ← s + g², w ← w − η·g/(√s + ε). What has seen large gradients moves in small steps, so
//! that stale gradients do little harm (Dean et al., 2012).

/// One step on some weights with their gradient and the sum of squared gradients.
pub(crate) fn step(
    (rate, epsilon): (f64, f64),
    weights: &mut [f64],
    gradient: &[f64],
    squares: &mut [f64],
) {
    for ((weight, slope), square) in weights.iter_mut().zip(gradient).zip(squares) {
        *square += slope * slope;
        *weight -= rate * slope / (square.sqrt() + epsilon);
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
}
