//! Counting: how much each feature weighs in each class. The kernels read every row once and add it to the sums of its
//! class, which stay in the nearest cache; what binds them is the memory that rows come from.

use super::Kind;
use crate::kernels::widest;
use crate::refusals;
use starlings_core::Result;
use starlings_data::{Batch, Features};

/// Sums over rows, by class.
pub(super) struct Sums {
    /// Of the weights of rows.
    pub(super) class_weights: Vec<f64>,
    /// Of features: classes × features.
    pub(super) first: Vec<f64>,
    /// Of squares, where they are wanted.
    pub(super) second: Vec<f64>,
}

/// The sums that every kind but the Gaussian needs.
pub(super) fn counts(
    kind: Kind,
    (classes, features): (usize, usize),
    batch: &Batch<'_>,
) -> Result<Sums> {
    let mut sums = Sums {
        class_weights: class_weights(classes, batch),
        first: vec![0.0; classes * features],
        second: Vec::new(),
    };
    let first = &mut sums.first;
    let signs = match (kind, &batch.table.features) {
        (Kind::Bernoulli { above }, Features::Dense { .. }) => {
            dense(batch, features, first, move |x| if x > above { 1.0 } else { 0.0 })
        }
        (Kind::Bernoulli { above }, Features::Sparse { .. }) => {
            present(batch, (features, above), &sums.class_weights, first)
        }
        (_, Features::Dense { .. }) => dense(batch, features, first, f64::from),
        (_, Features::Sparse { .. }) => sparse(batch, features, first, f64::from),
    };
    let may_be_negative = !matches!(kind, Kind::Bernoulli { .. });
    if may_be_negative && signs >> 31 == 1 {
        let what = "and counts cannot be negative";
        if let Some(fault) = refusals::find_number(batch, what, |x| x >= 0.0 || x.is_nan()) {
            return Err(fault.hint("use kind = \"gaussian\", or features that count something"));
        }
    }
    check_finite(batch, &sums.first)?;
    Ok(sums)
}

/// Refuses a batch whose sums show that it holds a number that is not finite.
pub(super) fn check_finite(batch: &Batch<'_>, sums: &[f64]) -> Result<()> {
    if sums.iter().all(|sum| sum.is_finite()) {
        return Ok(());
    }
    match refusals::find_number(batch, "which is not finite", f32::is_finite) {
        Some(fault) => Err(fault.hint("leave such rows out, or fill the number in")),
        None => Ok(()),
    }
}

/// The weight of the rows of each class.
pub(super) fn class_weights(classes: usize, batch: &Batch<'_>) -> Vec<f64> {
    let mut sums = vec![0.0; classes];
    for row in batch.rows() {
        sums[batch.table.labels[row] as usize] += batch.table.weight(row);
    }
    sums
}

/// Adds `of` every number of dense rows to its class. The bits of all numbers or-ed together come back: the first tells
/// whether any had a minus sign.
fn dense(batch: &Batch<'_>, width: usize, sums: &mut [f64], of: impl Fn(f32) -> f64 + Copy) -> u32 {
    let mut signs = 0;
    widest(
        #[inline(always)]
        || {
            for row in batch.rows() {
                let weight = batch.table.weight(row);
                let Some(values) = batch.table.dense_rows(row, row + 1) else { continue };
                if weight == 0.0 {
                    continue;
                }
                let class = batch.table.labels[row] as usize;
                let sums = &mut sums[class * width..(class + 1) * width];
                signs |= add_row(values, weight, sums, of);
            }
        },
    );
    signs
}

#[inline(always)]
fn add_row(values: &[f32], weight: f64, sums: &mut [f64], of: impl Fn(f32) -> f64) -> u32 {
    let mut signs = 0;
    if weight == 1.0 {
        for (sum, &x) in sums.iter_mut().zip(values) {
            signs |= x.to_bits();
            *sum += of(x);
        }
    } else {
        for (sum, &x) in sums.iter_mut().zip(values) {
            signs |= x.to_bits();
            *sum += weight * of(x);
        }
    }
    signs
}

/// Adds `of` every stored number of sparse rows to its class.
fn sparse(batch: &Batch<'_>, width: usize, sums: &mut [f64], of: impl Fn(f32) -> f64) -> u32 {
    let Features::Sparse { starts, columns, values, .. } = &batch.table.features else { return 0 };
    let mut signs = 0;
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        if weight == 0.0 {
            continue;
        }
        let class = batch.table.labels[row] as usize;
        let sums = &mut sums[class * width..(class + 1) * width];
        let range = starts[row]..starts[row + 1];
        for (&column, &x) in columns[range.clone()].iter().zip(&values[range]) {
            signs |= x.to_bits();
            sums[column as usize] += weight * of(x);
        }
    }
    signs
}

/// Counts the features that are larger than `above` in sparse rows. Where zero is, all features are there but those
/// whose stored number says otherwise.
fn present(
    batch: &Batch<'_>,
    (width, above): (usize, f32),
    class_weights: &[f64],
    sums: &mut [f64],
) -> u32 {
    if 0.0 > above {
        for (sums, weight) in sums.chunks_exact_mut(width).zip(class_weights) {
            sums.fill(*weight);
        }
        return sparse(batch, width, sums, |x| -f64::from(u8::from(x <= above)));
    }
    sparse(batch, width, sums, |x| f64::from(u8::from(x > above)))
}
