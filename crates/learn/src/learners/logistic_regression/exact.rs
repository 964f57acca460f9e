//! Sums that do not depend on who added them up. Each shard's gradient and loss are rounded to a fixed grid and
//! travel as integers, whose sum is the same in every order: one model, to the bit, whatever the number of workers
//! and the topology. Without this a long L-BFGS run on ill-conditioned data turns a difference in the last bit into one
//! that can be seen (Demmel and Nguyen, "Fast reproducible floating-point summation", 2013, for the idea).
//!
//! The grid is fine: 2⁻⁶¹ of the largest sum that can occur, finer than what f64 keeps of it.

use super::objective::{self, Layout};
use starlings_core::{Kind, Rows, Values};
use starlings_data::{Batch, Row, Slice};

/// A loss travels as whole units of 2⁻¹⁶, the rest of a unit in 2⁻⁴⁶ of it, and a count of shards that have none.
const UNIT: f64 = 65_536.0;
const REST: f64 = (1u64 << 46) as f64;
/// Largest loss of a shard that is counted; beyond it the point is hopeless anyway.
const LOSS_MAX: f64 = (1u64 << 30) as f64;

/// Loss and gradient of all rows, as integers.
pub(super) struct Evaluated {
    pub(super) loss: Vec<i64>,
    pub(super) gradient: Vec<i64>,
}

/// Evaluates a batch shard by shard. `grids` has the grid of each row of the weights.
pub(super) fn evaluate(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    grids: &[f64],
) -> Evaluated {
    let mut gradient = vec![0.0; layout.len()];
    let mut sums = Evaluated { loss: vec![0; 3], gradient: vec![0; layout.len()] };
    for slice in &batch.slices {
        let loss = objective::gradient(layout, weights, &alone(batch, slice), &mut gradient).loss;
        if !(loss.is_finite() && loss <= LOSS_MAX) {
            sums.loss[2] += 1;
            continue;
        }
        let units = (loss * UNIT).floor();
        sums.loss[0] += units as i64;
        sums.loss[1] += ((loss * UNIT - units) * REST) as i64;
        let rows = gradient.chunks_exact(layout.scores).zip(grids);
        for (into, (from, grid)) in sums.gradient.chunks_exact_mut(layout.scores).zip(rows) {
            into.iter_mut()
                .zip(from)
                .for_each(|(into, from)| *into += (from / grid).round() as i64);
        }
    }
    sums
}

/// The loss that integers stand for; infinite when a shard had none.
pub(super) fn loss(sums: &[i64]) -> f64 {
    if sums[2] > 0 { f64::INFINITY } else { (sums[0] as f64 + sums[1] as f64 / REST) / UNIT }
}

/// The gradient that integers stand for.
pub(super) fn gradient(sums: &[i64], width: usize, grids: &[f64]) -> Vec<f64> {
    let rows = sums.chunks_exact(width).zip(grids);
    rows.flat_map(|(row, grid)| row.iter().map(move |&sum| sum as f64 * grid)).collect()
}

/// The grid of each row of the weights: a power of two, 2⁻⁶¹ of what its sum cannot exceed. No residual is above
/// one, so a feature's sum stays below rows · √(mean of x²), and the intercept's below rows.
pub(super) fn grids(layout: Layout, means: &[f64], variances: &[f64], rows: u64) -> Vec<f64> {
    let grid = |bound: f64| if bound > 0.0 { (bound.log2().ceil() - 61.0).exp2() } else { 1.0 };
    let rows = rows.max(1) as f64;
    let features = means.iter().zip(variances);
    let features = features.map(|(mean, variance)| grid(rows * (variance + mean * mean).sqrt()));
    features.chain(layout.intercept.then(|| grid(rows))).collect()
}

/// Sums of x and of x² for every feature, one row for each shard: they are added up in the order of shards.
pub(super) fn moments(layout: Layout, batch: &Batch<'_>, shards: u32) -> Rows {
    let width = 2 * layout.features as u32;
    let mut rows = Rows::none(Kind::F64, shards, width);
    let mut values = Vec::new();
    for slice in &batch.slices {
        rows.index.push(slice.shard.0);
        values.extend(shard_moments(layout, &alone(batch, slice)));
    }
    rows.values = Values::F64(values);
    rows
}

/// The sum of the shards' rows, in their order.
pub(super) fn add_up(rows: &Rows) -> Vec<f64> {
    let mut sums = vec![0.0; rows.width as usize];
    for row in rows.values.as_f64().unwrap_or(&[]).chunks_exact(sums.len().max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

fn shard_moments(layout: Layout, batch: &Batch<'_>) -> Vec<f64> {
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

/// One shard of a batch.
fn alone<'a>(batch: &Batch<'a>, slice: &Slice) -> Batch<'a> {
    Batch { table: batch.table, slices: vec![slice.clone()], rows_step: batch.rows_step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_back_from_integers() {
        for value in [0.0, 1e-9, 0.7, 123.456, 1e8] {
            let units = (value * UNIT).floor();
            let sums = [units as i64, ((value * UNIT - units) * REST) as i64, 0];
            assert!((loss(&sums) - value).abs() <= 1e-15 * value.max(1.0), "{value}");
        }
        assert_eq!(loss(&[0, 0, 1]), f64::INFINITY);
    }

    #[test]
    fn grids_leave_room_for_the_largest_sum() {
        let layout = Layout { features: 3, scores: 1, intercept: true };
        let grids = grids(layout, &[0.0, 5.0, 0.0], &[1.0, 0.0, 0.0], 1000);
        for (grid, bound) in grids.iter().zip([1000.0, 5000.0, 0.0, 1000.0]) {
            assert!(bound / grid < (1u64 << 62) as f64, "{grid}");
            assert!(bound == 0.0 || bound / grid > (1u64 << 59) as f64, "{grid}");
        }
    }
}
