//! Owners: the rows of the model live at owners; workers push contributions and pull what they need. With a
//! cadence (Dean et al., 2012: Downpour) a worker steps on its own copy, pushes what has accrued every so many steps
//! and fetches every so many others.

use super::{Agreed, Exchange, HandedIn, latest, local_loss, steps_of_all, sum};
use crate::exchange::packet::Losses;
use crate::exchange::served::{Asks, News};
use crate::merge::Merger;
use crate::net::Net;
use crate::serve::Client;
use starlings_consistency::Cadence;
use starlings_core::{Block, Body, Fault, Model, Result, Seat, Step, Update};
use starlings_learn::{Learner, Moment, Needs, Outcome, Sink};
use std::sync::{Arc, Mutex, MutexGuard};

/// How a worker uses its owners.
#[derive(Clone)]
pub struct Habits {
    /// The learner, where contributions also enter the worker's own copy.
    pub echo: Option<Arc<dyn Learner>>,
    /// When to push and fetch, where that is not every step.
    pub cadence: Option<Cadence>,
    /// This seat.
    pub seat: Seat,
    /// Whether the flock goes on without those who are late.
    pub skips: bool,
    /// Whether a step may have to be taken again: members may be lost, and there is a barrier.
    pub repeats: bool,
}

/// The rows of the model live at owners; workers push contributions and pull what they need.
pub struct Owned {
    client: Arc<Mutex<Client>>,
    /// What was emitted last in this step and has not left yet.
    held: Arc<Mutex<Held>>,
    exact: Merger,
    habits: Habits,
    /// Contributions that have not been pushed yet, and the moment of the last.
    accrued: Option<(Moment, Update)>,
    /// Steps up to which this worker has pushed: what a cut must wait for. Steps that it skipped are not due.
    pushed: u64,
    /// The newest cut that this worker took part in.
    cut_at: u64,
    /// The step that was begun last, and what the codec had lost before it.
    before: Option<(Step, Losses)>,
    net: Arc<Net>,
}

impl Owned {
    /// From its client and a merger for exact sums.
    #[must_use]
    pub fn new(client: Client, exact: Merger, habits: Habits, net: Arc<Net>) -> Owned {
        let client = Arc::new(Mutex::new(client));
        let held = Arc::default();
        let (accrued, before) = (None, None);
        Owned { client, held, exact, habits, accrued, pushed: 0, cut_at: 0, before, net }
    }

    fn push_accrued(&mut self) -> Result<()> {
        match self.accrued.take() {
            Some((moment, update)) => self.push(&moment, &update),
            None => Ok(()),
        }
    }

    fn push(&mut self, moment: &Moment, update: &Update) -> Result<()> {
        self.pushed = moment.step.0 + 1;
        client(&self.client).push(moment, update, true)
    }

    /// Adds a contribution to those that wait.
    fn accrue(&mut self, moment: Moment, update: Update) -> Result<()> {
        let update = match self.accrued.take() {
            None => update,
            Some((_, mut sum)) => {
                let differs = |error: starlings_core::FoldError| {
                    Fault::caller(format!("contributions cannot accrue: {error}"))
                };
                sum.fold(&update).map_err(differs)?;
                sum
            }
        };
        self.accrued = Some((moment, update));
        Ok(())
    }
}

/// A block that waits for the next one, and what went wrong meanwhile.
#[derive(Default)]
struct Held {
    block: Option<Block>,
    fault: Option<Fault>,
}

struct Stream {
    client: Arc<Mutex<Client>>,
    held: Arc<Mutex<Held>>,
    moment: Moment,
}

impl Sink for Stream {
    fn take(&mut self, block: Block) -> Option<Block> {
        let mut held = self.held.lock().ok()?;
        // Statistics stay with the worker.
        if !client(&self.client).owns(&block.name) || matches!(block.body, Body::Factors(_)) {
            return Some(block);
        }
        if let Some(before) = held.block.replace(block) {
            let update = Update { blocks: vec![before] };
            let pushed = client(&self.client).push(&self.moment, &update, false);
            held.fault = held.fault.take().or(pushed.err());
        }
        None
    }
}

fn client(client: &Mutex<Client>) -> MutexGuard<'_, Client> {
    client.lock().expect("nobody panics with the client in hand")
}

