//! The full-pass solver: L-BFGS over all rows. Each step evaluates loss and gradient at the tensor `trial`;
//! `apply` tells the optimiser, which moves `trial`. The optimiser lives in the model between steps.
//!
//! One step before the first sums x and x² of every feature. The optimiser then works on centred features, each
//! divided by the square root of its curvature (its variance and the penalty), which takes a fraction of
//! the iterations where features are large or far from zero. `trial` and `weights` stay in the units of the
//! data: the objective is the same, kernels never touch a feature twice, and a saved model needs no scaling.
//! With `standardise` the penalty counts in units of deviations. Sums are exact (see `exact`), so that the whole run
//! has the same bits on any flock.

use super::exact;
use super::objective::Layout;
use crate::optimisers::lbfgs::{Lbfgs, Limits, Told};
use crate::optimisers::line_search::{NUMBERS, Search};
use crate::{Moment, Outcome, Work};
use starlings_core::{Block, Fault, Kind, Model, Result, Role, Tensor, Update};

/// Vectors of the optimiser, in the order of [`Lbfgs`].
const VECTORS: [&str; 5] =
    ["lbfgs.point", "lbfgs.gradient", "lbfgs.direction", "lbfgs.steps", "lbfgs.changes"];
/// The value at the point, whether a search is on, and the search.
const SEARCH: &str = "lbfgs.search";
/// Pairs, iterations, iterations allowed, whether moments are still wanted, and the number of shards.
const COUNTERS: &str = "lbfgs.counters";
/// The mean and the variance of each feature, one after the other.
const MOMENTS: &str = "lbfgs.moments";
/// The deviation of each feature, where the penalty counts in it.
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
    pub(super) fn init(&self, model: &mut Model, layout: Layout, (iterations, shards): (i64, u32)) {
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
        model.set(COUNTERS, Tensor::zeros(Kind::I64, &[5], Role::State));
        model.i64_mut(COUNTERS).copy_from_slice(&[0, 0, iterations, 1, shards.into()]);
        model.set(MOMENTS, zeros(&[2, layout.features]));
        if self.standardise {
            let ones = vec![1.0; layout.features];
            model.set(SCALE, Tensor::of(&[layout.features], ones, Role::Weight));
        }
    }

    /// Emits loss and gradient at the trial point, or the sums from which deviations come.
    pub(super) fn contribute(&self, work: &mut Work<'_>, layout: Layout) {
        if wants_moments(work.model) {
            let shards = work.model.i64(COUNTERS)[4] as u32;
            work.outbox.emit(Block::rows("moments", exact::moments(layout, work.batch, shards)));
            return;
        }
        let (trial, grids) = (work.model.f64("trial"), grids(work.model, layout, work.moment.rows));
        let sums = exact::evaluate(layout, trial, work.batch, &grids);
        work.outbox.emit(Block::counts("loss", sums.loss));
        work.outbox.emit(Block::counts("gradient", sums.gradient));
    }

    /// Tells the optimiser what was found at the trial point.
    pub(super) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        if wants_moments(model) {
            let sums = update.rows("moments").map(exact::add_up).unwrap_or_default();
            self.set_units(model, &sums, moment.rows);
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        let units = self.units(model);
        let mut trial = std::mem::take(model.f64_mut("trial"));
        let features = units.scales.len();
        let layout = Layout { features, scores: units.width, intercept: self.intercept };
        let grids = grids(model, layout, moment.rows);
        let mut gradient = exact::gradient(update.i64("gradient"), units.width, &grids);
        let rows = 1.0 / moment.rows.max(1) as f64;
        gradient.iter_mut().for_each(|slope| *slope *= rows);
        units.enter(&mut trial);
        units.enter_gradient(&mut gradient);
        let penalty = self.penalise(&units, &trial, &mut gradient);
        let value = exact::loss(update.i64("loss")) * rows + penalty;

        let mut optimiser = take(model);
        let limits = Limits { tolerance: self.tolerance, iterations: model.i64(COUNTERS)[2] };
        let told = optimiser.tell(&mut trial, value, &gradient, limits);
        if told != Told::Searching {
            let weights = model.f64_mut("weights");
            weights.copy_from_slice(&optimiser.point);
            units.leave(weights);
        }
        units.leave(&mut trial);
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
    fn penalise(&self, units: &Units, point: &[f64], gradient: &mut [f64]) -> f64 {
        let mut squares = 0.0;
        let rows = point.chunks_exact(units.width).zip(gradient.chunks_exact_mut(units.width));
        for ((point, gradient), &unit) in rows.zip(&units.penalised) {
            for (slope, value) in gradient.iter_mut().zip(point) {
                *slope += self.l2 * value * unit * unit;
                squares += (value * unit).powi(2);
            }
        }
        0.5 * self.l2 * squares
    }

    fn set_units(&self, model: &mut Model, sums: &[f64], rows: u64) {
        let moments = means_and_variances(sums, rows);
        if self.standardise {
            let variances = &moments[moments.len() / 2..];
            let scale = model.f64_mut(SCALE);
            scale.iter_mut().zip(variances).for_each(|(scale, v)| *scale = deviation(*v));
        }
        *model.f64_mut(MOMENTS) = moments;
        model.i64_mut(COUNTERS)[3] = 0;
    }

    fn units(&self, model: &Model) -> Units {
        let width = model.get("weights").map_or(1, Tensor::width);
        let moments = model.f64(MOMENTS);
        let (means, variances) = moments.split_at(moments.len() / 2);
        // Without an intercept there is nothing that could take up the means.
        let means = if self.intercept { means.to_vec() } else { Vec::new() };
        let classes = if width == 1 { 2.0 } else { width as f64 };
        // How much of a feature's variance is curvature while all classes are still as likely.
        let share = (classes - 1.0) / (classes * classes);
        let curvature = |variance: f64| {
            let unit = if self.standardise { deviation(variance) } else { 1.0 };
            let curvature = (share * variance + self.l2 * unit * unit).sqrt();
            (unit, if curvature > 0.0 { curvature } else { 1.0 })
        };
        let (penalised, scales): (Vec<f64>, Vec<f64>) = variances
            .iter()
            .map(|&variance| curvature(variance))
            .map(|(unit, scale)| (unit / scale, scale))
            .unzip();
        Units { width, means, scales, penalised }
    }
}

