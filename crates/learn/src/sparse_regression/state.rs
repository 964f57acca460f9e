//! What sparse regression keeps in the model: where it is in its phases, the moments of the data, and the stages of a
//! path. All of it is the same on all replicas.

use super::descent::Penalty;
use starlings_core::{Kind, Model, Role, Tensor};

/// The answer: one row a feature, then perhaps the intercept.
pub(crate) const WEIGHTS: &str = "weights";
/// The answers of a path, a row for each penalty.
pub(crate) const PATH: &str = "path";
/// The penalties of a path: l1 and l2 of each.
pub(crate) const PENALTIES: &str = "penalties";
/// The deviation of each feature, where the penalty counts in it.
pub(crate) const SCALE: &str = "scale";
/// Objective minus its lower bound, as the last step knew it.
pub(crate) const GAP: &str = "duality_gap";
/// Phase, stage, sweeps, sweeps allowed, steps applied.
const COUNTERS: &str = "sparse.counters";
/// The sum of weights, the mean of y, its mean square about the mean, then the means of all features.
const MOMENTS: &str = "sparse.moments";

/// What the next step computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Sums of weights, of y and of all features.
    Moments,
    /// The Gram matrix of the working set and y.
    Gram,
    /// The gradient at zero, and the second moments of all features.
    Survey,
    /// The gradient at the weights.
    Gradient,
    /// Partial sums of a scheduled block, and correlations of the next candidates.
    Block,
}

const PHASES: [Phase; 5] =
    [Phase::Moments, Phase::Gram, Phase::Survey, Phase::Gradient, Phase::Block];

/// Counters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Counters {
    pub(crate) phase: Phase,
    /// Which of the stages is being solved.
    pub(crate) stage: usize,
    /// Sweeps over coordinates so far.
    pub(crate) sweeps: u64,
    /// Sweeps allowed for each stage.
    pub(crate) limit: u64,
    /// Steps applied so far.
    pub(crate) steps: i64,
}

impl Counters {
    pub(crate) fn of(model: &Model) -> Counters {
        let numbers = model.i64(COUNTERS);
        Counters {
            phase: PHASES[numbers[0] as usize],
            stage: numbers[1] as usize,
            sweeps: numbers[2] as u64,
            limit: numbers[3] as u64,
            steps: numbers[4],
        }
    }

    pub(crate) fn store(self, model: &mut Model) {
        let phase = PHASES.iter().position(|phase| *phase == self.phase).unwrap_or(0);
        model.i64_mut(COUNTERS).copy_from_slice(&[
            phase as i64,
            self.stage as i64,
            self.sweeps as i64,
            self.limit as i64,
            self.steps,
        ]);
    }
}

/// First moments of the data. Without an intercept nothing is centred and all means are zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments<'a> {
    /// The sum of weights.
    pub(crate) mass: f64,
    /// The mean of y.
    pub(crate) centre: f64,
    /// The mean of the squares of y about that mean.
    pub(crate) square: f64,
    /// The means of all features.
    pub(crate) means: &'a [f64],
}

impl Moments<'_> {
    pub(crate) fn of(model: &Model) -> Moments<'_> {
        let numbers = model.f64(MOMENTS);
        Moments { mass: numbers[0], centre: numbers[1], square: numbers[2], means: &numbers[3..] }
    }
}

/// Writes the moments.
pub(crate) fn set_moments(model: &mut Model, numbers: &[f64]) {
    model.f64_mut(MOMENTS).copy_from_slice(numbers);
}

/// Writes the mean square of y about its mean.
pub(crate) fn set_square(model: &mut Model, square: f64) {
    model.f64_mut(MOMENTS)[2] = square;
}

/// Adds counters and moments of `features` features to a new model.
pub(crate) fn init(model: &mut Model, features: usize, limit: u64) {
    model.set(COUNTERS, Tensor::zeros(Kind::I64, &[5], Role::State));
    let limit = limit.min(i64::MAX as u64);
    Counters { phase: Phase::Moments, stage: 0, sweeps: 0, limit, steps: 0 }.store(model);
    model.set(MOMENTS, Tensor::zeros(Kind::F64, &[3 + features], Role::State));
}

/// One problem of a path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Stage {
    pub(crate) penalty: Penalty,
    /// Which row of the path its answer becomes; the job's own penalty has none.
    pub(crate) row: Option<usize>,
}

/// What is to be solved.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Wanted {
    /// The job's own penalty.
    pub(crate) penalty: Penalty,
    /// How many penalties of a path.
    pub(crate) path: usize,
    /// The smallest penalty of the path, as a share of the largest.
    pub(crate) smallest: f64,
}

impl Wanted {
    /// All stages, the largest penalty first, so that each can start from the answer of the one before. `steepest` is
    /// the largest slope at zero: from there on all weights are zero.
    pub(crate) fn stages(&self, steepest: f64) -> Vec<Stage> {
        let Penalty { l1, l2 } = self.penalty;
        let (alpha, share) = (l1 + l2, if l1 + l2 > 0.0 { l1 / (l1 + l2) } else { 1.0 });
        let largest = if share > 0.0 { steepest / share } else { steepest };
        let at = |row: usize| match self.path {
            1 => largest,
            count => largest * self.smallest.powf(row as f64 / (count - 1) as f64),
        };
        let penalty = |alpha: f64| Penalty { l1: alpha * share, l2: alpha * (1.0 - share) };
        let mut stages: Vec<(f64, Stage)> = (0..self.path)
            .map(|row| (at(row), Stage { penalty: penalty(at(row)), row: Some(row) }))
            .collect();
        let place = stages.iter().filter(|(other, _)| *other >= alpha).count();
        stages.insert(place, (alpha, Stage { penalty: self.penalty, row: None }));
        stages.into_iter().map(|(_, stage)| stage).collect()
    }
}
