//! Where a run of k-means stands: the phase, the counters and the candidates of the seeding. All of it is
//! in the model, as state, so that a checkpoint holds it and every replica agrees on what the next step is.

use starlings_core::{Kind, Model, Role, Tensor, Values};

/// What the next step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Sums x and x² for the tolerance, and fetches the wanted rows.
    Statistics = 0,
    /// Measures rows against the newest candidates and sums the cost.
    Cost = 1,
    /// Draws candidates in proportion to their cost.
    Sample = 2,
    /// Fetches rows drawn uniformly, because the rounds found fewer candidates than clusters.
    TopUp = 3,
    /// Counts the rows nearest to each candidate.
    Weights = 4,
    /// An iteration of Lloyd's, or a mini-batch.
    Lloyd = 5,
    /// Gathers a sample of rows from the first mini-batches.
    Gather = 6,
}

/// The counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    /// What the next step does.
    pub(super) phase: Phase,
    /// Rounds of sampling done.
    pub(super) round: i64,
    /// Batches of candidates that all rows have been measured against.
    pub(super) covered: i64,
    /// Iterations of Lloyd's done.
    pub(super) iterations: i64,
    /// Iterations of Lloyd's at most.
    pub(super) iterations_max: i64,
    /// Clusters that had no row in the last iteration.
    pub(super) empty: i64,
    /// Rows of the training data.
    pub(super) rows: i64,
}

const PROGRESS: &str = "progress";
const WANTED: &str = "wanted";
const CANDIDATES: &str = "candidates";
const BATCHES: &str = "batches";
const DRIFTS: &str = "drifts";
const THRESHOLDS: &str = "thresholds";

impl Progress {
    /// Reads the counters.
    pub(super) fn read(model: &Model) -> Progress {
        let &[phase, round, covered, iterations, iterations_max, empty, rows] = model.i64(PROGRESS)
        else {
            panic!("'progress' has seven numbers");
        };
        let phase = match phase {
            0 => Phase::Statistics,
            1 => Phase::Cost,
            2 => Phase::Sample,
            3 => Phase::TopUp,
            4 => Phase::Weights,
            5 => Phase::Lloyd,
            _ => Phase::Gather,
        };
        Progress { phase, round, covered, iterations, iterations_max, empty, rows }
    }

    /// Writes the counters.
    pub(super) fn write(self, model: &mut Model) {
        let numbers = vec![
            self.phase as i64,
            self.round,
            self.covered,
            self.iterations,
            self.iterations_max,
            self.empty,
            self.rows,
        ];
        model.set(PROGRESS, integers(numbers));
    }
}

/// The numbers of the rows that the next step fetches, increasing.
pub(super) fn wanted(model: &Model) -> &[i64] {
    model.i64(WANTED)
}

/// Says which rows the next step fetches.
pub(super) fn set_wanted(model: &mut Model, rows: Vec<i64>) {
    model.set(WANTED, integers(rows));
}

/// The squared shift of all centres below which the run has converged, and the cost of the candidates.
pub(super) fn thresholds(model: &Model) -> (f64, f64) {
    let numbers = model.f64(THRESHOLDS);
    (numbers[0], numbers[1])
}

/// Sets the tolerance and the cost of the candidates.
pub(super) fn set_thresholds(model: &mut Model, tolerance: f64, cost: f64) {
    model.set(THRESHOLDS, Tensor::of(&[2], vec![tolerance, cost], Role::State));
}

/// The candidates, one after the other, and the batches they came in: batch b ends at candidate `ends[b]`.
pub(super) fn candidates(model: &Model) -> (&[f64], &[i64]) {
    (model.f64(CANDIDATES), model.i64(BATCHES))
}

/// Adds a batch of candidates of `width` features.
pub(super) fn add_candidates(model: &mut Model, points: &[f64], width: usize) {
    let (mut all, mut ends) = match model.get(CANDIDATES) {
        Some(_) => (model.f64(CANDIDATES).to_vec(), model.i64(BATCHES).to_vec()),
        None => (Vec::new(), Vec::new()),
    };
    all.extend_from_slice(points);
    let count = all.len() / width;
    ends.push(count as i64);
    model.set(CANDIDATES, Tensor::of(&[count, width], all, Role::State));
    model.set(BATCHES, integers(ends));
}

/// How far each centre went in the last iteration.
pub(super) fn drifts(model: &Model) -> &[f64] {
    model.f64(DRIFTS)
}

/// Notes how far each centre went.
pub(super) fn set_drifts(model: &mut Model, drifts: Vec<f64>) {
    model.set(DRIFTS, Tensor::of(&[drifts.len()], drifts, Role::State));
}

/// How many candidates there are.
pub(super) fn candidate_count(model: &Model) -> usize {
    model.get(CANDIDATES).map_or(0, Tensor::rows)
}

/// Forgets the candidates: the seeding is over.
pub(super) fn drop_candidates(model: &mut Model) {
    model.remove(CANDIDATES);
    model.remove(BATCHES);
}

/// How many features the centres have.
pub(super) fn width(model: &Model) -> usize {
    model.get("centres").map_or(0, Tensor::width)
}

/// How many centres there are.
pub(super) fn count(model: &Model) -> usize {
    model.get("centres").map_or(0, Tensor::rows)
}

/// `k` centres of zeros.
pub(super) fn no_centres(k: usize, width: usize) -> Tensor {
    Tensor::zeros(Kind::F64, &[k, width], Role::Weight)
}

fn integers(numbers: Vec<i64>) -> Tensor {
    Tensor { shape: vec![numbers.len()], values: Values::I64(numbers), role: Role::State }
}
