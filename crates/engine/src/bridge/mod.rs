//! The ways in which a worker's contribution becomes everyone's model, behind one face for the walk:
//!
//! | | who applies | what travels |
//! |---|---|---|
//! | `replicated` | all alike, on the same sum | contributions |
//! | `owned` | the owner of each row | contributions to owners, rows back |
//! | `grouped` | owners | sums of groups to owners, rows back |
//! | `blended` | each on its own rows | deltas, now and then |
//! | `mixed` | each on its own rows | models, to neighbours |
//! | `gossip` | each on its own rows | models that walk |
//! | `partial` | each on its own rows | deltas, part by part |

#[cfg(test)]
pub(crate) mod adder;
mod blended;
#[cfg(test)]
mod broken_tests;
mod build;
mod circles;
mod gossip;
mod grouped;
mod lead;
mod mixed;
mod nobody;
mod owned;
mod partial;
#[cfg(test)]
mod parting_tests;
mod replicated;
mod rhythm;
mod unify;

pub use blended::Blended;
pub use build::{Built, Plans};
pub use circles::Circles;
pub use gossip::{Gossip, VOTE};
pub use grouped::Grouped;
pub use mixed::Mixed;
pub(crate) use nobody::Nobody;
pub use owned::Owned;
pub use partial::PartialExchange;
pub use replicated::Replicated;

use crate::exchange::model_wire::{add_scaled, put, weights, zeros_like};
use crate::exchange::packet::Losses;
use crate::exchange::served::Asks;
use crate::merge::Merger;
use crate::net::Net;
use starlings_core::{Block, Body, Fault, Model, Result, Step, Update, Values};
use starlings_learn::{Learner, Moment, Needs, Outcome, Sink};

/// What all workers have agreed to do before a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreed {
    /// Stop.
    pub stop: bool,
    /// Make a cut: a checkpoint.
    pub cut: bool,
    /// The flock has gone on without this worker: its next step is this one.
    pub skip_to: Option<Step>,
    /// Someone is about to leave, and what its codec has held back is to go with it.
    pub part: bool,
}

/// What a worker hands in after a step.
pub struct HandedIn {
    /// The moment of the step.
    pub moment: Moment,
    /// Rows of this worker in the step.
    pub own_rows: u64,
    /// Its contribution; under the reproducible fold that of its first shard.
    pub update: Update,
    /// Under the reproducible fold the contributions of its other shards.
    pub others: Vec<Update>,
}

impl HandedIn {
    /// What a worker hands in: one contribution, or one for each of its shards.
    #[must_use]
    pub fn new(moment: Moment, own_rows: u64, mut contributions: Vec<Update>) -> HandedIn {
        let others = contributions.split_off(contributions.len().min(1));
        let update = contributions.pop().unwrap_or_default();
        HandedIn { moment, own_rows, update, others }
    }

    /// The moment of a step that this worker takes by itself, on its own rows.
    fn alone(&self) -> Moment {
        Moment { rows: self.own_rows.max(1), ..self.moment }
    }
}

/// How contributions become everyone's model.
pub trait Exchange: Send {
    /// Waits until the step may start and brings what it needs into the model.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    fn open(&mut self, step: Step, needs: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed>;

    /// Who takes blocks while the learner still computes, if anyone.
    fn stream(&mut self, moment: &Moment) -> Option<Box<dyn Sink>> {
        let _ = moment;
        None
    }

    /// Hands in a contribution; the model changes as all contributions say, now or later.
    ///
    /// # Errors
    /// A lost peer, an abort, the deadline, or a model that has diverged.
    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome>;

    /// Waits for all workers and makes the model whole and current on each. Gives the step that the cut is before:
    /// where workers are at different steps, that of the first of them.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step>;

    /// How many [cuts](Exchange::cut) have changed this seat's model beyond what its steps say, also those that broke off
    /// after that: somebody may have missed the change, and then it counts as behind.
    fn endings(&self) -> u64 {
        0
    }

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

