//! Where boosting is, and what is remembered of rows: their weights, and how many members these have taken account of.
//!
//! A round trains a member, then judges it. For classes one exchange judges (what share of the weight went wrong); for
//! numbers three (the largest error, the mean loss, the weight that is left), for each needs the one before it. The
//! first step counts the weight of all rows.

use crate::by_shard;
use crate::{Cells, Facts, Work};
use starlings_core::{Block, Fault, Model, Result, Role, Tensor, Update, Values};

/// How an error counts, for numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Loss {
    Linear,
    Square,
    Exponential,
}

impl Loss {
    /// Of an error between 0 and 1.
    pub(super) fn of(self, error: f64) -> f64 {
        match self {
            Loss::Linear => error,
            Loss::Square => error * error,
            Loss::Exponential => 1.0 - (-error).exp(),
        }
    }
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Stage {
    /// Counts the weight of all rows.
    Count,
    /// Trains the round's member.
    Train,
    /// What share of the weight went wrong.
    Judge,
    /// The largest error.
    Largest,
    /// The mean loss.
    Mean,
    /// The weight that is left.
    Left,
}

const STAGES: [Stage; 6] =
    [Stage::Count, Stage::Train, Stage::Judge, Stage::Largest, Stage::Mean, Stage::Left];

/// Where boosting is.
pub(super) struct State {
    pub(super) round: usize,
    pub(super) stage: Stage,
    pub(super) shards: u32,
    rows: f64,
    /// The weight of all rows.
    pub(super) total: f64,
    /// The largest error and the mean loss of the member that is judged.
    pub(super) largest: f64,
    pub(super) mean: f64,
}

impl State {
    pub(super) fn start(facts: &Facts) -> State {
        let rows = facts.rows as f64;
        State {
            round: 0,
            stage: Stage::Count,
            shards: facts.shards,
            rows,
            total: rows,
            largest: 0.0,
            mean: 0.0,
        }
    }

    pub(super) fn load(model: &Model) -> State {
        let (at, sums) = (model.i64("boosting"), model.f64("boosting_sums"));
        State {
            round: at[0] as usize,
            stage: STAGES[at[1] as usize],
            shards: at[2] as u32,
            rows: sums[0],
            total: sums[1],
            largest: sums[2],
            mean: sums[3],
        }
    }

    pub(super) fn save(&self, model: &mut Model) {
        let stage = STAGES.iter().position(|stage| *stage == self.stage).unwrap_or(0);
        let at = vec![self.round as i64, stage as i64, i64::from(self.shards)];
        model.set("boosting", super::super::conversion::whole(at, Role::State));
        let sums = vec![self.rows, self.total, self.largest, self.mean];
        model.set("boosting_sums", Tensor::of(&[4], sums, Role::State));
    }

    /// Whether the round's member is not there yet.
    pub(super) fn training(&self) -> bool {
        matches!(self.stage, Stage::Count | Stage::Train)
    }

    pub(super) fn counting(&self) -> bool {
        self.stage == Stage::Count
    }

    /// What weights are multiplied with, so that they are one on average.
    pub(super) fn scale(&self) -> f64 {
        self.rows / self.total
    }

    /// The weight of all rows is counted.
    pub(super) fn counted(&mut self, update: &Update) -> Result<()> {
        let sums = sums_of(update);
        (self.total, self.rows) = (sums[0], sums[1]);
        if self.total <= 0.0 {
            return Err(Fault::caller("adaboost: no row has a weight above zero"));
        }
        self.stage = Stage::Train;
        Ok(())
    }

    /// The round's member is there.
    pub(super) fn trained(&mut self, classes: bool) {
        self.stage = if classes { Stage::Judge } else { Stage::Largest };
    }

    /// The next round begins, with this weight of all rows.
    pub(super) fn next(&mut self, total: f64) {
        self.total = total;
        self.round += 1;
        self.stage = Stage::Train;
    }
}

/// The weight and the number of the rows that count.
pub(super) fn count(work: &mut Work<'_>, state: &State) -> Result<()> {
    let (batch, memory) = (work.batch, &mut *work.memory);
    let rows = by_shard::sums(batch, (state.shards, 2), |slice, sums| {
        for weight in kept(memory.shard(slice.shard)).into_iter().filter(|weight| *weight > 0.0) {
            sums[0] += weight;
            sums[1] += 1.0;
        }
        Ok(())
    })?;
    work.outbox.emit(Block::rows("judged", rows));
    Ok(())
}

/// The sums of all shards, in their order.
pub(super) fn sums_of(update: &Update) -> Vec<f64> {
    update.rows("judged").map(by_shard::add_up).unwrap_or_default()
}

const WEIGHTS: &str = "row_weights";
const ROUNDS: &str = "rounds_counted";

/// How many rounds the weights of a shard take account of; none where it has none.
pub(super) fn known(cells: &Cells) -> Option<usize> {
    cells.get(ROUNDS)?.as_i64()?.first().map(|&rounds| rounds as usize)
}

/// The weights of a shard.
pub(super) fn kept(cells: &Cells) -> Vec<f64> {
    cells.get(WEIGHTS).and_then(Values::as_f64).map(<[f64]>::to_vec).unwrap_or_default()
}

/// Remembers the weights of a shard.
pub(super) fn keep(cells: &mut Cells, weights: Vec<f64>, rounds: usize) {
    cells.insert(WEIGHTS.to_string(), Values::F64(weights));
    cells.insert(ROUNDS.to_string(), Values::I64(vec![rounds as i64]));
}
