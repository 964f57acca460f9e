//! A replica that is spoiled in the middle of a job: it is found at the next comparison and named, not at the end.

use super::*;
use crate::bridge::adder::{Adder, model};
use crate::choices::Choices;
use crate::job::{Job, Surroundings};
use crate::stop::Stop;
use crate::train::Options;
use starlings_core::{Ability, Block, Event, JobId, Model, Step, Update};
use starlings_data::{Batch, LabelNeed};
use starlings_learn::{Appetite, Facts, Grade, Learner, Moment, Outcome, Work};

/// Adds one in every step; on one worker a bit of the model tips over in one of them.
struct Tipped {
    /// The worker's thread.
    worker: &'static str,
    step: Step,
}

impl Learner for Tipped {
    fn task(&self) -> starlings_learn::Task {
        Adder.task()
    }

    fn appetite(&self) -> Appetite {
        Adder.appetite()
    }

    fn label(&self) -> LabelNeed {
        Adder.label()
    }

    fn requires(&self) -> &'static [Ability] {
        Adder.requires()
    }

    fn init(&self, _: &Facts, _: starlings_learn::Place) -> Result<Model> {
        Ok(model(vec![0.0; 3]))
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        work.outbox.emit(Block::dense("x", vec![1.0; 3]));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let outcome = Adder.apply(model, update, moment)?;
        if moment.step == self.step && std::thread::current().name() == Some(self.worker) {
            let weight = &mut model.f64_mut("x")[1];
            // Not the last: that one would be rounded away in the steps that follow.
            *weight = f64::from_bits(weight.to_bits() ^ (1 << 40));
        }
        Ok(outcome)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        Adder.score(work)
    }

    fn grade(&self, model: &Model, sums: &[f64], rows: u64) -> Grade {
        Adder.grade(model, sums, rows)
    }

    fn outputs(&self, model: &Model) -> usize {
        Adder.outputs(model)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        Adder.predict(model, batch, out)
    }
}

fn train(workers: u32, worker: &'static str, step: u64) -> Result<Trained> {
    let text = format!(
        "[data]\ntrain = 'synthetic://regression?rows=60&features=2&seed=1'\n\
         [learner]\nname = 'linear-regression'\nsolver = 'sgd'\n\
         [train]\nbatch = 60\nsteps = 1500\n[cluster]\nworkers = {workers}\n"
    );
    let job = Job::parse(&text, &[], &Surroundings { folder: "/".into(), cores: 2 })?;
    let mut choices = Choices::of(&job)?;
    choices.learner = Arc::new(Tipped { worker, step: Step(step) });
    let observer = Arc::new(|_: Event| {});
    let options = Options { observer, stop: Stop::new(), resume: false, program: None };
    run(&Task { job, choices, options, id: JobId(1) })
}

#[test]
fn a_spoiled_replica_is_named_at_the_next_comparison() {
    let message = train(3, "worker 2", 400).unwrap_err().message();
    assert!(message.contains("before step 999 the replica of rank 2"), "{message}");
}

#[test]
fn one_that_is_spoiled_after_the_last_comparison_is_named_at_the_end() {
    let message = train(3, "worker 1", 1_400).unwrap_err().message();
    assert!(message.contains("before step 1500 the replica of rank 1"), "{message}");
}

#[test]
fn of_two_replicas_that_differ_nobody_knows_which_is_right() {
    let message = train(2, "worker 1", 400).unwrap_err().message();
    assert!(message.contains("before step 999 the replicas of the model differ"), "{message}");
}

#[test]
fn replicas_that_are_left_alone_do_not_differ() {
    assert!(train(3, "nobody", 400).is_ok());
}
