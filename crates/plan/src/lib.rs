//! Stop 3 of the walk: parallelism, or who owns which rows and which part of the model.

mod deal;
mod plans;
mod schedule;

pub use plans::{BuildPlan, PLANS};

use starlings_core::{Result, Seat, Shard, Turn};

/// What one seat does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The shards whose rows it works on.
    pub shards: Vec<Shard>,
    /// Its stage of the model, from 0. Where the layers of stages are split among `parts` seats as well, the parts of the
    /// first come first, then those of the second.
    pub stage: u32,
    /// The seats of its pipeline, by stage; itself alone where the model is whole.
    pub pipeline: Vec<Seat>,
    /// The seats that hold the same part of the model, itself included, in order: sums run among them.
    pub group: Vec<Seat>,
    /// How many layers each stage has, where the job says so; else the learner cuts evenly.
    pub layers: Vec<u32>,
    /// What it does with its micro-batches, where the model is cut.
    pub turns: Vec<Turn>,
    /// Among how many seats every layer that can be split is split: so many neighbours in the pipeline have the same layers.
    pub parts: u32,
}

/// A plan.
///
/// Laws: the shards of all seats of one stage are a partition of all shards, even to within one; the seats of a pipeline have the
/// same shards; each seat is in exactly one group and one pipeline; a seat's stage is its place in its
/// pipeline; all seats have as many parts as the plan says, of which a pipeline is a multiple.
pub trait Plan: Send + Sync {
    /// What `seat` does in a flock of `world`.
    ///
    /// # Errors
    /// When the flock or the number of shards does not fit the plan.
    fn assign(&self, seat: Seat, world: u32, shards: u32) -> Result<Assignment>;

    /// How many stages the model is cut into, the parts of each counted.
    fn stages(&self) -> u32;

    /// Among how many seats the layers of a stage are split.
    fn parts(&self) -> u32 {
        1
    }

    /// Whether stages are to be cut by the time that layers take, which must be measured before the job starts.
    fn measures(&self) -> bool {
        false
    }

    /// The only number of workers that it takes, where its parameters say one.
    fn world(&self) -> Option<u32> {
        None
    }
}
