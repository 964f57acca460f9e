//! A worker's desk: everything within reach of the walk, laid out before the first step and cleared away
//! after the last.

use crate::bridge::{Built, Exchange, Nobody, Plans};
use crate::choices::{Carriage, Choices, Layout, raw};
use crate::clock::{Clock, Observer, Whereabouts, process_cpu_seconds};
use crate::descent;
use crate::earlier;
use crate::evaluation::Exam;
use crate::exchange::packet::Losses;
use crate::exchange::served::Shard as ServerShard;
use crate::job::{Deal, EPOCHS_DEFAULT, Fold, Job};
use crate::keeper::{Keeper, Resumed};
use crate::net::Net;
use crate::parting::Parting;
use crate::placement::check_memory;
use crate::recovery::{Leases, Regroup};
use crate::redeal::{Loader, Redeal};
use crate::serve::Ledger;
use crate::stop::Stop;
use crate::trace::Tracer;
use crate::walk::{Walk, Walked};
use crate::wiring::StageWires;
use serde::{Deserialize, Serialize};
use starlings_consistency::{Blending, Cadence};
use starlings_core::{
    Blame, Deadline, Event, Fault, Model, Pace, Panel, Result, Role, Seat, Shard, Step, failpoint,
};
use starlings_data::{Batch, Dealer, Holding, Intake, Slice};
use starlings_learn::{
    Appetite, Facts, Grade, Learner, Memory, Moment, NoWires, Outbox, Place, Wires, Work,
};
use starlings_plan::Assignment;
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What a worker is given.
pub struct Setup<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its words, built.
    pub choices: Choices,
    /// What is known of the data.
    pub facts: Facts,
    /// How files become rows, besides what the facts say.
    pub intake: Intake,
    /// The rows of this worker's shards.
    pub holding: Holding,
    /// What this worker does.
    pub assignment: Assignment,
    /// Links to all other seats.
    pub net: Arc<Net>,
    /// Who wants to know.
    pub observer: Arc<dyn Observer>,
    /// Shared with whatever reports this worker's heartbeat.
    pub whereabouts: Whereabouts,
    /// Set when someone asks to stop.
    pub stop: Stop,
    /// What to continue from.
    pub resumed: Option<Resumed>,
    /// Where checkpoints go, if anywhere.
    pub keeper: Keeper,
    /// Reads the rows of other shards, should they be dealt to this worker.
    pub loader: Loader,
    /// Who gives it a new flock when members change; `None` where a loss is the end.
    pub regroup: Option<Box<dyn Regroup>>,
    /// Whether it has no seat yet: the job runs already.
    pub newcomer: bool,
    /// Who takes the model at the end, before anyone may leave.
    pub deliver: Option<Deliver>,
    /// Whether this worker answers for its whole process in counts of processor time.
    pub speaks_for_process: bool,
}

/// Takes the model and the figures of a whole run.
pub type Deliver = Box<dyn FnMut(&Model, &Figures) -> Result<()> + Send>;

/// What came of a worker's run. Numbers are sums over all workers.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The whole model: on seat 0, and where it may have to be sent home once more on every seat that has it.
    pub model: Option<Model>,
    /// The figures.
    pub figures: Figures,
}

/// The figures of a run, agreed by all workers.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Steps done since the job began.
    pub steps: u64,
    /// Passes over the data.
    pub epochs: f64,
    /// Rows used.
    pub samples: u64,
    /// Seconds of training.
    pub seconds: f64,
    /// Bytes sent on links.
    pub bytes_sent: u64,
    /// Bytes the same blocks have in memory.
    pub bytes_raw: u64,
    /// Objective over all training rows.
    pub objective: f64,
    /// Metrics over all training rows.
    pub metrics: std::collections::BTreeMap<String, f64>,
    /// Processor seconds.
    pub cpu_seconds: f64,
    /// Largest lead over the slowest worker that owners, or those who were behind, have seen.
    pub lead_max: u64,
    /// Contributions that came too late to count.
    pub dropped: u64,
    /// How long each worker spent on what.
    pub paces: Vec<Pace>,
    /// Rows of lost workers that no later step could take up.
    pub rows_left_out: u64,
    /// How good the model is on the job's test rows, where the flock could measure it.
    #[serde(default)]
    pub evaluation: Option<Panel>,
}

