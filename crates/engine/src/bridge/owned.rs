//! Owners: the rows of the model live at owners; workers push contributions and pull what they need. With a
//! cadence (Dean et al., 2012: Downpour) a worker steps on its own copy, pushes what has accrued every so many steps
//! and fetches every so many others.

use super::rhythm::{Accrued, Habits, Opening};
use super::{Agreed, Exchange, HandedIn, latest, local_loss, steps_of_all, sum};
use crate::exchange::packet::Losses;
use crate::exchange::served::{Asks, News};
use crate::merge::Merger;
use crate::net::Net;
use crate::serve::Client;
use starlings_core::{Block, Body, Fault, Model, Result, Step, Update};
use starlings_learn::{Moment, Needs, Outcome, Sink};
use std::sync::{Arc, Mutex, MutexGuard};

/// The rows of the model live at owners; workers push contributions and pull what they need.
pub struct Owned {
    client: Arc<Mutex<Client>>,
    /// What was emitted last in this step and has not left yet.
    held: Arc<Mutex<Held>>,
    exact: Merger,
    habits: Habits,
    accrued: Accrued,
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
        let (accrued, before) = (Accrued::default(), None);
        Owned { client, held, exact, habits, accrued, cut_at: 0, before, net }
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
        let wished = asks.stop || asks.cut || client(&self.client).parts();
        match self.habits.opening(step, wished) {
            Opening::Skip(later) => {
                return Ok(Agreed { skip_to: Some(later), ..Agreed::default() });
            }
            Opening::Go => return Ok(Agreed::default()),
            Opening::Fetch => {}
        }
        let needs = if self.habits.cadence.is_some() { &Needs::All } else { needs };
        let asks = self.habits.asks(step, asks);
        let News { stop_at, cut_at, slowest, .. } =
            client(&self.client).pull(step, needs, asks, model)?;
        client(&self.client).pulled();
        if self.habits.repeats {
            self.before = Some((step, client(&self.client).residuals().save()));
        }
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= step.0);
        Ok(Agreed {
            stop: reached(stop_at),
            cut: reached(cut_at.filter(|&at| at > self.cut_at)),
            skip_to: self.habits.late(step, slowest),
            part: false,
        })
    }

    /// Blocks leave as they are emitted, each when the next one comes: communication goes on all the time instead
    /// of in bursts at the ends of steps. What also enters the own copy, or accrues, waits for the end.
    fn stream(&mut self, moment: &Moment) -> Option<Box<dyn Sink>> {
        if self.habits.cadence.is_some() || client(&self.client).sees_its_own() {
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
            learner.apply(model, &update, &alone)?;
        }
        let mut client = client(&self.client);
        client.step(&moment, &update, model)?;
        let parts = client.parts();
        self.accrued.take(&mut client, self.habits.cadence, (moment, update), parts)?;
        Ok(Outcome { objective, ..Outcome::default() })
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        self.accrued.flush(&mut client(&self.client))?;
        let latest = latest(&mut self.exact, &self.net, step)?;
        let due = steps_of_all(&mut self.exact, &self.net, self.accrued.pushed())?;
        client(&self.client).pull_all(latest, due, model)?;
        self.cut_at = self.cut_at.max(latest.0);
        // Nobody goes on before all have read the cut.
        self.sum(vec![]).map(|_| latest)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, step: Step) -> Result<()> {
        let mut client = client(&self.client);
        self.accrued.flush(&mut client)?;
        client.finished(step)
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
