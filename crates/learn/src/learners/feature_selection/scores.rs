//! Scores of single features, from sums over all rows.
//!
//! - Variance: the mean first, then the squares about it, so that nothing cancels: two exchanges.
//! - chi²: the sum of each feature in each class against what it would be if classes shared the feature's sum by
//!   their rows alone; features are counts, none negative.
//! - Mutual information of a feature's values with the class, in nats, by counting both: a value is a row of a block
//!   of rows, so that only values that occur travel. Zeros are not counted but are what is left of the class.

use super::super::pca::moments;
use crate::{Work, refusals};
use starlings_core::{Block, Fault, Kind, Model, Result, Role, Rows, Tensor, Update, Values};
use starlings_data::{Batch, Row};
use std::collections::BTreeMap;

/// Values of a feature for mutual information: whole numbers below this.
const VALUES: usize = 65_536;
/// Rows of a block are numbered with 32 bits.
pub(super) const MUTUAL_WIDTH_MAX: usize = (u32::MAX as usize) / VALUES;

/// What features are scored by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// How much they vary.
    Variance,
    /// How far their sums by class are from chance.
    ChiSquared,
    /// What their value tells of the class.
    MutualInformation,
}

impl Method {
    /// What a method remembers between steps.
    pub(super) fn init(self, model: &mut Model, width: usize, classes: usize) {
        model.set("classes", counter(classes as i64));
        if self == Method::Variance {
            model.set("step", counter(0));
            model.set("mean", Tensor::zeros(Kind::F64, &[width], Role::State));
        }
    }

    /// The sums over this worker's rows.
    pub(super) fn contribute(self, work: &mut Work<'_>) -> Result<()> {
        let width = work.model.f64("scores").len();
        let classes = work.model.i64("classes")[0] as usize;
        match self {
            Method::Variance => {
                let sums = match work.model.i64("step")[0] {
                    0 => moments(work.batch, width)[..=width].to_vec(),
                    _ => squares(work.batch, work.model.f64("mean")),
                };
                work.outbox.emit(Block::dense("sums", sums));
            }
            Method::ChiSquared => {
                let (sums, rows) = by_class(work.batch, (classes, width))?;
                work.outbox.emit(Block::dense("sums", sums));
                work.outbox.emit(Block::dense("classes", rows));
            }
            Method::MutualInformation => {
                let (values, rows) = by_value(work.batch, (classes, width))?;
                work.outbox.emit(Block::rows("values", values));
                work.outbox.emit(Block::dense("classes", rows));
            }
        }
        Ok(())
    }

    /// Scores from the sums of all rows; says whether they are final.
    pub(super) fn apply(self, model: &mut Model, update: &Update) -> Result<bool> {
        let width = model.f64("scores").len();
        let scores = match self {
            Method::Variance => {
                let sums = update.f64("sums");
                if sums[0] <= 0.0 {
                    return Err(nothing());
                }
                let means = sums[1..].iter().map(|sum| sum / sums[0]).collect();
                if model.i64("step")[0] == 0 {
                    *model.f64_mut("mean") = means;
                    model.i64_mut("step")[0] = 1;
                    return Ok(false);
                }
                means
            }
            Method::ChiSquared => chi_squared(update.f64("sums"), update.f64("classes"), width)?,
            Method::MutualInformation => {
                let values = update.rows("values");
                let values = values.ok_or_else(|| Fault::peer(None, "the values are missing"))?;
                mutual_information(values, update.f64("classes"), width)?
            }
        };
        if !scores.iter().all(|score| score.is_finite()) {
            return Err(Fault::caller("feature-selection: a score is not finite")
                .hint("scale the features, for example to variance 1"));
        }
        *model.f64_mut("scores") = scores;
        Ok(true)
    }
}

fn counter(number: i64) -> Tensor {
    Tensor { shape: vec![1], values: Values::I64(vec![number]), role: Role::State }
}

fn nothing() -> Fault {
    Fault::caller("feature-selection: all rows weigh nothing")
}

/// Σw and Σw(x − mean)² of every feature.
fn squares(batch: &Batch<'_>, mean: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; 1 + mean.len()];
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        sums[0] += weight;
        match batch.table.row(row) {
            Row::Dense(values) => {
                for ((sum, x), mean) in sums[1..].iter_mut().zip(values).zip(mean) {
                    *sum += weight * (f64::from(*x) - mean).powi(2);
                }
            }
            Row::Sparse(columns, values) => {
                // What a zero would add is added for all features at the end, and taken off again here.
                for (&column, &x) in columns.iter().zip(values) {
                    let (x, mean) = (f64::from(x), mean[column as usize]);
                    sums[1 + column as usize] += weight * x * (x - 2.0 * mean);
                }
            }
        }
    }
    if matches!(batch.table.features, starlings_data::Features::Sparse { .. }) {
        let weight = sums[0];
        sums[1..].iter_mut().zip(mean).for_each(|(sum, mean)| *sum += weight * mean * mean);
    }
    sums
}

fn class_of(batch: &Batch<'_>, (number, row): (u64, usize), classes: usize) -> Result<usize> {
    let label = batch.table.labels.get(row).copied().unwrap_or(f32::NAN);
    if label >= 0.0 && label < classes as f32 {
        return Ok(label as usize);
    }
    Err(Fault::caller(format!("feature-selection: row {number} has no class"))
        .hint("fill or drop rows without a label"))
}