/// Makes the moment of a step.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    seed: u64,
    counts_itself: bool,
}

impl Moments {
    /// The moment of `step`.
    #[must_use]
    pub fn at(&self, step: Step, pass: u64, rows: u64) -> Moment {
        Moment { step, pass: if self.counts_itself { 0 } else { pass }, seed: self.seed, rows }
    }
}

/// What one call of `contribute` is about.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// A virtual shard, or else everything that this worker has.
    shard: bool,
}

impl Unit {
    /// The batch as it is handed to the learner: whole, or shard by shard. A worker without shards hands in one
    /// empty part, for all must emit the same blocks.
    pub fn parts<'a>(&self, batch: &Batch<'a>) -> Vec<Batch<'a>> {
        if !self.shard || batch.slices.is_empty() {
            return vec![batch.clone()];
        }
        let one = |slice: &Slice| Batch { slices: vec![slice.clone()], ..batch.clone() };
        batch.slices.iter().map(one).collect()
    }
}

/// A worker's desk.
pub struct Desk {
    pub(crate) job: Job,
    pub(crate) choices: Choices,
    pub(crate) facts: Facts,
    intake: Intake,
    pub(crate) learner: Arc<dyn Learner>,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) dealer: Dealer,
    pub(crate) leases: Leases,
    /// Shards that are this worker's from the next step on.
    pub(crate) pending: Option<Vec<Shard>>,
    pub(crate) loader: Loader,
    pub(crate) model: Model,
    pub(crate) memory: Memory,
    pub(crate) wires: Box<dyn Wires + Send>,
    pub(crate) walk: Walk,
    pub(crate) clock: Clock,
    pub(crate) keeper: Keeper,
    pub(crate) redeal: Option<Redeal>,
    pub(crate) moments: Moments,
    pub(crate) place: Place,
    pub(crate) stop: Stop,
    /// Whether this worker alone is to leave.
    pub(crate) parting: Parting,
    pub(crate) wants_factors: bool,
    pub(crate) by_shard: Unit,
    pub(crate) regroup: Option<Box<dyn Regroup>>,
    pub(crate) newcomer: bool,
    pub(crate) assignment: Assignment,
    /// Who is dealt each shard.
    pub(crate) holders: Vec<Seat>,
    pub(crate) net: Arc<Net>,
    /// The epoch that this flock began with; none counts as zero.
    pub(crate) generation: u64,
    /// The first step of each seat, where they differ.
    pub(crate) clocks: Vec<u64>,
    /// The counts before the last step, should it have to be taken again.
    pub(crate) before: Option<(Walked, Leases)>,
    deliver: Option<Deliver>,
    survives: bool,
    begun: bool,
    tracer: Tracer,
    server: Option<JoinHandle<ServerShard>>,
    ledger: Arc<Ledger>,
    /// The largest lead that was seen in flocks before.
    lead_before: u64,
    wired: Arc<AtomicU64>,
    /// Bytes of exchanges that members' changes have ended: in memory, and sent.
    bytes_before: [u64; 2],
    speaks_for_process: bool,
    cpu_before: f64,
}

