//! Maximisation: the components that make the rows, weighed by their chances, most likely. Every replica computes them
//! from the same sums.

use super::shape::Covariance;
use starlings_core::{Fault, Model, Result, Tensor, Update};

/// Moves the components.
pub(super) fn apply(
    covariance: Covariance,
    regularisation: f64,
    model: &mut Model,
    update: &Update,
) -> Result<()> {
    let finite = |block: &starlings_core::Block| block.f64s().iter().all(|x| x.is_finite());
    if !update.blocks.iter().all(finite) || update.f64("weight")[0] <= 0.0 {
        return Err(Fault::caller(
            "gaussian-mixture: the likelihood is not finite, or all rows weigh nothing",
        )
        .hint("scale the features, for example to variance 1, or raise regularisation"));
    }
    let width = model.get("means").map_or(0, Tensor::width);
    // As in scikit-learn: a component without rows keeps a share above nothing.
    let mass: Vec<f64> = update.f64("mass").iter().map(|m| m + 10.0 * f64::EPSILON).collect();
    let total: f64 = mass.iter().sum();
    let shifts: Vec<f64> = update
        .f64("first")
        .chunks_exact(width)
        .zip(&mass)
        .flat_map(|(sums, mass)| sums.iter().map(move |sum| sum / mass))
        .collect();
    let sums = Sums { mass: &mass, shifts: &shifts, second: update.f64("second"), width };
    let covariances = match covariance {
        Covariance::Full => sums.full(regularisation),
        Covariance::Tied => sums.tied(regularisation),
        Covariance::Diagonal => sums.diagonal(regularisation),
        Covariance::Spherical => {
            let variances = sums.diagonal(regularisation);
            let mean = |row: &[f64]| row.iter().sum::<f64>() / width as f64;
            variances.chunks_exact(width).map(mean).collect()
        }
    };
    *model.f64_mut("covariances") = covariances;
    model.f64_mut("means").iter_mut().zip(&shifts).for_each(|(mean, shift)| *mean += shift);
    model.f64_mut("weights").iter_mut().zip(&mass).for_each(|(w, mass)| *w = mass / total);
    covariance.check(model)
}

/// The sums about the old means, and how far the new ones lie from them.
struct Sums<'a> {
    mass: &'a [f64],
    shifts: &'a [f64],
    second: &'a [f64],
    width: usize,
}

impl Sums<'_> {
    /// For each component: the mean product, less what the mean's own shift adds to it.
    fn full(&self, regularisation: f64) -> Vec<f64> {
        let (width, triangle) = (self.width, self.width * (self.width + 1) / 2);
        let mut all = vec![0.0; self.mass.len() * width * width];
        let sums = self.second.chunks_exact(triangle).zip(self.mass);
        let parts = sums.zip(self.shifts.chunks_exact(width));
        for (((sums, mass), shift), matrix) in parts.zip(all.chunks_exact_mut(width * width)) {
            spread(sums, width, matrix, |i, j, sum| sum / mass - shift[i] * shift[j]);
            add_to_diagonal(matrix, width, regularisation);
        }
        all
    }

    fn tied(&self, regularisation: f64) -> Vec<f64> {
        let width = self.width;
        let total: f64 = self.mass.iter().sum();
        let mut matrix = vec![0.0; width * width];
        let shifts = || self.shifts.chunks_exact(width).zip(self.mass);
        spread(self.second, width, &mut matrix, |i, j, sum| {
            let shifted: f64 = shifts().map(|(shift, mass)| mass * shift[i] * shift[j]).sum();
            (sum - shifted) / total
        });
        add_to_diagonal(&mut matrix, width, regularisation);
        matrix
    }

    fn diagonal(&self, regularisation: f64) -> Vec<f64> {
        let pairs = self.second.iter().zip(self.shifts).enumerate();
        let variance = |(at, (sum, shift)): (usize, (&f64, &f64))| {
            (sum / self.mass[at / self.width] - shift * shift).max(0.0) + regularisation
        };
        pairs.map(variance).collect()
    }
}

/// From an upper triangle, row after row, to a whole matrix.
fn spread(
    triangle: &[f64],
    width: usize,
    matrix: &mut [f64],
    cell: impl Fn(usize, usize, f64) -> f64,
) {
    let mut sums = triangle.iter();
    for i in 0..width {
        for j in i..width {
            let value = cell(i, j, *sums.next().expect("a whole triangle"));
            (matrix[i * width + j], matrix[j * width + i]) = (value, value);
        }
    }
}

fn add_to_diagonal(matrix: &mut [f64], width: usize, regularisation: f64) {
    (0..width).for_each(|i| matrix[i * width + i] += regularisation);
}
