//! The same operations composed of Burn's own: what other devices than the CPU compute, and what our kernels are tested
//! against.

use super::convolve::Reach;
use super::window::Finish;
use burn_tensor::ops::{ConvOptions, MaxPoolOptions};
use burn_tensor::{Tensor, activation, module};

pub(super) use crate::device::ON_FLEX;

/// As [`super::convolve`].
pub(super) fn convolve(
    images: Tensor<4>,
    (weight, bias): (Tensor<4>, Option<Tensor<1>>),
    reach: Reach,
    finish: Finish,
) -> Tensor<4> {
    let options = ConvOptions::new([reach.stride; 2], reach.padding, [1, 1], 1);
    let output = module::conv2d(images, weight, bias, options);
    let output = if finish.rectifies { activation::relu(output) } else { output };
    match finish.window {
        1 => output,
        size => largest(output, size, size),
    }
}

/// As [`super::largest`].
pub(super) fn largest(images: Tensor<4>, size: usize, stride: usize) -> Tensor<4> {
    let options = MaxPoolOptions::new([size; 2]).with_stride([stride; 2]);
    module::max_pool2d(images, options)
}

/// As [`super::linear`].
pub(super) fn linear(
    rows: Tensor<2>,
    (weight, bias): (Tensor<2>, Option<Tensor<1>>),
    finish: Finish,
) -> Tensor<2> {
    let output = module::linear(rows, weight, bias);
    if finish.rectifies { activation::relu(output) } else { output }
}

/// As [`super::seed`].
pub(super) fn seed<const D: usize>(by: Tensor<D>, gradient: &Tensor<D>) -> Tensor<1> {
    (by * gradient.clone()).sum()
}
