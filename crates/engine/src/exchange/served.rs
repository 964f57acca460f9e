//! The served exchange: a pure machine for one shard of a parameter server (Li et al. 2014). It owns some
//! rows of every tensor, applies what workers push and answers what they pull as soon as the gate allows.
//! Events in, commands out; the shell (`serve.rs`) and the simulator drive the same code.
//!
//! Under a barrier (a gate with lead 0) the contributions of a step are held until enough have come (all of
//! them, or the gate's quorum), folded in the order of seats and applied once, so that the bits do not depend
//! on who was faster; those that come later are dropped. Otherwise each is applied as it comes, tempered if
//! the job says so. A gate that `pushes` has fresh rows sent to whoever reads them when the slowest clock advances.
//!
//! Where members may be lost a shard has a backup (`mirror`); under a barrier nobody is shown what it has not.

use super::late::Reads;
use super::mirror::Mirroring;
use super::ownership::Ownership;
use crate::rules::Rule;
use starlings_consistency::{Blending, Gate};
use starlings_core::{Block, Body, Fault, Model, Seat, Step, Update, planted};
use starlings_learn::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use super::pick::{pick, place};

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
    /// The worker was told to stop: choose a step at which all stop.
    pub stop: bool,
    /// A checkpoint is due: choose a step at which all cut.
    pub cut: bool,
    /// Answer only when seat 0 has pushed this many steps: a warm start.
    pub after: u64,
}

/// What happens to a shard.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A worker's contribution to the rows of this shard, or a part of it.
    Push {
        /// From whom.
        from: Seat,
        /// The moment of its step.
        moment: Moment,
        /// The contribution, restricted to this shard's rows.
        update: Update,
        /// Whether this completes the step's contribution.
        last: bool,
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
        /// For a cut: how many steps each seat has pushed before, all of which must be in the answer.
        due: Vec<u64>,
    },
    /// A worker will push no more.
    Finished {
        /// Which.
        from: Seat,
    },
    /// Rows that the owner this shard is the backup of has changed.
    Mirror {
        /// From whom.
        from: Seat,
        /// Steps that are complete with it; without a barrier, which mirror of its owner it is.
        number: u64,
        /// The rows, as they are now.
        rows: Vec<Block>,
    },
    /// The backup has a mirror.
    Mirrored {
        /// From whom.
        from: Seat,
        /// Which.
        number: u64,
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
        /// What all have agreed on, and where the flock is.
        news: News,
    },
    /// Send rows that somebody reads and that have changed, now that the slowest clock has advanced.
    Fresh {
        /// To whom.
        to: Seat,
        /// The rows.
        rows: Vec<Block>,
        /// Where the flock is.
        news: News,
    },
    /// Send rows that have changed to the backup.
    Mirror {
        /// To whom.
        to: Seat,
        /// Which mirror it is.
        number: u64,
        /// The rows.
        rows: Vec<Block>,
    },
    /// Tell an owner that its mirror is here.
    Mirrored {
        /// To whom.
        to: Seat,
        /// Which.
        number: u64,
    },
    /// The learner or a worker did something impossible.
    Fail(String),
}

/// What an answer tells besides rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct News {
    /// All workers stop before this step.
    pub stop_at: Option<u64>,
    /// All workers make a cut before this step.
    pub cut_at: Option<u64>,
    /// The slowest worker's clock: all steps before are in the rows.
    pub slowest: u64,
    /// The clock of the reader itself: all its own steps before are in the rows.
    pub own: u64,
}

/// What a shard is made of.
pub struct Office {
    /// What becomes of a contribution.
    pub rule: Arc<dyn Rule>,
    /// When pulls are answered.
    pub gate: Arc<dyn Gate>,
    /// What happens to late contributions.
    pub blending: Arc<Blending>,
    /// Who owns what.
    pub owners: Arc<Ownership>,
    /// Which seat this shard is of.
    pub seat: Seat,
    /// Who pushes: all seats, or the first of each group.
    pub pushers: Vec<Seat>,
}