impl Desk {
    /// Lays out the desk.
    ///
    /// # Errors
    /// When the learner cannot start on this data, or a thread cannot be started.
    pub fn lay(setup: Setup<'_>) -> Result<Desk> {
        let Setup { job, choices, facts, intake, assignment, net, .. } = setup;
        let learner = choices.learner.clone();
        let place = place_of(&assignment);
        let mut model = first_model(job, &choices, &facts, place.clone())?;
        check_memory(job, &choices, &model)?;
        let (mut memory, mut start, mut losses) = (Memory::new(), Step(0), Vec::new());
        if let Some(resumed) = setup.resumed {
            start = resumed.step;
            model = resumed.model_like(&model, &place)?;
            losses = resumed.losses_of(net.seat(), net.world());
            memory = resumed.memory;
        }
        let dealer = Dealer::new(setup.holding, job.seed, job.batch);
        let (steps_a_pass, steps_max) = extent(&*learner, job, &facts)?;
        check_extent(&choices, steps_max, net.world())?;
        let tracer = Tracer::new(job.trace);
        let counts_itself = learner.appetite() == Appetite::Passes;
        let mut desk = Desk {
            exchange: Box::new(Nobody),
            dealer,
            leases: Leases::default(),
            pending: None,
            loader: setup.loader,
            model,
            memory,
            wires: Box::new(NoWires),
            walk: Walk::new(start, steps_max, steps_a_pass),
            clock: Clock::start(net.seat(), setup.observer, setup.whereabouts, tracer.clone()),
            tracer,
            wants_factors: wants_factors(&choices, job),
            by_shard: Unit { shard: job.fold == Fold::Reproducible },
            keeper: setup.keeper,
            redeal: None,
            moments: Moments { seed: job.seed, counts_itself },
            place,
            stop: setup.stop,
            parting: Parting::default(),
            survives: setup.regroup.is_some(),
            regroup: setup.regroup,
            newcomer: setup.newcomer,
            holders: first_holders(&choices, job, (&net, setup.newcomer))?,
            assignment,
            net,
            generation: 0,
            clocks: Vec::new(),
            before: None,
            deliver: setup.deliver,
            begun: false,
            server: None,
            ledger: Arc::default(),
            lead_before: 0,
            wired: Arc::default(),
            bytes_before: [0; 2],
            speaks_for_process: setup.speaks_for_process,
            cpu_before: process_cpu_seconds(),
            job: job.clone(),
            learner,
            choices,
            facts,
            intake,
        };
        if !desk.newcomer {
            desk.connect()?;
        }
        for (lost, own) in losses {
            desk.exchange.restore(lost, own);
        }
        Ok(desk)
    }

    /// Builds everything that stands on the links to the other seats.
    fn connect(&mut self) -> Result<()> {
        let (job, net, assignment) = (&self.job, &self.net, &self.assignment);
        let plans = Plans {
            job,
            choices: &self.choices,
            assignment,
            net,
            model: &self.model,
            start: Step(self.walk.steps()),
            clocks: &self.clocks,
            tracer: self.tracer.clone(),
            survives: self.survives,
        };
        let Built { exchange, server, ledger } = plans.build()?;
        self.redeal = match job.deal {
            Deal::Even => None,
            Deal::Speed => {
                let habits = (self.learner.appetite(), self.walk.steps(), job.patience);
                let holders = self.holders.clone();
                Some(Redeal::new(self.loader.clone(), net.clone(), holders, habits))
            }
        };
        self.wires = match assignment.pipeline.clone() {
            pipeline if pipeline.len() == 1 => Box::new(NoWires),
            pipeline => {
                let (net, wired) = (net.clone(), self.wired.clone());
                let wires = StageWires::new(net, raw(), pipeline, job.patience, wired);
                Box::new(wires.traced(self.tracer.clone()))
            }
        };
        (self.exchange, self.server, self.ledger) = (exchange, server, ledger);
        self.parting.hold(self.exchange.holds_back());
        Ok(())
    }

    /// Before a step: whether this worker was asked to leave. Then nothing is held back any more.
    pub(crate) fn prepare_to_leave(&mut self) -> bool {
        let asked = self.parting.asked();
        if asked {
            self.exchange.part();
        }
        asked
    }

    /// After that step: whoever has given all may go.
    pub(crate) fn ready_to_leave(&self, asked: bool) {
        if asked && self.exchange.parted() {
            self.parting.hold(false);
        }
    }

    /// From now on this worker alone may be asked to leave.
    pub(crate) fn may_part(&mut self, parting: Parting) {
        self.parting = parting;
        self.parting.hold(self.exchange.holds_back());
    }

    /// Takes a seat in another flock than before, with what the codec had lost on how many seats, and the step of the
    /// checkpoint that all have gone back to, if they have.
    pub(crate) fn sit_down(
        &mut self,
        losses: &Losses,
        world: u32,
        kept: Option<Step>,
    ) -> Result<()> {
        self.connect()?;
        let same = world == self.net.world();
        if !losses.is_empty() {
            self.exchange.restore(losses.clone(), same);
        }
        let first = self.assignment.group[0] == self.net.seat();
        self.keeper.reseat(&self.net, first.then_some(self.assignment.stage), kept);
        self.clock.sit(self.net.seat());
        if std::mem::take(&mut self.newcomer) {
            self.introduce(std::process::id(), self.net.host(self.net.seat()));
        }
        Ok(())
    }

