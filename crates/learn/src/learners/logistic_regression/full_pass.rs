//! The full-pass solver: L-BFGS over all rows. Each step evaluates loss and gradient at the tensor `trial`;
//! `apply` tells the optimiser, which moves `trial`. The optimiser lives in the model between steps.
//!
//! With `standardise` one step before the first sums x and x² of every feature. The optimiser then works
//! in units of deviations, while `trial` and `weights` stay in the units of the data: kernels never
//! touch a feature twice, and a saved model needs no scaling.

use super::objective::{self, Layout};
use crate::optimisers::lbfgs::{Lbfgs, Limits, Told};
use crate::optimisers::line_search::{NUMBERS, Search};
use crate::{Moment, Outcome, Work};
use starlings_core::{Block, Fault, Kind, Model, Result, Role, Tensor, Update};
use starlings_data::{Batch, Row};

/// Vectors of the optimiser, in the order of [`Lbfgs`].
const VECTORS: [&str; 5] =
    ["lbfgs.point", "lbfgs.gradient", "lbfgs.direction", "lbfgs.steps", "lbfgs.changes"];
/// The value at the point, whether a search is on, and the search.
const SEARCH: &str = "lbfgs.search";
/// Pairs, iterations, iterations allowed, and whether deviations are still wanted.
const COUNTERS: &str = "lbfgs.counters";
/// The deviation of each feature.
pub(super) const SCALE: &str = "scale";

/// The full-pass solver.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullPass {
    pub(super) l2: f64,
    pub(super) tolerance: f64,
    pub(super) history: usize,
    pub(super) standardise: bool,
    pub(super) intercept: bool,
}

impl FullPass {
    /// Adds the optimiser to a model with weights.
    pub(super) fn init(&self, model: &mut Model, layout: Layout, iterations: i64) {
        let shape = [layout.rows(), layout.scores];
        let zeros = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::State);
        model.set("trial", zeros(&shape));
        for name in &VECTORS[..3] {
            model.set(*name, zeros(&shape));
        }
        for name in &VECTORS[3..] {
            model.set(*name, zeros(&[self.history, layout.len()]));
        }
        model.set(SEARCH, zeros(&[2 + NUMBERS]));
        model.set(COUNTERS, Tensor::zeros(Kind::I64, &[4], Role::State));
        model.i64_mut(COUNTERS).copy_from_slice(&[0, 0, iterations, i64::from(self.standardise)]);
        if self.standardise {
            let ones = vec![1.0; layout.features];
            model.set(SCALE, Tensor::of(&[layout.features], ones, Role::Weight));
        }
    }

    /// Emits loss and gradient at the trial point, or the sums from which deviations come.
    pub(super) fn contribute(&self, work: &mut Work<'_>, layout: Layout) {
        if wants_deviations(work.model) {
            work.outbox.emit(Block::dense("moments", moments(layout, work.batch)));
            return;
        }
        let mut gradient = vec![0.0; layout.len()];
        let trial = work.model.f64("trial");
        let sums = objective::gradient(layout, trial, work.batch, &mut gradient);
        work.outbox.emit(Block::dense("loss", vec![sums.loss]));
        work.outbox.emit(Block::dense("gradient", gradient));
    }

    /// Tells the optimiser what was found at the trial point.
    pub(super) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        if wants_deviations(model) {
            deviations(update.f64("moments"), moment.rows, model.f64_mut(SCALE));
            model.i64_mut(COUNTERS)[3] = 0;
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        let width = model.get("weights").map_or(1, Tensor::width);
        let scale = model.get(SCALE).map(|_| model.f64(SCALE).to_vec());
        let mut trial = std::mem::take(model.f64_mut("trial"));
        let mut gradient = update.f64("gradient").to_vec();
        let rows = 1.0 / moment.rows.max(1) as f64;
        gradient.iter_mut().for_each(|slope| *slope *= rows);
        if let Some(scale) = &scale {
            each_feature(scale, width, &mut trial, |weight, s| *weight *= s);
            each_feature(scale, width, &mut gradient, |slope, s| *slope /= s);
        }
        let penalty = self.penalise(width, &trial, &mut gradient);
        let value = update.f64("loss")[0] * rows + penalty;

        let mut optimiser = take(model);
        let limits = Limits { tolerance: self.tolerance, iterations: model.i64(COUNTERS)[2] };
        let told = optimiser.tell(&mut trial, value, &gradient, limits);
        if told != Told::Searching {
            let weights = model.f64_mut("weights");
            weights.copy_from_slice(&optimiser.point);
            if let Some(scale) = &scale {
                each_feature(scale, width, weights, |weight, s| *weight /= s);
            }
        }
        if let Some(scale) = &scale {
            each_feature(scale, width, &mut trial, |weight, s| *weight /= s);
        }
        let outcome = Outcome {
            objective: Some(optimiser.value),
            done: told == Told::Converged,
            iterations: Some(optimiser.iterations as u64),
        };
        put_back(model, optimiser);
        *model.f64_mut("trial") = trial;
        if told == Told::Diverged {
            return Err(Fault::caller(format!("the objective is not finite at {}", moment.step))
                .hint("look for features that are not finite or are huge"));
        }
        Ok(outcome)
    }

    /// Adds the penalty's gradient and gives its value; the intercept is not penalised.
    fn penalise(&self, width: usize, point: &[f64], gradient: &mut [f64]) -> f64 {
        let penalised = point.len() - if self.intercept { width } else { 0 };
        let mut squares = 0.0;
        for (slope, weight) in gradient[..penalised].iter_mut().zip(&point[..penalised]) {
            *slope += self.l2 * weight;
            squares += weight * weight;
        }
        0.5 * self.l2 * squares
    }
}

