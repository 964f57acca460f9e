//! Stochastic gradient descent (Robbins and Monro, "A stochastic approximation method", 1951):
//! w ← w − η·g. It has no state.

use super::Real;

/// One step on some weights with their gradient.
#[inline(always)]
pub fn step<T: Real>(rate: f64, weights: &mut [T], gradient: &[T]) {
    let rate = T::of(rate);
    for (weight, &slope) in weights.iter_mut().zip(gradient) {
        *weight -= rate * slope;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On f(w) = a/2·w² the weight shrinks by 1 − ηa each step: w after t steps is (1 − ηa)ᵗ.
    #[test]
    fn a_parabola_is_descended_geometrically() {
        let (curvature, rate) = (0.5, 0.2);
        let mut weights = [1.0];
        for _ in 0..20 {
            let gradient = [curvature * weights[0]];
            step(rate, &mut weights, &gradient);
        }
        assert!((weights[0] - 0.9f64.powi(20)).abs() < 1e-15);
    }
}