/// The optimiser's units: u = w·scale, and the intercept as it is at the mean of all features.
struct Units {
    width: usize,
    means: Vec<f64>,
    scales: Vec<f64>,
    /// What the penalty squares is u times this.
    penalised: Vec<f64>,
}

impl Units {
    /// From the data's units to the optimiser's.
    fn enter(&self, weights: &mut [f64]) {
        self.shift(weights, 1.0);
        self.each(weights, |weight, scale| *weight *= scale);
    }

    /// From the optimiser's units to the data's.
    fn leave(&self, weights: &mut [f64]) {
        self.each(weights, |weight, scale| *weight /= scale);
        self.shift(weights, -1.0);
    }

    /// The chain rule for a gradient in the data's units.
    fn enter_gradient(&self, gradient: &mut [f64]) {
        let (features, intercept) = gradient.split_at_mut(self.scales.len() * self.width);
        for (row, mean) in features.chunks_exact_mut(self.width).zip(&self.means) {
            row.iter_mut().zip(&*intercept).for_each(|(slope, constant)| *slope -= mean * constant);
        }
        self.each(features, |slope, scale| *slope /= scale);
    }

    /// Moves the intercept by the weights' scores of the mean.
    fn shift(&self, weights: &mut [f64], sign: f64) {
        let (features, intercept) = weights.split_at_mut(self.scales.len() * self.width);
        for (row, mean) in features.chunks_exact(self.width).zip(&self.means) {
            intercept
                .iter_mut()
                .zip(row)
                .for_each(|(constant, weight)| *constant += sign * mean * weight);
        }
    }

    fn each(&self, rows: &mut [f64], change: impl Fn(&mut f64, f64)) {
        for (row, &scale) in rows.chunks_exact_mut(self.width).zip(&self.scales) {
            row.iter_mut().for_each(|value| change(value, scale));
        }
    }
}

fn wants_moments(model: &Model) -> bool {
    model.i64(COUNTERS)[3] != 0
}

/// The grids on which gradients travel: they follow from the moments, which all workers have.
fn grids(model: &Model, layout: Layout, rows: u64) -> Vec<f64> {
    let (means, variances) = model.f64(MOMENTS).split_at(layout.features);
    exact::grids(layout, means, variances, rows)
}

/// Means of all features, then their variances; a feature that never varies has variance zero.
fn means_and_variances(sums: &[f64], rows: u64) -> Vec<f64> {
    let rows = rows.max(1) as f64;
    let (first, second) = sums.split_at(sums.len() / 2);
    let means = first.iter().map(|sum| sum / rows);
    let variances = first.iter().zip(second).map(|(sum, squares)| {
        let (mean, square) = (sum / rows, squares / rows);
        let variance = square - mean * mean;
        // What is left of a constant after cancellation is rounding.
        if variance > 1e-12 * square { variance } else { 0.0 }
    });
    means.chain(variances).collect()
}

/// The unit of a feature; one for a feature that never varies.
fn deviation(variance: f64) -> f64 {
    if variance > 0.0 { variance.sqrt() } else { 1.0 }
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
