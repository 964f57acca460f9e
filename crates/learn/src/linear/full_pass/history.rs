//! L-BFGS's history as tensors of the model, and the direction it gives.

use super::descent::{Descent, dot};
use super::state::{Counters, Phase};
use super::{FullPass, zeros};
use crate::linear::problem::Problem;
use crate::optimisers::lbfgs::{At, History};
use starlings_core::Model;

const STEPS: &str = "descent.steps";
const CHANGES: &str = "descent.changes";

pub(super) fn init(model: &mut Model, len: usize, pairs: usize) {
    model.set(STEPS, zeros(&[pairs, len]));
    model.set(CHANGES, zeros(&[pairs, len]));
}

/// Stores the step from the point to the trial point.
pub(super) fn remember(
    model: &mut Model,
    descent: &Descent,
    gradient: &[f64],
    counters: &mut Counters,
) {
    let mut history = take(model, counters);
    let from = At { point: &descent.point, gradient: &descent.gradient };
    history.remember(from, At { point: &descent.trial, gradient });
    put_back(model, history, counters);
}

/// Chooses a direction at the point and the first trial along it.
pub(super) fn set_out(
    solver: &FullPass,
    model: &mut Model,
    problem: &Problem,
    counters: &mut Counters,
) {
    let mut history = take(model, counters);
    let mut descent = Descent::take(model);
    history.direction(&descent.gradient, &mut descent.direction);
    let mut slope = dot(&descent.gradient, &descent.direction);
    if slope >= 0.0 {
        // Rounding has spoilt the memory: the gradient itself always descends.
        history.pairs = 0;
        history.direction(&descent.gradient, &mut descent.direction);
        slope = dot(&descent.gradient, &descent.direction);
    }
    put_back(model, history, counters);
    descent.launch(slope, solver.first_length(model, slope, counters));
    descent.put_back(model);
    solver.show_trial(model, problem);
    counters.phase = Phase::Evaluate;
}

pub(super) fn take(model: &mut Model, counters: &Counters) -> History {
    let (steps, changes) =
        (std::mem::take(model.f64_mut(STEPS)), std::mem::take(model.f64_mut(CHANGES)));
    History { steps, changes, pairs: counters.pairs }
}

pub(super) fn put_back(model: &mut Model, history: History, counters: &mut Counters) {
    *model.f64_mut(STEPS) = history.steps;
    *model.f64_mut(CHANGES) = history.changes;
    counters.pairs = history.pairs;
}
