//! The served exchange: a pure machine for one shard of a parameter server (Li et al. 2014). It owns some
//! rows of every tensor, applies what workers push and answers what they pull as soon as the gate allows.
//! Events in, commands out; the shell (`serve.rs`) and the simulator drive the same code.
//!
//! Under a barrier (a gate with lead 0) the contributions of a step are held until all have come, folded in
//! the order of seats and applied once, so that the bits do not depend on who was faster. Otherwise each is
//! applied as it comes.

use starlings_consistency::Gate;
use starlings_core::{Block, Body, Fault, Model, Rows, Seat, Step, Tensor, Update, Values};
use starlings_learn::{Learner, Moment};
use starlings_topology::owned_rows;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which rows of which tensors a pull wants from this shard.
pub type Wanted = BTreeMap<String, WantedRows>;

/// Rows of one tensor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WantedRows {
    /// All that this shard owns.
    Owned,
    /// These, strictly increasing.
    These(Vec<u32>),
}

/// What a worker asks along with a pull.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    /// Answer only when every worker has pushed all steps before this one: a cut.
    pub strict: bool,
    /// The worker was told to stop: choose a step at which all stop.
    pub stop: bool,
    /// A checkpoint is due: choose a step at which all cut.
    pub cut: bool,
}

/// What happens to a shard.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A worker's contribution to the rows of this shard.
    Push {
        /// From whom.
        from: Seat,
        /// The moment of its step.
        moment: Moment,
        /// The contribution, restricted to this shard's rows.
        update: Update,
    },
    /// A worker is about to start a step and wants rows.
    Pull {
        /// From whom.
        from: Seat,
        /// The step it is about to start.
        step: Step,
        /// What it wants.
        wanted: Wanted,
        /// What it asks along with it.
        asks: Asks,
    },
    /// A worker will push no more.
    Finished {
        /// Which.
        from: Seat,
    },
}

/// What a shard wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Answer a pull.
    Answer {
        /// To whom.
        to: Seat,
        /// The step of its pull.
        step: Step,
        /// The rows it wanted, under their tensor's name.
        rows: Vec<Block>,
        /// All workers stop before this step.
        stop_at: Option<u64>,
        /// All workers make a cut before this step.
        cut_at: Option<u64>,
    },
    /// The learner or a worker did something impossible.
    Fail(String),
}

/// One shard.
pub struct Shard {
    learner: Arc<dyn Learner>,
    gate: Arc<dyn Gate>,
    model: Model,
    seat: Seat,
    clocks: Vec<u64>,
    held: BTreeMap<u64, BTreeMap<Seat, (Moment, Update)>>,
    parked: Vec<(Seat, Step, Wanted, Asks)>,
    answered_max: u64,
    stop_at: Option<u64>,
    cut_at: Option<u64>,
    lead_max: u64,
}

