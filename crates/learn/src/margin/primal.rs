//! The squared hinge by L-BFGS over all rows: its loss is smooth. Each step evaluates loss and gradient at a trial point;
//! the optimiser lives in the model between steps. It works on centred features, each divided by the root of its
//! curvature, so that features of any size take alike many iterations; rows and weights stay in the units of the data.
//!
//! Each shard's sums are rounded to a grid, 2⁻⁶¹ of what they cannot exceed (by the Cauchy–Schwarz inequality, from the
//! features' mean squares), and travel as integers: the run has the same bits on any flock.

use super::losses::{MarginLoss, SquaredHinge};
use super::part::Part;
use super::state::{GAP, Layout, MOMENTS, Problem, WEIGHTS};
use crate::kernels::products::{add_scaled, dots};
use crate::optimisers::line_search::{NUMBERS, Search};
use crate::optimisers::probing::{Lbfgs, Limits, Told};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Kind, Model, Role, Tensor};
use starlings_data::Row;

/// Where loss and gradient are wanted, in the units of the data.
pub(crate) const TRIAL: &str = "trial";
const VECTORS: [&str; 5] =
    ["lbfgs.point", "lbfgs.gradient", "lbfgs.direction", "lbfgs.steps", "lbfgs.changes"];
const SEARCH: &str = "lbfgs.search";
const PAIRS: &str = "lbfgs.pairs";
/// Steps that are remembered.
const HISTORY: usize = 10;

/// Adds the optimiser to a new model.
pub(crate) fn init(model: &mut Model, layout: Layout) {
    let shape = [layout.rows(), layout.scores];
    let zeros = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::State);
    model.set(TRIAL, zeros(&shape));
    VECTORS[..3].iter().for_each(|name| model.set(*name, zeros(&shape)));
    let long = [HISTORY, layout.rows() * layout.scores];
    VECTORS[3..].iter().for_each(|name| model.set(*name, zeros(&long)));
    model.set(SEARCH, zeros(&[2 + NUMBERS]));
    model.set(PAIRS, Tensor::zeros(Kind::I64, &[2], Role::State));
}

/// Grids of the sums: one for the loss, then one for each weight, score after score.
pub(crate) fn grids(model: &Model, problem: &Problem<'_>) -> Vec<f64> {
    let layout = problem.layout;
    let squares = &model.f64(MOMENTS)[1 + 2 * layout.features..];
    let heaviest = problem.classes.iter().fold(1.0f64, |most, class| most.max(*class));
    let mass = problem.mass * heaviest;
    let mut grids = vec![0.0];
    for score in 0..layout.scores {
        let weights = layout.column(model.f64(TRIAL), score);
        let reach: f64 = weights
            .iter()
            .zip(squares.iter().chain([&1.0]))
            .map(|(weight, square)| weight.abs() * square.sqrt())
            .sum();
        // (1 + |f|)² ≤ 2 + 2f², and the mean of f² is at most reach².
        let most = 2.0 * mass * (1.0 + reach * reach);
        grids[0] += most;
        let features = squares.iter().map(|square| 2.0 * (most * mass * square).sqrt());
        let constant = layout.intercept.then(|| 2.0 * (most * mass).sqrt());
        grids.extend(features.chain(constant));
    }
    grids.iter().map(|&most| grid(most)).collect()
}

/// The least power of two that is no less than `most`, by 2⁶¹: read from the exponent, since every worker asks for as many
/// as there are weights, in every step.
fn grid(most: f64) -> f64 {
    let (exponent, fraction) = (most.to_bits() >> 52, most.to_bits() << 12);
    match exponent + u64::from(fraction != 0) {
        // Positive, finite, and the grid is a normal number, too.
        power @ 62..2047 => f64::from_bits((power - 61) << 52),
        _ if most > 0.0 && most < 1.0 => f64::MIN_POSITIVE,
        _ => 1.0,
    }
}

