//! The largest number of each window of an image, where windows may overlap, and where it was. Windows that lie side by side
//! behind a convolution are done there (`window.rs`).

use super::composed::{self, ON_FLEX};
use super::extension::{Recorded, dims, made, plain, recorded, slice};
use super::window::Finish;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_flex::{Flex, FlexTensor};
use burn_tensor::Tensor;
use std::sync::Arc;

/// The largest number of each window of images. Windows too wide for places to be told are left to Burn.
pub(crate) fn largest(images: Tensor<4>, size: usize, stride: usize) -> Tensor<4> {
    let [_, _, height, width] = images.dims();
    let pool = Pool { input: [height, width], size, stride };
    if !ON_FLEX || size > Finish::WINDOW_MAX {
        return composed::largest(images, size, stride);
    }
    if let Some(images) = plain(&images) {
        return Tensor::from_primitive::<Flex>(pooled(pool, &images).0);
    }
    let images = recorded(images);
    let node = images.node();
    let images = images.into_primitive().to_contiguous();
    let (output, chosen) = pooled(pool, &images);
    let prepared = pool.prepare::<NoCheckpointing>([node]);
    Tensor::from_primitive::<Recorded>(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((dims(&images), Arc::new(chosen)), output),
        OpsKind::UnTracked(step) => step.finish(output),
    })
}

/// Windows of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pool {
    /// Height and width of a channel.
    input: [usize; 2],
    /// Height and width of a window.
    size: usize,
    /// Points from one window to the next.
    stride: usize,
}

impl Pool {
    /// Height and width of what comes out.
    fn output(&self) -> [usize; 2] {
        self.input.map(|size| (size - self.size) / self.stride + 1)
    }
}

fn pooled(pool: Pool, images: &FlexTensor) -> (FlexTensor, Vec<u8>) {
    let [rows, channels, ..] = dims::<4>(images);
    let (numbers, chosen) = forward(pool, slice(images));
    let [height, width] = pool.output();
    (made(numbers, [rows, channels, height, width]), chosen)
}

impl Backward<Flex, 1> for Pool {
    /// The sizes of the images, and places of the largest.
    type State = ([usize; 4], Arc<Vec<u8>>);

    fn backward(self, step: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&step.node).to_contiguous();
        let (shape, chosen) = step.state;
        if let [Some(parent)] = step.parents {
            let input = backward(self, &chosen, slice(&gradient));
            gradients.register::<Flex>(parent.id, made(input, shape));
        }
    }
}

/// The largest number of each window, and its place in it, the first of equals.
fn forward(pool: Pool, images: &[f32]) -> (Vec<f32>, Vec<u8>) {
    let [height, width] = pool.input;
    let [high, wide] = pool.output();
    let len = images.len() / (height * width) * high * wide;
    let (mut numbers, mut chosen) = (Vec::with_capacity(len), Vec::with_capacity(len));
    for image in images.chunks_exact(height * width) {
        for (y, x) in (0..high).flat_map(|y| (0..wide).map(move |x| (y, x))) {
            let first = (y * width + x) * pool.stride;
            let (mut best, mut at) = (image[first], 0);
            for (row, places) in (0..pool.size).zip((0u8..).step_by(pool.size)) {
                let row = &image[first + row * width..][..pool.size];
                for (place, &number) in (places..).zip(row) {
                    // What is no number is taken, so that it is seen.
                    if number > best || number.is_nan() {
                        (best, at) = (number, place);
                    }
                }
            }
            numbers.push(best);
            chosen.push(at);
        }
    }
    (numbers, chosen)
}

/// The gradient of the images from that of the output.
fn backward(pool: Pool, chosen: &[u8], gradient: &[f32]) -> Vec<f32> {
    let [height, width] = pool.input;
    let [high, wide] = pool.output();
    let channels = gradient.len() / (high * wide);
    let mut input = vec![0.0; channels * height * width];
    let each = gradient.chunks_exact(high * wide).zip(chosen.chunks_exact(high * wide));
    for (image, (gradient, chosen)) in input.chunks_exact_mut(height * width).zip(each) {
        for (window, (number, &place)) in gradient.iter().zip(chosen).enumerate() {
            let first = (window / wide * width + window % wide) * pool.stride;
            let place = usize::from(place);
            image[first + place / pool.size * width + place % pool.size] += number;
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_near, leaf};
    use crate::pass::numbers;

    #[test]
    fn outputs_and_gradients_are_those_of_burn_whether_windows_overlap_or_not() {
        for (size, stride, height, width) in
            [(1, 1, 3, 4), (2, 2, 5, 6), (3, 2, 7, 8), (3, 1, 5, 5), (2, 3, 9, 8), (16, 5, 21, 17)]
        {
            let name = format!("{size} every {stride} of {height}×{width}");
            let images = leaf::<4>(7, [2, 3, height, width]);
            let ours = largest(images.clone(), size, stride);
            let theirs = composed::largest(images.clone(), size, stride);
            assert_eq!(numbers(ours.clone()), numbers(theirs.clone()), "{name}");
            let above = leaf::<4>(8, ours.dims()).inner().autodiff();
            let back = |output: Tensor<4>| {
                let mut gradients = (output * above.clone()).sum().backward();
                numbers(images.grad_remove(&mut gradients).unwrap())
            };
            assert_near(&name, &back(ours), &back(theirs));
        }
    }
}
