//! Recovery: the same step, finished by those who are left.
//!
//! When a link breaks or the coordinator announces a new epoch, every waiting call of a worker returns. The worker then
//! links up with the new lineup and says how far it is and which rows it has; all find the same resolution
//! (see [`mod@resolve`]), and by the completion of their combination:
//!
//! | completion | for | what happens |
//! |---|---|---|
//! | `reweigh` | mini-batches under a barrier | the step is finished with the rows of those who are left; the others are owed, and dealt with the next step |
//! | `recompute` | learners that pass over all rows | the rows of the lost are read by the others first: the step has all rows |
//! | `continue` | local steps, mixing, gossip, owners without a barrier | no agreed sum was promised: each goes on from its own model, or from that of the owners and their backups |
//! | `restore` | model cut into stages or owned by groups, an owner lost with its backup, memory that cannot be rebuilt | all go back to the last checkpoint |
//!
//! A model that lives at owners is put together first (see [`owners`]).
//!
//! Nothing is kept for this in an undisturbed run: contributions are a function of model and rows, and are computed
//! again. A worker may be lost in the middle of a recovery: then the next one begins, from the same state.

#[cfg(test)]
mod ending_tests;
pub mod fence;
mod handover;
mod leases;
pub mod owners;
mod rebuilding;
pub mod resolve;

pub use leases::Leases;
pub(crate) use rebuilding::Left;

use crate::choices::summing;
use crate::desk::{Desk, holders};
use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use crate::net::kinds::STANDINGS;
use crate::redeal::taken_up;
use resolve::{Resolution, Standing, resolve};
use starlings_cluster::deal::Deal;
use starlings_core::{
    Blame, Block, Epoch, Event, Fault, Result, Seat, Shard, Step, Update, failpoint,
};
use starlings_plan::Assignment;
use std::sync::Arc;

/// How a step ends when a member is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// With the rows of those who are left.
    Reweigh,
    /// With all rows.
    Recompute,
    /// Each as it was.
    Continue,
    /// From the last checkpoint.
    Restore,
}

impl Completion {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Completion::Reweigh => "reweigh",
            Completion::Recompute => "recompute",
            Completion::Continue => "continue",
            Completion::Restore => "restore",
        }
    }
}

/// A flock that this worker has a seat in.
pub struct Flocked {
    /// Links to all other seats.
    pub net: Arc<Net>,
    /// Which epoch.
    pub epoch: Epoch,
    /// The shards of each seat; empty where the plan deals them.
    pub deal: Deal,
}

/// Whoever can give a worker a new flock.
pub trait Regroup: Send {
    /// Reports whom this worker misses, while it is still in the phase in which it does.
    fn accuse(&mut self, fault: &Fault);

    /// Waits for the next epoch and links up with everyone in it.
    ///
    /// # Errors
    /// The coordinator's verdict, when the job is over or goes on without this worker.
    fn regroup(&mut self) -> Result<Flocked>;
}

impl Desk {
    /// Goes on in the next epoch, where there is one and the fault is a peer's.
    pub(crate) fn recover(&mut self, fault: Fault) -> Result<()> {
        let Some(mut regroup) = self.regroup.take() else { return Err(fault) };
        let recovered = self.recover_through(&mut *regroup, fault);
        self.regroup = Some(regroup);
        recovered
    }

    fn recover_through(&mut self, regroup: &mut dyn Regroup, mut fault: Fault) -> Result<()> {
        self.walk.ended(self.exchange.endings());
        let mut left = Left {
            world: self.net.world(),
            endings: self.walk.endings(),
            losses: self.exchange.losses(),
            before: self.exchange.losses_before(),
            shard: None,
            generation: self.generation,
        };
        loop {
            if !matches!(fault.blame(), Blame::Peer(_)) {
                return Err(fault);
            }
            // What is told of the dead is what was expected of it, not what this worker does about that.
            regroup.accuse(&fault);
            self.clock.enter("regrouping", Step(self.walk.steps()));
            // The shard of the flock that was; in later rounds there is none.
            let shard = self.part();
            left.shard = left.shard.take().or(shard);
            let flocked = regroup.regroup()?;
            self.clock.enter("agreeing on the step", Step(self.walk.steps()));
            match self.gather(flocked, &left) {
                Ok(()) => return Ok(()),
                // Those who are left do not make a flock for this plan.
                Err(next) if next.blame() == Blame::Caller && self.choices.plan.stages() > 1 => {
                    return Err(without_stage(&fault, &next));
                }
                Err(next) => fault = next,
            }
        }
    }