/// No step is as large as this: whoever names one is broken.
const STEPS_MAX: u64 = 1 << 62;

/// One shard.
pub struct Shard {
    office: Office,
    model: Model,
    /// Steps each worker has pushed; the largest number for those who push no more.
    clocks: BTreeMap<Seat, u64>,
    /// Steps complete, under a barrier, and how many were when it began.
    complete: u64,
    start: u64,
    mirroring: Option<Mirroring>,
    held: BTreeMap<u64, BTreeMap<Seat, Held>>,
    parked: Vec<Parked>,
    reads: Reads,
    /// Rows that changed since the slowest clock last advanced, where fresh rows are sent.
    changed: BTreeMap<String, BTreeSet<u32>>,
    told: u64,
    answered_max: u64,
    stop_at: Option<u64>,
    cut_at: Option<u64>,
    lead_max: u64,
    dropped: u64,
}

struct Parked {
    to: Seat,
    step: Step,
    wanted: Wanted,
    asks: Asks,
    due: Vec<u64>,
}

struct Held {
    moment: Moment,
    update: Update,
    whole: bool,
}

impl Shard {
    /// A shard that starts from `model` at `step`.
    #[must_use]
    pub fn new(office: Office, model: Model, step: Step) -> Shard {
        let clocks = office.pushers.iter().map(|&seat| (seat, step.0)).collect();
        Shard {
            reads: Reads::new(&office.blending),
            office,
            model,
            clocks,
            complete: step.0,
            start: step.0,
            mirroring: None,
            held: BTreeMap::new(),
            parked: Vec::new(),
            changed: BTreeMap::new(),
            told: step.0,
            answered_max: step.0,
            stop_at: None,
            cut_at: None,
            lead_max: 0,
            dropped: 0,
        }
    }

    /// Workers begin at steps of their own, by seat: there is no barrier.
    ///
    /// # Panics
    /// If a seat that pushes has no step.
    #[must_use]
    pub fn with_clocks(mut self, clocks: &[u64]) -> Shard {
        self.clocks.iter_mut().for_each(|(seat, clock)| *clock = clocks[seat.index()]);
        self.told = self.slowest();
        self.answered_max = self.clocks.values().copied().max().unwrap_or(0);
        self
    }

    /// Has the next seat of a flock of `world` for its backup, and is that of the seat before; alone it has none.
    #[must_use]
    pub fn backed_up(mut self, world: u32) -> Shard {
        let mirroring = || Mirroring::new(self.office.seat, world, (self.start, self.barrier()));
        self.mirroring = (world > 1).then(mirroring);
        self
    }

