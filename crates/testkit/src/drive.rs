//! The reference driver: trains any learner on n workers inside this process with plain loops. No engine,
//! no topology, no codec, no thread: what is left is the learner's own mathematics, so that whatever the
//! engine computes under a barrier can be compared with it.
//!
//! One step: every worker adopts the shards it does not know, contributes on its own rows, the updates are
//! folded in the order of workers, and every replica applies the sum.

use starlings_core::{Model, Result, Shard, Step, Update};
use starlings_data::{Dealer, Holding, Schema};
use starlings_learn::{
    Appetite, Cells, Facts, Grade, Learner, Memory, Moment, NoWires, Outbox, Outcome, Place, Work,
};

/// A learner that passes over all rows and is not done after this many steps never will be.
const STEPS_MAX: u64 = 1_000_000;

/// How to drive.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// How many workers share the rows: shard s belongs to worker s mod n.
    pub workers: u32,
    /// Virtual shards.
    pub shards: u32,
    /// The job's seed.
    pub seed: u64,
    /// Rows of a mini-batch, all workers together.
    pub batch: u64,
    /// Passes for mini-batch learners (10 if not given), iterations for the others (their own default).
    pub epochs: Option<u64>,
}

impl Default for Drive {
    fn default() -> Drive {
        Drive { workers: 1, shards: 16, seed: 1, batch: 32, epochs: None }
    }
}

impl Drive {
    /// The facts that agree with these options.
    #[must_use]
    pub fn facts(&self, schema: &Schema, rows: u64) -> Facts {
        Facts {
            rows,
            schema: schema.clone(),
            shards: self.shards,
            seed: self.seed,
            epochs: self.epochs,
            steps: None,
            batch: self.batch,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Driven {
    /// The trained model; all replicas hold these bits.
    pub model: Model,
    /// What all workers remember, by shard.
    pub memory: Memory,
    /// Steps taken.
    pub steps: u64,
    /// The last step's outcome.
    pub outcome: Outcome,
    /// Objective and metrics over all rows.
    pub grade: Grade,
}

/// Trains a learner from the first step to the last.
///
/// # Errors
/// Whatever the learner refuses.
pub fn drive(
    learner: &dyn Learner,
    facts: &Facts,
    holding: &Holding,
    options: &Drive,
) -> Result<Driven> {
    let mut run = Run::start(learner, facts, holding, options)?;
    while run.step()? {}
    run.finish()
}

/// A run between two steps.
pub struct Run<'a> {
    learner: &'a dyn Learner,
    options: Drive,
    workers: Vec<Worker>,
    step: u64,
    outcome: Outcome,
    emitted: usize,
}

/// One worker: its rows, its replica and what it remembers.
struct Worker {
    dealer: Dealer,
    model: Model,
    memory: Memory,
}

impl<'a> Run<'a> {
    /// A run before its first step.
    ///
    /// # Errors
    /// When the learner cannot learn from these facts.
    pub fn start(
        learner: &'a dyn Learner,
        facts: &Facts,
        holding: &Holding,
        options: &Drive,
    ) -> Result<Run<'a>> {
        let model = learner.init(facts, Place::WHOLE)?;
        Ok(Run::resume(learner, holding, options, (0, &model, &Memory::new())))
    }

    /// A run that goes on after `steps` steps from what [`checkpoint`](Run::checkpoint) gave.
    #[must_use]
    pub fn resume(
        learner: &'a dyn Learner,
        holding: &Holding,
        options: &Drive,
        (steps, model, memory): (u64, &Model, &Memory),
    ) -> Run<'a> {
        let worker = |worker: u32| {
            let mine: Vec<Shard> =
                (0..options.shards).filter(|s| s % options.workers == worker).map(Shard).collect();
            let mut remembered = Memory::new();
            memory
                .iter()
                .filter(|(shard, _)| mine.contains(shard))
                .for_each(|(shard, cells)| remembered.insert(shard, cells.clone()));
            let dealer = Dealer::new(holding.only(&mine), options.seed, options.batch);
            Worker { dealer, model: model.clone(), memory: remembered }
        };
        let workers = (0..options.workers).map(worker).collect();
        Run {
            learner,
            options: *options,
            workers,
            step: steps,
            outcome: Outcome::default(),
            emitted: 0,
        }
    }

    /// Steps taken, the model and what all workers remember.
    ///
    /// # Panics
    /// If replicas differ: the learner's `apply` is not a function of its arguments.
    #[must_use]
    pub fn checkpoint(&self) -> (u64, Model, Memory) {
        let (first, others) = self.workers.split_first().expect("at least one worker");
        for other in others {
            assert_eq!(first.model.digest(), other.model.digest(), "replicas differ");
        }
        let mut memory = Memory::new();
        for worker in &self.workers {
            worker.memory.iter().for_each(|(shard, cells)| memory.insert(shard, cells.clone()));
        }
        (self.step, first.model.clone(), memory)
    }

