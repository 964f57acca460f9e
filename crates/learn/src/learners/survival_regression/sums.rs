//! What the likelihood needs of the rows, shard by shard: sums travel as one row for each shard and are added up in the
//! order of shards, so that a run has the same bits on any flock (near the optimum a line search decides by the last
//! bits, and flocks that differ in them would take different numbers of steps).

use super::distribution::Distribution;
use crate::by_shard;
use crate::columns;
use crate::kernels::products::dots;
use crate::refusals;
use starlings_core::{Fault, Result, Rows};
use starlings_data::{Batch, Row, Slice};

/// Sums before those of features: of weights, of ln t, of (ln t)², of weights of events and of ln t of events.
pub(super) const MOMENTS: usize = 5;
/// Sums before those of slopes times features: the loss, the slopes, and slopes times ln t.
pub(super) const SLOPES: usize = 3;

/// Which rows were events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) features: usize,
    /// The feature that says so; none where all were.
    pub(super) event: Option<usize>,
}

/// The noise of a row is `constant + time·ln t − slopes·x`.
#[derive(Clone, Debug)]
pub(super) struct Noise {
    pub(super) constant: f64,
    pub(super) time: f64,
    pub(super) slopes: Vec<f64>,
}

impl Reading {
    /// Whether the event of a row happened. [`moments`] has refused rows that say neither 0 nor 1.
    pub(super) fn happened(&self, batch: &Batch<'_>, row: usize) -> bool {
        self.event.is_none_or(|event| columns::number_at(batch.table, row, event) != 0.0)
    }

    /// One row for each shard: [`MOMENTS`], then Σwx and Σwx² of each feature.
    pub(super) fn moments(&self, batch: &Batch<'_>, shards: u32) -> Result<Rows> {
        let width = MOMENTS + 2 * self.features;
        by_shard::sums(batch, (shards, width), |slice, sums| {
            for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
                self.check(batch, slice, row)?;
                let weight = batch.table.weight(row);
                let time = f64::from(batch.table.labels[row]).ln();
                let happened = f64::from(u8::from(self.happened(batch, row)));
                let own = [1.0, time, time * time, happened, happened * time];
                sums[..MOMENTS].iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
                let (first, second) = sums[MOMENTS..].split_at_mut(self.features);
                each_number(batch, row, |feature, x| {
                    first[feature] += weight * x;
                    second[feature] += weight * x * x;
                });
            }
            match sums.iter().all(|sum| sum.is_finite()) {
                true => Ok(()),
                false => Err(refusals::find_number(batch, "which is not finite", f32::is_finite)
                    .unwrap_or_else(|| Fault::caller("sums of squares of features overflow"))),
            }
        })
    }

    /// One row for each shard: [`SLOPES`], then Σ slope·x of each feature.
    pub(super) fn slopes(
        &self,
        batch: &Batch<'_>,
        shards: u32,
        distribution: Distribution,
        noise: &Noise,
    ) -> Result<Rows> {
        by_shard::sums(batch, (shards, SLOPES + self.features), |slice, sums| {
            for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
                let weight = batch.table.weight(row);
                let (time, value) = self.noise(batch, row, noise);
                let loss = match self.happened(batch, row) {
                    true => distribution.happened(value),
                    false => distribution.censored(value),
                };
                let slope = weight * loss.slope;
                let own = [weight * loss.value, slope, slope * time];
                sums[..SLOPES].iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
                let into = &mut sums[SLOPES..];
                each_number(batch, row, |feature, x| into[feature] += slope * x);
            }
            Ok(())
        })
    }

    /// ln t and the noise of a row.
    pub(super) fn noise(&self, batch: &Batch<'_>, row: usize, noise: &Noise) -> (f64, f64) {
        let time = f64::from(batch.table.labels[row]).ln();
        let fitted = product(batch.table.row(row), &noise.slopes);
        (time, noise.constant + noise.time * time - fitted)
    }

    fn check(&self, batch: &Batch<'_>, slice: &Slice, row: usize) -> Result<()> {
        let global = refusals::global(slice, row);
        let time = batch.table.labels.get(row).copied().unwrap_or(f32::NAN);
        if !(time > 0.0 && time.is_finite()) {
            return Err(Fault::caller(format!("row {global} has the time {time}"))
                .hint("the label is the time until the event: finite and above zero"));
        }
        let event = self.event.map_or(1.0, |event| columns::number_at(batch.table, row, event));
        if event != 0.0 && event != 1.0 {
            return Err(Fault::caller(format!("row {global} has {event} in the event's column"))
                .hint("1 where the event happened at that time, 0 where it had not yet"));
        }
        Ok(())
    }
}

/// The product of a row with a vector.
pub(super) fn product(row: Row<'_>, vector: &[f64]) -> f64 {
    match row {
        Row::Dense(values) => dots([values], vector)[0],
        Row::Sparse(columns, values) => {
            columns.iter().zip(values).map(|(&c, &x)| f64::from(x) * vector[c as usize]).sum()
        }
    }
}

#[inline]
fn each_number(batch: &Batch<'_>, row: usize, mut visit: impl FnMut(usize, f64)) {
    match batch.table.row(row) {
        Row::Dense(values) => {
            values.iter().enumerate().for_each(|(feature, &x)| visit(feature, f64::from(x)));
        }
        Row::Sparse(columns, values) => columns
            .iter()
            .zip(values)
            .for_each(|(&feature, &x)| visit(feature as usize, f64::from(x))),
    }
}
