//! The two ways a worker's contribution becomes everyone's model, behind one face for the walk: replicas that
//! sum and apply alike (`Replicated`), or owners that apply and serve rows (`Owned`).

use crate::exchange::served::Asks;
use crate::merge::Merger;
use crate::serve::{Client, Pulled};
use starlings_core::{Block, Body, Fault, Model, Result, Step, Update, Values};
use starlings_learn::{Learner, Moment, Needs, Outcome};
use std::sync::Arc;

/// What all workers have agreed to do before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// Stop.
    pub stop: bool,
    /// Make a cut: a checkpoint.
    pub cut: bool,
}

/// How contributions become everyone's model.
pub trait Exchange: Send {
    /// Waits until the step may start and brings what it needs into the model.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    fn open(&mut self, step: Step, needs: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed>;

    /// Hands in a contribution; the model changes as all contributions say, now or later.
    ///
    /// # Errors
    /// A lost peer, an abort, the deadline, or a model that has diverged.
    fn finish(&mut self, moment: &Moment, update: Update, model: &mut Model) -> Result<Outcome>;

    /// Waits for all workers before this step and makes the model whole and current on each.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    fn cut(&mut self, step: Step, model: &mut Model) -> Result<()>;

    /// An exact sum over the whole flock; also a barrier.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>>;

    /// Says that this worker will hand in no more.
    ///
    /// # Errors
    /// A lost peer.
    fn close(&mut self, step: Step) -> Result<()>;

    /// Bytes that everything sent has in memory.
    fn bytes_raw(&self) -> u64;

    /// Whether every worker of a group must hold the same bits at the end.
    fn replicated(&self) -> bool;
}

/// The block that carries what workers ask of each other.
const ASKS: &str = "starlings.asks";

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

    fn asks_block(&self) -> Block {
        Block::counts(ASKS, vec![i64::from(self.asks.stop), i64::from(self.asks.cut)])
    }
}

impl Exchange for Replicated {
    fn open(&mut self, _: Step, _: &Needs, asks: Asks, _: &mut Model) -> Result<Agreed> {
        self.asks = asks;
        Ok(std::mem::take(&mut self.agreed))
    }

    fn finish(
        &mut self,
        moment: &Moment,
        mut update: Update,
        model: &mut Model,
    ) -> Result<Outcome> {
        let asks = match &mut self.world {
            None => {
                update.blocks.push(self.asks_block());
                update = self.group.merge(update)?;
                update.blocks.pop()
            }
            Some(_) => {
                update = self.group.merge(update)?;
                let asks = Update { blocks: vec![self.asks_block()] };
                let world = self.world.as_mut().expect("matched above");
                world.merge(asks)?.blocks.pop()
            }
        };
        if let Some(Block { body: Body::Dense(Values::I64(votes)), .. }) = asks {
            self.agreed = Agreed { stop: votes[0] > 0, cut: votes[1] > 0 };
        }
        self.learner.apply(model, &update, moment)
    }

    fn cut(&mut self, _: Step, _: &mut Model) -> Result<()> {
        self.sum(vec![]).map(|_| ())
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

/// The rows of the model live at owners; workers push contributions and pull what they need.
pub struct Owned {
    client: Client,
    exact: Merger,
}

impl Owned {
    /// From its client and a merger for exact sums.
    #[must_use]
    pub fn new(client: Client, exact: Merger) -> Owned {
        Owned { client, exact }
    }
}

impl Exchange for Owned {
    fn open(&mut self, step: Step, needs: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        let Pulled { stop_at, cut_at } = self.client.pull(step, needs, asks, model)?;
        let now = Some(step.0);
        Ok(Agreed { stop: stop_at == now, cut: cut_at == now })
    }

    fn finish(&mut self, moment: &Moment, update: Update, model: &mut Model) -> Result<Outcome> {
        self.client.push(moment, &update, model)?;
        Ok(Outcome { objective: local_loss(&update), ..Outcome::default() })
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<()> {
        let asks = Asks { strict: true, ..Asks::default() };
        self.client.pull(step, &Needs::All, asks, model)?;
        // Nobody goes on before all have read the cut.
        self.sum(vec![]).map(|_| ())
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, step: Step) -> Result<()> {
        self.client.finished(step)
    }

    fn bytes_raw(&self) -> u64 {
        self.client.bytes_raw() + self.exact.bytes_raw()
    }

    fn replicated(&self) -> bool {
        false
    }
}

/// The mean loss of this worker's own rows, where the learner emits a block "loss" of (sum, rows).
fn local_loss(update: &Update) -> Option<f64> {
    match update.get("loss").map(|block| &block.body) {
        Some(Body::Dense(Values::F64(loss))) if loss.len() == 2 && loss[1] > 0.0 => {
            Some(loss[0] / loss[1])
        }
        _ => None,
    }
}

fn sum(merger: &mut Merger, numbers: Vec<f64>) -> Result<Vec<f64>> {
    // A barrier needs at least one number to wait for.
    let empty = numbers.is_empty();
    let numbers = if empty { vec![0.0] } else { numbers };
    let mut merged = merger.merge(Update { blocks: vec![Block::dense("sum", numbers)] })?;
    match merged.blocks.pop().map(|block| block.body) {
        Some(Body::Dense(Values::F64(_))) if empty => Ok(Vec::new()),
        Some(Body::Dense(Values::F64(numbers))) => Ok(numbers),
        _ => Err(Fault::peer(None, "a sum came back as something else")),
    }
}