/// Loss and gradient of one shard at the trial point, added as integers.
pub(crate) fn evaluate(
    problem: &Problem<'_>,
    columns: &[f64],
    part: Part<'_>,
    grids: &[f64],
    sums: &mut [i64],
) {
    let mut found = vec![0.0; 1 + columns.len()];
    let (loss, gradient) = found.split_at_mut(1);
    Arch::new().dispatch(Pass { problem, columns, part, loss: &mut loss[0], gradient });
    Arch::new().dispatch(Onto { grids, found: &found, sums });
}

/// Adds numbers to sums as multiples of their grids.
struct Onto<'a> {
    grids: &'a [f64],
    found: &'a [f64],
    sums: &'a mut [i64],
}

impl WithSimd for Onto<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((sum, found), grid) in self.sums.iter_mut().zip(self.found).zip(self.grids) {
            *sum += (found / grid).round_ties_even() as i64;
        }
    }
}

struct Pass<'a> {
    problem: &'a Problem<'a>,
    columns: &'a [f64],
    part: Part<'a>,
    loss: &'a mut f64,
    gradient: &'a mut [f64],
}

impl WithSimd for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let whole = self.part.len() / 4 * 4;
        if self.part.is_sparse() || self.problem.layout.features == 0 {
            (0..self.part.len()).for_each(|row| self.sparse(row));
            return;
        }
        for row in (0..whole).step_by(4) {
            self.dense([row, row + 1, row + 2, row + 3]);
        }
        for row in whole..self.part.len() {
            self.dense([row]);
        }
    }
}

impl Pass<'_> {
    /// N dense rows: read once for their scores, and from the nearest cache for the gradient.
    #[inline(always)]
    fn dense<const N: usize>(&mut self, rows: [usize; N]) {
        let layout = self.problem.layout;
        let values = rows.map(|row| match self.part.row(row) {
            Row::Dense(x) => x,
            Row::Sparse(..) => &[],
        });
        let scores = self.columns.chunks_exact(layout.rows());
        let gradients = self.gradient.chunks_exact_mut(layout.rows());
        for (score, (weights, gradient)) in scores.zip(gradients).enumerate() {
            let intercept = if layout.intercept { weights[layout.features] } else { 0.0 };
            let found = dots(values, &weights[..layout.features]);
            let mut by = [0.0; N];
            for n in 0..N {
                let (value, pull) =
                    pulled(self.problem, self.part, (rows[n], score), found[n] + intercept);
                *self.loss += value;
                by[n] = pull;
            }
            if by.iter().any(|by| *by != 0.0) {
                add_scaled(values, by, &mut gradient[..layout.features]);
                if layout.intercept {
                    gradient[layout.features] += by.iter().sum::<f64>();
                }
            }
        }
    }

    #[inline(always)]
    fn sparse(&mut self, row: usize) {
        let layout = self.problem.layout;
        let scores = self.columns.chunks_exact(layout.rows());
        let gradients = self.gradient.chunks_exact_mut(layout.rows());
        for (score, (weights, gradient)) in scores.zip(gradients).enumerate() {
            let intercept = if layout.intercept { weights[layout.features] } else { 0.0 };
            let found = self.part.product(row, weights) + intercept;
            let (value, pull) = pulled(self.problem, self.part, (row, score), found);
            *self.loss += value;
            if pull != 0.0 {
                self.part.add(row, pull, gradient);
                if layout.intercept {
                    gradient[layout.features] += pull;
                }
            }
        }
    }
}

/// The weighted loss of a row and what its features are multiplied with in the gradient.
#[inline(always)]
fn pulled(
    problem: &Problem<'_>,
    part: Part<'_>,
    (row, score): (usize, usize),
    found: f64,
) -> (f64, f64) {
    let layout = problem.layout;
    let class = part.class(row);
    let sign = layout.sign(class, score);
    let weight = part.weight(row) * layout.class_weight(problem.classes, class, score);
    let margin = sign * found;
    (weight * SquaredHinge.value(margin), -sign * weight * SquaredHinge.pull(margin))
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    /// Largest gap, as a share of the objective.
    pub(crate) tolerance: f64,
    /// Iterations.
    pub(crate) iterations: i64,
}

