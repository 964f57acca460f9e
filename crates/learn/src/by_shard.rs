//! Sums whose bits do not depend on the flock: each shard's sums travel as one row, and are added up in the order of
//! shards. It costs as many rows as there are shards, so it is for few numbers or few exchanges; where it would be too
//! much, integers on a grid do the same (see `learners/perceptron/epoch.rs`).

use starlings_core::{Kind, Result, Rows, Values};
use starlings_data::{Batch, Slice};

/// A row of `width` sums for each of the batch's shards, of `shards` in all; `fill` adds a shard's up.
///
/// # Errors
/// Whatever `fill` refuses.
pub(crate) fn sums(
    batch: &Batch<'_>,
    (shards, width): (u32, usize),
    mut fill: impl FnMut(&Slice, &mut [f64]) -> Result<()>,
) -> Result<Rows> {
    let mut rows = Rows::none(Kind::F64, shards, width as u32);
    let mut values = vec![0.0; batch.slices.len() * width];
    for (slice, sums) in batch.slices.iter().zip(values.chunks_exact_mut(width)) {
        rows.index.push(slice.shard.0);
        fill(slice, sums)?;
    }
    rows.values = Values::F64(values);
    Ok(rows)
}

/// The sum of all shards' rows, in their order.
pub(crate) fn add_up(rows: &Rows) -> Vec<f64> {
    let mut sums = vec![0.0; rows.width as usize];
    for row in rows.values.as_f64().unwrap_or(&[]).chunks_exact(sums.len().max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}