fn wants_deviations(model: &Model) -> bool {
    model.i64(COUNTERS)[3] != 0
}

/// Sums of x and of x² for every feature.
fn moments(layout: Layout, batch: &Batch<'_>) -> Vec<f64> {
    let mut sums = vec![0.0; 2 * layout.features];
    let (first, second) = sums.split_at_mut(layout.features);
    for row in batch.rows() {
        match batch.table.row(row) {
            Row::Dense(values) => {
                for ((&x, first), second) in values.iter().zip(&mut *first).zip(&mut *second) {
                    let x = f64::from(x);
                    *first += x;
                    *second += x * x;
                }
            }
            Row::Sparse(columns, values) => {
                for (&column, &x) in columns.iter().zip(values) {
                    let x = f64::from(x);
                    first[column as usize] += x;
                    second[column as usize] += x * x;
                }
            }
        }
    }
    sums
}

/// The deviation of each feature; one where a feature never varies.
fn deviations(moments: &[f64], rows: u64, scale: &mut [f64]) {
    let rows = rows.max(1) as f64;
    let (first, second) = moments.split_at(scale.len());
    for ((scale, sum), squares) in scale.iter_mut().zip(first).zip(second) {
        let mean = sum / rows;
        let variance = squares / rows - mean * mean;
        // What is left of a constant after cancellation is rounding, not deviation.
        let varies = variance > 1e-12 * (squares / rows);
        *scale = if varies { variance.sqrt() } else { 1.0 };
    }
}

fn each_feature(scale: &[f64], width: usize, rows: &mut [f64], change: impl Fn(&mut f64, f64)) {
    for (row, &scale) in rows.chunks_exact_mut(width).zip(scale) {
        row.iter_mut().for_each(|value| change(value, scale));
    }
}

fn take(model: &mut Model) -> Lbfgs {
    let [point, gradient, direction, steps, changes] =
        VECTORS.map(|name| std::mem::take(model.f64_mut(name)));
    let search = model.f64(SEARCH);
    let counters = model.i64(COUNTERS);
    Lbfgs {
        point,
        gradient,
        direction,
        steps,
        changes,
        value: search[0],
        search: (search[1] != 0.0).then(|| Search::from_numbers(&search[2..])),
        pairs: counters[0],
        iterations: counters[1],
    }
}

fn put_back(model: &mut Model, optimiser: Lbfgs) {
    let Lbfgs { point, gradient, direction, steps, changes, .. } = optimiser;
    for (name, vector) in VECTORS.iter().zip([point, gradient, direction, steps, changes]) {
        *model.f64_mut(name) = vector;
    }
    let search = model.f64_mut(SEARCH);
    search[0] = optimiser.value;
    search[1] = f64::from(u8::from(optimiser.search.is_some()));
    search[2..].copy_from_slice(&optimiser.search.unwrap_or_default().to_numbers());
    let counters = model.i64_mut(COUNTERS);
    (counters[0], counters[1]) = (optimiser.pairs, optimiser.iterations);
}
