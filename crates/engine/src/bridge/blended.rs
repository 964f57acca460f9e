//! Local steps: each worker applies its own contributions, and now and then the flock exchanges what came of
//! them, as a blend of the catalogue says (local SGD, block momentum, elastic averaging, DiLoCo …).

use super::{Agreed, Circles, Exchange, HandedIn, agreed, asks_block, step_by_share, sum};
use crate::exchange::packet::Losses;
use crate::exchange::served::Asks;
use crate::merge::Merger;
use starlings_consistency::{At, Blend, Blending, Share};
use starlings_core::{Block, Body, Model, Result, Role, Seat, Step, Update, Values};
use starlings_learn::{Learner, Needs, Outcome};
use std::sync::Arc;

/// The rows that the members of a circle have used, in its sum.
const ROWS: &str = "starlings.rows";

/// Local steps, blended now and then.
pub struct Blended {
    learner: Arc<dyn Learner>,
    blending: Arc<Blending>,
    merger: Merger,
    exact: Merger,
    /// Where some can sum without the others.
    circles: Option<Circles>,
    asks: Asks,
    agreed: Agreed,
    /// Whether this worker is about to leave and needs the others for that.
    parting: bool,
    /// Whether all have agreed that the next sum is plain, for someone is about to leave.
    plainly: bool,
    /// How often all have become one model at an ending.
    endings: u64,
    /// The step whose exchange is in progress, and what the codec had lost before it.
    before: Option<(Step, Losses)>,
    /// Where replicas count by their rows: this worker's rows and all workers' since the last exchange of all deltas.
    rows: Option<(u64, u64)>,
}

impl Blended {
    /// From a blend, a merger for what it offers, and one for exact sums.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        blending: Arc<Blending>,
        mergers: [Merger; 2],
    ) -> Blended {
        let [merger, exact] = mergers;
        let (asks, agreed) = (Asks::default(), Agreed::default());
        Blended {
            learner,
            blending,
            merger,
            exact,
            circles: None,
            asks,
            agreed,
            parting: false,
            plainly: false,
            endings: 0,
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

    /// Lets some seats sum without the others, where the blend wants that.
    #[must_use]
    pub fn in_circles(mut self, circles: Option<Circles>) -> Blended {
        self.circles = circles;
        self
    }

    fn at(&self, steps: u64, ending: bool) -> At {
        let (seat, world) = (self.merger.seat(), self.merger.seats());
        At { steps, seat, world, circles: self.circles.is_some(), ending }
    }

    /// What this worker's deltas count, beside 1 for the mean worker: by its rows, where rows count.
    fn weight(&self) -> Option<f64> {
        let (own, all) = self.rows.filter(|(_, all)| *all > 0)?;
        Some(f64::from(self.merger.seats()) * own as f64 / all as f64)
    }

    /// Makes this worker's deltas count by its rows, in a sum of all.
    fn weigh(&mut self, offer: &mut Update, model: &Model) {
        if let Some(weight) = self.weight() {
            scale(offer, model, weight);
        }
        if self.rows.is_some() && offer.blocks.iter().any(|block| is_weight(block, model)) {
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
        loop {
            if let Some(circle) = blend.circle(at, round, model) {
                if let Some(sum) = self.sum_in_circle(circle, (blend, at, round), model)? {
                    blend.absorb(at, round, &sum, model);
                }
            } else {
                let Some(offer) = blend.offer(at, round, model) else { return Ok(()) };
                let sum = self.sum_of_all(now, offer, model)?;
                blend.absorb(at, round, &sum, model);
                self.before = None;
            }
            round += 1;
        }
    }

    fn sum_of_all(&mut self, now: Step, mut offer: Update, model: &Model) -> Result<Update> {
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
        Ok(merged)
    }

    /// The sum of a circle, if this seat is in it. Wishes are not for a few, and the codec loses nothing that it would owe:
    /// both belong to sums of all.
    fn sum_in_circle(
        &mut self,
        circle: Vec<Seat>,
        (blend, at, round): (&dyn Blend, &At, u32),
        model: &mut Model,
    ) -> Result<Option<Update>> {
        let (weight, rows) = (self.weight(), self.rows);
        let circles =
            self.circles.as_mut().expect("blends ask for circles only where there are any");
        if !circle.contains(&at.seat) {
            circles.pass();
            return Ok(None);
        }
        let mut offer =
            blend.offer(at, round, model).expect("who is in a circle has something to sum");
        let (Some(weight), Some((own, all))) = (weight, rows) else {
            return circles.sum(circle, offer).map(Some);
        };
        // As in a sum of all, and then over what the members count together instead of their number.
        let members = circle.len() as f64;
        scale(&mut offer, model, weight);
        offer.blocks.push(Block::counts(ROWS, vec![own as i64]));
        let mut merged = circles.sum(circle, offer)?;
        let theirs = merged.i64(ROWS)[0];
        merged.blocks.pop();
        // Members that have used no row have no say: they come back to where all last met.
        if theirs > 0 {
            let together = f64::from(at.world) * theirs as f64 / all as f64;
            scale(&mut merged, model, members / together);
        }
        Ok(Some(merged))
    }
}

fn is_weight(block: &Block, model: &Model) -> bool {
    model.get(&block.name).is_some_and(|tensor| tensor.role == Role::Weight)
}

/// Scales deltas of weights. Counts settle by themselves.
fn scale(update: &mut Update, model: &Model, by: f64) {
    for block in update.blocks.iter_mut().filter(|block| is_weight(block, model)) {
        match &mut block.body {
            Body::Dense(Values::F64(values)) => values.iter_mut().for_each(|it| *it *= by),
            Body::Dense(Values::F32(values)) => {
                values.iter_mut().for_each(|it| *it = (f64::from(*it) * by) as f32);
            }
            _ => {}
        }
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
        let at = self.at(now.0 + 1, false);
        self.exchange(now, &at, model)?;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        let at = self.at(step.0, true);
        self.exchange(step, &at, model)?;
        // Counted at once: whoever is lost now, this seat has the ending and others may not.
        self.endings += 1;
        self.sum(vec![]).map(|_| step)
    }

    fn endings(&self) -> u64 {
        self.endings
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        let in_circles = self.circles.as_ref().map_or(0, Circles::bytes_raw);
        self.merger.bytes_raw() + self.exact.bytes_raw() + in_circles
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
