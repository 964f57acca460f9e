//! Newton's method with conjugate gradients inside, cut short far from the optimum (Dembo and Steihaug, "Truncated-
//! Newton algorithms for large-scale unconstrained optimization", 1983). Each product with the curvature is one
//! exchange: X·p, bent by the loss at the remembered scores, and Xᵀ of that, in one reading of the features. With squared
//! errors and no cut this is the method of conjugate gradients for least squares.

use super::descent::{Descent, dot, largest};
use super::state::{self, Counters, Phase};
use super::{FullPass, Method, zeros};
use crate::linear::exact::{self, Fold};
use crate::linear::problem::Problem;
use crate::optimisers::conjugate_gradient::{ConjugateGradient, Solved};
use starlings_core::{Model, Update};

/// Whose product is wanted: in the data's units, and in the solver's.
pub(super) const ALONG: &str = "newton.along";
const SEARCH: &str = "newton.search";
const RESIDUAL: &str = "newton.residual";
/// More products than this for one step only polish what the next step moves again.
const PRODUCTS_MAX: i64 = 100;

pub(super) fn init(model: &mut Model, len: usize) {
    for name in [ALONG, SEARCH, RESIDUAL] {
        model.set(name, zeros(&[len]));
    }
}

/// Begins to solve for the step at a point that was just accepted.
pub(super) fn set_out(
    solver: &FullPass,
    model: &mut Model,
    problem: &Problem,
    counters: &mut Counters,
) {
    let mut inner = take(model);
    let gradient = model.f64(state::VECTORS[1]).to_vec();
    inner.start(gradient.iter().map(|slope| -slope));
    put_back(model, inner);
    if solver.method == Method::Newton {
        counters.products = 0;
    }
    show_along(solver, model, problem);
    counters.phase = Phase::Curve;
}

/// Takes a product with the curvature.
pub(super) fn curved(
    solver: &FullPass,
    model: &mut Model,
    update: &Update,
    problem: &Problem,
    counters: &mut Counters,
) {
    let weight = 1.0 / state::read_moments(model).weight;
    let mut product = exact::read(&Fold::Shards(counters.shards), update, "product");
    product.iter_mut().for_each(|value| *value *= weight);
    let (along, penalised) = (model.f64(ALONG), solver.penalised(model));
    solver.penalty.add_curved(problem.layout, penalised, along, &mut product);
    solver.units(model, problem).enter_gradient(&mut product);

    let mut inner = take(model);
    let solved = inner.tell(&product);
    counters.products += 1;
    let gradient = model.f64(state::VECTORS[1]);
    let length = dot(gradient, gradient).sqrt();
    let enough = match solver.method {
        Method::ConjugateGradient => {
            largest(&inner.residual) <= 0.5 * solver.tolerance
                || counters.products >= counters.iterations_max
        }
        _ => counters.products >= PRODUCTS_MAX,
    };
    let enough = enough
        || match solved {
            Solved::Flat => true,
            // Eisenstat and Walker (1996): the nearer the optimum, the more exact the step.
            Solved::Residual(left) => {
                solver.method == Method::Newton && left <= length.sqrt().min(0.5) * length
            }
        };
    put_back(model, inner);
    if enough {
        launch(solver, model, problem, counters);
    } else {
        show_along(solver, model, problem);
    }
}

/// Sets out along the step that was found.
fn launch(solver: &FullPass, model: &mut Model, problem: &Problem, counters: &mut Counters) {
    let mut descent = Descent::take(model);
    let mut slope = dot(&descent.gradient, &descent.direction);
    if slope >= 0.0 {
        // Not one product was of use: the gradient itself always descends.
        let gradient = descent.gradient.iter();
        descent.direction.iter_mut().zip(gradient).for_each(|(d, g)| *d = -g);
        slope = dot(&descent.gradient, &descent.direction);
    }
    descent.launch(slope, 1.0);
    descent.put_back(model);
    solver.show_trial(model, problem);
    counters.phase = Phase::Evaluate;
}

fn show_along(solver: &FullPass, model: &mut Model, problem: &Problem) {
    let mut along = model.f64(SEARCH).to_vec();
    solver.units(model, problem).leave(&mut along);
    *model.f64_mut(ALONG) = along;
}

/// The solution so far is the descent's direction.
fn take(model: &mut Model) -> ConjugateGradient {
    let [solution, residual, along] =
        [state::VECTORS[2], RESIDUAL, SEARCH].map(|name| std::mem::take(model.f64_mut(name)));
    ConjugateGradient { solution, residual, along }
}

fn put_back(model: &mut Model, inner: ConjugateGradient) {
    *model.f64_mut(state::VECTORS[2]) = inner.solution;
    *model.f64_mut(RESIDUAL) = inner.residual;
    *model.f64_mut(SEARCH) = inner.along;
}