    /// Takes a seat among others: agrees with them on the step, takes over what it lacks, and builds the exchange anew.
    fn gather(&mut self, flocked: Flocked, left: &Left) -> Result<()> {
        let Flocked { net, epoch, deal } = flocked;
        let (seat, world) = (net.seat(), net.world());
        self.net = net;
        match deal.get(seat.index()) {
            Some(shards) => {
                self.assignment = whole(seat, world, shards);
                for (seat, shards) in deal.iter().enumerate() {
                    shards.iter().for_each(|&it| self.holders[it as usize] = Seat(seat as u32));
                }
            }
            None => {
                self.assignment = self.choices.plan.assign(seat, world, self.job.shards)?;
                self.holders = holders(&self.choices, &self.job, world)?;
            }
        }
        failpoint!("standings-before");
        let resolution = self.resolution(&deal)?;
        failpoint!("standings-after");
        let mut completion = self.choices.completion();
        let mut kept = None;
        self.clocks = Vec::new();
        match (completion, resolution.from) {
            (Completion::Restore, _) | (_, None) => kept = self.restore()?,
            _ if self.choices.owned() => {
                if !self.rebuild(left, &resolution)? {
                    completion = Completion::Restore;
                    kept = self.restore()?;
                }
            }
            (Completion::Continue, Some((step, source))) => {
                self.go_on(step, source, &resolution)?
            }
            (_, Some((step, source))) => self.hand_over(step, source, &resolution.behind)?,
        }
        failpoint!("handover-over");
        self.take_shards(completion, &resolution)?;
        failpoint!("shards-taken");
        self.generation = epoch.0.into();
        if completion == Completion::Continue && self.choices.owned() {
            self.clocks = resolution.clocks();
        }
        let losses = left.losses_before(Step(self.walk.steps()), self.walk.endings());
        self.sit_down(losses, left.world, kept)?;
        failpoint!("regrouped");
        if seat == Seat(0) {
            let (step, completion) = (Step(self.walk.steps()), completion.name().to_string());
            self.clock.tell(Event::Regrouped { epoch, workers: world, step, completion });
        }
        Ok(())
    }

    /// What all members say of themselves, and what follows.
    fn resolution(&self, deal: &Deal) -> Result<Resolution> {
        let (net, shards) = (&self.net, self.job.shards);
        let (width, world) = (Standing::width(shards), net.world() as usize);
        let held = self.dealer.holding().starts.keys().map(|shard| shard.0).collect();
        let steps = (!self.newcomer).then_some(self.walk.steps());
        let mut numbers = vec![0; width * world];
        let endings = self.walk.endings();
        Standing { steps, endings, held }
            .write(&mut numbers[width * net.seat().index()..][..width]);
        let options = MergeOptions::exact(STANDINGS, net, summing("tree", "")?, self.job.patience);
        let told = Merger::new(net.clone(), options)
            .merge(Update { blocks: vec![Block::counts("standings", numbers)] })?;
        let standings: Vec<Standing> =
            told.i64("standings").chunks_exact(width).map(Standing::read).collect();
        Ok(resolve(&standings, deal, shards))
    }

    /// Where no sum was promised: whoever is new gets a model; the others keep theirs.
    fn go_on(&mut self, step: Step, source: Seat, resolution: &Resolution) -> Result<()> {
        let behind = match self.choices.keeps_own_models() {
            true => &resolution.newcomers,
            // Anchors must be the same on all: whoever missed a synchronisation, or an ending, takes over another's.
            false => &resolution.behind,
        };
        self.hand_over(step, source, behind)?;
        if self.choices.gate.lead_max() == Some(0) {
            self.walk.skip_to(step);
        }
        Ok(())
    }

    /// The rows for the next step.
    fn take_shards(&mut self, completion: Completion, resolution: &Resolution) -> Result<()> {
        let dealt = self.assignment.shards.clone();
        let now = resolution.shards_of(self.net.seat()).into_iter().map(Shard).collect::<Vec<_>>();
        self.pending = None;
        if completion != Completion::Reweigh || resolution.from.is_none() {
            self.leases.lack(vec![]);
            return self.hold(&dealt);
        }
        self.leases.lack(resolution.missing());
        self.pending = Some(dealt);
        self.hold(&now)
    }

    /// After a step that was finished without the lost: their rows are read, and are there from the next step on.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let Some(dealt) = self.pending.take() else { return Ok(()) };
        failpoint!("settle");
        self.leases.lack(vec![]);
        self.hold(&dealt)?;
        self.remember();
        Ok(())
    }

    /// Holds exactly these shards: reads what is not there, and forgets what is no longer wanted.
    fn hold(&mut self, shards: &[Shard]) -> Result<()> {
        let holding = taken_up(self.dealer.holding(), shards, &self.loader)?;
        self.dealer = self.dealer.with(holding);
        let elsewhere: Vec<Shard> =
            self.memory.iter().map(|(shard, _)| shard).filter(|it| !shards.contains(it)).collect();
        for shard in elsewhere {
            self.memory.remove(shard);
        }
        Ok(())
    }
}

/// A stage has nobody to hold it any more. Who started the job tells which.
fn without_stage(lost: &Fault, why: &Fault) -> Fault {
    let seat = match lost.blame() {
        Blame::Peer(seat) => seat,
        _ => None,
    };
    let what = "a part of the model was lost with its worker, and nobody can take its place";
    Fault::peer(seat, format!("{what}: {}", why.message()))
}

/// What a worker with the whole model does.
fn whole(seat: Seat, world: u32, shards: &[u32]) -> Assignment {
    let shards = shards.iter().map(|&shard| Shard(shard)).collect();
    Assignment {
        shards,
        stage: 0,
        pipeline: vec![seat],
        group: (0..world).map(Seat).collect(),
        layers: Vec::new(),
        turns: Vec::new(),
        parts: 1,
    }
}
