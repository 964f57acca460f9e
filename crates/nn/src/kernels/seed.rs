//! Where a backward pass begins that has a gradient already: a number whose gradient by a tensor is given. Without it a
//! network that is cut into links would multiply and sum its activations at each cut only to get back what it has.

use super::composed::{self, ON_FLEX};
use super::extension::{Recorded, made, plain, recorded, slice};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops, OpsKind};
use burn_flex::{Flex, FlexTensor};
use burn_tensor::Tensor;

/// A number whose gradient by a recorded tensor is the given one. The number itself is zero.
///
/// # Panics
/// If the given gradient is itself recorded: gradients of gradients are nobody's.
pub(crate) fn seed<const D: usize>(by: Tensor<D>, gradient: &Tensor<D>) -> Tensor<1> {
    if !ON_FLEX {
        return composed::seed(by, gradient);
    }
    let gradient = plain(gradient).expect("a gradient is not recorded");
    let by = recorded(by);
    let prepared = Seed.prepare::<NoCheckpointing>([by.node()]);
    let zero = made(vec![0.0], [1]);
    Tensor::from_primitive::<Recorded>(match prepared.compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(gradient, zero),
        OpsKind::UnTracked(step) => step.finish(zero),
    })
}

/// The step back: the given gradient times that of the number.
#[derive(Debug)]
struct Seed;

impl Backward<Flex, 1> for Seed {
    type State = FlexTensor;

    fn backward(self, step: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let factor = gradients.consume::<Flex>(&step.node).to_contiguous();
        assert_eq!(slice(&factor), [1.0], "a backward pass begins here");
        if let [Some(parent)] = step.parents {
            gradients.register::<Flex>(parent.id, step.state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::check::leaf;
    use crate::pass::numbers;

    #[test]
    fn the_gradient_is_the_given_one() {
        let (rows, above) = (leaf::<2>(1, [3, 4]), leaf::<2>(2, [3, 4]).inner());
        let penalty = rows.clone().sum();
        let mut gradients = (seed(rows.clone() * 2.0, &above) + penalty).backward();
        let found = numbers(rows.grad_remove(&mut gradients).unwrap());
        let wanted: Vec<f32> = numbers(above).iter().map(|above| above * 2.0 + 1.0).collect();
        assert_eq!(found, wanted);
    }
}
