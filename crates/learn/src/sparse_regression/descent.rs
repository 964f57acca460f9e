//! Coordinate descent with covariance updates on ½uᵀGu − cᵀu + l1·‖u‖₁ + l2/2·‖u‖² (Friedman, Hastie and Tibshirani,
//! "Regularization paths for generalized linear models via coordinate descent", 2010). Only the coordinates that the
//! strong rule leaves (Tibshirani et al., 2012) are visited; those it wrongly left out are found by their gradient and
//! join. Converged when the duality gap is a given share of ‖y‖²/2. No rows here: everything is in the statistics.

use pulp::{Arch, Simd, WithSimd};

/// Moves below this share of y's deviation are rounding.
pub(crate) const STILL: f64 = 1e-14;

/// The smooth part: G and c in the units of the solver, and the mean square of y.
#[derive(Clone, Debug)]
pub(crate) struct Quadratic {
    /// G, row after row.
    pub(crate) gram: Vec<f64>,
    /// c.
    pub(crate) linear: Vec<f64>,
    /// The mean of y².
    pub(crate) square: f64,
}

/// The penalty l1·‖u‖₁ + l2/2·‖u‖².
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Penalty {
    pub(crate) l1: f64,
    pub(crate) l2: f64,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest gap, as a share of the mean of y².
    pub(crate) tolerance: f64,
    /// Largest number of sweeps.
    pub(crate) sweeps: u64,
}

/// A point and where it stands.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Point {
    /// u.
    pub(crate) values: Vec<f64>,
    /// c − Gu.
    pub(crate) slopes: Vec<f64>,
    /// Objective minus the best lower bound known for it.
    pub(crate) gap: f64,
    /// Sweeps over coordinates so far.
    pub(crate) sweeps: u64,
}

impl Point {
    /// The origin of a problem.
    pub(crate) fn origin(problem: &Quadratic) -> Point {
        let values = vec![0.0; problem.linear.len()];
        Point { values, slopes: problem.linear.clone(), gap: f64::INFINITY, sweeps: 0 }
    }
}

/// u after minimising over one coordinate: its value now, its slope and its curvature given.
#[inline(always)]
pub(crate) fn step(value: f64, slope: f64, curvature: f64, penalty: Penalty) -> f64 {
    let pull = slope + curvature * value;
    let shrunk = (pull.abs() - penalty.l1).max(0.0);
    if shrunk > 0.0 { pull.signum() * shrunk / (curvature + penalty.l2) } else { 0.0 }
}

/// Moves the point to the minimum. `before` is the l1 at which the point was the minimum.
pub(crate) fn minimise(
    problem: &Quadratic,
    penalty: Penalty,
    before: f64,
    limits: Limits,
    point: &mut Point,
) {
    let count = problem.linear.len();
    let strong = 2.0 * penalty.l1 - before;
    let mut chosen: Vec<usize> = (0..count)
        .filter(|&j| point.values[j] != 0.0 || point.slopes[j].abs() >= strong)
        .filter(|&j| problem.gram[j * count + j] > 0.0)
        .collect();
    let limits = Limits { sweeps: point.sweeps.saturating_add(limits.sweeps), ..limits };
    loop {
        descend(problem, &chosen, penalty, limits, point);
        let wrong = |j: &usize| {
            point.slopes[*j].abs() > penalty.l1 * (1.0 + 1e-12)
                && problem.gram[*j * count + *j] > 0.0
                && chosen.binary_search(j).is_err()
        };
        let missed: Vec<usize> = (0..count).filter(wrong).collect();
        let residual = problem.residual(&point.values, &point.slopes);
        point.gap = gap(&point.values, &point.slopes, residual, penalty);
        if missed.is_empty() || point.sweeps >= limits.sweeps {
            return;
        }
        chosen.extend(missed);
        chosen.sort_unstable();
    }
}

/// Objective minus the dual objective of the residual, scaled until it is feasible. `residual` is the mean of its squares.
pub(crate) fn gap(values: &[f64], slopes: &[f64], residual: f64, penalty: Penalty) -> f64 {
    let (mut steepest, mut ones, mut squares, mut rest) = (0.0f64, 0.0, 0.0, 0.0);
    for (u, slope) in values.iter().zip(slopes) {
        steepest = steepest.max((slope - penalty.l2 * u).abs());
        ones += u.abs();
        squares += u * u;
        rest += slope * u;
    }
    // With r = y − Xu: r·y = r·r + slopes·u, all as means over rows.
    let along = residual + rest;
    let scale = if steepest > penalty.l1 { penalty.l1 / steepest } else { 1.0 };
    0.5 * residual * (1.0 + scale * scale) + penalty.l1 * ones - scale * along
        + 0.5 * penalty.l2 * (1.0 + scale * scale) * squares
}

impl Quadratic {
    /// The mean squared residual at a point: y·y − c·u − slopes·u.
    pub(crate) fn residual(&self, values: &[f64], slopes: &[f64]) -> f64 {
        let terms = values.iter().zip(slopes).zip(&self.linear);
        let fit: f64 = terms.map(|((u, slope), c)| u * (c + slope)).sum();
        (self.square - fit).max(0.0)
    }
}

/// Sweeps over the chosen coordinates until the gap of the problem without the others is closed.
fn descend(
    problem: &Quadratic,
    chosen: &[usize],
    penalty: Penalty,
    limits: Limits,
    point: &mut Point,
) {
    let count = problem.linear.len();
    let pick = |from: &[f64]| chosen.iter().map(|&j| from[j]).collect::<Vec<f64>>();
    let rows = chosen.iter().map(|&j| &problem.gram[j * count..(j + 1) * count]);
    let small = Quadratic {
        gram: rows.flat_map(&pick).collect(),
        linear: pick(&problem.linear),
        square: problem.square,
    };
    let start = pick(&point.values);
    let (mut values, mut slopes) = (start.clone(), pick(&point.slopes));
    while point.sweeps < limits.sweeps && !chosen.is_empty() {
        point.sweeps += 1;
        let gram = &small.gram;
        let sweep = Sweep { gram, values: &mut values, slopes: &mut slopes, penalty };
        let moved = Arch::new().dispatch(sweep);
        let residual = small.residual(&values, &slopes);
        let found = gap(&values, &slopes, residual, penalty);
        // A sweep that only moves by rounding will never close what is left of the gap.
        if found <= limits.tolerance * problem.square || moved <= STILL * problem.square.sqrt() {
            break;
        }
    }
    // The coordinates left out feel the whole move at once.
    for ((&j, from), to) in chosen.iter().zip(&start).zip(&values) {
        if from != to {
            add_scaled(from - to, &problem.gram[j * count..(j + 1) * count], &mut point.slopes);
            point.values[j] = *to;
        }
    }
}

fn add_scaled(by: f64, from: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += by * from);
}

/// One sweep over all coordinates of a small problem. Gives the largest move, in units of y.
struct Sweep<'a> {
    gram: &'a [f64],
    values: &'a mut [f64],
    slopes: &'a mut [f64],
    penalty: Penalty,
}

impl WithSimd for Sweep<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> f64 {
        let count = self.values.len();
        let mut moved = 0.0f64;
        for j in 0..count {
            let row = &self.gram[j * count..(j + 1) * count];
            let value = self.values[j];
            let next = step(value, self.slopes[j], row[j], self.penalty);
            if next != value {
                self.values[j] = next;
                moved = moved.max((value - next).abs() * row[j].sqrt());
                add_scaled(value - next, row, self.slopes);
            }
        }
        moved
    }
}