    /// Ends without having finished. Whoever was asked to stop says goodbye: others may still be in the last sum.
    pub(crate) fn give_up(&mut self, fault: &Fault) {
        if !self.survives {
            return;
        }
        if fault.blame() == Blame::Interrupted {
            self.net.leave();
        }
        self.part();
    }

    /// Leaves the flock as it is: nobody is told, and nothing of it is heard any more. Gives the shard that was run here.
    pub(crate) fn part(&mut self) -> Option<ServerShard> {
        self.net.close();
        // It ends with the net; a panic there has already aborted the net.
        let shard = self.server.take().and_then(|server| server.join().ok());
        let gone = [self.bytes_raw(), self.net.bytes_sent()];
        self.bytes_before.iter_mut().zip(gone).for_each(|(sum, bytes)| *sum += bytes);
        self.lead_before = self.lead_max();
        self.exchange = Box::new(Nobody);
        self.ledger = Arc::default();
        shard
    }

    /// The largest lead that this seat has seen, here and in flocks before.
    fn lead_max(&self) -> u64 {
        let owned = self.ledger.lead_max.load(Ordering::Relaxed);
        owned.max(self.exchange.lead_max()).max(self.lead_before)
    }

    /// Bytes that everything sent in this flock has in memory.
    fn bytes_raw(&self) -> u64 {
        self.exchange.bytes_raw() + self.ledger.mirrored.load(Ordering::Relaxed)
    }

    /// Adopts the shards that nobody remembers yet.
    pub(crate) fn remember(&mut self) {
        let batch = self.dealer.everything();
        for slice in &batch.slices {
            if !self.memory.knows(slice.shard) {
                let mut cells = Default::default();
                self.learner.adopt(&self.model, &batch, slice, &mut cells);
                self.memory.insert(slice.shard, cells);
            }
        }
    }

