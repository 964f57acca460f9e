//! An L-BFGS run that rests in the model between two steps of the flock: its vectors and counters as tensors of state.

use super::line_search::{NUMBERS, Search};
use super::probing::Lbfgs;
use starlings_core::{Kind, Model, Role, Tensor};

const VECTORS: [&str; 5] =
    ["resting.point", "resting.gradient", "resting.direction", "resting.steps", "resting.changes"];
/// The value at the point, whether a search is on, and the search.
const SEARCH: &str = "resting.search";
/// Pairs and iterations.
const COUNTERS: &str = "resting.counters";
/// Where the value and the gradient are wanted.
pub(crate) const TRIAL: &str = "resting.trial";

/// Puts a run that starts at zero into the model.
pub(crate) fn init(model: &mut Model, size: usize, history: usize) {
    let zeros = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::State);
    model.set(TRIAL, zeros(&[size]));
    for name in &VECTORS[..3] {
        model.set(*name, zeros(&[size]));
    }
    for name in &VECTORS[3..] {
        model.set(*name, zeros(&[history, size]));
    }
    model.set(SEARCH, zeros(&[2 + NUMBERS]));
    model.set(COUNTERS, Tensor::zeros(Kind::I64, &[2], Role::State));
}

/// Takes the run and its trial point out of the model; [`put_back`] returns them.
pub(crate) fn take(model: &mut Model) -> (Lbfgs, Vec<f64>) {
    let [point, gradient, direction, steps, changes] =
        VECTORS.map(|name| std::mem::take(model.f64_mut(name)));
    let (search, counters) = (model.f64(SEARCH), model.i64(COUNTERS));
    let run = Lbfgs {
        point,
        gradient,
        direction,
        steps,
        changes,
        value: search[0],
        search: (search[1] != 0.0).then(|| Search::from_numbers(&search[2..])),
        pairs: counters[0],
        iterations: counters[1],
    };
    (run, std::mem::take(model.f64_mut(TRIAL)))
}

/// Returns the run and its trial point.
pub(crate) fn put_back(model: &mut Model, run: Lbfgs, trial: Vec<f64>) {
    let search = model.f64_mut(SEARCH);
    search[0] = run.value;
    search[1] = f64::from(u8::from(run.search.is_some()));
    search[2..].copy_from_slice(&run.search.unwrap_or_default().to_numbers());
    model.i64_mut(COUNTERS).copy_from_slice(&[run.pairs, run.iterations]);
    let vectors = [run.point, run.gradient, run.direction, run.steps, run.changes];
    for (name, vector) in VECTORS.iter().zip(vectors) {
        *model.f64_mut(name) = vector;
    }
    *model.f64_mut(TRIAL) = trial;
}