/// What came of an evaluation: none where the objective is not finite.
pub(crate) struct Answer {
    pub(crate) objective: f64,
    pub(crate) iterations: u64,
    pub(crate) done: bool,
}

/// Tells the optimiser the sums at the trial point.
pub(crate) fn tell(
    model: &mut Model,
    (layout, constant): (Layout, f64),
    sums: &[i64],
    stop: Stop,
) -> Option<Answer> {
    let mut trial = std::mem::take(model.f64_mut(TRIAL));
    *model.f64_mut(TRIAL) = trial.clone();
    let problem = Problem::of(model, layout, constant);
    let grids = grids(model, &problem);
    let scaled = |at: usize| sums[at] as f64 * grids[at] / problem.mass;
    let (mut value, mut gradient) = (scaled(0), vec![0.0; trial.len()]);
    let (mut steepness, units) = (0.0, Units::of(model, &problem));
    for score in 0..layout.scores {
        let column = layout.column(&trial, score);
        let mut slopes: Vec<f64> =
            (0..layout.rows()).map(|row| scaled(1 + score * layout.rows() + row)).collect();
        value += 0.5 * problem.penalty * problem.square(&column);
        penalise(&problem, &column, &mut slopes);
        steepness += steepness_of(&problem, &slopes);
        units.enter_gradient(&mut slopes);
        let mut entered = column;
        units.enter(&mut entered);
        for (row, (slope, point)) in slopes.iter().zip(&entered).enumerate() {
            gradient[row * layout.scores + score] = *slope;
            trial[row * layout.scores + score] = *point;
        }
    }
    // The objective is λ-strongly convex: no point lies lower by more than this.
    let gap = steepness / (2.0 * problem.penalty);
    let enough = gap <= stop.tolerance * value.abs();
    let limits = Limits { tolerance: 0.0, iterations: stop.iterations };
    let mut optimiser = take(model);
    let told = optimiser.tell(&mut trial, value, &gradient, limits);
    let accepted = told != Told::Searching;
    let answer = Answer {
        objective: optimiser.value,
        iterations: optimiser.iterations as u64,
        done: told == Told::Converged || (told == Told::Moved && enough),
    };
    let mut weights = optimiser.point.clone();
    leave(&units, layout, &mut weights);
    leave(&units, layout, &mut trial);
    put_back(model, optimiser);
    *model.f64_mut(TRIAL) = trial;
    if accepted {
        *model.f64_mut(WEIGHTS) = weights;
        model.f64_mut(GAP)[0] = gap;
    }
    (told != Told::Diverged).then_some(answer)
}

/// Adds the penalty's gradient, in the units of the data, to one score's slopes.
fn penalise(problem: &Problem<'_>, weights: &[f64], slopes: &mut [f64]) {
    let features = problem.layout.features;
    let shift: f64 = (0..features).map(|column| weights[column] * problem.unit(column).1).sum();
    let own = weights.get(features).map_or(0.0, |own| (own + shift) / problem.constant.powi(2));
    for (column, slope) in slopes[..features].iter_mut().enumerate() {
        let (deviation, mean) = problem.unit(column);
        *slope += problem.penalty * (weights[column] * deviation * deviation + own * mean);
    }
    if let Some(slope) = slopes.get_mut(features) {
        *slope += problem.penalty * own;
    }
}