    /// Remembers what it must of its shards, and waits for all workers to be ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        if self.newcomer {
            return Err(Fault::peer(None, "this worker has no seat yet"));
        }
        self.clock.enter("the start", Step(self.walk.steps()));
        self.remember();
        self.exchange.sum(vec![]).map_err(|fault| self.clock.during(fault))?;
        if !self.begun {
            self.begun = true;
            self.clock.restart();
            self.cpu_before = process_cpu_seconds();
        }
        Ok(())
    }

    /// Grades the final model on all rows, adds up the figures, brings the model to seat 0.
    pub(crate) fn finish(&mut self) -> Result<Finished> {
        let step = Step(self.walk.steps());
        self.clock.enter("the end", step);
        let kept = self.keeper.settle().map_err(|fault| self.clock.during(fault))?;
        self.clock.kept(kept);
        failpoint!("wind-up");
        let settled = self.redeal.as_mut().map_or(Ok(()), Redeal::settle);
        settled.map_err(|fault| self.clock.during(fault))?;
        let figures = self.wind_up(step).map_err(|fault| self.clock.during(fault))?;
        let first = self.net.seat() == Seat(0);
        if let Some(deliver) = self.deliver.as_mut().filter(|_| first) {
            failpoint!("deliver-before");
            deliver(&self.model, &figures)?;
            failpoint!("deliver-after");
        }
        // Others may still be waiting for this seat's server: all leave together or not at all.
        self.exchange.sum(vec![]).map_err(|fault| self.clock.during(fault))?;
        failpoint!("all-done");
        self.clock.committed();
        self.net.leave();
        failpoint!("said-goodbye");
        self.part();
        let holds = first || (self.deliver.is_some() && self.has_whole_model());
        let model = holds.then(|| std::mem::take(&mut self.model));
        Ok(Finished { model, figures })
    }

    /// Whether this seat ends with the model that seat 0 has: not where it has only a stage of it, or one of its own.
    fn has_whole_model(&self) -> bool {
        self.place.stages == 1 && !self.choices.keeps_own_models()
    }

    fn wind_up(&mut self, step: Step) -> Result<Figures> {
        self.exchange.close(step)?;
        self.exchange.cut(step, &mut self.model)?;
        let seconds = self.clock.seconds();
        let grade = self.grade(step)?;
        if self.learner.appetite() == Appetite::Batches {
            descent::check_end(grade.objective)?;
        }
        self.compare_replicas()?;
        self.gather_stages(step)?;
        if self.tracer.is_on() {
            let (rank, spans) = (self.net.seat(), self.tracer.take());
            self.clock.tell(Event::Trace { rank, spans });
        }
        let cpu = process_cpu_seconds() - self.cpu_before;
        let cpu = if self.speaks_for_process { cpu } else { 0.0 };
        let raw = self.bytes_before[0] + self.bytes_raw();
        let raw = raw + self.wired.load(Ordering::Relaxed);
        let sent = self.bytes_sent();
        let dropped = self.ledger.dropped.load(Ordering::Relaxed) as f64;
        let mut numbers = vec![sent as f64, raw as f64, cpu, dropped];
        let (world, seat) = (self.net.world() as usize, self.net.seat().index());
        let pace = self.clock.pace();
        let lead = self.lead_max();
        let own = numbers.len() + SPENT * seat;
        numbers.resize(numbers.len() + SPENT * world, 0.0);
        let spent = [pace.computation, pace.gate, pace.merge, lead as f64];
        numbers[own..own + SPENT].copy_from_slice(&spent);
        let sums = self.exchange.sum(numbers)?;
        let figures = Figures {
            steps: self.walk.steps(),
            epochs: self.walk.epochs(),
            samples: self.walk.samples(),
            seconds,
            bytes_sent: sums[0] as u64,
            bytes_raw: sums[1] as u64,
            objective: grade.objective,
            metrics: grade.metrics,
            cpu_seconds: sums[2],
            lead_max: sums[4..].chunks_exact(SPENT).map(|own| own[3] as u64).max().unwrap_or(0),
            // Every owner counts for itself: the mean over owners is that of whole contributions.
            dropped: (sums[3] / world as f64).round() as u64,
            paces: sums[4..].chunks_exact(SPENT).enumerate().map(pace_of).collect(),
            rows_left_out: self.leases.rows_owed(&self.dealer, &self.walk),
            evaluation: self.evaluate()?,
        };
        Ok(figures)
    }

    /// The flock that has trained measures the model on the job's test rows, each worker on a share of them. Where no
    /// worker has the model that is saved, or one of them cannot read the rows, whoever asked for the job does it.
    fn evaluate(&self) -> Result<Option<Panel>> {
        let Some(rows) = &self.job.test else { return Ok(None) };
        if !self.has_whole_model() {
            return Ok(None);
        }
        let (model, learner, facts) = (weights(&self.model), &self.learner, &self.facts);
        let predict = |batch: &Batch<'_>| {
            let mut outputs = Vec::new();
            let said = learner.predict(&model, batch, &mut outputs);
            said.map(|()| outputs).map_err(|fault| facts.name(fault))
        };
        let exam = Exam {
            rows,
            schema: &self.facts.schema,
            intake: &self.intake,
            learner: &**learner,
            model: &model,
            predict: &predict,
            patience: self.job.patience,
        };
        Ok(exam.take(&self.net)?.ok())
    }

    fn grade(&mut self, step: Step) -> Result<Grade> {
        let batch = self.dealer.everything();
        let moment = self.moments.at(step, self.walk.pass(step), batch.rows_step);
        let mut outbox = Outbox::new();
        let sums = self.learner.score(&mut Work {
            moment,
            place: self.place.clone(),
            model: &self.model,
            batch: &batch,
            memory: &mut self.memory,
            wires: &mut *self.wires,
            outbox: &mut outbox,
        })?;
        let sums = self.exchange.sum(sums)?;
        Ok(self.learner.grade(&self.model, &sums, batch.rows_step))
    }

    /// Replicas must hold the same bits: a machine that computes wrongly is found here, every so many steps and at the
    /// end. Whoever differs from most others goes; where nobody can tell who is right, all stop.
    pub(crate) fn compare_replicas(&mut self) -> Result<()> {
        if !self.exchange.replicated() || self.assignment.pipeline.len() > 1 {
            return Ok(());
        }
        let own: Vec<f64> = self.model.digest().chunks_exact(4).map(word).collect();
        let (me, world, width) = (self.net.seat(), self.net.world() as usize, own.len());
        let mut words = vec![0.0; world * width];
        words[me.index() * width..][..width].copy_from_slice(&own);
        let words = self.exchange.sum(words)?;
        let digests: Vec<&[f64]> = words.chunks_exact(width).collect();
        let step = Step(self.walk.steps());
        let odd = odd_ones(&digests);
        if odd.as_ref().is_none_or(|odd| !odd.is_empty()) {
            // Who stops closes its links: all must have the digests first, or the last would only see that.
            let _ = self.exchange.sum(vec![0.0]);
        }
        match odd {
            Some(odd) if odd.is_empty() => Ok(()),
            Some(odd) if odd.contains(&me) => {
                let what = format!(
                    "before {step} the replica of {me}, this worker, differs from most others"
                );
                Err(Fault::machine(what).hint("this machine computes wrongly: test its memory"))
            }
            Some(odd) => {
                let what =
                    format!("before {step} the replica of {} differs from most others", odd[0]);
                Err(Fault::peer(Some(odd[0]), what))
            }
            None => Err(Fault::machine(format!("before {step} the replicas of the model differ"))
                .hint("a machine computes wrongly, and nobody can tell which: test their memory")),
        }
    }

    /// Where the model is cut into stages, the first seat of each stage sends its part to seat 0.
    fn gather_stages(&mut self, step: Step) -> Result<()> {
        if self.place.stages == 1 || self.net.seat() != self.assignment.group[0] {
            return Ok(());
        }
        let by = Deadline::after_ms(60_000);
        if self.net.seat() != Seat(0) {
            let mut bytes = Vec::new();
            starlings_cluster::tensors::write_model(&mut bytes, &self.model)?;
            let header = Header { lane: Lane::Control, kind: 0, step, tag: self.place.stage };
            return self.net.send(Seat(0), header, &bytes, by);
        }
        for _ in 1..self.place.stages {
            let part = self.net.next(Lane::Control, |_| true, by)?;
            let part = starlings_cluster::tensors::read_model(&part.payload)?;
            for (name, tensor) in part.iter() {
                self.model.set(name, tensor.clone());
            }
        }
        self.model = self.learner.assemble(std::mem::take(&mut self.model));
        Ok(())
    }

    /// Bytes that this worker has sent so far.
    pub(crate) fn bytes_sent(&self) -> u64 {
        self.bytes_before[1] + self.net.bytes_sent()
    }

    /// Tells who sits here.
    pub fn introduce(&self, pid: u32, host: &str) {
        let rows = self.dealer.holding().rows_held();
        let rank = self.net.seat();
        self.clock.tell(Event::Worker { rank, pid, host: host.to_string(), rows });
    }
}

