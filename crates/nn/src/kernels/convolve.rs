//! Convolution of Burn's images by the kernel of `convolution.rs`.

use super::composed::{self, ON_FLEX};
use super::convolution::{self, Known};
use super::extension::{Recorded, dims, made, plain, recorded, slice};
use super::geometry::Geometry;
use super::window::Finish;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use burn_tensor::Tensor;
use std::sync::Arc;

/// Where patches of a convolution lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// Points from one patch to the next.
    pub(crate) stride: usize,
    /// Zeros above and below, left and right.
    pub(crate) padding: [usize; 2],
}

/// Convolves images, and finishes what comes out.
pub(crate) fn convolve(
    images: Tensor<4>,
    (weight, bias): (Tensor<4>, Option<Tensor<1>>),
    reach: Reach,
    finish: Finish,
) -> Tensor<4> {
    if !ON_FLEX {
        return composed::convolve(images, (weight, bias), reach, finish);
    }
    let [_, channels, height, width] = images.dims();
    let [outputs, _, tall, broad] = weight.dims();
    let Reach { stride, padding } = reach;
    let input = [channels, height, width];
    let geometry = Geometry { input, outputs, kernel: [tall, broad], stride, padding };
    let how = Convolution { geometry, finish };
    let bias_plain = bias.as_ref().map(plain);
    match (plain(&images), plain(&weight), &bias_plain) {
        (Some(images), Some(weight), None | Some(Some(_))) => {
            let bias = bias_plain.flatten();
            Tensor::from_primitive::<Flex>(how.forward(&images, &weight, bias.as_ref()).0)
        }
        _ => {
            let (images, weight) = (recorded(images), recorded(weight));
            Tensor::from_primitive::<Recorded>(match bias {
                Some(bias) => how.recorded([images, weight, recorded(bias)]),
                None => how.recorded([images, weight]),
            })
        }
    }
}

/// The step back through a convolution: parents are images, weights and perhaps biases.
#[derive(Clone, Copy, Debug)]
struct Convolution {
    geometry: Geometry,
    finish: Finish,
}

/// What the gradients of a convolution are made of.
#[derive(Clone, Debug)]
struct Convolved {
    images: FlexTensor,
    weight: FlexTensor,
    chosen: Arc<Vec<u8>>,
}

impl Convolution {
    /// What comes out, and which place of its window each number is from.
    fn forward(
        self,
        images: &FlexTensor,
        weight: &FlexTensor,
        bias: Option<&FlexTensor>,
    ) -> (FlexTensor, Vec<u8>) {
        let how = (self.geometry, self.finish);
        let output = convolution::forward(how, slice(images), slice(weight), bias.map(slice));
        let ([rows, ..], [height, width]) =
            (dims::<4>(images), self.finish.output(self.geometry.output()));
        let shape = [rows, self.geometry.outputs, height, width];
        (made(output.numbers, shape), output.chosen)
    }

    fn recorded<const N: usize>(self, given: [FloatTensor<Recorded>; N]) -> FloatTensor<Recorded> {
        let nodes = given.each_ref().map(|it| it.node());
        let given = given.map(|it| it.into_primitive().to_contiguous());
        let [images, weight, ..] = &given[..] else { unreachable!("images and weights at least") };
        let (output, chosen) = self.forward(images, weight, given.get(2));
        match self.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(step) => {
                let (images, weight) = (images.clone(), weight.clone());
                step.finish(Convolved { images, weight, chosen: Arc::new(chosen) }, output)
            }
            OpsKind::UnTracked(step) => step.finish(output),
        }
    }
}

impl<const N: usize> Backward<Flex, N> for Convolution {
    type State = Convolved;

