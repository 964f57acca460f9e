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

/// Gradients as blocks.
pub struct Gradients {
    /// What is to be summed over all members.
    pub blocks: Vec<Block>,
}

impl Gradients {
    /// Takes the gradients of a module, which are the mean over so many rows. Parameters of which `alone` is true travel by
    /// themselves.
    #[must_use]
    pub fn of<M: Module>(
        module: &M,
        gradients: GradientsParams,
        rows: usize,
        alone: &dyn Fn(&str) -> bool,
    ) -> Gradients {
        let (path, seen) = (Path::default(), BTreeSet::new());
        let (fused, single, had) = (Vec::new(), Vec::new(), Vec::new());
        let mut pack = Pack { path, seen, gradients, rows, alone, fused, single, had };
        module.visit(&mut pack);
        let Pack { fused, single: mut blocks, had, .. } = pack;
        blocks.push(block(FUSED, fused));
        blocks.push(Block::counts(HAD, had));
        blocks.push(Block::dense(ROWS, vec![rows as f64]));
        Gradients { blocks }
    }

    /// The mean, from the sum over all members.
    ///
    /// # Errors
    /// A sum that is not of this module.
    pub fn mean<M: Module>(self, module: &M) -> Result<GradientsParams> {
        let foreign = || {
            Fault::caller("the sum of gradients is not of this network")
                .hint("every member builds the same network and freezes the same parameters")
        };
        let mut sums: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        let (mut had, mut rows) = (Vec::new(), 0.0);
        for block in self.blocks {
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
    fused: Vec<f32>,
    single: Vec<Block>,
    had: Vec<i64>,
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
        self.had.push(i64::from(gradient.is_some()));
        let mut values = gradient.map_or_else(|| vec![0.0; param.shape().num_elements()], numbers);
        let rows = self.rows as f32;
        values.iter_mut().for_each(|value| *value *= rows);
        let name = self.path.name();
        match (self.alone)(&name) {
            true => self.single.push(block(name, values)),
            false => self.fused.append(&mut values),
        }
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
