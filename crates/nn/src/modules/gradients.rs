//! The gradients of a module on their way through a sum. Small ones travel together in one block, those that a codec may
//! compress in a block of their own. Each member's are the mean over its rows, and count as much as it has rows; the rows are
//! summed along, so that the result is the mean over the rows of whoever took part, and a member that was lost, or had no
//! rows, is simply not in it. A gradient that nobody had stays away, so that no optimiser lets such a parameter decay.

use super::{Path, like, numbers};
use burn_core::module::{Module, ModuleVisitor, Param};
use burn_optim::GradientsParams;
use burn_tensor::Tensor;
use starlings_core::{Block, Body, Fault, Result, Values};
use std::collections::{BTreeMap, BTreeSet};

/// The small ones, one after another.
const FUSED: &str = "starlings.gradients";
/// How many rows.
const ROWS: &str = "starlings.rows";
/// For each parameter how many members had a gradient.
const HAD: &str = "starlings.had";

/// The gradients of one member. Blocks can be made of them as often as a sum is tried, so that nobody has to keep a copy
/// of these in case that a peer is lost meanwhile.
pub struct Gradients {
    parameters: Vec<Slopes>,
    rows: usize,
}

/// The gradient of one parameter.
struct Slopes {
    /// The name of its block, where it travels by itself.
    alone: Option<String>,
    len: usize,
    /// None where there is no gradient.
    values: Option<Vec<f32>>,
}

impl Gradients {
    /// Takes the gradients of a module, which are the mean over so many rows. Parameters of which `alone` is true travel by
    /// themselves. Numbers that nobody else holds are moved out of their tensors, not copied.
    #[must_use]
    pub fn of<M: Module>(
        module: &M,
        gradients: GradientsParams,
        rows: usize,
        alone: &dyn Fn(&str) -> bool,
    ) -> Gradients {
        let (path, seen, parameters) = (Path::default(), BTreeSet::new(), Vec::new());
        let mut pack = Pack { path, seen, gradients, rows, alone, parameters };
        module.visit(&mut pack);
        Gradients { parameters: pack.parameters, rows }
    }

    /// What is to be summed over all members.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let rows = self.rows as f32;
        let together = self.parameters.iter().filter(|slopes| slopes.alone.is_none());
        let mut fused = Vec::with_capacity(together.map(|slopes| slopes.len).sum());
        let mut blocks = Vec::new();
        for Slopes { alone, len, values } in &self.parameters {
            let add = |into: &mut Vec<f32>| match values {
                Some(values) => into.extend(values.iter().map(|value| value * rows)),
                None => into.resize(into.len() + len, 0.0),
            };
            match alone {
                None => add(&mut fused),
                Some(name) => {
                    let mut single = Vec::with_capacity(*len);
                    add(&mut single);
                    blocks.push(block(name, single));
                }
            }
        }
        let had = |slopes: &Slopes| i64::from(slopes.values.is_some());
        blocks.push(block(FUSED, fused));
        blocks.push(Block::counts(HAD, self.parameters.iter().map(had).collect()));
        blocks.push(Block::dense(ROWS, vec![self.rows as f64]));
        blocks
    }

    /// The mean gradients of a module, from the sum of all members' [blocks](Gradients::blocks).
    ///
    /// # Errors
    /// A sum that is not of this module.
    pub fn mean<M: Module>(sum: Vec<Block>, module: &M) -> Result<GradientsParams> {
        let foreign = || {
            Fault::caller("the sum of gradients is not of this network")
                .hint("every member builds the same network and freezes the same parameters")
        };
        let mut sums: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        let (mut had, mut rows) = (Vec::new(), 0.0);
        for block in sum {
            match block.body {
                Body::Dense(Values::F32(values)) => drop(sums.insert(block.name, values)),
                Body::Dense(Values::I64(values)) => had = values,
                Body::Dense(Values::F64(values)) => rows = values.first().copied().unwrap_or(0.0),
                _ => return Err(foreign()),
            }
        }
        let fused = sums.remove(FUSED).ok_or_else(foreign)?;
        let share = if rows > 0.0 { (1.0 / rows) as f32 } else { 0.0 };
        let (path, seen, at) = (Path::default(), BTreeSet::new(), 0);
        let mean = GradientsParams::new();
        let mut unpack =
            Unpack { path, seen, fused, at, sums, had: had.into_iter(), share, mean, fits: true };
        module.visit(&mut unpack);
        match unpack.fits && unpack.at == unpack.fused.len() {
            true => Ok(unpack.mean),
            false => Err(foreign()),
        }
    }
}

fn block(name: impl Into<String>, values: Vec<f32>) -> Block {
    Block { name: name.into(), body: Body::Dense(Values::F32(values)) }
}

struct Pack<'a> {
    path: Path,
    /// Parameters that two layers share are visited twice.
    seen: BTreeSet<u64>,
    gradients: GradientsParams,
    rows: usize,
    alone: &'a dyn Fn(&str) -> bool,
    parameters: Vec<Slopes>,
}

impl ModuleVisitor for Pack<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() || !self.seen.insert(param.id.val()) {
            return;
        }
        // The mean over no rows is no number.
        let gradient = self.gradients.remove::<D>(param.id).filter(|_| self.rows > 0);
        let name = self.path.name();
        self.parameters.push(Slopes {
            alone: (self.alone)(&name).then_some(name),
            len: param.shape().num_elements(),
            values: gradient.map(numbers),
        });
    }
}

struct Unpack {
    path: Path,
    seen: BTreeSet<u64>,
    fused: Vec<f32>,
    at: usize,
    sums: BTreeMap<String, Vec<f32>>,
    had: std::vec::IntoIter<i64>,
    share: f32,
    mean: GradientsParams,
    fits: bool,
}

impl ModuleVisitor for Unpack {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() || !self.seen.insert(param.id.val()) {
            return;
        }
        let len = param.shape().num_elements();
        let values = match self.sums.remove(&self.path.name()) {
            Some(values) => Some(values),
            None => {
                let from = self.at;
                self.at += len;
                self.fused.get(from..from + len).map(<[f32]>::to_vec)
            }
        };
        let (Some(had), Some(mut values)) = (self.had.next(), values) else {
            self.fits = false;
            return;
        };
        self.fits &= values.len() == len;
        if had > 0 && self.fits {
            values.iter_mut().for_each(|value| *value *= self.share);
            self.mean.register(param.id, like(param, values));
        }
    }
}
