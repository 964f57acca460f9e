//! When whoever pushes to owners pushes and fetches: every step, or with a cadence (Dean et al., 2012: Downpour), where
//! contributions accrue between pushes. A worker and a group around its first seat keep the same rhythm.

use crate::exchange::served::Asks;
use crate::serve::Client;
use starlings_consistency::Cadence;
use starlings_core::{Fault, Result, Seat, Step, Update};
use starlings_learn::{Learner, Moment};
use std::sync::Arc;

/// How owners are used.
#[derive(Clone)]
pub struct Habits {
    /// The learner, where there is a cadence: contributions enter the own copy between fetches.
    pub echo: Option<Arc<dyn Learner>>,
    /// When to push and fetch, where that is not every step.
    pub cadence: Option<Cadence>,
    /// Who pushes: this seat, or the first of its group.
    pub seat: Seat,
    /// Whether the flock goes on without those who are late.
    pub skips: bool,
    /// Whether a step may have to be taken again: members may be lost, and there is a barrier.
    pub repeats: bool,
}

impl Habits {
    /// What comes before a step. With `wished` something is asked of the owners, or somebody is about to leave.
    pub(super) fn opening(&self, step: Step, wished: bool) -> Opening {
        let Some(Cadence { fetch, warm, .. }) = self.cadence else { return Opening::Fetch };
        // While one replica warms the model up, the others wait for its last step.
        if step.0 < warm && !self.warms() {
            return Opening::Skip(Step(warm));
        }
        let due = step.0.is_multiple_of(fetch) || step.0 == warm || wished;
        if due { Opening::Fetch } else { Opening::Go }
    }

    /// What to ask along with a fetch.
    pub(super) fn asks(&self, step: Step, asks: Asks) -> Asks {
        let Some(Cadence { warm, .. }) = self.cadence else { return asks };
        // Whoever warms the model up does not wait for itself, and is not cut: the others could not take part.
        let after = if self.warms() { 0 } else { warm };
        Asks { after, cut: asks.cut && step.0 >= warm, ..asks }
    }

    /// The step to go on with, where the flock has done so many without this one.
    pub(super) fn late(&self, step: Step, slowest: u64) -> Option<Step> {
        let late = self.skips && slowest > step.0 && slowest != u64::MAX;
        late.then_some(Step(slowest))
    }

    fn warms(&self) -> bool {
        self.seat == Seat(0)
    }
}

/// What comes before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opening {
    /// This one takes no part before that step.
    Skip(Step),
    /// The step is taken on the own copy.
    Go,
    /// The model is fetched.
    Fetch,
}

/// What one that pushes has not pushed yet.
#[derive(Default)]
pub(super) struct Accrued {
    /// Contributions that wait, and the moment of the last.
    waiting: Option<(Moment, Update)>,
    /// Steps up to which it has pushed: what a cut must wait for. Steps that it skipped are not due.
    pushed: u64,
}

impl Accrued {
    /// Steps up to which everything was pushed.
    pub(super) fn pushed(&self) -> Step {
        Step(self.pushed)
    }

    /// Takes a contribution: it is pushed, or waits for others. With `parts` somebody is about to leave, and nothing waits.
    pub(super) fn take(
        &mut self,
        client: &mut Client,
        cadence: Option<Cadence>,
        (moment, update): (Moment, Update),
        parts: bool,
    ) -> Result<()> {
        let Some(Cadence { push, warm, .. }) = cadence else {
            return self.push(client, &moment, &update);
        };
        // What is pushed is divided by the rows of one step, so only steps of equally many rows accrue: the last step of a
        // pass is often shorter.
        if self.waiting.as_ref().is_some_and(|(waiting, _)| waiting.rows != moment.rows) {
            self.flush(client)?;
        }
        self.add(moment, update)?;
        let steps = moment.step.0 + 1;
        // The others wait for the last step of the warm-up.
        if steps.is_multiple_of(push) || steps == warm || parts {
            return self.flush(client);
        }
        Ok(())
    }

    /// Pushes what waits.
    pub(super) fn flush(&mut self, client: &mut Client) -> Result<()> {
        match self.waiting.take() {
            Some((moment, update)) => self.push(client, &moment, &update),
            None => Ok(()),
        }
    }

    fn push(&mut self, client: &mut Client, moment: &Moment, update: &Update) -> Result<()> {
        self.pushed = moment.step.0 + 1;
        client.push(moment, update, true)
    }

    /// Adds a contribution to those that wait.
    fn add(&mut self, moment: Moment, update: Update) -> Result<()> {
        let update = match self.waiting.take() {
            None => update,
            Some((_, mut sum)) => {
                let differs = |error: starlings_core::FoldError| {
                    Fault::caller(format!("contributions cannot accrue: {error}"))
                };
                sum.fold(&update).map_err(differs)?;
                sum
            }
        };
        self.waiting = Some((moment, update));
        Ok(())
    }
}