    /// A step that is begun, given up and taken again, as when a peer is lost in the middle of it. With `forget` the
    /// first worker has lost what it remembers by then, and adopts its shards anew.
    ///
    /// # Errors
    /// Whatever the learner refuses.
    pub fn stumble(&mut self, forget: bool) -> Result<bool> {
        if self.is_complete() {
            return Ok(false);
        }
        for worker in &mut self.workers {
            worker.contribute(self.learner, &self.options, self.step)?;
        }
        if forget {
            self.workers[0].memory = Memory::new();
        }
        self.step()
    }

    /// Takes a step, unless training is complete. Says whether it did.
    ///
    /// # Errors
    /// Whatever the learner refuses.
    ///
    /// # Panics
    /// If workers emit different blocks, or a learner that passes over all rows never ends.
    pub fn step(&mut self) -> Result<bool> {
        if self.is_complete() {
            return Ok(false);
        }
        let mut sum: Option<Update> = None;
        let mut moment = None;
        for worker in &mut self.workers {
            let (update, when) = worker.contribute(self.learner, &self.options, self.step)?;
            moment = Some(when);
            self.emitted = update.bytes();
            match &mut sum {
                None => sum = Some(update),
                Some(sum) => sum.fold(&update).expect("workers emit the same names and shapes"),
            }
        }
        let (sum, moment) = sum.zip(moment).expect("at least one worker");
        for worker in &mut self.workers {
            self.outcome = self.learner.apply(&mut worker.model, &sum, &moment)?;
        }
        self.step += 1;
        Ok(true)
    }

    /// Bytes of the numbers that one worker emitted in the last step.
    #[must_use]
    pub fn emitted(&self) -> usize {
        self.emitted
    }

    /// Scores the model over all rows.
    ///
    /// # Errors
    /// Whatever the learner refuses.
    pub fn finish(mut self) -> Result<Driven> {
        let mut sums: Vec<f64> = Vec::new();
        let mut rows = 0;
        for worker in &mut self.workers {
            let part = worker.score(self.learner, &self.options, self.step)?;
            sums.resize(part.len(), 0.0);
            sums.iter_mut().zip(&part).for_each(|(sum, part)| *sum += part);
            rows = worker.dealer.holding().rows_total;
        }
        let (steps, model, memory) = self.checkpoint();
        let grade = self.learner.grade(&model, &sums, rows);
        Ok(Driven { model, memory, steps, outcome: self.outcome, grade })
    }

    fn is_complete(&self) -> bool {
        match self.learner.appetite() {
            Appetite::Batches => {
                let passes = self.options.epochs.unwrap_or(10);
                self.outcome.done || self.step >= passes * self.workers[0].dealer.steps_a_pass()
            }
            Appetite::Passes => {
                assert!(self.step < STEPS_MAX, "the learner never says that it is done");
                self.outcome.done
            }
        }
    }
}

impl Worker {
    fn contribute(
        &mut self,
        learner: &dyn Learner,
        options: &Drive,
        step: u64,
    ) -> Result<(Update, Moment)> {
        self.adopt(learner);
        let steps = self.dealer.steps_a_pass();
        let (batch, pass) = match learner.appetite() {
            Appetite::Passes => (self.dealer.everything(), 0),
            Appetite::Batches => (self.dealer.deal(step / steps, step % steps), step / steps),
        };
        let moment = Moment { step: Step(step), pass, seed: options.seed, rows: batch.rows_step };
        let mut outbox = Outbox::new();
        learner.contribute(&mut Work {
            moment,
            place: Place::WHOLE,
            model: &self.model,
            batch: &batch,
            memory: &mut self.memory,
            wires: &mut NoWires,
            outbox: &mut outbox,
        })?;
        Ok((outbox.take(), moment))
    }

    fn score(&mut self, learner: &dyn Learner, options: &Drive, step: u64) -> Result<Vec<f64>> {
        self.adopt(learner);
        let batch = self.dealer.everything();
        let rows = batch.rows_step;
        learner.score(&mut Work {
            moment: Moment { step: Step(step), pass: 0, seed: options.seed, rows },
            place: Place::WHOLE,
            model: &self.model,
            batch: &batch,
            memory: &mut self.memory,
            wires: &mut NoWires,
            outbox: &mut Outbox::new(),
        })
    }

    fn adopt(&mut self, learner: &dyn Learner) {
        let batch = self.dealer.everything();
        for slice in &batch.slices {
            if !self.memory.knows(slice.shard) {
                let mut cells = Cells::new();
                learner.adopt(&self.model, &batch, slice, &mut cells);
                self.memory.insert(slice.shard, cells);
            }
        }
    }
}
