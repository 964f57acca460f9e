//! Local steps: each worker applies its own contributions, and now and then the flock exchanges what came of
//! them, as a blend of the catalogue says (local SGD, block momentum, elastic averaging, DiLoCo …).

use super::{Agreed, Exchange, HandedIn, agreed, asks_block, step_by_share, sum};
use crate::exchange::packet::Losses;
use crate::exchange::served::Asks;
use crate::merge::Merger;
use starlings_consistency::{At, Blend, Blending, Share};
use starlings_core::{Block, Body, Model, Result, Role, Step, Update, Values};
use starlings_learn::{Learner, Needs, Outcome};
use std::sync::Arc;

/// Local steps, blended now and then.
pub struct Blended {
    learner: Arc<dyn Learner>,
    blending: Arc<Blending>,
    merger: Merger,
    exact: Merger,
    world: u32,
    asks: Asks,
    agreed: Agreed,
    /// Whether this worker is about to leave and needs the others for that.
    parting: bool,
    /// Whether all have agreed that the next sum is plain, for someone is about to leave.
    plainly: bool,
    /// The step whose exchange is in progress, and what the codec had lost before it.
    before: Option<(Step, Losses)>,
    /// Where replicas count by their rows: this worker's rows and all workers' since the last exchange of deltas.
    rows: Option<(u64, u64)>,
}

impl Blended {
    /// From a blend, a merger for what it offers, and one for exact sums.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        blending: Arc<Blending>,
        mergers: [Merger; 2],
        world: u32,
    ) -> Blended {
        let [merger, exact] = mergers;
        let (asks, agreed) = (Asks::default(), Agreed::default());
        Blended {
            learner,
            blending,
            merger,
            exact,
            world,
            asks,
            agreed,
            parting: false,
            plainly: false,
            before: None,
            rows: None,
        }
    }

    /// Whether replicas count by the rows that they have used, not alike: where some are dealt more than others.
    #[must_use]
    pub fn by_rows(mut self, by_rows: bool) -> Blended {
        self.rows = (by_rows && blend(&self.blending).averages()).then_some((0, 0));
        self
    }

    /// Makes this worker's deltas count by its rows.
    fn weigh(&mut self, offer: &mut Update, model: &Model) {
        let Some((own, all)) = self.rows else { return };
        let weight = f64::from(self.world) * own as f64 / all.max(1) as f64;
        let is_weight = |block: &&mut Block| {
            model.get(&block.name).is_some_and(|tensor| tensor.role == Role::Weight)
        };
        let mut are_deltas = false;
        for block in offer.blocks.iter_mut().filter(is_weight) {
            are_deltas = true;
            match &mut block.body {
                _ if all == 0 => {}
                Body::Dense(Values::F64(values)) => values.iter_mut().for_each(|it| *it *= weight),
                Body::Dense(Values::F32(values)) => {
                    values.iter_mut().for_each(|it| *it = (f64::from(*it) * weight) as f32);
                }
                // Counts settle by themselves.
                _ => {}
            }
        }
        if are_deltas {
            self.rows = Some((0, 0));
        }
    }

    /// Exchanges what `at` calls for. Should it break off, `now` is the step that is taken again.
    fn exchange(&mut self, now: Step, at: &At, model: &mut Model) -> Result<()> {
        let blending = self.blending.clone();
        let blend = blend(&blending);
        let mut round = 0;
        // An ending and the exchange of a step may come after equally many steps.
        self.merger.begin(Step(2 * at.steps + u64::from(at.ending)));
        while let Some(mut offer) = blend.offer(at, round, model) {
            self.weigh(&mut offer, model);
            self.before = Some((now, self.merger.losses()));
            // Wishes travel with what is exchanged anyway: a flock that is silent is asked when it next speaks.
            offer.blocks.push(asks_block(self.asks, self.parting));
            let mut merged = match std::mem::take(&mut self.plainly) {
                true => self.merger.merge_plainly(offer)?,
                false => self.merger.merge(offer)?,
            };
            let votes = agreed(merged.blocks.pop());
            self.agreed.stop |= votes.stop;
            self.agreed.cut |= votes.cut;
            self.plainly = votes.part;
            blend.absorb(at, round, &merged, model);
            self.before = None;
            round += 1;
        }
        Ok(())
    }
}

fn blend(blending: &Blending) -> &dyn Blend {
    match blending {
        Blending::Local(blend) => &**blend,
        _ => unreachable!("only blends of local steps come here"),
    }
}

impl Exchange for Blended {
    fn open(&mut self, _: Step, _: &Needs, asks: Asks, _: &mut Model) -> Result<Agreed> {
        self.asks = asks;
        Ok(std::mem::take(&mut self.agreed))
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let outcome = match blend(&self.blending).share() {
            Share::Own => self.learner.apply(model, &handed.update, &handed.alone())?,
            Share::Flock => step_by_share(&*self.learner, &handed, model)?.0,
        };
        if let Some((own, all)) = &mut self.rows {
            *own += handed.own_rows;
            *all += handed.moment.rows;
        }
        let now = handed.moment.step;
        let at = At { steps: now.0 + 1, world: self.world, ending: false };
        self.exchange(now, &at, model)?;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        let at = At { steps: step.0, world: self.world, ending: true };
        self.exchange(step, &at, model)?;
        self.sum(vec![]).map(|_| step)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        self.merger.bytes_raw() + self.exact.bytes_raw()
    }

    fn losses(&self) -> Losses {
        self.merger.losses()
    }

    fn losses_before(&self) -> Option<(Step, Losses)> {
        self.before.clone()
    }

    fn restore(&mut self, losses: Losses, own: bool) {
        self.merger.restore(losses, own);
    }

    fn holds_back(&self) -> bool {
        self.merger.holds_back()
    }

    fn part(&mut self) {
        self.merger.part();
        self.parting = self.merger.parts_together();
    }

    fn parted(&self) -> bool {
        self.merger.parted()
    }

    fn replicated(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[path = "blended_tests.rs"]
mod tests;
