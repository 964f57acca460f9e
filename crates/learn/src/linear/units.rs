//! The units in which solvers work: centred features, divided by the square root of their curvature (variance and
//! penalty), and turned so that their correlations go away where those are known. The objective is the same, weights
//! and gradients stay in the units of the data for kernels and for the saved model, and a solver takes a
//! fraction of the iterations where features are large, far from zero or alike.

use super::cholesky;

/// A change of variables: u = Lᵀ·(w·scale), and the intercept as it is at the mean of all features.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Units {
    /// Numbers in a row of the weights.
    pub(crate) width: usize,
    /// Means of features; empty without an intercept, which alone could take them up.
    pub(crate) means: Vec<f64>,
    /// The scale of each feature.
    pub(crate) scales: Vec<f64>,
    /// L, packed; empty when correlations are not known.
    pub(crate) factor: Vec<f64>,
}

impl Units {
    /// From the data's units to the solver's.
    pub(crate) fn enter(&self, weights: &mut [f64]) {
        self.shift(weights, 1.0);
        self.each(weights, |weight, scale| *weight *= scale);
        if !self.factor.is_empty() {
            cholesky::multiply_upper(&self.factor, self.width, self.features(weights));
        }
    }

    /// From the solver's units to the data's.
    pub(crate) fn leave(&self, weights: &mut [f64]) {
        if !self.factor.is_empty() {
            cholesky::solve_upper(&self.factor, self.width, self.features(weights));
        }
        self.each(weights, |weight, scale| *weight /= scale);
        self.shift(weights, -1.0);
    }

    /// The chain rule for a gradient in the data's units.
    pub(crate) fn enter_gradient(&self, gradient: &mut [f64]) {
        let (features, intercept) = gradient.split_at_mut(self.scales.len() * self.width);
        for (row, mean) in features.chunks_exact_mut(self.width).zip(&self.means) {
            row.iter_mut().zip(&*intercept).for_each(|(slope, constant)| *slope -= mean * constant);
        }
        self.each(features, |slope, scale| *slope /= scale);
        if !self.factor.is_empty() {
            cholesky::solve_lower(&self.factor, self.width, features);
        }
    }

    fn features<'a>(&self, weights: &'a mut [f64]) -> &'a mut [f64] {
        &mut weights[..self.scales.len() * self.width]
    }

    /// Moves the intercept by the weights' scores of the mean.
    fn shift(&self, weights: &mut [f64], sign: f64) {
        let (features, intercept) = weights.split_at_mut(self.scales.len() * self.width);
        for (row, mean) in features.chunks_exact(self.width).zip(&self.means) {
            intercept
                .iter_mut()
                .zip(row)
                .for_each(|(constant, weight)| *constant += sign * mean * weight);
        }
    }

    fn each(&self, rows: &mut [f64], change: impl Fn(&mut f64, f64)) {
        for (row, &scale) in rows.chunks_exact_mut(self.width).zip(&self.scales) {
            row.iter_mut().for_each(|value| change(value, scale));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_undoes_entering_and_gradients_obey_the_chain_rule() {
        let units = Units {
            width: 2,
            means: vec![1.0, -2.0],
            scales: vec![0.5, 3.0],
            factor: vec![1.5, 0.4, 0.8],
        };
        let weights = [0.3, 1.0, -0.7, 0.2, 5.0, -1.0];
        let mut there = weights;
        units.enter(&mut there);
        units.leave(&mut there);
        there.iter().zip(weights).for_each(|(a, b)| assert!((a - b).abs() < 1e-14));
        // A linear function g·w has, in the solver's units, the same value at a point that entered.
        let gradient = [0.2, -0.1, 0.9, 0.4, -0.3, 0.8];
        let value: f64 = gradient.iter().zip(weights).map(|(g, w)| g * w).sum();
        let (mut inside, mut slope) = (weights, gradient);
        units.enter(&mut inside);
        units.enter_gradient(&mut slope);
        let same: f64 = slope.iter().zip(inside).map(|(g, w)| g * w).sum();
        assert!((value - same).abs() < 1e-14, "{value} {same}");
    }
}
