//! Stochastic dual coordinate ascent on many shards (Shalev-Shwartz and Zhang, 2013) put together as CoCoA+ (Ma et al.,
//! "Adding vs. averaging in distributed primal-dual optimization", 2015): every shard improves its own dual variables
//! against weights that answer σ′ times as strongly as they will, σ′ being the number of shards, so that all changes can
//! be added. The unit is the virtual shard and not the worker: the answer does not depend on who holds which.
//!
//! Dual variables live in memory by shard. The duality gap is measured every few rounds, before the round's changes.

use super::losses::MarginLoss;
use super::part::Part;
use super::state::Problem;
use crate::Cells;
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Rng, Values};
use starlings_data::Row;

const DUALS: &str = "duals";
const BEFORE: &str = "before";
const NORMS: &str = "norms";
const STEP: &str = "step";

/// How a round goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round<L> {
    pub(crate) loss: L,
    /// σ′: how many shards have rows.
    pub(crate) shards: f64,
    /// Passes of each shard over its rows.
    pub(crate) passes: usize,
    /// Whether loss and dual objective are wanted.
    pub(crate) measure: bool,
    /// The step, by which a round that is computed twice is known.
    pub(crate) step: i64,
}

/// What a round of some shards gives.
pub(crate) struct Changes {
    /// Of the weights, score after score.
    pub(crate) weights: Vec<f64>,
    /// The sums of losses and of dual parts at the weights before the round.
    pub(crate) sums: [f64; 2],
}

