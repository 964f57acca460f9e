//! OWL-QN (Andrew and Gao, "Scalable training of L1-regularized log-linear models", 2007): L-BFGS within an orthant.
//! The history is of the smooth part's gradient; the direction starts from the pseudo-gradient; trial points that
//! leave the orthant stop at zero, where many weights stay. Projections are not linear in the length of the step: each
//! probe reads the features, but the first is nearly always good.

use super::descent::{Descent, dot, largest};
use super::state::{Counters, Phase, TRIAL};
use super::{FullPass, diverged, history};
use crate::linear::problem::Problem;
use crate::optimisers::orthant;
use starlings_core::{Model, Result};

/// Sufficient decrease: this share of what the pseudo-gradient promises (the paper's γ).
const DECREASE: f64 = 1e-4;
/// A smaller relative decrease than this is rounding.
const DECREASE_MIN: f64 = 64.0 * f64::EPSILON;
/// A step shorter than this share of the first moves nothing.
const LENGTH_MIN: f64 = 1e-12;

/// Takes value (l1 included) and the smooth part's gradient at the trial point. Says whether training is complete.
pub(super) fn evaluated(
    solver: &FullPass,
    model: &mut Model,
    (value, gradient): (f64, Vec<f64>),
    problem: &Problem,
    counters: &mut Counters,
) -> Result<bool> {
    let l1 = strengths(solver, model, problem);
    let mut descent = Descent::take(model);
    let first = descent.line.search.is_none();
    if first && !(value.is_finite() && gradient.iter().all(|slope| slope.is_finite())) {
        descent.put_back(model);
        return Err(diverged());
    }
    if !first && !descends(&descent, value, &l1) {
        descent.line.first *= 0.5;
        if descent.line.first < LENGTH_MIN {
            descent.put_back(model);
            return Ok(true);
        }
        walk(&mut descent, &l1);
        descent.put_back(model);
        solver.show_trial(model, problem);
        return Ok(false);
    }
    if !first {
        history::remember(model, &descent, &gradient, counters);
        counters.iterations += 1;
    }
    let before = descent.line.value;
    descent.arrive(value, gradient);
    let trial = model.f64(TRIAL).to_vec();
    model.f64_mut("weights").copy_from_slice(&trial);
    let slopes = slopes(&descent, &l1);
    let decrease = (before - value) / before.abs().max(value.abs()).max(1.0);
    let still = !first && decrease <= DECREASE_MIN;
    let flat = largest(&slopes) <= solver.tolerance;
    let over = counters.iterations >= counters.iterations_max;
    if !(flat || still || over) {
        let mut history = history::take(model, counters);
        history.direction(&slopes, &mut descent.direction);
        orthant::align(&mut descent.direction, &slopes, &l1);
        if dot(&descent.direction, &slopes) >= 0.0 {
            history.pairs = 0;
            history.direction(&slopes, &mut descent.direction);
        }
        history::put_back(model, history, counters);
        let slope = dot(&descent.direction, &slopes);
        descent.launch(slope, solver.first_length(model, slope, counters));
        walk(&mut descent, &l1);
        counters.phase = Phase::Evaluate;
    }
    descent.put_back(model);
    solver.show_trial(model, problem);
    Ok(flat || still || over)
}

/// Moves the trial point to the current length, and back into the orthant.
fn walk(descent: &mut Descent, l1: &[f64]) {
    let slopes = slopes(descent, l1);
    descent.move_to(descent.line.first);
    orthant::project(&mut descent.trial, &descent.point, &slopes, l1);
}

/// Whether the trial point is enough of a descent.
fn descends(descent: &Descent, value: f64, l1: &[f64]) -> bool {
    let slopes = slopes(descent, l1);
    let steps = descent.trial.iter().zip(&descent.point).map(|(trial, point)| trial - point);
    let promised: f64 = steps.zip(&slopes).map(|(step, slope)| step * slope).sum();
    value.is_finite() && value <= descent.line.value + DECREASE * promised
}

fn slopes(descent: &Descent, l1: &[f64]) -> Vec<f64> {
    let mut slopes = vec![0.0; l1.len()];
    orthant::pseudo_gradient(&descent.point, &descent.gradient, l1, &mut slopes);
    slopes
}

/// l1 for each number of the weights, in the solver's units: |w|·unit = |u|·unit/scale. Intercepts are free.
fn strengths(solver: &FullPass, model: &Model, problem: &Problem) -> Vec<f64> {
    let units = solver.units(model, problem);
    let penalised = solver.penalised(model);
    let layout = problem.layout;
    let mut l1 = vec![0.0; layout.len()];
    for (feature, row) in l1.chunks_exact_mut(layout.scores).take(layout.features).enumerate() {
        let unit = penalised.get(feature).copied().unwrap_or(1.0);
        row.fill(solver.penalty.l1 * unit / units.scales[feature]);
    }
    l1
}