    /// The largest lead over this seat that it has seen, where no owner counts steps.
    fn lead_max(&self) -> u64 {
        0
    }

    /// What this seat's codec has lost so far: part of a checkpoint.
    fn losses(&self) -> Losses {
        Losses::new()
    }

    /// The newest step that may have to be taken again, and what the codec had lost before it.
    fn losses_before(&self) -> Option<(Step, Losses)> {
        None
    }

    /// Takes back what was lost: this seat's own, or that of seats that are gone.
    fn restore(&mut self, losses: Losses, own: bool) {
        let _ = (losses, own);
    }

    /// Whether this seat's codec holds something back that later steps bring.
    fn holds_back(&self) -> bool {
        false
    }

    /// This worker is about to leave: what its codec has held back goes with what it hands in next, which loses
    /// nothing. Said before every step until it goes.
    fn part(&mut self) {}

    /// Whether, since [`part`](Exchange::part), all that was held back has arrived for good.
    fn parted(&self) -> bool {
        true
    }

    /// Whether every worker of a group must hold the same bits at the end.
    fn replicated(&self) -> bool;
}

/// The block that carries what workers ask of each other.
const ASKS: &str = "starlings.asks";

/// What this worker asks of the others, as a block to be summed.
fn asks_block(asks: Asks, part: bool) -> Block {
    Block::counts(ASKS, vec![i64::from(asks.stop), i64::from(asks.cut), i64::from(part)])
}

/// What the flock agrees on, from the sum of all such blocks.
fn agreed(sum: Option<Block>) -> Agreed {
    match sum.map(|block| block.body) {
        Some(Body::Dense(Values::I64(votes))) if votes.len() == 3 => {
            let [stop, cut, part] = [0, 1, 2].map(|at| votes[at] > 0);
            Agreed { stop, cut, part, skip_to: None }
        }
        _ => Agreed::default(),
    }
}

/// Takes this worker's share of the flock's step: a step on its own rows, as long as its part of all rows. The
/// shares of all workers add up to one whole step, the penalty included. Gives what changed.
fn step_by_share(
    learner: &dyn Learner,
    handed: &HandedIn,
    model: &mut Model,
) -> Result<(Outcome, Update)> {
    let before = weights(model);
    let outcome = learner.apply(model, &handed.update, &handed.alone())?;
    let mut delta = weights(model);
    add_scaled(&mut delta, -1.0, &before);
    let share = handed.own_rows as f64 / handed.moment.rows.max(1) as f64;
    let mut after = before;
    add_scaled(&mut after, share, &delta);
    put(model, &after);
    let mut scaled = zeros_like(&delta);
    add_scaled(&mut scaled, share, &delta);
    Ok((outcome, scaled))
}

/// The step that each seat is about to take; also a barrier.
fn steps_of_all(exact: &mut Merger, net: &Net, step: Step) -> Result<Vec<u64>> {
    let mut mine = vec![0; net.world() as usize];
    mine[net.seat().index()] = step.0 as i64;
    let merged = exact.merge(Update { blocks: vec![Block::counts("steps", mine)] })?;
    Ok(merged.i64("steps").iter().map(|&step| step as u64).collect())
}

/// The step of the seat that is furthest; also a barrier.
fn latest(exact: &mut Merger, net: &Net, step: Step) -> Result<Step> {
    let steps = steps_of_all(exact, net, step)?;
    Ok(Step(steps.into_iter().max().unwrap_or(step.0)))
}

/// The mean loss of this worker's own rows, where the learner emits a block "loss" that begins with (sum, rows).
fn local_loss(update: &Update) -> Option<f64> {
    match update.get("loss").map(|block| &block.body) {
        Some(Body::Dense(Values::F64(loss))) if loss.len() >= 2 && loss[1] > 0.0 => {
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
