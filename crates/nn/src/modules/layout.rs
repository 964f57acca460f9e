//! What a module's parameters are called and how large they are: what members must agree on before they sum.

use super::Path;
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_tensor::Tensor;
use std::collections::BTreeMap;

/// Rows and columns of every parameter of a module that has both, by its name: the blocks that a codec may compress. The
/// first axis is the rows.
#[must_use]
pub fn shapes<M: Module>(module: &M) -> BTreeMap<String, (usize, usize)> {
    let parameters = listed(module).into_iter().filter(|(_, shape)| shape.len() > 1);
    parameters.map(|(name, shape)| (name, (shape[0], shape[1..].iter().product()))).collect()
}

/// A number that differs, all but surely, where names, shapes or order of parameters do.
#[must_use]
pub fn digest<M: Module>(module: &M) -> u32 {
    let text = format!("{:?}", listed(module));
    // FNV-1a: it guards against slips, not against malice.
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn listed<M: Module>(module: &M) -> Vec<(String, Vec<usize>)> {
    let mut list = List::default();
    module.visit(&mut list);
    list.parameters
}

#[derive(Default)]
struct List {
    path: Path,
    parameters: Vec<(String, Vec<usize>)>,
}

impl ModuleVisitor for List {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.parameters.push((self.path.name(), param.lazy_shape().as_slice().to_vec()));
    }
}
