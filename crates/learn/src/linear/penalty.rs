//! Penalties on weights: l1·‖w‖₁ + l2/2·‖w‖², intercepts not counted (Hoerl and Kennard, 1970; Tibshirani, 1996). With
//! units the weights are counted in their features' deviations.

use super::layout::Layout;

/// How weights are penalised.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Penalty {
    pub(crate) l1: f64,
    pub(crate) l2: f64,
}

impl Penalty {
    /// The value for weights in the data's units. `units` has each feature's unit, or is empty.
    pub(crate) fn value(self, layout: Layout, units: &[f64], weights: &[f64]) -> f64 {
        let (mut magnitudes, mut squares) = (0.0, 0.0);
        for (feature, row) in rows(layout, weights) {
            let unit = units.get(feature).copied().unwrap_or(1.0);
            for weight in row {
                magnitudes += (weight * unit).abs();
                squares += (weight * unit).powi(2);
            }
        }
        self.l1 * magnitudes + 0.5 * self.l2 * squares
    }

    /// Adds l2's part of the product of the curvature with `along`; at the weights themselves that is its gradient.
    pub(crate) fn add_curved(self, layout: Layout, units: &[f64], along: &[f64], into: &mut [f64]) {
        if self.l2 == 0.0 {
            return;
        }
        let into = into.chunks_exact_mut(layout.scores);
        for ((feature, row), into) in rows(layout, along).zip(into) {
            let unit = units.get(feature).copied().unwrap_or(1.0);
            into.iter_mut().zip(row).for_each(|(into, a)| *into += self.l2 * unit * unit * a);
        }
    }
}

fn rows(layout: Layout, weights: &[f64]) -> impl Iterator<Item = (usize, &[f64])> {
    weights.chunks_exact(layout.scores.max(1)).take(layout.features).enumerate()
}
