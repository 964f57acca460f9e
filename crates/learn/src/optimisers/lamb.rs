//! LAMB (You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", 2020, algorithm 2):
//! Adam's direction with decay, r = m̂/(√v̂ + ε) + λ·w, taken for a whole layer at once with a step as long as the
//! layer's weights: w ← w − η·‖w‖/‖r‖·r. A layer whose weights or direction are zero takes a step of length η·‖r‖ (φ = 1).

use super::Real;
use super::adam::{Adam, Means};
use super::fading::{faded, faint_square};

/// One step on a layer's weights with their gradient. `decay` is λ; `count` is the number of steps taken, this one
/// included.
pub fn step<T: Real>(
    (options, decay): (Adam, f64),
    count: i64,
    weights: &mut [T],
    gradient: &[T],
    means: Means<'_, T>,
) {
    let Adam { rate, beta1, beta2, epsilon } = options;
    let power = |beta: f64| 1.0 - beta.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let (correction1, correction2) = (T::of(power(beta1)), T::of(power(beta2)));
    let (epsilon, decay) = (T::of(epsilon), T::of(decay));
    let (keep1, keep2) = (T::of(beta1), T::of(beta2));
    let (fresh1, fresh2) = (T::of(1.0 - beta1), T::of(1.0 - beta2));
    let faint = faint_square(epsilon);
    let moments = means.first.iter_mut().zip(means.second);
    let mut directions = Vec::with_capacity(weights.len());
    for ((&weight, &slope), (first, second)) in weights.iter().zip(gradient).zip(moments) {
        *first = faded(keep1 * *first + fresh1 * slope, T::FAINT);
        *second = faded(keep2 * *second + fresh2 * slope * slope, faint);
        let quotient = (*first / correction1) / ((*second / correction2).root() + epsilon);
        directions.push(quotient + decay * weight);
    }
    let trust = match (length(weights), length(&directions)) {
        (weights, directions) if weights > 0.0 && directions > 0.0 => weights / directions,
        _ => 1.0,
    };
    let rate = T::of(rate * trust);
    weights.iter_mut().zip(&directions).for_each(|(weight, &d)| *weight -= rate * d);
}

fn length<T: Real>(vector: &[T]) -> f64 {
    vector.iter().map(|value| value.wide() * value.wide()).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Adam = Adam { rate: 0.1, beta1: 0.9, beta2: 0.999, epsilon: 1e-6 };

    /// By the paper's formula: the first step's m̂ and v̂ are g and g², so that r = sign(g) + λ·w but for ε.
    #[test]
    fn the_first_step_is_as_long_as_the_weights() {
        let mut weights = [3.0, -4.0];
        let means = Means { first: &mut [0.0; 2], second: &mut [0.0; 2] };
        step((OPTIONS, 0.5), 1, &mut weights, &[2.0, -7.0], means);
        let r: [f64; 2] = [1.0 + 1.5, -1.0 - 2.0];
        let trust = 5.0 / (r[0] * r[0] + r[1] * r[1]).sqrt();
        let expected = [3.0 - 0.1 * trust * r[0], -4.0 - 0.1 * trust * r[1]];
        weights
            .iter()
            .zip(expected)
            .for_each(|(w, e)| assert!((w - e).abs() < 1e-6, "{weights:?}"));
    }

    /// Two steps of algorithm 2 written out in NumPy 2.4.6 from w = (1, −2), loss (w²·(1, 3)).sum(), λ = 0.01.
    #[test]
    fn two_steps_follow_the_algorithm() {
        let (mut weights, mut first, mut second) = ([1.0, -2.0], [0.0; 2], [0.0; 2]);
        for count in 1..=2 {
            let gradient = [2.0 * weights[0], 6.0 * weights[1]];
            let means = Means { first: &mut first, second: &mut second };
            step((OPTIONS, 0.01), count, &mut weights, &gradient, means);
        }
        weights.iter().zip(NUMPY).for_each(|(w, e)| assert!((w - e).abs() < 1e-12, "{weights:?}"));
    }

    const NUMPY: [f64; 2] = [0.7005647007166008, -1.6968709338208912];
}