    fn backward(self, step: Ops<Convolved, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&step.node).to_contiguous();
        let Convolved { images, weight, chosen } = step.state;
        let known = Known {
            images: slice(&images),
            weight: slice(&weight),
            chosen: &chosen,
            asks_input: step.parents[0].is_some(),
        };
        let how = (self.geometry, self.finish);
        let found = convolution::backward(how, &known, slice(&gradient));
        let own = [
            made(found.input, if known.asks_input { dims(&images) } else { [0; 4] }),
            made(found.weight, dims::<4>(&weight)),
            made(found.bias, [self.geometry.outputs]),
        ];
        for (parent, own) in step.parents.into_iter().zip(own) {
            if let Some(parent) = parent {
                gradients.register::<Flex>(parent.id, own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::{assert_near, leaf};
    use crate::pass::numbers;
    use burn_tensor::Gradients;
    use starlings_core::Rng;

    /// Some convolution: small images of odd sizes, kernels, strides and paddings of all kinds.
    fn drawn(seed: u64) -> (Geometry, Finish) {
        let mut rng = Rng::named(seed, "geometry", &[]);
        let mut up_to = |most: u64| 1 + rng.below(most) as usize;
        let kernel = [up_to(4), up_to(4)];
        let padding = [up_to(3) - 1, up_to(3) - 1];
        // Images may be smaller than the kernel, if zeros around them make up for it.
        let size = |axis: usize, more: usize| {
            kernel[axis].saturating_sub(2 * padding[axis]).max(1) + more - 1
        };
        let input = [up_to(20), size(0, up_to(8)), size(1, up_to(8))];
        let (outputs, stride) = (up_to(70), up_to(3));
        let geometry = Geometry { input, outputs, kernel, stride, padding };
        let most = geometry.output().into_iter().min().unwrap();
        let window = up_to(3).min(most);
        (geometry, Finish { rectifies: up_to(2) == 1, window })
    }

    #[test]
    fn outputs_and_gradients_are_those_of_burn_for_every_geometry() {
        for seed in 0..100 {
            let (geometry, finish) = drawn(seed);
            let name = format!("{geometry:?} {finish:?}");
            let [channels, height, width] = geometry.input;
            let [tall, broad] = geometry.kernel;
            let images = leaf::<4>(seed, [1 + seed as usize % 3, channels, height, width]);
            let weight = leaf::<4>(seed + 100, [geometry.outputs, channels, tall, broad]);
            let bias = (seed % 4 > 0).then(|| leaf::<1>(seed + 200, [geometry.outputs]));
            let reach = Reach { stride: geometry.stride, padding: geometry.padding };
            let given = (weight.clone(), bias.clone());
            let ours = convolve(images.clone(), given.clone(), reach, finish);
            let theirs = composed::convolve(images.clone(), given, reach, finish);
            assert_near(&name, &numbers(ours.clone()), &numbers(theirs.clone()));
            let above = leaf::<4>(seed + 300, ours.dims()).inner().autodiff();
            let back = |output: Tensor<4>| (output * above.clone()).sum().backward();
            let (mut own, mut other) = (back(ours), back(theirs));
            let take = |leaf: &Tensor<4>, from: &mut Gradients| leaf.grad_remove(from).unwrap();
            for leaf in [&images, &weight] {
                let ours = numbers(take(leaf, &mut own));
                assert_near(&name, &ours, &numbers(take(leaf, &mut other)));
            }
            if let Some(bias) = bias {
                let ours = numbers(bias.grad_remove(&mut own).unwrap());
                assert_near(&name, &ours, &numbers(bias.grad_remove(&mut other).unwrap()));
            }
        }
    }

    #[test]
    fn an_image_has_the_same_bits_alone_and_among_others() {
        let (weight, bias) = (leaf::<4>(1, [40, 6, 3, 3]).inner(), leaf::<1>(2, [40]).inner());
        let images = leaf::<4>(3, [5, 6, 9, 9]).inner();
        let reach = Reach { stride: 1, padding: [1, 1] };
        let finish = Finish { rectifies: true, window: 2 };
        let of = |images: Tensor<4>| {
            let given = (weight.clone(), Some(bias.clone()));
            numbers(convolve(images, given, reach, finish))
        };
        let all = of(images.clone());
        let alone = of(images.narrow(0, 3, 1));
        assert_eq!(all[3 * alone.len()..4 * alone.len()], alone);
    }

    #[test]
    fn what_is_no_number_is_not_hidden() {
        let images = crate::pass::tensor(vec![1.0, 2.0, f32::NAN, 3.0], [1, 1, 2, 2]);
        let weight = crate::pass::tensor(vec![1.0], [1, 1, 1, 1]);
        let finish = Finish { rectifies: true, window: 2 };
        let reach = Reach { stride: 1, padding: [0, 0] };
        assert!(numbers(convolve(images, (weight, None), reach, finish))[0].is_nan());
    }
}
