//! What tests of kernels share: numbers drawn by name, and how near two lists of numbers are.

use crate::pass::tensor;
use burn_tensor::Tensor;
use starlings_core::Rng;

/// A tensor of normal numbers whose gradient is asked for.
pub(crate) fn leaf<const D: usize>(seed: u64, shape: [usize; D]) -> Tensor<D> {
    let mut rng = Rng::named(seed, "kernels", &[]);
    let values = (0..shape.iter().product()).map(|_| rng.normal() as f32).collect();
    tensor(values, shape).autodiff().require_grad()
}

/// Asserts that numbers agree but for the order in which they were summed.
pub(crate) fn assert_near(name: &str, found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len(), "{name}");
    let size = wanted.iter().map(|x| x.abs()).fold(1.0, f32::max);
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= 1e-5 * size, "{name}: {found} and {wanted}");
    }
}
