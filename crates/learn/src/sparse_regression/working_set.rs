//! Wide data: the Gram matrix of all features would not fit, but that of the features that matter does. Two steps take
//! turns: the gradient of all features at the weights, from residuals, chooses the working set (those that are not
//! zero, and those with the steepest slopes) and tells the duality gap; then the Gram matrix of the working set is
//! summed, and coordinate descent solves the problem on it (Johnson and Guestrin, "Blitz: a principled meta-algorithm for
//! scaling sparse optimization", 2015). Cost of a turn: two passes, features + set²/2 numbers.

use super::SparseRegression;
use super::descent::{Limits, Penalty, Point, minimise};
use super::state::{Counters, Phase};
use super::survey::{self, Survey, VALUES};
use crate::Outcome;
use starlings_core::{Kind, Model, Result, Role, Tensor, Update};

/// One for each feature of the working set, else zero.
pub(super) const SET: &str = "sparse.set";
/// The working set may have this many features more than twice those that are not zero.
const NEWCOMERS: usize = 100;

pub(super) fn init(model: &mut Model, features: usize) {
    model.set(SET, Tensor::zeros(Kind::I64, &[features], Role::State));
}

/// The features of the working set.
pub(super) fn columns(model: &Model) -> Vec<usize> {
    let members = model.i64(SET).iter().enumerate();
    members.filter(|(_, member)| **member != 0).map(|(column, _)| column).collect()
}

/// Takes the gradient of all features: closes the stages whose gap is small, and chooses the next working set.
pub(super) fn choose(of: &SparseRegression, model: &mut Model, update: &Update) -> Result<Outcome> {
    let survey = Survey::read(of, model, update)?;
    let mut counters = Counters::of(model);
    let sweeps = counters.sweeps;
    // A working set that is solved and did not change would be solved again to the same point.
    let still = counters.phase == Phase::Gradient && {
        let penalty = survey::stages(of, model)[counters.stage].penalty;
        let mut next = members_of(&survey, penalty);
        next.sort_unstable();
        next.iter().all(|column| model.i64(SET)[*column] != 0)
    };
    let closed = survey.close(of, model, &mut counters, still);
    if let Some((penalty, _)) = closed.left {
        let members = model.i64_mut(SET);
        members.fill(0);
        for column in members_of(&survey, penalty) {
            members[column] = 1;
        }
        counters.phase = Phase::Gram;
    }
    counters.store(model);
    let done = closed.left.is_none();
    Ok(Outcome { objective: closed.objective, done, iterations: Some(sweeps) })
}

/// The features that are not zero, and the steepest of those that want to move.
fn members_of(survey: &Survey, penalty: Penalty) -> Vec<usize> {
    let (values, slopes) = (&survey.values, &survey.slopes);
    let all = 0..values.len();
    let mut members: Vec<usize> = all.clone().filter(|&column| values[column] != 0.0).collect();
    let wants = |column: &usize| values[*column] == 0.0 && slopes[*column].abs() > penalty.l1;
    let mut newcomers: Vec<usize> = all.filter(wants).collect();
    newcomers.sort_by(|&a, &b| slopes[b].abs().total_cmp(&slopes[a].abs()).then(a.cmp(&b)));
    newcomers.truncate(members.len() + NEWCOMERS);
    members.extend(newcomers);
    members
}

/// Solves the problem on the working set.
pub(super) fn solve(of: &SparseRegression, model: &mut Model, triangle: &[f64]) -> Result<Outcome> {
    let mut counters = Counters::of(model);
    let set = columns(model);
    let stage = survey::stages(of, model)[counters.stage];
    let problem = of.quadratic(model, triangle, &set)?;
    let mut values = model.f64(VALUES).to_vec();
    let mut point = Point::origin(&problem);
    for (place, &column) in set.iter().enumerate() {
        let row = &problem.gram[place * set.len()..(place + 1) * set.len()];
        point.values[place] = values[column];
        point.slopes.iter_mut().zip(row).for_each(|(slope, g)| *slope -= g * values[column]);
    }
    // The working set has few coordinates: a tenth of the tolerance costs little and saves turns.
    let limits = Limits { tolerance: 0.1 * of.tolerance, sweeps: counters.limit };
    minimise(&problem, stage.penalty, f64::INFINITY, limits, &mut point);
    for (&column, value) in set.iter().zip(&point.values) {
        values[column] = *value;
    }
    survey::move_to(of, model, values);
    counters.sweeps += point.sweeps;
    counters.phase = Phase::Gradient;
    counters.store(model);
    Ok(Outcome { iterations: Some(counters.sweeps), ..Outcome::default() })
}
