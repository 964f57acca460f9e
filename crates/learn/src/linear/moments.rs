//! The step before the first: sums of x and x² of every feature, of the rows' weights and of their labels. From them
//! come the units in which solvers work, where they start, what classes weigh, and refusals of numbers that
//! are not finite.

use super::exact::no_rows;
use super::layout::Layout;
use super::pass::alone;
use crate::rows::check_finite;
use starlings_core::{Block, Fault, Result, Rows, Update, Values};
use starlings_data::{Batch, Row};

/// What labels are, for their sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labels {
    /// The weight of each of so many classes.
    Classes(usize),
    /// The sum of labels and of their squares.
    Numbers,
}

impl Labels {
    /// How many sums.
    pub(crate) fn sums(self) -> usize {
        match self {
            Labels::Classes(classes) => classes,
            Labels::Numbers => 2,
        }
    }
}

/// What the sums say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Moments {
    /// The weight of all rows.
    pub(crate) weight: f64,
    /// See [`Labels`].
    pub(crate) labels: Vec<f64>,
    /// The mean of each feature.
    pub(crate) means: Vec<f64>,
    /// The variance of each feature; zero for one that never varies.
    pub(crate) variances: Vec<f64>,
}

impl Moments {
    /// From sums over all rows.
    fn of(sums: &[f64], features: usize) -> Moments {
        let (first, rest) = sums.split_at(features);
        let (second, rest) = rest.split_at(features);
        let (weight, labels) = (rest[0], rest[1..].to_vec());
        let rows = if weight > 0.0 { weight } else { 1.0 };
        let means = first.iter().map(|sum| sum / rows).collect();
        let variances = first.iter().zip(second).map(|(sum, squares)| {
            let (mean, square) = (sum / rows, squares / rows);
            let variance = square - mean * mean;
            // What is left of a constant after cancellation is rounding.
            if variance > 1e-12 * square { variance } else { 0.0 }
        });
        Moments { weight, labels, means, variances: variances.collect() }
    }

    /// The same with another weight for each class.
    pub(crate) fn deviation(&self, feature: usize) -> f64 {
        deviation(self.variances[feature])
    }
}

/// The unit of a feature; one for a feature that never varies.
pub(crate) fn deviation(variance: f64) -> f64 {
    if variance > 0.0 { variance.sqrt() } else { 1.0 }
}

/// The block of sums, one row for each shard: they are added up in the order of shards.
pub(crate) fn block(
    layout: Layout,
    labels: Labels,
    batch: &Batch<'_>,
    shards: u32,
) -> Result<Block> {
    let width = 2 * layout.features + 1 + labels.sums();
    let mut rows: Rows = no_rows(shards, width);
    let mut values = Vec::new();
    for slice in &batch.slices {
        rows.index.push(slice.shard.0);
        let batch = alone(batch, slice);
        let sums = shard_sums(layout, labels, &batch);
        if sums.iter().any(|sum| !sum.is_finite()) {
            return Err(not_finite(&batch));
        }
        values.extend(sums);
    }
    rows.values = Values::F64(values);
    Ok(Block::rows("moments", rows))
}

/// What all workers' blocks say together.
pub(crate) fn read(update: &Update, features: usize) -> Moments {
    let rows = update.rows("moments").expect("emitted under this name");
    let mut sums = vec![0.0; rows.width as usize];
    for row in rows.values.as_f64().unwrap_or(&[]).chunks_exact(sums.len().max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    Moments::of(&sums, features)
}

fn shard_sums(layout: Layout, labels: Labels, batch: &Batch<'_>) -> Vec<f64> {
    let mut sums = vec![0.0; 2 * layout.features + 1 + labels.sums()];
    let (first, rest) = sums.split_at_mut(layout.features);
    let (second, rest) = rest.split_at_mut(layout.features);
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        if weight == 0.0 {
            continue;
        }
        rest[0] += weight;
        let label = f64::from(batch.table.labels[row]);
        match labels {
            Labels::Classes(_) => rest[1 + label as usize] += weight,
            Labels::Numbers => {
                rest[1] += weight * label;
                rest[2] += weight * label * label;
            }
        }
        match batch.table.row(row) {
            Row::Dense(values) => {
                for ((&x, first), second) in values.iter().zip(&mut *first).zip(&mut *second) {
                    let x = f64::from(x);
                    *first += weight * x;
                    *second += weight * x * x;
                }
            }
            Row::Sparse(columns, values) => {
                for (&column, &x) in columns.iter().zip(values) {
                    let x = f64::from(x);
                    first[column as usize] += weight * x;
                    second[column as usize] += weight * x * x;
                }
            }
        }
    }
    sums
}

/// Finds the number that is not finite.
fn not_finite(batch: &Batch<'_>) -> Fault {
    check_finite(batch).err().unwrap_or_else(|| {
        Fault::caller("sums over the features are not finite").hint("scale the features down")
    })
}