/// Those whose digest is not the one that more than half of all have; `None` where there is no such digest.
fn odd_ones(digests: &[&[f64]]) -> Option<Vec<Seat>> {
    let votes = |it: &[f64]| digests.iter().filter(|other| **other == it).count();
    let most = digests.iter().find(|it| 2 * votes(it) > digests.len())?;
    let odd = (0..digests.len()).filter(|seat| digests[*seat] != *most);
    Some(odd.map(|seat| Seat(seat as u32)).collect())
}

/// Four bytes as an exact number.
fn word(bytes: &[u8]) -> f64 {
    f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The weights alone: what is saved as the trained model.
#[must_use]
pub fn weights(model: &Model) -> Model {
    let mut weights = Model::new();
    for (name, tensor) in model.iter().filter(|(_, tensor)| tensor.role == Role::Weight) {
        weights.set(name, tensor.clone());
    }
    weights
}

/// Which part of the model a worker has, as its learner sees it.
pub(crate) fn place_of(assignment: &Assignment) -> Place {
    Place {
        stage: assignment.stage,
        stages: assignment.pipeline.len() as u32,
        layers: assignment.layers.clone(),
        turns: assignment.turns.clone(),
        parts: assignment.parts,
    }
}

/// Who is dealt each shard at the start. A newcomer is alone as yet; stages are those of a whole flock.
fn first_holders(choices: &Choices, job: &Job, (net, newcomer): (&Net, bool)) -> Result<Vec<Seat>> {
    let is_cut = choices.plan.stages() > 1;
    holders(choices, job, if newcomer && is_cut { job.workers } else { net.world() })
}

/// Who is dealt each shard by the plan.
pub(crate) fn holders(choices: &Choices, job: &Job, world: u32) -> Result<Vec<Seat>> {
    let mut holders = vec![Seat(0); job.shards as usize];
    for seat in (0..world).map(Seat) {
        for shard in choices.plan.assign(seat, world, job.shards)?.shards {
            holders[shard.0 as usize] = seat;
        }
    }
    Ok(holders)
}

/// The model before the first step, with what the blend remembers beside it.
pub(crate) fn first_model(
    job: &Job,
    choices: &Choices,
    facts: &Facts,
    place: Place,
) -> Result<Model> {
    crate::stock::check_room(job, choices, facts, &place)?;
    let mut model = choices.learner.init(facts, place)?;
    crate::trained_members::furnish(&*choices.learner, &mut model)?;
    earlier::go_on(job, choices, facts, &mut model)?;
    if let Blending::Local(blend) = &*choices.blend {
        blend.prepare(&mut model);
    }
    Ok(model)
}

/// Factors are of use where contributions are summed; elsewhere each worker applies its own at once.
fn wants_factors(choices: &Choices, job: &Job) -> bool {
    matches!(choices.carriage, Carriage::Factors | Carriage::Auto(_))
        && matches!((&choices.layout, &*choices.blend), (Layout::Sum, Blending::Plain))
        && job.fold == Fold::Plain
}

/// Numbers that each worker tells of itself: how long it spent on what, and the largest lead that it has seen.
const SPENT: usize = 4;

fn pace_of((rank, spent): (usize, &[f64])) -> Pace {
    let (computation, gate, merge) = (spent[0], spent[1], spent[2]);
    Pace { rank: Seat(rank as u32), computation, gate, merge }
}

/// Steps in a pass, and steps at most where that is known before the first.
///
/// # Errors
/// When there are no rows.
pub fn extent(learner: &dyn Learner, job: &Job, facts: &Facts) -> Result<(u64, Option<u64>)> {
    if facts.rows == 0 {
        return Err(Fault::caller("the training data has no rows"));
    }
    let (steps_a_pass, steps_max) = match learner.appetite() {
        Appetite::Passes => (1, learner.steps_max(facts)),
        Appetite::Batches => {
            let steps = facts.rows.div_ceil(job.batch);
            // A job that gives only steps means them: the default number of passes is for one that gives neither.
            let epochs = job.epochs.or(job.steps.is_none().then_some(EPOCHS_DEFAULT));
            (steps, epochs.map(|epochs| epochs.saturating_mul(steps)))
        }
    };
    Ok((steps_a_pass, [steps_max, job.steps].into_iter().flatten().min()))
}

/// Whether owners and replicas of a flock of `world` can work with so many steps at most.
fn check_extent(choices: &Choices, steps_max: Option<u64>, world: u32) -> Result<()> {
    if choices.served && steps_max.is_none() {
        return Err(Fault::caller(
            "this learner decides by itself when it is done, and owners cannot tell all workers",
        )
        .hint("set [train] steps, or choose another topology than 'star'"));
    }
    match (&*choices.blend, steps_max) {
        (Blending::Cadence(Cadence { warm, .. }), Some(steps)) if *warm >= steps && world > 1 => {
            Err(Fault::caller(format!(
                "a warm-up of {warm} steps leaves none of {steps} to the other workers"
            ))
            .hint("set a shorter warm, more [train] steps or epochs, or [cluster] workers = 1"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_named_where_most_agree() {
        let (a, b, c) = (&[1.0, 2.0][..], &[1.0, 3.0][..], &[4.0, 2.0][..]);
        assert_eq!(odd_ones(&[a, a, a]), Some(vec![]));
        assert_eq!(odd_ones(&[a, b, a]), Some(vec![Seat(1)]));
        assert_eq!(odd_ones(&[b, a, a, c, a]), Some(vec![Seat(0), Seat(3)]));
        assert_eq!(odd_ones(&[a, b]), None);
        assert_eq!(odd_ones(&[a, b, b, a]), None);
        assert_eq!(odd_ones(&[a]), Some(vec![]));
    }
}
