//! What a covariance is: a whole matrix for each component, one for all, a variance for each feature, or a single one.

use crate::algebra::cholesky::{factor, invert};
use crate::kernels::scatter::padded;
use starlings_core::{Fault, Model, Result, Tensor};

/// The kind of covariance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Covariance {
    /// A matrix for each component.
    Full,
    /// One matrix for all components.
    Tied,
    /// For each component a variance for each feature.
    Diagonal,
    /// For each component one variance.
    Spherical,
}

/// How a component measures rows: ‖(x − mean)·U‖².
pub(super) enum Measure {
    /// U is upper triangular, padded.
    Triangle(Vec<f64>),
    /// U is diagonal: the squares of its numbers.
    Diagonal(Vec<f64>),
}

impl Covariance {
    /// By its name in a job.
    pub(super) fn named(name: &str) -> Covariance {
        match name {
            "tied" => Covariance::Tied,
            "diagonal" => Covariance::Diagonal,
            "spherical" => Covariance::Spherical,
            _ => Covariance::Full,
        }
    }

    /// The shape of the tensor of covariances.
    pub(super) fn shape(self, count: usize, width: usize) -> Vec<usize> {
        match self {
            Covariance::Full => vec![count, width, width],
            Covariance::Tied => vec![width, width],
            Covariance::Diagonal => vec![count, width],
            Covariance::Spherical => vec![count],
        }
    }

    /// Covariances of variance 1.
    pub(super) fn unit(self, count: usize, width: usize) -> Vec<f64> {
        let matrix = |at: usize| f64::from(u8::from(at / width == at % width));
        match self {
            Covariance::Full => (0..count).flat_map(|_| (0..width * width).map(matrix)).collect(),
            Covariance::Tied => (0..width * width).map(matrix).collect(),
            Covariance::Diagonal => vec![1.0; count * width],
            Covariance::Spherical => vec![1.0; count],
        }
    }

    /// Whether the sums of products are matrices.
    pub(super) fn is_matrix(self) -> bool {
        matches!(self, Covariance::Full | Covariance::Tied)
    }

    /// The numbers of the covariance of a component.
    fn of(self, model: &Model, component: usize) -> &[f64] {
        let all = model.f64("covariances");
        let count = model.f64("weights").len();
        match self {
            Covariance::Tied => all,
            _ => &all[component * (all.len() / count)..(component + 1) * (all.len() / count)],
        }
    }

    /// How a component measures, and the logarithm of the determinant of its U; `None` if it is singular.
    pub(super) fn measure(self, model: &Model, component: usize) -> Option<(Measure, f64)> {
        let width = model.get("means").map_or(0, Tensor::width);
        let numbers = self.of(model, component);
        if self.is_matrix() {
            let stride = padded(width);
            let inverse = invert(&factor(numbers, width)?, width);
            let mut upper = vec![0.0; stride * stride];
            for i in 0..width {
                (0..=i).for_each(|j| upper[j * stride + i] = inverse[i * width + j]);
            }
            let determinant = (0..width).map(|i| inverse[i * width + i].ln()).sum();
            return Some((Measure::Triangle(upper), determinant));
        }
        let variance = |feature: usize| numbers[feature % numbers.len()];
        let squares: Vec<f64> = (0..width).map(|feature| 1.0 / variance(feature)).collect();
        let determinant = squares.iter().map(|square| 0.5 * square.ln()).sum::<f64>();
        determinant.is_finite().then_some((Measure::Diagonal(squares), determinant))
    }

    /// Refuses covariances that have no inverse.
    pub(super) fn check(self, model: &Model) -> Result<()> {
        let count = model.f64("weights").len();
        let tried = if self == Covariance::Tied { 1 } else { count };
        match (0..tried).find(|&component| self.measure(model, component).is_none()) {
            None => Ok(()),
            Some(component) => Err(Fault::caller(format!(
                "gaussian-mixture: the covariance of component {component} is singular"
            ))
            .hint(
                "raise regularisation, lower components, or drop features that are sums of others",
            )),
        }
    }
}
