//! A whole network of a user's own as one stage: which parameters it has, and how they are lent to it for a pass.

use super::learner::OwnNetwork;
use super::{Path, numbers};
use crate::flow::{Flow, Form};
use crate::pass::{Pass, device};
use crate::stage::{Care, Parameter, Stage, Start};
use burn_core::module::{ModuleMapper, ModuleVisitor, Param};
use burn_tensor::Tensor;
use starlings_core::{Fault, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Burn has one generator for the whole process: whoever draws from it does so alone.
static GENERATOR: Mutex<()> = Mutex::new(());

/// A network whose weights are lent.
pub(super) struct Whole<N> {
    network: N,
    features: usize,
    outputs: usize,
    parameters: Vec<Parameter>,
    /// The name of each parameter by Burn's id: layers may share one.
    names: BTreeMap<u64, String>,
}

impl<N: OwnNetwork> Whole<N> {
    /// Looks into a network for rows of so many features and so many outputs.
    ///
    /// # Errors
    /// Numbers that do not learn; another number of outputs.
    pub(super) fn new((features, outputs): (usize, usize)) -> Result<Whole<N>> {
        let device = device();
        let mut look = Look::default();
        let network = {
            let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
            let network = N::build(features, outputs, &device.clone().autodiff());
            network.visit(&mut look);
            network
        };
        if let Some(name) = look.idle {
            return Err(Fault::caller(format!("'{name}' of the network does not learn")).hint(
                "in a job every float of a network learns: use group or layer normalisation for batch normalisation, and constants that are no parameters for frozen ones",
            ));
        }
        let rows = network.valid().forward(Tensor::zeros([2, features], &device));
        if rows.dims() != [2, outputs] {
            let [rows, width] = rows.dims();
            return Err(Fault::caller(format!(
                "for 2 rows the network gives {rows} of {width} numbers where 2 of {outputs} are wanted"
            ))
            .hint("its last layer has as many outputs as `build` is told"));
        }
        let Look { parameters, names, .. } = look;
        Ok(Whole { network, features, outputs, parameters, names })
    }

    /// Features and outputs.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.features, self.outputs)
    }
}

impl<N: OwnNetwork> Stage for Arc<Whole<N>> {
    fn output(&self) -> Form {
        Form::Flat(self.outputs)
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn begun(&self, seed: u64) -> Option<Vec<Vec<f32>>> {
        let device = device();
        let mut drawn = Drawn::default();
        let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        device.seed(seed);
        N::build(self.features, self.outputs, &device).visit(&mut drawn);
        let mut values = drawn.values;
        self.parameters.iter().map(|parameter| values.remove(&parameter.name)).collect()
    }

    fn forward(&self, input: Flow, pass: &mut Pass<'_>) -> Flow {
        let network = match pass.lesson {
            Some(_) => self.network.clone(),
            None => self.network.valid(),
        };
        let network = network.map(&mut Lend { names: &self.names, pass });
        Flow::Flat(network.forward(input.flat()))
    }
}

/// Lists the parameters of a network.
#[derive(Default)]
struct Look {
    path: Path,
    parameters: Vec<Parameter>,
    names: BTreeMap<u64, String>,
    /// The first that does not learn.
    idle: Option<String>,
}

impl ModuleVisitor for Look {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = self.path.name();
        if !param.is_require_grad() {
            self.idle.get_or_insert(name);
            return;
        }
        if self.names.contains_key(&param.id.val()) {
            return;
        }
        self.names.insert(param.id.val(), name.clone());
        let care = if D > 1 { Care::Matrix } else { Care::Vector };
        let (shape, start) = (param.dims().to_vec(), Start::Constant(0.0));
        self.parameters.push(Parameter { name, shape, start, care });
    }
}

/// Reads what initialisers have drawn.
#[derive(Default)]
struct Drawn {
    path: Path,
    values: BTreeMap<String, Vec<f32>>,
}

impl ModuleVisitor for Drawn {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.values.insert(self.path.name(), numbers(param.base()));
    }
}

/// Puts the weights of a pass in the place of a network's own.
struct Lend<'a, 'b> {
    names: &'a BTreeMap<u64, String>,
    pass: &'a Pass<'b>,
}

impl ModuleMapper for Lend<'_, '_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = &self.names[&param.id.val()];
        let (id, shape) = (param.id, param.dims());
        Param::initialized(id, self.pass.weight::<D>(name, shape))
    }
}
