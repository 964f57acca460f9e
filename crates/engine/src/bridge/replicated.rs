//! Replicas: every worker has the whole model (of its stage); contributions are summed, then applied by all
//! alike.

use super::{Agreed, Exchange, HandedIn, agreed, asks_block, sum};
use crate::courier::{self, Courier, Sent};
use crate::exchange::packet::Losses;
use crate::exchange::reproducible::{exponents, quantised};
use crate::exchange::served::Asks;
use crate::merge::Merger;
use starlings_core::{Block, Deadline, Fault, FoldError, Model, Result, Step, Update, failpoint};
use starlings_learn::{ACROSS, Late, Learner, Moment, Needs, Outcome, Sink};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Every worker has the whole model (of its stage); contributions are summed, then applied by all alike.
pub struct Replicated {
    learner: Arc<dyn Learner>,
    /// Sums among the seats that hold the same part of the model.
    group: Merger,
    /// Sums among all; absent when the group is everyone.
    world: Option<Merger>,
    /// How many seats hold the same part of the model.
    replicas: u32,
    /// Sums of numbers that must arrive exactly.
    exact: Merger,
    /// Agrees on exponents for the reproducible fold; and how many shards there are.
    peaks: Option<(Merger, u32)>,
    /// Sums blocks while others are still computed, where there are enough of them.
    courier: Option<Courier>,
    /// Whether the sums that a courier would make are made one after another instead.
    in_buckets: bool,
    sent: Option<Arc<Mutex<Sent>>>,
    bytes_streamed: u64,
    patience: Duration,
    asks: Asks,
    agreed: Agreed,
    /// The step whose sum is in progress, and what the codec had lost before it, where that sum may have to be made again.
    before: Option<(Step, Losses)>,
    survives: bool,
    /// Whether this worker is about to leave and needs the others for that.
    parting: bool,
    /// Whether all have agreed that the next sum is plain, for someone is about to leave.
    plainly: bool,
}

/// The mergers of replicas.
pub struct Mergers {
    /// Sums among the seats that hold the same part of the model.
    pub group: Merger,
    /// Sums among all; absent when the group is everyone.
    pub world: Option<Merger>,
    /// Sums of numbers that must arrive exactly.
    pub exact: Merger,
    /// For the reproducible fold: agrees on exponents; and how many shards there are.
    pub peaks: Option<(Merger, u32)>,
}

impl Replicated {
    /// From its mergers, and a courier where blocks are to leave early.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        mergers: Mergers,
        courier: Option<Courier>,
        patience: Duration,
    ) -> Replicated {
        let (asks, agreed) = (Asks::default(), Agreed::default());
        let Mergers { group, world, exact, peaks } = mergers;
        let (sent, bytes_streamed, replicas) = (None, 0, group.seats());
        Replicated {
            learner,
            group,
            world,
            replicas,
            exact,
            peaks,
            courier,
            in_buckets: false,
            sent,
            bytes_streamed,
            patience,
            asks,
            agreed,
            before: None,
            survives: false,
            parting: false,
            plainly: false,
        }
    }

    /// Makes the sums that a courier would make, without one: of more than two, numbers are then added in the same order through
    /// shared memory as over links, where buckets are cut by themselves.
    #[must_use]
    pub fn in_buckets(mut self, in_buckets: bool) -> Replicated {
        self.in_buckets = in_buckets;
        self
    }

    /// Can give up a sum in progress and make it again with others.
    #[must_use]
    pub fn surviving(mut self, survives: bool) -> Replicated {
        self.survives = survives;
        self
    }

    /// The sum over all shards of the flock, the same bits whoever holds them.
    fn fold_by_shard(&mut self, first: Update, others: Vec<Update>) -> Result<Update> {
        let Some((merger, shards)) = &mut self.peaks else { unreachable!("asked for by the job") };
        let updates: Vec<Update> = std::iter::once(first).chain(others).collect();
        let peaks = merger.largest(exponents(&updates))?;
        failpoint!("between-sums");
        let differs =
            |error: FoldError| Fault::caller(format!("shards emit other blocks: {error}"));
        let (mut whole, grid) = quantised(updates, peaks, *shards).map_err(differs)?;
        whole.blocks.push(asks_block(self.asks, false));
        let grid = Arc::new(grid);
        let mut sum = self.group.merge_working(whole, grid.clone())?;
        self.agreed = agreed(sum.blocks.pop());
        Ok(grid.restored(sum))
    }

    /// What was streamed and is not in the update: the sums of its buckets come back in `collect`.
    fn streamed(&mut self, update: &mut Update) -> u64 {
        let Some(sent) = self.sent.take() else { return 0 };
        let Ok(mut sent) = sent.lock() else { return 0 };
        self.bytes_streamed += sent.bytes;
        let held = std::mem::take(&mut sent.held.blocks);
        update.blocks.splice(0..0, held);
        sent.buckets
    }
}

