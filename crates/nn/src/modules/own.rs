//! A whole network of a user's own as one stage: which parameters it has, and how they are lent to it for a pass.

use super::learner::OwnNetwork;
use super::{Path, numbers};
use crate::flow::{Flow, Form};
use crate::pass::{Lesson, Pass, device};
use crate::stage::{Care, Parameter, Stage, Start};
use burn_core::module::{ModuleMapper, ModuleVisitor, Param};
use burn_tensor::{Distribution, Tensor};
use starlings_core::{Fault, Result};
use std::collections::{BTreeMap, BTreeSet};
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
    /// Whether it draws random numbers while it learns.
    draws: bool,
}

impl<N: OwnNetwork> Whole<N> {
    /// Looks into a network for rows of so many features and so many outputs.
    ///
    /// # Errors
    /// Numbers that do not learn, unless it says that it has some; another number of outputs.
    pub(super) fn new((features, outputs): (usize, usize)) -> Result<Whole<N>> {
        let device = device();
        let mut look = Look::default();
        let (network, draws) = {
            let _alone = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
            let network = N::build(features, outputs, &device.clone().autodiff());
            network.visit(&mut look);
            let draws = draws(&network, features);
            (network, draws)
        };
        if let Some(name) = look.idle.filter(|_| !N::STATEFUL) {
            return Err(Fault::caller(format!("'{name}' of the network does not learn")).hint(
                "a network with running means (batch normalisation) or frozen parameters says so: `const STATEFUL: bool = true;` in its `OwnNetwork`",
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
        Ok(Whole { network, features, outputs, parameters, names, draws })
    }

    /// Features and outputs.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.features, self.outputs)
    }

    /// The rows of one shard after another, each with masks of its own: what a layer sees besides a row, and what it draws,
    /// depends on shard and step, not on who computes which shards.
    fn by_shard(&self, rows: &Tensor<2>, lesson: &Lesson, pass: &mut Pass<'_>) -> Tensor<2> {
        let (mut outputs, mut moved, mut from) = (Vec::new(), BTreeMap::new(), 0);
        for share in &lesson.shares {
            // Layers of Burn's learn only from rows on a device that does.
            let part = rows.clone().narrow(0, from, share.rows).autodiff();
            from += share.rows;
            // Clones share their running means; a network made to train has its own.
            let lend = &mut Lend { names: &self.names, pass };
            let network = self.network.clone().train().map(lend);
            let seed = lesson.moment.shard_rng("own network", share.shard).next_u64();
            outputs.push(self.alone(seed, || network.forward(part)));
            if N::STATEFUL {
                let count = share.rows as f32;
                let (names, moved, seen) = (&self.names, &mut moved, BTreeSet::new());
                network.valid().visit(&mut Moves { names, pass, count, moved, seen });
            }
        }
        let idle = self.parameters.iter().filter(|parameter| parameter.care == Care::Moved);
        for Parameter { name, .. } in idle {
            pass.tracked.insert(name.clone(), moved.remove(name).unwrap_or_default());
        }
        Tensor::cat(outputs, 0)
    }

    /// Has Burn's generator begin anew, and for itself, where the network draws.
    fn alone<T>(&self, seed: u64, work: impl FnOnce() -> T) -> T {
        let _alone = self.draws.then(|| GENERATOR.lock().unwrap_or_else(PoisonError::into_inner));
        if self.draws {
            device().seed(seed);
        }
        work()
    }
}

/// Whether a network draws while it learns: Burn's generator then stands elsewhere afterwards. Called by who has the
/// generator for itself.
fn draws<N: OwnNetwork>(network: &N, features: usize) -> bool {
    let device = device();
    let next = || numbers(Tensor::<1>::random([8], Distribution::Default, &device));
    device.seed(0);
    drop(network.clone().train().forward(Tensor::zeros([2, features], &device).autodiff()));
    let after = next();
    device.seed(0);
    after != next()
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
        let network = match pass.lesson.clone() {
            Some(lesson) if self.draws || N::STATEFUL => {
                return Flow::Flat(self.by_shard(&input.flat(), &lesson, pass));
            }
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
        if self.names.contains_key(&param.id.val()) {
            return;
        }
        self.names.insert(param.id.val(), name.clone());
        let care = match param.is_require_grad() {
            false => Care::Moved,
            true if D > 1 => Care::Matrix,
            true => Care::Vector,
        };
        if care == Care::Moved {
            self.idle.get_or_insert(name.clone());
        }
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
        let weight = self.pass.weight::<D>(name, shape);
        // Running means are used beside rows that learn.
        Param::initialized(id, if self.pass.lesson.is_some() { weight.autodiff() } else { weight })
    }
}

/// Reads by how much a pass has moved what does not learn, for each of its rows.
struct Moves<'a, 'b> {
    names: &'a BTreeMap<u64, String>,
    pass: &'a Pass<'b>,
    /// How many rows.
    count: f32,
    /// Sums over rows, by name.
    moved: &'a mut BTreeMap<String, Vec<f32>>,
    /// Layers may share what they keep, too.
    seen: BTreeSet<u64>,
}

impl ModuleVisitor for Moves<'_, '_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = &self.names[&param.id.val()];
        let before = self.pass.line(name);
        // What learns is moved by gradients alone.
        if before.is_require_grad() || !self.seen.insert(param.id.val()) {
            return;
        }
        let len = param.dims().iter().product::<usize>();
        let sums = self.moved.entry(name.clone()).or_insert_with(|| vec![0.0; len]);
        let both = numbers(param.base()).into_iter().zip(numbers(before));
        for (sum, (after, before)) in sums.iter_mut().zip(both) {
            *sum += self.count * (after - before);
        }
    }
}