/// ‖∇‖² of one score as the penalty's norm sees it: in the space of standardised rows.
fn steepness_of(problem: &Problem<'_>, slopes: &[f64]) -> f64 {
    let features = problem.layout.features;
    let constant = slopes.get(features).copied().unwrap_or(0.0);
    let squares = slopes[..features].iter().enumerate().map(|(column, slope)| {
        let (deviation, mean) = problem.unit(column);
        ((slope - mean * constant) / deviation).powi(2)
    });
    squares.sum::<f64>() + (constant * problem.constant).powi(2)
}

/// The optimiser's units of one score: w·scale, and the intercept as it is at the mean of all features.
struct Units {
    means: Vec<f64>,
    scales: Vec<f64>,
}

impl Units {
    fn of(model: &Model, problem: &Problem<'_>) -> Units {
        let features = problem.layout.features;
        let moments = &model.f64(MOMENTS)[1..];
        let centred = problem.layout.intercept;
        let (means, variances, squares) =
            (&moments[..features], &moments[features..2 * features], &moments[2 * features..]);
        let spread = if centred { variances } else { squares };
        let scale = |(column, spread): (usize, &f64)| {
            // About half of the rows pull, with a curvature of two each.
            let curvature = spread + problem.penalty * problem.unit(column).0.powi(2);
            if curvature > 0.0 { curvature.sqrt() } else { 1.0 }
        };
        let means = if centred { means.to_vec() } else { vec![0.0; features] };
        Units { means, scales: spread.iter().enumerate().map(scale).collect() }
    }

    fn enter(&self, weights: &mut [f64]) {
        let (features, intercept) = weights.split_at_mut(self.scales.len());
        if let [own] = intercept {
            *own += features.iter().zip(&self.means).map(|(w, mean)| w * mean).sum::<f64>();
        }
        features.iter_mut().zip(&self.scales).for_each(|(w, scale)| *w *= scale);
    }

    fn leave(&self, weights: &mut [f64]) {
        let (features, intercept) = weights.split_at_mut(self.scales.len());
        features.iter_mut().zip(&self.scales).for_each(|(w, scale)| *w /= scale);
        if let [own] = intercept {
            *own -= features.iter().zip(&self.means).map(|(w, mean)| w * mean).sum::<f64>();
        }
    }

    /// The chain rule.
    fn enter_gradient(&self, slopes: &mut [f64]) {
        let (features, intercept) = slopes.split_at_mut(self.scales.len());
        let constant = intercept.first().copied().unwrap_or(0.0);
        let units = self.means.iter().zip(&self.scales);
        features.iter_mut().zip(units).for_each(|(slope, (mean, scale))| {
            *slope = (*slope - mean * constant) / scale;
        });
    }
}

/// From the optimiser's units to the data's, all scores.
fn leave(units: &Units, layout: Layout, weights: &mut [f64]) {
    for score in 0..layout.scores {
        let mut column: Vec<f64> =
            weights.iter().skip(score).step_by(layout.scores).copied().collect();
        units.leave(&mut column);
        let places = weights.iter_mut().skip(score).step_by(layout.scores);
        places.zip(column).for_each(|(place, value)| *place = value);
    }
}

fn take(model: &mut Model) -> Lbfgs {
    let [point, gradient, direction, steps, changes] =
        VECTORS.map(|name| std::mem::take(model.f64_mut(name)));
    let (search, counters) = (model.f64(SEARCH), model.i64(PAIRS));
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
    model.i64_mut(PAIRS).copy_from_slice(&[optimiser.pairs, optimiser.iterations]);
}

#[cfg(test)]
mod tests {
    use super::grid;

    #[test]
    fn a_grid_is_a_power_of_two_below_what_sums_can_reach() {
        for (most, wanted) in [
            (1.0, 2f64.powi(-61)),
            (1.5, 2f64.powi(-60)),
            (2.0, 2f64.powi(-60)),
            (3e300, 2f64.powi(999 - 61)),
            (1e-310, f64::MIN_POSITIVE),
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::INFINITY, 1.0),
            (f64::NAN, 1.0),
        ] {
            assert_eq!(grid(most), wanted, "{most}");
        }
    }
}