/// A round on one shard. `weights` has a vector for each score, intercept last.
pub(crate) fn round<L: MarginLoss>(
    round: Round<L>,
    problem: &Problem<'_>,
    (weights, part): (&[f64], Part<'_>),
    (cells, rng): (&mut Cells, &mut Rng),
    changes: &mut Changes,
) {
    let loss = round.loss;
    remember(cells, problem, part, round.step);
    let mut duals = take(cells, DUALS);
    let norms = take(cells, NORMS);
    let mut local = weights.to_vec();
    if round.measure {
        measure(loss, problem, weights, (part, &duals), &mut changes.sums);
    }
    let mut order: Vec<u32> = (0..part.len() as u32).collect();
    for _ in 0..round.passes {
        rng.shuffle(&mut order);
        Arch::new().dispatch(Pass {
            loss,
            problem,
            part,
            order: &order,
            norms: &norms,
            strength: round.shards / (problem.penalty * problem.mass),
            duals: &mut duals,
            local: &mut local,
        });
    }
    for ((change, local), weight) in changes.weights.iter_mut().zip(&local).zip(weights) {
        *change += (local - weight) / round.shards;
    }
    cells.insert(DUALS.to_string(), Values::F64(duals));
    cells.insert(NORMS.to_string(), Values::F64(norms));
}

/// Makes the cells of a shard seen for the first time, and goes back to what they were before this step.
fn remember(cells: &mut Cells, problem: &Problem<'_>, part: Part<'_>, step: i64) {
    let this = Values::I64(vec![step]);
    if !cells.contains_key(DUALS) {
        let zeros = vec![0.0; part.len() * problem.layout.scores];
        cells.insert(DUALS.to_string(), Values::F64(zeros));
        let norms = (0..part.len()).map(|row| norm(problem, part, row)).collect();
        cells.insert(NORMS.to_string(), Values::F64(norms));
    }
    if cells.get(STEP) == Some(&this) {
        let before = cells.get(BEFORE).cloned().unwrap_or(Values::F64(vec![]));
        cells.insert(DUALS.to_string(), before);
    } else {
        let before = cells.get(DUALS).cloned().unwrap_or(Values::F64(vec![]));
        cells.insert(BEFORE.to_string(), before);
        cells.insert(STEP.to_string(), this);
    }
}

fn take(cells: &mut Cells, name: &str) -> Vec<f64> {
    match cells.remove(name) {
        Some(Values::F64(values)) => values,
        _ => panic!("the memory has no f64 cell '{name}'"),
    }
}

/// ‖z‖² of a standardised row and the intercept's constant.
fn norm(problem: &Problem<'_>, part: Part<'_>, row: usize) -> f64 {
    let constant = if problem.layout.intercept { problem.constant } else { 0.0 };
    let square = |column: usize, x: f32| {
        let (deviation, mean) = problem.unit(column);
        ((f64::from(x) - mean) / deviation).powi(2)
    };
    let squares: f64 = match part.row(row) {
        Row::Dense(x) => x.iter().enumerate().map(|(column, &x)| square(column, x)).sum(),
        Row::Sparse(columns, x) => {
            columns.iter().zip(x).map(|(&column, &x)| square(column as usize, x)).sum()
        }
    };
    squares + constant * constant
}

/// Adds the sums of losses and of dual parts.
fn measure<L: MarginLoss>(
    loss: L,
    problem: &Problem<'_>,
    weights: &[f64],
    (part, duals): (Part<'_>, &[f64]),
    sums: &mut [f64; 2],
) {
    let layout = problem.layout;
    for row in 0..part.len() {
        let (class, weight) = (part.class(row), part.weight(row));
        for (score, weights) in weights.chunks_exact(layout.rows()).enumerate() {
            let weight = weight * layout.class_weight(problem.classes, class, score);
            if weight > 0.0 {
                let intercept = if layout.intercept { weights[layout.features] } else { 0.0 };
                let margin = layout.sign(class, score) * (part.product(row, weights) + intercept);
                sums[0] += weight * loss.value(margin);
                sums[1] += loss.dual(duals[row * layout.scores + score], weight);
            }
        }
    }
}

/// One pass over a shard.
struct Pass<'a, L> {
    loss: L,
    problem: &'a Problem<'a>,
    part: Part<'a>,
    order: &'a [u32],
    norms: &'a [f64],
    /// σ′ / (λ·mass): how strongly local weights answer.
    strength: f64,
    duals: &'a mut [f64],
    local: &'a mut [f64],
}

impl<L: MarginLoss> WithSimd for Pass<'_, L> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let layout = self.problem.layout;
        for &row in self.order {
            let row = row as usize;
            let (class, weight) = (self.part.class(row), self.part.weight(row));
            let norm = self.norms[row] * self.strength;
            let duals = &mut self.duals[row * layout.scores..(row + 1) * layout.scores];
            for (score, weights) in self.local.chunks_exact_mut(layout.rows()).enumerate() {
                let weight = weight * layout.class_weight(self.problem.classes, class, score);
                if weight <= 0.0 {
                    continue;
                }
                let sign = layout.sign(class, score);
                let intercept = if layout.intercept { weights[layout.features] } else { 0.0 };
                let margin = sign * (self.part.product(row, weights) + intercept);
                let best = self.loss.best(duals[score], margin, norm, weight);
                if best != duals[score] {
                    let by = sign * (best - duals[score]) * self.strength;
                    duals[score] = best;
                    add(self.problem, self.part, row, by, weights);
                }
            }
        }
    }
}

/// Adds a multiple of a standardised row to weights in the units of the data.
#[inline(always)]
fn add(problem: &Problem<'_>, part: Part<'_>, row: usize, by: f64, weights: &mut [f64]) {
    let (features, intercept) = weights.split_at_mut(problem.layout.features);
    let mut constant = by * problem.constant * problem.constant;
    match (problem.scale, part.row(row)) {
        (None, _) => part.add(row, by, features),
        (Some((deviations, means)), Row::Dense(x)) => {
            let units = deviations.iter().zip(means);
            for ((weight, &x), (deviation, mean)) in features.iter_mut().zip(x).zip(units) {
                let change = by * (f64::from(x) - mean) / (deviation * deviation);
                *weight += change;
                constant -= change * mean;
            }
        }
        (Some((deviations, _)), Row::Sparse(columns, x)) => {
            for (&column, &x) in columns.iter().zip(x) {
                let deviation = deviations[column as usize];
                features[column as usize] += by * f64::from(x) / (deviation * deviation);
            }
        }
    }
    if let [intercept] = intercept {
        *intercept += constant;
    }
}