/// Calls `each` for every number of a row that is not zero.
fn for_each_entry(row: Row<'_>, mut each: impl FnMut(usize, f32) -> Result<()>) -> Result<()> {
    match row {
        Row::Dense(values) => {
            let mut entries = values.iter().enumerate().filter(|(_, x)| **x != 0.0);
            entries.try_for_each(|(column, &x)| each(column, x))
        }
        Row::Sparse(columns, values) => {
            let mut entries = columns.iter().zip(values).filter(|(_, x)| **x != 0.0);
            entries.try_for_each(|(&column, &x)| each(column as usize, x))
        }
    }
}

/// The sum of each feature in each class, and the rows of each class.
fn by_class(batch: &Batch<'_>, (classes, width): (usize, usize)) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut sums, mut rows) = (vec![0.0; classes * width], vec![0.0; classes]);
    for (number, row) in refusals::numbered(batch) {
        let class = class_of(batch, (number, row), classes)?;
        let weight = batch.table.weight(row);
        rows[class] += weight;
        for_each_entry(batch.table.row(row), |column, x| {
            if x < 0.0 {
                return Err(Fault::caller(format!(
                    "feature-selection: chi2 wants counts, and feature {column} of row {number} is {x}"
                ))
                .at_feature(column)
                .hint("use method = \"variance\" or features that are not negative"));
            }
            sums[class * width + column] += weight * f64::from(x);
            Ok(())
        })?;
    }
    Ok((sums, rows))
}

fn chi_squared(observed: &[f64], classes: &[f64], width: usize) -> Result<Vec<f64>> {
    let rows: f64 = classes.iter().sum();
    if rows <= 0.0 {
        return Err(nothing());
    }
    let score = |feature: usize| {
        let sum: f64 = observed.iter().skip(feature).step_by(width).sum();
        let of_class = |(class, count): (usize, &f64)| {
            let expected = count / rows * sum;
            let off = observed[class * width + feature] - expected;
            // A feature that is always zero, or a class without rows, tells nothing.
            if expected > 0.0 { off * off / expected } else { 0.0 }
        };
        classes.iter().enumerate().map(of_class).sum()
    };
    Ok((0..width).map(score).collect())
}

/// For each value of each feature but zero, the rows of each class; and the rows of each class.
fn by_value(batch: &Batch<'_>, (classes, width): (usize, usize)) -> Result<(Rows, Vec<f64>)> {
    let mut counts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut rows = vec![0.0; classes];
    for (number, row) in refusals::numbered(batch) {
        let class = class_of(batch, (number, row), classes)?;
        let weight = batch.table.weight(row);
        rows[class] += weight;
        for_each_entry(batch.table.row(row), |column, x| {
            if x < 0.0 || x.fract() != 0.0 || x >= VALUES as f32 {
                return Err(Fault::caller(format!(
                    "feature-selection: mutual-information wants whole numbers below {VALUES}, and feature {column} of row {number} is {x}"
                ))
                .at_feature(column)
                .hint("put the feature into bins first, or use another method"));
            }
            let place = (column * VALUES + x as usize) as u32;
            counts.entry(place).or_insert_with(|| vec![0.0; classes])[class] += weight;
            Ok(())
        })?;
    }
    let index: Vec<u32> = counts.keys().copied().collect();
    let values = Values::F64(counts.into_values().flatten().collect());
    Ok((Rows { total: (width * VALUES) as u32, width: classes as u32, index, values }, rows))
}

fn mutual_information(values: &Rows, classes: &[f64], width: usize) -> Result<Vec<f64>> {
    let rows: f64 = classes.iter().sum();
    if rows <= 0.0 {
        return Err(nothing());
    }
    let counts = values.values.as_f64().expect("counts are f64");
    let mut scores = vec![0.0; width];
    // What is left of each class are the rows in which the feature is zero.
    let mut zeros: Vec<Vec<f64>> = vec![classes.to_vec(); width];
    for (&place, counts) in values.index.iter().zip(counts.chunks_exact(classes.len())) {
        let feature = place as usize / VALUES;
        scores[feature] += information(counts, classes, rows);
        zeros[feature].iter_mut().zip(counts).for_each(|(left, count)| *left -= count);
    }
    for (score, zeros) in scores.iter_mut().zip(&zeros) {
        // Weights that are not whole numbers may leave a trace of rounding.
        let left: Vec<f64> =
            zeros.iter().map(|&left| if left > 1e-9 * rows { left } else { 0.0 }).collect();
        *score = (*score + information(&left, classes, rows)).max(0.0);
    }
    Ok(scores)
}

/// Σ p(v, c)·ln(p(v, c)/(p(v)·p(c))) of one value.
fn information(counts: &[f64], classes: &[f64], rows: f64) -> f64 {
    let sum: f64 = counts.iter().sum();
    let pairs = counts.iter().zip(classes).filter(|(count, _)| **count > 0.0);
    pairs.map(|(count, class)| count / rows * (count * rows / (sum * class)).ln()).sum()
}