impl Exchange for Replicated {
    fn open(&mut self, _: Step, _: &Needs, asks: Asks, _: &mut Model) -> Result<Agreed> {
        self.asks = asks;
        Ok(std::mem::take(&mut self.agreed))
    }

    fn stream(&mut self, moment: &Moment) -> Option<Box<dyn Sink>> {
        let satchel = self.courier.as_ref()?.sink(moment.step);
        self.sent = Some(satchel.sent());
        Some(Box::new(satchel))
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        self.before = self.survives.then(|| (handed.moment.step, self.group.losses()));
        let outcome = self.merge_and_apply(handed, model)?;
        self.before = None;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, _: &mut Model) -> Result<Step> {
        self.sum(vec![]).map(|_| step)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        let world = self.world.as_ref().map_or(0, Merger::bytes_raw);
        self.bytes_streamed + self.group.bytes_raw() + self.exact.bytes_raw() + world
    }

    fn losses(&self) -> Losses {
        self.group.losses()
    }

    fn losses_before(&self) -> Option<(Step, Losses)> {
        self.before.clone()
    }

    fn restore(&mut self, losses: Losses, own: bool) {
        self.group.restore(losses, own);
    }

    fn holds_back(&self) -> bool {
        self.group.holds_back()
    }

    fn part(&mut self) {
        self.group.part();
        self.parting = self.group.parts_together();
    }

    fn parted(&self) -> bool {
        self.group.parted()
    }

    fn replicated(&self) -> bool {
        true
    }
}

impl Replicated {
    fn merge_and_apply(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let HandedIn { moment, mut update, others, .. } = handed;
        if self.peaks.is_some() {
            update = self.fold_by_shard(update, others)?;
            failpoint!("before-apply");
            return self.learner.apply(model, &update, &moment);
        }
        self.group.begin(moment.step);
        let buckets = self.streamed(&mut update);
        let early = if self.in_buckets { courier::buckets(&mut update) } else { Vec::new() };
        let early = early.into_iter().map(|bucket| self.group.merge(bucket));
        let early = early.collect::<Result<Vec<Update>>>()?;
        let is_cut = self.world.is_some();
        if !is_cut {
            update.blocks.push(asks_block(self.asks, self.parting));
        }
        let plainly = std::mem::take(&mut self.plainly);
        if self.learner.sums_late() && !is_cut && !plainly && buckets == 0 && early.is_empty() {
            match self.apply_late(update, model, &moment)? {
                Ok(outcome) => return Ok(outcome),
                Err(unsummed) => update = unsummed,
            }
        }
        update = match plainly {
            true => self.group.merge_plainly(update)?,
            false => self.group.merge(update)?,
        };
        if !is_cut {
            self.agree(update.blocks.pop());
        }
        if let Some(courier) = self.courier.as_mut().filter(|_| buckets > 0) {
            let sums = courier.collect(buckets, Deadline::after(self.patience))?;
            update.blocks.splice(0..0, sums.into_iter().flat_map(|sum| sum.blocks));
        }
        update.blocks.splice(0..0, early.into_iter().flat_map(|sum| sum.blocks));
        self.meet_other_stages(&mut update, model)?;
        failpoint!("before-apply");
        self.learner.apply(model, &update, &moment)
    }

    /// Sums and applies in one, where the transport can; gives the update back where not, on all seats alike. From the
    /// moment when all contributions are there nothing can break it off: they stay where they are even if their owner is lost.
    fn apply_late(
        &mut self,
        update: Update,
        model: &mut Model,
        moment: &Moment,
    ) -> Result<Result<Outcome, Update>> {
        let late = match self.group.merge_late(update)? {
            Ok(late) => late,
            Err(update) => return Ok(Err(update)),
        };
        failpoint!("before-apply");
        let outcome = self.learner.apply_late(model, &late, moment);
        failpoint!("applied-late");
        let votes = late.told().blocks.last().cloned();
        late.done()?;
        self.agree(votes);
        outcome.map(Ok)
    }

    fn agree(&mut self, votes: Option<Block>) {
        self.agreed = agreed(votes);
        self.plainly = self.agreed.part;
    }

    /// Where the model is cut: what all stages wish, and what each must know of all before it applies its update.
    fn meet_other_stages(&mut self, update: &mut Update, model: &Model) -> Result<()> {
        let Some(world) = &mut self.world else { return Ok(()) };
        let across = self.learner.across(model, update);
        let mut blocks = vec![asks_block(self.asks, self.parting)];
        blocks.extend((!across.is_empty()).then(|| Block::dense(ACROSS, across)));
        let mut sums = world.merge(Update { blocks })?.blocks;
        let across = if sums.len() > 1 { sums.pop() } else { None };
        let votes = sums.pop();
        self.agree(votes);
        if let Some(across) = across {
            // Replicas of a stage say the same, and each stage counts once.
            let share = 1.0 / f64::from(self.replicas);
            let numbers = across.f64s().iter().map(|sum| sum * share).collect();
            update.blocks.push(Block::dense(ACROSS, numbers));
        }
        Ok(())
    }
}
