//! Where the walk is: which step comes next, in which pass, and when it ends. Pure counting.

use serde::{Deserialize, Serialize};
use starlings_core::Step;
use starlings_learn::Outcome;

/// The counters of one worker. All workers of a job count alike.
#[derive(Clone, Debug)]
pub struct Walk {
    next: u64,
    steps_max: Option<u64>,
    steps_a_pass: u64,
    samples: u64,
    iterations: Option<u64>,
    over: bool,
    endings: u64,
}

/// How far a walk has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Walked {
    next: u64,
    samples: u64,
    iterations: Option<u64>,
    over: bool,
    endings: u64,
}

impl Walked {
    /// Steps done.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.next
    }
}

impl Walk {
    /// A walk that begins at `start`. `steps_a_pass` is 1 for learners that pass over all rows.
    #[must_use]
    pub fn new(start: Step, steps_max: Option<u64>, steps_a_pass: u64) -> Walk {
        let (samples, iterations, over, endings) = (0, None, false, 0);
        Walk { next: start.0, steps_max, steps_a_pass, samples, iterations, over, endings }
    }

    /// The step to take now, if there is one.
    #[must_use]
    pub fn next_step(&self) -> Option<Step> {
        let left = !self.over && self.steps_max.is_none_or(|max| self.next < max);
        left.then_some(Step(self.next))
    }

    /// The pass a step belongs to.
    #[must_use]
    pub fn pass(&self, step: Step) -> u64 {
        step.0 / self.steps_a_pass
    }

    /// A step's number within its pass.
    #[must_use]
    pub fn step_in_pass(&self, step: Step) -> u64 {
        step.0 % self.steps_a_pass
    }

    /// A step is done.
    ///
    /// # Panics
    /// If steps are done out of order.
    pub fn done(&mut self, step: Step, rows: u64, outcome: &Outcome) {
        assert_eq!(step.0, self.next, "steps are done in order");
        self.next += 1;
        self.samples += rows;
        self.iterations = outcome.iterations.or(self.iterations);
        self.over = outcome.done;
    }

    /// What a worker must know to go on from here.
    #[must_use]
    pub fn so_far(&self) -> Walked {
        let Walk { next, samples, iterations, over, endings, .. } = *self;
        Walked { next, samples, iterations, over, endings }
    }

    /// Goes on from where another worker is.
    pub fn take_over(&mut self, walked: Walked) {
        Walked {
            next: self.next,
            samples: self.samples,
            iterations: self.iterations,
            over: self.over,
            endings: self.endings,
        } = walked;
    }

    /// The flock has gone on: the next step is this one, and the rows of those between are left out.
    pub fn skip_to(&mut self, step: Step) {
        self.next = self.next.max(step.0);
    }

    /// The steps from this one on are taken again.
    pub fn back_to(&mut self, step: Step) {
        self.next = self.next.min(step.0);
        self.over = false;
    }

    /// Steps done since the beginning of the job, those before a resume included.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.next
    }

    /// An exchange has ended so many times at the steps that are done: each time the model has become another one.
    pub fn ended(&mut self, times: u64) {
        self.endings += times;
    }

    /// How often exchanges have ended since this run began. Of two who have done equally many steps, the one with more of
    /// them has the later model.
    #[must_use]
    pub fn endings(&self) -> u64 {
        self.endings
    }

    /// Rows used by all workers since this run began.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Whole passes over the data: the learner's own count where it has one.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.iterations.unwrap_or(self.next / self.steps_a_pass)
    }

    /// Passes with their fraction.
    #[must_use]
    pub fn epochs(&self) -> f64 {
        match self.iterations {
            Some(iterations) => iterations as f64,
            None => self.next as f64 / self.steps_a_pass as f64,
        }
    }

    /// Whether the last step completed a pass.
    #[must_use]
    pub fn pass_complete(&self) -> bool {
        self.next.is_multiple_of(self.steps_a_pass)
    }

    /// Steps at most, where known.
    #[must_use]
    pub fn steps_max(&self) -> Option<u64> {
        self.steps_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_ends_at_its_last_step_or_when_the_learner_is_done() {
        let mut walk = Walk::new(Step(0), Some(3), 2);
        let mut seen = Vec::new();
        while let Some(step) = walk.next_step() {
            seen.push((walk.pass(step), walk.step_in_pass(step)));
            walk.done(step, 10, &Outcome::default());
        }
        assert_eq!(seen, [(0, 0), (0, 1), (1, 0)]);
        assert_eq!((walk.samples(), walk.epochs()), (30, 1.5));
        let mut walk = Walk::new(Step(5), None, 1);
        walk.done(Step(5), 1, &Outcome { done: true, iterations: Some(4), objective: None });
        assert_eq!((walk.next_step(), walk.passes()), (None, 4));
    }
}