    /// Feeds an event.
    pub fn on(&mut self, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Push { from, moment, update, last } => {
                if let Err(why) = self.push(from, moment, update, last) {
                    out.push(Command::Fail(why));
                }
            }
            Event::Pull { from, step, .. } if step.0 >= STEPS_MAX => {
                out.push(Command::Fail(format!("{from} wants rows for {step}")));
            }
            Event::Pull { from, step, wanted, asks, due } => {
                self.plan(step, asks);
                self.parked.push(Parked { to: from, step, wanted, asks, due });
            }
            Event::Finished { from } => {
                if let Some(clock) = self.clocks.get_mut(&from) {
                    *clock = u64::MAX;
                }
            }
            Event::Mirror { from, number, rows } => match self.keep((from, number), &rows) {
                Ok(()) => out.push(Command::Mirrored { to: from, number }),
                Err(why) => out.push(Command::Fail(why)),
            },
            Event::Mirrored { from, number } => {
                if let Err(why) = self.acknowledged(from, number) {
                    out.push(Command::Fail(why));
                }
            }
        }
        self.mirror(out);
        if self.shows() {
            self.answer(out);
            self.refresh(out);
        }
    }

    /// The model as this shard has it: its own rows are current, the others are not.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The largest lead, in steps, that any worker had over the slowest.
    #[must_use]
    pub fn lead_max(&self) -> u64 {
        self.lead_max
    }

    /// Contributions that came too late to count.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Which seat it is of.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.office.seat
    }

    /// Steps that are complete, under a barrier.
    #[must_use]
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// Steps that were complete when it began.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Steps of the seat before that are in this shard's copy of its rows, under a barrier.
    #[must_use]
    pub fn kept(&self) -> u64 {
        self.mirroring.as_ref().map_or(self.start, Mirroring::kept)
    }

    /// Who owns what.
    #[must_use]
    pub fn owners(&self) -> &Ownership {
        &self.office.owners
    }

    /// The model with this shard's own rows, and its copies of those of the seat before, as they were when `step` steps
    /// were complete; all others as they were when it began. `None` for a step that is more than one back.
    #[must_use]
    pub fn model_at(&self, step: u64) -> Option<Model> {
        let mut model = self.model.clone();
        let back = match (&self.mirroring, self.barrier()) {
            (Some(mirroring), true) => mirroring.go_back(&mut model, self.complete, step),
            (None, true) => self.complete == step,
            (_, false) => true,
        };
        back.then_some(model)
    }

    fn keep(&mut self, which: (Seat, u64), rows: &[Block]) -> Result<(), String> {
        let owners = self.office.owners.clone();
        let none = || format!("{} sent a mirror to whom none is due", which.0);
        self.mirroring.as_mut().ok_or_else(none)?.keep(&mut self.model, &owners, which, rows)
    }

    fn acknowledged(&mut self, from: Seat, number: u64) -> Result<(), String> {
        let none = || format!("{from} has a mirror, and none is due");
        self.mirroring.as_mut().ok_or_else(none)?.acknowledged(from, number)
    }

    /// Sends the backup what it lacks.
    fn mirror(&mut self, out: &mut Vec<Command>) {
        let Some(mirroring) = &mut self.mirroring else { return };
        if let Some((to, number, rows)) = mirroring.next(&self.model, self.complete) {
            out.push(Command::Mirror { to, number, rows });
        }
    }

    /// Whether the backup has what an answer would show.
    fn shows(&self) -> bool {
        let has = |mirroring: &Mirroring| mirroring.shows(self.complete);
        self.mirroring.as_ref().is_none_or(has) || planted!("shown-before-mirrored")
    }

    fn barrier(&self) -> bool {
        self.office.gate.lead_max() == Some(0)
    }

    /// The slowest worker's clock; under a barrier all clocks are the steps that are complete.
    fn slowest(&self) -> u64 {
        let slowest = self.clocks.values().copied().min().unwrap_or(0);
        if self.barrier() && slowest != u64::MAX { self.complete } else { slowest }
    }

    /// Chooses the step at which all stop or cut: one that nobody has been allowed to start yet.
    fn plan(&mut self, step: Step, asks: Asks) {
        // A cut that all have passed is over.
        if self.cut_at.is_some_and(|at| self.slowest() > at) {
            self.cut_at = None;
        }
        let mut open = step.0.max(self.answered_max + 1);
        if self.office.gate.pushes() {
            // Workers start steps unasked, but none beyond this before it has heard of an advance, and of the plan.
            open = open
                .max(self.slowest().saturating_add(self.office.gate.lead_max().unwrap_or(0) + 1));
        }
        if asks.stop && self.stop_at.is_none() {
            self.stop_at = Some(open);
        }
        if asks.cut && self.cut_at.is_none() {
            self.cut_at = Some(open);
        }
    }

    fn push(
        &mut self,
        from: Seat,
        moment: Moment,
        update: Update,
        last: bool,
    ) -> Result<(), String> {
        self.check(from, &update)?;
        let step = moment.step.0;
        let clock = *self.clocks.get(&from).ok_or(format!("{from} does not push"))?;
        if step >= STEPS_MAX {
            return Err(format!("{from} pushed {}", moment.step));
        }
        if self.barrier() {
            return self.hold(from, moment, update, last);
        }
        if step < clock || clock == u64::MAX {
            return Err(format!("{from} pushed {} out of turn", moment.step));
        }
        if self.office.gate.pushes() {
            // Whoever starts steps unasked shows how far it was ahead when it pushes them.
            self.lead_max = self.lead_max.max(step.saturating_sub(self.slowest()));
        }
        if last {
            self.clocks.insert(from, step + 1);
        }
        let update = self.reads.temper(&self.office, (from, &moment), update, &self.model);
        self.apply(&update, &moment).map_err(|fault| fault.to_string())?;
        self.reads.applied(last);
        Ok(())
    }

    fn hold(
        &mut self,
        from: Seat,
        moment: Moment,
        update: Update,
        last: bool,
    ) -> Result<(), String> {
        let step = moment.step.0;
        let (world, gate) = (self.clocks.len() as u32, self.office.gate.clone());
        let quorum = gate.quorum(world).clamp(1, world) as usize;
        if step < self.complete && quorum < world as usize {
            self.dropped += u64::from(last);
            return Ok(());
        }
        if step < self.complete {
            return Err(format!("{from} pushed {} out of turn", moment.step));
        }
        let held = self.held.entry(step).or_default();
        match held.get_mut(&from) {
            None => {
                held.insert(from, Held { moment, update, whole: last });
            }
            Some(held) if !held.whole => {
                held.update.blocks.extend(update.blocks);
                held.whole = last;
            }
            Some(_) => return Err(format!("{from} pushed {} twice", moment.step)),
        }
        while self.enough(quorum) {
            self.finish_step()?;
        }
        Ok(())
    }

    fn enough(&self, quorum: usize) -> bool {
        let held = self.held.get(&self.complete);
        held.is_some_and(|held| held.values().filter(|held| held.whole).count() >= quorum)
    }

    /// A learner may trust what it applies: known tensors, their kind of number, and rows that this shard owns.
    fn check(&self, from: Seat, update: &Update) -> Result<(), String> {
        for block in &update.blocks {
            let tensor = self.model.get(&block.name);
            let sound = tensor.is_some_and(|tensor| match &block.body {
                Body::Rows(rows) => {
                    let owns = |row| self.office.owners.owns(&block.name, self.office.seat, row);
                    rows.total as usize == tensor.rows()
                        && rows.values.kind() == tensor.values.kind()
                        && rows.is_sound()
                        && rows.index.iter().all(|&row| owns(row))
                }
                Body::Dense(_) | Body::Factors(_) => false,
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

    /// Enough contributions of the next step are here: fold them in the order of seats and apply the sum.
    fn finish_step(&mut self) -> Result<(), String> {
        let held = self.held.remove(&self.complete).unwrap_or_default();
        self.complete += 1;
        let mut sum: Option<Update> = None;
        let mut moment = None;
        // A contribution of which only a part has come is as late as one that has not. It counts as dropped when
        // its last part comes.
        let counts = |held: &Held| held.whole || planted!("half-counts");
        for Held { moment: at, update, .. } in held.into_values().filter(counts) {
            moment = Some(at);
            match &mut sum {
                None => sum = Some(update),
                Some(sum) => sum.fold(&update).map_err(|error| error.to_string())?,
            }
        }
        if let (Some(sum), Some(moment)) = (sum, moment) {
            self.apply(&sum, &moment).map_err(|fault| fault.to_string())?;
        }
        Ok(())
    }

    fn apply(&mut self, update: &Update, moment: &Moment) -> Result<(), Fault> {
        if self.office.gate.pushes() {
            for block in &update.blocks {
                if let Body::Rows(rows) = &block.body {
                    self.changed.entry(block.name.clone()).or_default().extend(&rows.index);
                }
            }
        }
        if let Some(mirroring) = &mut self.mirroring {
            mirroring.before(&self.model, update);
        }
        self.office.rule.apply(&mut self.model, update, moment)
    }

    fn news(&self, to: Seat) -> News {
        let clock = self.clocks.get(&to).copied().unwrap_or(u64::MAX);
        let own = if self.barrier() { self.complete } else { clock };
        News { stop_at: self.stop_at, cut_at: self.cut_at, slowest: self.slowest(), own }
    }

    /// Answers every parked pull that the gate admits by now.
    fn answer(&mut self, out: &mut Vec<Command>) {
        let slowest = self.slowest();
        let gate = self.office.gate.clone();
        let mut kept = Vec::new();
        for parked in std::mem::take(&mut self.parked) {
            if !self.admits(&parked, slowest) {
                kept.push(parked);
                continue;
            }
            let Parked { to, step, wanted, .. } = parked;
            self.answered_max = self.answered_max.max(step.0);
            self.lead_max = self.lead_max.max(step.0.saturating_sub(slowest));
            match self.rows(&wanted) {
                Ok(rows) => {
                    self.reads.read(to, &rows, gate.pushes().then_some(&wanted));
                    out.push(Command::Answer { to, step, rows, news: self.news(to) });
                }
                Err(why) => out.push(Command::Fail(format!("{to} {why}"))),
            }
        }
        self.parked = kept;
    }

    fn admits(&self, parked: &Parked, slowest: u64) -> bool {
        let clock = |seat: usize| {
            let clock = self.clocks.get(&Seat(seat as u32)).copied().unwrap_or(u64::MAX);
            if self.barrier() && clock != u64::MAX { self.complete } else { clock }
        };
        if !parked.due.is_empty() {
            // Under a quorum somebody who is late may have pushed less than the flock has finished.
            return parked.due.iter().enumerate().all(|(seat, &due)| clock(seat) >= due);
        }
        // A flock that stops does not wait until it is warm.
        let warm = clock(0) >= parked.asks.after || self.stop_at.is_some();
        (self.office.gate.fresh(parked.step, slowest) || planted!("gate-open")) && warm
    }

    /// When the slowest clock has advanced, whoever reads rows that have changed gets them unasked.
    fn refresh(&mut self, out: &mut Vec<Command>) {
        let slowest = self.slowest();
        if !self.office.gate.pushes() || slowest <= self.told || slowest == u64::MAX {
            return;
        }
        self.told = slowest;
        let changed = std::mem::take(&mut self.changed);
        let readers: Vec<Seat> = self.clocks.keys().copied().collect();
        for to in readers.into_iter().filter(|seat| self.clocks[seat] != u64::MAX) {
            let rows: Vec<Block> = changed
                .iter()
                .filter_map(|(name, rows)| {
                    let index = self.reads.readable(to, name, rows)?;
                    let picked = pick(self.model.get(name)?, index);
                    Some(Block { name: name.clone(), body: Body::Rows(picked) })
                })
                .collect();
            self.reads.read(to, &rows, None);
            out.push(Command::Fresh { to, rows, news: self.news(to) });
        }
    }

    fn rows(&self, wanted: &Wanted) -> Result<Vec<Block>, String> {
        let (owners, seat) = (&self.office.owners, self.office.seat);
        wanted
            .iter()
            .map(|(name, rows)| {
                let tensor =
                    self.model.get(name).ok_or(format!("wants the unknown tensor '{name}'"))?;
                let index: Vec<u32> = match rows {
                    WantedRows::Owned => owners.rows(name, seat),
                    WantedRows::These(index) => {
                        if !index.is_sorted_by(|a, b| a < b) {
                            return Err(format!("wants rows of '{name}' out of order"));
                        }
                        if index.iter().any(|&row| !owners.owns(name, seat, row)) {
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

#[cfg(test)]
#[path = "served_tests.rs"]
mod tests;
