//! The weights of a module as a block, and a block as its weights: all floats, running means among them, in the order in
//! which they are declared.

use super::{like, numbers};
use burn_core::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn_tensor::Tensor;
use starlings_core::{Block, Body, Fault, Result, Values};

const NAME: &str = "weights";

/// All weights of a module.
#[must_use]
pub fn weights<M: Module>(module: &M) -> Block {
    let mut read = Read(Vec::new());
    module.visit(&mut read);
    Block { name: NAME.to_string(), body: Body::Dense(Values::F32(read.0)) }
}

/// The module with other weights.
///
/// # Errors
/// A block that does not have as many numbers as the module.
pub fn with_weights<M: Module>(module: M, block: &Block) -> Result<M> {
    let wanted = module.num_params();
    match &block.body {
        Body::Dense(Values::F32(values)) if values.len() == wanted => {
            Ok(module.map(&mut Write(values)))
        }
        _ => Err(Fault::caller(format!("a network of {wanted} weights got others"))
            .hint("every member builds the same network")),
    }
}

struct Read(Vec<f32>);

impl ModuleVisitor for Read {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(numbers(param.base()));
    }
}

/// Hands out what is left, from the front.
struct Write<'a>(&'a [f32]);

impl ModuleMapper for Write<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (mine, rest) = self.0.split_at(param.shape().num_elements());
        self.0 = rest;
        let (learns, tracked) = (param.is_require_grad(), param.is_autodiff());
        let fresh = like(&param, mine.to_vec());
        // A new leaf: it learns if the old one did, and remembers nothing.
        let fresh = if tracked { fresh.autodiff() } else { fresh };
        param.map(|_| if learns { fresh.require_grad() } else { fresh })
    }
}