impl Shard {
    /// The shard of `seat` in a flock of `world`, starting from `model` at `step`.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        gate: Arc<dyn Gate>,
        model: Model,
        (seat, world): (Seat, u32),
        step: Step,
    ) -> Shard {
        Shard {
            learner,
            gate,
            model,
            seat,
            clocks: vec![step.0; world as usize],
            held: BTreeMap::new(),
            parked: Vec::new(),
            answered_max: step.0,
            stop_at: None,
            cut_at: None,
            lead_max: 0,
        }
    }

    /// Feeds an event.
    pub fn on(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Push { from, moment, update } => {
                if let Err(why) = self.push(from, moment, update) {
                    out.push(Command::Fail(why));
                }
            }
            Event::Pull { from, step, wanted, asks } => {
                self.plan(step, asks);
                self.parked.push((from, step, wanted, asks));
            }
            Event::Finished { from } => self.clocks[from.index()] = u64::MAX,
        }
        self.answer(out);
    }

    /// The model as this shard has it: its own rows are current, the others are not.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The largest lead, in steps, that any worker was allowed over the slowest.
    #[must_use]
    pub fn lead_max(&self) -> u64 {
        self.lead_max
    }

    fn slowest(&self) -> u64 {
        self.clocks.iter().copied().min().unwrap_or(0)
    }

    /// Chooses the step at which all stop or cut: one that nobody has been allowed to start yet.
    fn plan(&mut self, step: Step, asks: Asks) {
        // A cut that all have passed is over.
        if self.cut_at.is_some_and(|at| self.slowest() > at) {
            self.cut_at = None;
        }
        let open = step.0.max(self.answered_max + 1);
        if asks.stop && self.stop_at.is_none() {
            self.stop_at = Some(open);
        }
        if asks.cut && self.cut_at.is_none() {
            self.cut_at = Some(open);
        }
    }

    fn push(&mut self, from: Seat, moment: Moment, update: Update) -> Result<(), String> {
        let step = moment.step.0;
        self.check(from, &update)?;
        if self.gate.lead_max() != Some(0) {
            if self.clocks[from.index()] != step {
                return Err(format!("{from} pushed {} out of turn", moment.step));
            }
            self.clocks[from.index()] = step + 1;
            return self.apply(&update, &moment).map_err(|fault| fault.to_string());
        }
        let held = self.held.entry(step).or_default();
        if held.insert(from, (moment, update)).is_some() {
            return Err(format!("{from} pushed {} twice", moment.step));
        }
        if held.len() == self.clocks.len() {
            self.complete(step)?;
        }
        Ok(())
    }

    /// A learner may trust what it applies: known tensors, their kind of number, and rows that this shard owns.
    fn check(&self, from: Seat, update: &Update) -> Result<(), String> {
        let world = self.clocks.len() as u32;
        for block in &update.blocks {
            let tensor = self.model.get(&block.name);
            let sound = tensor.is_some_and(|tensor| match &block.body {
                Body::Rows(rows) => {
                    let owned = owned_rows(self.seat, tensor.rows() as u32, world);
                    rows.total as usize == tensor.rows()
                        && rows.values.kind() == tensor.values.kind()
                        && rows.is_sound()
                        && rows.index.iter().all(|row| owned.contains(row))
                }
                Body::Dense(_) => false,
            });
            if !sound {
                return Err(format!(
                    "{from} pushed rows of '{}' that are not of this shard",
                    block.name
                ));
            }
        }
        Ok(())
    }

    /// All contributions of a step are here: fold them in the order of seats and apply the sum.
    fn complete(&mut self, step: u64) -> Result<(), String> {
        let mut sum: Option<Update> = None;
        let mut moment = None;
        for (at, update) in self.held.remove(&step).unwrap_or_default().into_values() {
            moment = Some(at);
            match &mut sum {
                None => sum = Some(update),
                Some(sum) => sum.fold(&update).map_err(|error| error.to_string())?,
            }
        }
        if let (Some(sum), Some(moment)) = (sum, moment) {
            self.apply(&sum, &moment).map_err(|fault| fault.to_string())?;
        }
        self.clocks.iter_mut().for_each(|clock| *clock = step + 1);
        Ok(())
    }

    fn apply(&mut self, update: &Update, moment: &Moment) -> Result<(), Fault> {
        self.learner.apply(&mut self.model, update, moment).map(|_| ())
    }

    /// Answers every parked pull that the gate admits by now.
    fn answer(&mut self, out: &mut Vec<Command>) {
        let slowest = self.slowest();
        let (gate, mut kept) = (self.gate.clone(), Vec::new());
        for (to, step, wanted, asks) in std::mem::take(&mut self.parked) {
            let admitted = if asks.strict { slowest >= step.0 } else { gate.fresh(step, slowest) };
            if !admitted {
                kept.push((to, step, wanted, asks));
                continue;
            }
            self.answered_max = self.answered_max.max(step.0);
            self.lead_max = self.lead_max.max(step.0.saturating_sub(slowest));
            match self.rows(&wanted) {
                Ok(rows) => {
                    let (stop_at, cut_at) = (self.stop_at, self.cut_at);
                    out.push(Command::Answer { to, step, rows, stop_at, cut_at });
                }
                Err(why) => out.push(Command::Fail(format!("{to} {why}"))),
            }
        }
        self.parked = kept;
    }

    fn rows(&self, wanted: &Wanted) -> Result<Vec<Block>, String> {
        let world = self.clocks.len() as u32;
        wanted
            .iter()
            .map(|(name, rows)| {
                let tensor =
                    self.model.get(name).ok_or(format!("wants the unknown tensor '{name}'"))?;
                let owned = owned_rows(self.seat, tensor.rows() as u32, world);
                let index: Vec<u32> = match rows {
                    WantedRows::Owned => owned.collect(),
                    WantedRows::These(index) => {
                        if index.iter().any(|row| !owned.contains(row)) {
                            return Err(format!("wants a row of '{name}' from the wrong owner"));
                        }
                        index.clone()
                    }
                };
                Ok(Block { name: name.clone(), body: Body::Rows(pick(tensor, index)) })
            })
            .collect()
    }
}

/// Some rows of a tensor.
#[must_use]
pub fn pick(tensor: &Tensor, index: Vec<u32>) -> Rows {
    fn gather<T: Copy>(from: &[T], index: &[u32], width: usize) -> Vec<T> {
        let mut values = Vec::with_capacity(index.len() * width);
        for &row in index {
            values.extend_from_slice(&from[row as usize * width..(row as usize + 1) * width]);
        }
        values
    }
    let width = tensor.width();
    let values = match &tensor.values {
        Values::F32(from) => Values::F32(gather(from, &index, width)),
        Values::F64(from) => Values::F64(gather(from, &index, width)),
        Values::I64(from) => Values::I64(gather(from, &index, width)),
    };
    Rows { total: tensor.rows() as u32, width: width as u32, index, values }
}

/// Puts rows back into a tensor. False when they are of another table.
#[must_use]
pub fn place(tensor: &mut Tensor, rows: &Rows) -> bool {
    fn scatter<T: Copy>(into: &mut [T], from: &[T], index: &[u32], width: usize) {
        for (at, &row) in index.iter().enumerate() {
            into[row as usize * width..(row as usize + 1) * width]
                .copy_from_slice(&from[at * width..(at + 1) * width]);
        }
    }
    let width = tensor.width();
    if rows.width as usize != width || rows.total as usize != tensor.rows() || !rows.is_sound() {
        return false;
    }
    match (&mut tensor.values, &rows.values) {
        (Values::F32(into), Values::F32(from)) => scatter(into, from, &rows.index, width),
        (Values::F64(into), Values::F64(from)) => scatter(into, from, &rows.index, width),
        (Values::I64(into), Values::I64(from)) => scatter(into, from, &rows.index, width),
        _ => return false,
    }
    true
}