impl Exchange for Owned {
    fn open(&mut self, step: Step, needs: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        let mut needs = needs;
        let mut asks = asks;
        if let Some(Cadence { fetch, warm, .. }) = self.habits.cadence {
            // While one replica warms the model up, the others wait for its last step.
            if step.0 < warm && self.habits.seat != Seat(0) {
                return Ok(Agreed { skip_to: Some(Step(warm)), ..Agreed::default() });
            }
            let parts = client(&self.client).parts();
            if !(step.0.is_multiple_of(fetch) || step.0 == warm || asks.stop || asks.cut || parts) {
                return Ok(Agreed::default());
            }
            // Whoever warms the model up does not wait for itself, and is not cut: the others could not take part.
            let warms = self.habits.seat == Seat(0);
            (needs, asks.after) = (&Needs::All, if warms { 0 } else { warm });
            asks.cut &= step.0 >= warm;
        }
        let News { stop_at, cut_at, slowest } =
            client(&self.client).pull(step, needs, asks, model)?;
        client(&self.client).pulled();
        if self.habits.repeats {
            self.before = Some((step, client(&self.client).residuals().save()));
        }
        let late = self.habits.skips && slowest > step.0 && slowest != u64::MAX;
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= step.0);
        Ok(Agreed {
            stop: reached(stop_at),
            cut: reached(cut_at.filter(|&at| at > self.cut_at)),
            skip_to: late.then_some(Step(slowest)),
            part: false,
        })
    }

    /// Blocks leave as they are emitted, each when the next one comes: communication goes on all the time instead
    /// of in bursts at the ends of steps. What also enters the own copy, or accrues, waits for the end.
    fn stream(&mut self, moment: &Moment) -> Option<Box<dyn Sink>> {
        if self.habits.cadence.is_some() || self.habits.echo.is_some() {
            return None;
        }
        let (client, held) = (self.client.clone(), self.held.clone());
        Some(Box::new(Stream { client, held, moment: *moment }))
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let objective = local_loss(&handed.update);
        let alone = handed.alone();
        let HandedIn { moment, mut update, .. } = handed;
        if let Ok(mut held) = self.held.lock() {
            if let Some(fault) = held.fault.take() {
                return Err(fault);
            }
            update.blocks.splice(0..0, held.block.take());
        }
        if let Some(learner) = &self.habits.echo {
            let own = if self.habits.cadence.is_some() { alone } else { moment };
            learner.apply(model, &update, &own)?;
        }
        match self.habits.cadence {
            None => self.push(&moment, &update)?,
            Some(Cadence { push, warm, .. }) => {
                self.accrue(moment, update)?;
                let steps = moment.step.0 + 1;
                // The others wait for the last step of the warm-up.
                if steps.is_multiple_of(push) || steps == warm || client(&self.client).parts() {
                    self.push_accrued()?;
                }
            }
        }
        Ok(Outcome { objective, ..Outcome::default() })
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        self.push_accrued()?;
        let latest = latest(&mut self.exact, &self.net, step)?;
        let due = steps_of_all(&mut self.exact, &self.net, Step(self.pushed))?;
        client(&self.client).pull_all(latest, due, model)?;
        self.cut_at = self.cut_at.max(latest.0);
        // Nobody goes on before all have read the cut.
        self.sum(vec![]).map(|_| latest)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, step: Step) -> Result<()> {
        self.push_accrued()?;
        client(&self.client).finished(step)
    }

    fn bytes_raw(&self) -> u64 {
        client(&self.client).bytes_raw() + self.exact.bytes_raw()
    }

    fn losses(&self) -> Losses {
        client(&self.client).losses()
    }

    fn holds_back(&self) -> bool {
        client(&self.client).holds_back()
    }

    fn part(&mut self) {
        client(&self.client).part();
    }

    fn parted(&self) -> bool {
        client(&self.client).parted()
    }

    fn losses_before(&self) -> Option<(Step, Losses)> {
        self.before.clone()
    }

    fn restore(&mut self, losses: Losses, _: bool) {
        client(&self.client).residuals().add(losses);
    }

    fn replicated(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "owned_tests.rs"]
mod tests;
