//! Networks that a user wrote with Burn: any `Module`, trained by the user's own loop. What travels are blocks of numbers, and
//! this is how a module's weights and gradients become blocks and come back. Parameters are visited in the order in which the
//! module declares them, which is the same in every process; the ids that Burn gives them are not.

mod gradients;
mod layout;
mod learner;
mod own;
mod weights;

pub use burn_core::module::Module;
pub use burn_optim::GradientsParams;
pub use gradients::Gradients;
pub use layout::{digest, shapes};
pub use learner::{OwnNetwork, own_network};
pub use weights::{weights, with_weights};

use burn_core::module::Param;
use burn_tensor::{DType, Device, Tensor, TensorData};

/// The numbers of a tensor, last axis fastest. Whatever width they have in the network, they travel as f32.
fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().expect("a tensor of floats can be read")
}

/// A tensor like a parameter, with other numbers and no history.
fn like<const D: usize>(param: &Param<Tensor<D>>, values: Vec<f32>) -> Tensor<D> {
    let (shape, dtype): ([usize; D], DType) = (param.dims(), param.dtype());
    let device: Device = param.device().without_autodiff();
    Tensor::from_data(TensorData::new(values, shape), (&device, dtype))
}

/// Where a visitor is: the names of the fields on the way down.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    fn enter(&mut self, name: &str) {
        self.0.push(name.to_string());
    }

    fn exit(&mut self) {
        self.0.pop();
    }

    fn name(&self) -> String {
        self.0.join(".")
    }
}
