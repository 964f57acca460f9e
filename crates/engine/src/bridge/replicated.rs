//! Replicas: every worker has the whole model (of its stage); contributions are summed, then applied by all
//! alike.

use super::{Agreed, Exchange, HandedIn, agreed, asks_block, sum};
use crate::exchange::served::Asks;
use crate::merge::Merger;
use starlings_core::{Model, Result, Step, Update};
use starlings_learn::{Learner, Needs, Outcome};
use std::sync::Arc;

/// Every worker has the whole model (of its stage); contributions are summed, then applied by all alike.
pub struct Replicated {
    learner: Arc<dyn Learner>,
    /// Sums among the seats that hold the same part of the model.
    group: Merger,
    /// Sums among all; absent when the group is everyone.
    world: Option<Merger>,
    /// Sums of numbers that must arrive exactly.
    exact: Merger,
    asks: Asks,
    agreed: Agreed,
}

impl Replicated {
    /// From its mergers.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        group: Merger,
        world: Option<Merger>,
        exact: Merger,
    ) -> Replicated {
        let (asks, agreed) = (Asks::default(), Agreed::default());
        Replicated { learner, group, world, exact, asks, agreed }
    }
}

impl Exchange for Replicated {
    fn open(&mut self, _: Step, _: &Needs, asks: Asks, _: &mut Model) -> Result<Agreed> {
        self.asks = asks;
        Ok(std::mem::take(&mut self.agreed))
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let HandedIn { moment, mut update, .. } = handed;
        let asks = asks_block(self.asks);
        let asks = match &mut self.world {
            None => {
                update.blocks.push(asks);
                update = self.group.merge(update)?;
                update.blocks.pop()
            }
            Some(world) => {
                update = self.group.merge(update)?;
                world.merge(Update { blocks: vec![asks] })?.blocks.pop()
            }
        };
        self.agreed = agreed(asks);
        self.learner.apply(model, &update, &moment)
    }

    fn cut(&mut self, step: Step, _: &mut Model) -> Result<Step> {
        self.sum(vec![]).map(|_| step)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        let world = self.world.as_ref().map_or(0, Merger::bytes_raw);
        self.group.bytes_raw() + self.exact.bytes_raw() + world
    }

    fn replicated(&self) -> bool {
        true
    }
}
