//! A worker's desk: everything within reach of the walk, laid out before the first step and cleared away
//! after the last.

use crate::bridge::{Built, Exchange, Plans};
use crate::choices::{Carriage, Choices, Layout, raw};
use crate::clock::{Clock, Observer, Whereabouts, process_cpu_seconds};
use crate::job::{EPOCHS_DEFAULT, Fold, Job};
use crate::keeper::{Keeper, Resumed};
use crate::net::Net;
use crate::redeal::Redeal;
use crate::serve::Ledger;
use crate::stop::Stop;
use crate::trace::Tracer;
use crate::walk::Walk;
use crate::wiring::StageWires;
use serde::{Deserialize, Serialize};
use starlings_consistency::Blending;
use starlings_core::{Deadline, Event, Fault, Model, Pace, Result, Role, Seat, Step};
use starlings_data::{Batch, Dealer, Holding, Slice};
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
    /// Deals shards by speed, where the job wants that.
    pub redeal: Option<Redeal>,
    /// Whether this worker answers for its whole process in counts of processor time.
    pub speaks_for_process: bool,
}

/// What came of a worker's run. Numbers are sums over all workers; only seat 0 has the model.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The whole model, on seat 0.
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
    /// Largest lead over the slowest worker that a server allowed.
    pub lead_max: u64,
    /// Contributions that came too late to count.
    pub dropped: u64,
    /// How long each worker spent on what.
    pub paces: Vec<Pace>,
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
    pub(crate) learner: Arc<dyn Learner>,
    pub(crate) exchange: Box<dyn Exchange>,
    pub(crate) dealer: Dealer,
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
    pub(crate) wants_factors: bool,
    pub(crate) by_shard: Unit,
    tracer: Tracer,
    assignment: Assignment,
    net: Arc<Net>,
    server: Option<JoinHandle<()>>,
    ledger: Arc<Ledger>,
    wired: Arc<AtomicU64>,
    speaks_for_process: bool,
    cpu_before: f64,
}

impl Desk {
    /// Lays out the desk.
    ///
    /// # Errors
    /// When the learner cannot start on this data, or a thread cannot be started.
    pub fn lay(setup: Setup<'_>) -> Result<Desk> {
        let Setup { job, choices, facts, assignment, net, .. } = setup;
        let learner = choices.learner.clone();
        let stages = assignment.pipeline.len() as u32;
        let place = Place { stage: assignment.stage, stages };
        let mut model = first_model(&choices, &facts, place)?;
        let (mut memory, mut start, mut losses) = (Memory::new(), Step(0), Vec::new());
        if let Some(resumed) = setup.resumed {
            start = resumed.step;
            model = resumed.model_like(&model, place)?;
            losses = resumed.losses_of(net.seat(), net.world());
            memory = resumed.memory;
        }
        let dealer = Dealer::new(setup.holding, job.seed, job.batch);
        let (steps_a_pass, steps_max) = extent(&*learner, job, &facts)?;
        if choices.served && steps_max.is_none() {
            return Err(Fault::caller("this learner decides by itself when it is done, and owners cannot tell all workers")
                .hint("set [train] steps, or choose another topology than 'star'"));
        }
        let walk = Walk::new(start, steps_max, steps_a_pass);
        let tracer = Tracer::new(job.trace);
        let wants_factors = wants_factors(&choices, job);
        let plans = Plans {
            job,
            choices: &choices,
            assignment: &assignment,
            net: &net,
            model: &model,
            start,
            tracer: tracer.clone(),
        };
        let Built { mut exchange, server, ledger } = plans.build()?;
        for (lost, own) in losses {
            exchange.restore(lost, own);
        }
        let wired = Arc::new(AtomicU64::new(0));
        let wires: Box<dyn Wires + Send> = match assignment.pipeline.clone() {
            pipeline if pipeline.len() == 1 => Box::new(NoWires),
            pipeline => {
                Box::new(StageWires::new(net.clone(), raw(), pipeline, job.patience, wired.clone()))
            }
        };
        let seat = net.seat();
        let counts_itself = learner.appetite() == Appetite::Passes;
        Ok(Desk {
            learner,
            exchange,
            dealer,
            model,
            memory,
            wires,
            walk,
            clock: Clock::start(seat, setup.observer, setup.whereabouts, tracer.clone()),
            tracer,
            wants_factors,
            by_shard: Unit { shard: job.fold == Fold::Reproducible },
            keeper: setup.keeper,
            redeal: setup.redeal,
            moments: Moments { seed: job.seed, counts_itself },
            place,
            stop: setup.stop,
            assignment,
            net,
            server,
            ledger,
            wired,
            speaks_for_process: setup.speaks_for_process,
            cpu_before: process_cpu_seconds(),
        })
    }

