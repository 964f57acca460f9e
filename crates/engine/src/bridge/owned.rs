//! Owners: the rows of the model live at owners; workers push contributions and pull what they need. With a
//! cadence (Dean et al., 2012: Downpour) a worker steps on its own copy, pushes what has accrued every so many steps
//! and fetches every so many others.

use super::{Agreed, Exchange, HandedIn, local_loss, steps_of_all, sum};
use crate::exchange::served::{Asks, News};
use crate::merge::Merger;
use crate::net::Net;
use crate::serve::Client;
use starlings_consistency::Cadence;
use starlings_core::{Model, Result, Seat, Step, Update};
use starlings_learn::{Learner, Moment, Needs, Outcome};
use std::sync::Arc;

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
}

/// The rows of the model live at owners; workers push contributions and pull what they need.
pub struct Owned {
    client: Client,
    exact: Merger,
    habits: Habits,
    /// Contributions that have not been pushed yet, and the moment of the last.
    accrued: Option<(Moment, Update)>,
    /// The newest cut that this worker took part in.
    cut_at: u64,
    net: Arc<Net>,
}

impl Owned {
    /// From its client and a merger for exact sums.
    #[must_use]
    pub fn new(client: Client, exact: Merger, habits: Habits, net: Arc<Net>) -> Owned {
        Owned { client, exact, habits, accrued: None, cut_at: 0, net }
    }

    fn push_accrued(&mut self) -> Result<()> {
        match self.accrued.take() {
            Some((moment, update)) => self.client.push(&moment, &update, true),
            None => Ok(()),
        }
    }

    /// Adds a contribution to those that wait.
    fn accrue(&mut self, moment: Moment, update: Update) -> Result<()> {
        let update = match self.accrued.take() {
            None => update,
            Some((_, mut sum)) => {
                let differs = |error: starlings_core::FoldError| {
                    starlings_core::Fault::caller(format!("contributions cannot accrue: {error}"))
                };
                sum.fold(&update).map_err(differs)?;
                sum
            }
        };
        self.accrued = Some((moment, update));
        Ok(())
    }
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
            if !(step.0.is_multiple_of(fetch) || step.0 == warm || asks.stop || asks.cut) {
                return Ok(Agreed::default());
            }
            (needs, asks.after) = (&Needs::All, warm.min(step.0));
        }
        let News { stop_at, cut_at, slowest } = self.client.pull(step, needs, asks, model)?;
        let late = self.habits.skips && slowest > step.0 && slowest != u64::MAX;
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= step.0);
        Ok(Agreed {
            stop: reached(stop_at),
            cut: reached(cut_at.filter(|&at| at > self.cut_at)),
            skip_to: late.then_some(Step(slowest)),
        })
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let objective = local_loss(&handed.update);
        let alone = handed.alone();
        let HandedIn { moment, update, .. } = handed;
        if let Some(learner) = &self.habits.echo {
            let own = if self.habits.cadence.is_some() { alone } else { moment };
            learner.apply(model, &update, &own)?;
        }
        match self.habits.cadence {
            None => self.client.push(&moment, &update, true)?,
            Some(Cadence { push, .. }) => {
                self.accrue(moment, update)?;
                if (moment.step.0 + 1).is_multiple_of(push) {
                    self.push_accrued()?;
                }
            }
        }
        Ok(Outcome { objective, ..Outcome::default() })
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        self.push_accrued()?;
        let due = steps_of_all(&mut self.exact, &self.net, step)?;
        let latest = due.iter().copied().max().map_or(step, Step);
        self.client.pull_all(latest, due, model)?;
        self.cut_at = self.cut_at.max(latest.0);
        // Nobody goes on before all have read the cut.
        self.sum(vec![]).map(|_| latest)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, step: Step) -> Result<()> {
        self.push_accrued()?;
        self.client.finished(step)
    }

    fn bytes_raw(&self) -> u64 {
        self.client.bytes_raw() + self.exact.bytes_raw()
    }

    fn replicated(&self) -> bool {
        false
    }
}