    /// Adopts the shards that nobody remembers yet, and waits for all workers to be ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.clock.enter("the start", Step(self.walk.steps()));
        let batch = self.dealer.everything();
        for slice in &batch.slices {
            if !self.memory.knows(slice.shard) {
                let mut cells = Default::default();
                self.learner.adopt(&self.model, &batch, slice, &mut cells);
                self.memory.insert(slice.shard, cells);
            }
        }
        self.exchange.sum(vec![]).map_err(|fault| self.clock.during(fault))?;
        self.clock.restart();
        self.cpu_before = process_cpu_seconds();
        Ok(())
    }

    /// Grades the final model on all rows, adds up the figures, brings the model to seat 0.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        let step = Step(self.walk.steps());
        self.clock.enter("the end", step);
        let finished = self.wind_up(step).map_err(|fault| self.clock.during(fault));
        // Others may still be waiting for this seat's server: all leave together or not at all.
        let left = finished.and_then(|finished| self.exchange.sum(vec![]).map(|_| finished));
        match &left {
            Ok(_) => self.net.leave(),
            Err(_) => self.net.close(),
        }
        if let Some(server) = self.server.take() {
            // It ends with the net; a panic there has already aborted the net.
            let _ = server.join();
        }
        left
    }

    fn wind_up(&mut self, step: Step) -> Result<Finished> {
        self.exchange.close(step)?;
        self.exchange.cut(step, &mut self.model)?;
        let seconds = self.clock.seconds();
        let grade = self.grade(step)?;
        if self.exchange.replicated() && self.assignment.pipeline.len() == 1 {
            self.compare_replicas()?;
        }
        self.gather_stages(step)?;
        if self.tracer.is_on() {
            let (rank, spans) = (self.net.seat(), self.tracer.take());
            self.clock.tell(Event::Trace { rank, spans });
        }
        let cpu = process_cpu_seconds() - self.cpu_before;
        let cpu = if self.speaks_for_process { cpu } else { 0.0 };
        let raw = self.exchange.bytes_raw() + self.wired.load(Ordering::Relaxed);
        let dropped = self.ledger.dropped.load(Ordering::Relaxed) as f64;
        let mut numbers = vec![self.net.bytes_sent() as f64, raw as f64, cpu, dropped];
        let (world, seat) = (self.net.world() as usize, self.net.seat().index());
        let pace = self.clock.pace();
        let own = numbers.len() + 3 * seat;
        numbers.resize(numbers.len() + 3 * world, 0.0);
        numbers[own..own + 3].copy_from_slice(&[pace.computation, pace.gate, pace.merge]);
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
            lead_max: self.ledger.lead_max.load(Ordering::Relaxed),
            // Every owner counts for itself: the mean over owners is that of whole contributions.
            dropped: (sums[3] / world as f64).round() as u64,
            paces: sums[4..].chunks_exact(3).enumerate().map(pace_of).collect(),
        };
        let model = (self.net.seat() == Seat(0)).then(|| std::mem::take(&mut self.model));
        Ok(Finished { model, figures })
    }

    fn grade(&mut self, step: Step) -> Result<Grade> {
        let batch = self.dealer.everything();
        let moment = self.moments.at(step, self.walk.pass(step), batch.rows_step);
        let mut outbox = Outbox::new();
        let sums = self.learner.score(&mut Work {
            moment,
            place: self.place,
            model: &self.model,
            batch: &batch,
            memory: &mut self.memory,
            wires: &mut *self.wires,
            outbox: &mut outbox,
        })?;
        let sums = self.exchange.sum(sums)?;
        Ok(self.learner.grade(&self.model, &sums, batch.rows_step))
    }

    /// Replicas must hold the same bits; a machine that computes wrongly is found here.
    fn compare_replicas(&mut self) -> Result<()> {
        let digest = self.model.digest();
        let words: Vec<f64> = digest.chunks_exact(4).map(word).collect();
        let sums = self.exchange.sum(words.clone())?;
        let world = f64::from(self.net.world());
        match words.iter().zip(&sums).all(|(word, sum)| word * world == *sum) {
            true => Ok(()),
            false => Err(Fault::peer(None, "the replicas of the model differ at the end").hint(
                "a machine computes wrongly, or a learner depends on its rank: compare digests",
            )),
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
        Ok(())
    }

    /// Tells who sits here.
    pub fn introduce(&self, pid: u32, host: &str) {
        let rows = self.dealer.holding().rows_held();
        let rank = self.net.seat();
        self.clock.tell(Event::Worker { rank, pid, host: host.to_string(), rows });
    }
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

/// The model before the first step, with what the blend remembers beside it.
fn first_model(choices: &Choices, facts: &Facts, place: Place) -> Result<Model> {
    let mut model = choices.learner.init(facts, place)?;
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
