//! Means and variances by class from sums of (x − s) and (x − s)², where the shift s is the mean that the schema knows
//! of the column. Where a class lies so far from the shift that the subtraction of squares has cost digits that
//! matter, a second pass with the class's own mean as the shift brings them back (Chan, Golub and LeVeque,
//! "Algorithms for computing the sample variance", 1983).

use super::sums::{Sums, check_finite, class_weights};
use crate::kernels::widest;
use starlings_core::{Fault, Result};
use starlings_data::{Batch, Features, Row};

/// A variance is right when its error is below this share of it and of the smoothing.
const ERROR_MAX: f64 = 1e-9;

/// The shift before the first pass: the columns' means, for every class.
pub(super) fn first_shift(means: &[f64], classes: usize) -> Vec<f64> {
    means.repeat(classes)
}

/// Sums of weights, of x − shift and of its square, by class.
pub(super) fn sums(shift: &[f64], classes: usize, batch: &Batch<'_>) -> Result<Sums> {
    let width = shift.len() / classes;
    let mut sums = Sums {
        class_weights: class_weights(classes, batch),
        first: vec![0.0; shift.len()],
        second: vec![0.0; shift.len()],
    };
    match &batch.table.features {
        Features::Dense { .. } => dense(shift, width, batch, &mut sums),
        Features::Sparse { .. } => sparse(shift, width, batch, &mut sums),
    }
    check_finite(batch, &sums.second)?;
    Ok(sums)
}

fn dense(shift: &[f64], width: usize, batch: &Batch<'_>, sums: &mut Sums) {
    let (first, second) = (&mut sums.first[..], &mut sums.second[..]);
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
                let range = class * width..(class + 1) * width;
                let into = (&mut first[range.clone()], &mut second[range.clone()]);
                if weight == 1.0 {
                    add_row(values, &shift[range], into, |x| x);
                } else {
                    add_row(values, &shift[range], into, |x| weight * x);
                }
            }
        },
    );
}

#[inline(always)]
fn add_row(
    values: &[f32],
    shift: &[f64],
    (first, second): (&mut [f64], &mut [f64]),
    weigh: impl Fn(f64) -> f64,
) {
    for (((&x, shift), first), second) in values.iter().zip(shift).zip(first).zip(second) {
        let off = f64::from(x) - shift;
        let weighed = weigh(off);
        *first += weighed;
        *second += weighed * off;
    }
}

/// Stored numbers one by one; the zeros that are not stored together, feature by feature.
fn sparse(shift: &[f64], width: usize, batch: &Batch<'_>, sums: &mut Sums) {
    let mut stored = vec![0.0; shift.len()];
    for row in batch.rows() {
        let Row::Sparse(columns, values) = batch.table.row(row) else { continue };
        let weight = batch.table.weight(row);
        let at = batch.table.labels[row] as usize * width;
        for (&column, &x) in columns.iter().zip(values).filter(|_| weight > 0.0) {
            let at = at + column as usize;
            let off = f64::from(x) - shift[at];
            sums.first[at] += weight * off;
            sums.second[at] += weight * off * off;
            stored[at] += weight;
        }
    }
    for (at, stored) in stored.iter().enumerate() {
        let zeros = sums.class_weights[at / width] - stored;
        sums.first[at] -= zeros * shift[at];
        sums.second[at] += zeros * shift[at] * shift[at];
    }
}

/// Means and variances, classes × features.
pub(super) struct Found {
    pub(super) means: Vec<f64>,
    variances: Vec<f64>,
    /// How far the mean lies from the shift, squared: what was subtracted.
    subtracted: Vec<f64>,
    /// The largest variance of a feature over all rows.
    largest: f64,
    width: usize,
}

impl Found {
    /// From the sums of all rows.
    pub(super) fn new(
        class_weights: &[f64],
        shift: &[f64],
        (first, second): (&[f64], &[f64]),
    ) -> Found {
        let width = shift.len() / class_weights.len();
        let weight = |at: usize| class_weights[at / width].max(f64::MIN_POSITIVE);
        let cells = 0..shift.len();
        let offs: Vec<f64> = cells.clone().map(|at| first[at] / weight(at)).collect();
        let means: Vec<f64> = shift.iter().zip(&offs).map(|(shift, off)| shift + off).collect();
        let variances: Vec<f64> =
            cells.map(|at| (second[at] / weight(at) - offs[at] * offs[at]).max(0.0)).collect();
        let subtracted = offs.iter().map(|off| off * off).collect();
        let largest = (0..width)
            .map(|feature| overall(class_weights, &means, &variances, feature))
            .fold(0.0, f64::max);
        Found { means, variances, subtracted, largest, width }
    }

    /// Whether the subtraction has cost digits that matter beside what smoothing adds.
    pub(super) fn lost_digits(&self, smoothing: f64) -> bool {
        let added = smoothing * self.largest;
        self.variances
            .iter()
            .zip(&self.subtracted)
            .any(|(variance, off)| off * 4.0 * f64::EPSILON > ERROR_MAX * (variance + added))
    }

    /// Variances with what keeps them from zero: a share of the largest of all features.
    pub(super) fn smoothed(&self, smoothing: f64) -> Result<Vec<f64>> {
        // Where nothing varies at all, the share is one of a variance of one: priors decide.
        let added = smoothing * if self.largest > 0.0 { self.largest } else { 1.0 };
        let smoothed: Vec<f64> = self.variances.iter().map(|v| v + added).collect();
        if let Some(at) = smoothed.iter().position(|&variance| variance <= 0.0) {
            let width = self.width;
            return Err(Fault::caller(format!(
                "feature {} does not vary in the class with code {}",
                at % width,
                at / width
            ))
            .at_feature(at % width)
            .hint("raise var_smoothing above zero"));
        }
        Ok(smoothed)
    }
}

/// The variance of a feature over all rows: within classes and between them.
fn overall(class_weights: &[f64], means: &[f64], variances: &[f64], feature: usize) -> f64 {
    let width = means.len() / class_weights.len();
    let total: f64 = class_weights.iter().sum();
    let cells = || class_weights.iter().enumerate().map(|(c, w)| (w / total, c * width + feature));
    let mean: f64 = cells().map(|(share, at)| share * means[at]).sum();
    cells().map(|(share, at)| share * (variances[at] + (means[at] - mean).powi(2))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::{Rng, Shard};
    use starlings_data::{Picked, Slice, Table};

    /// Numbers around 10⁵ with deviation 0.1 and a shift that is far away: the first pass alone would be useless, and
    /// says so; the second is right.
    #[test]
    fn digits_that_the_first_pass_loses_come_back_in_the_second() {
        let mut rng = Rng::named(1, "far", &[]);
        let values: Vec<f32> = (0..1000).map(|_| (1e5 + 0.1 * rng.normal()) as f32).collect();
        let exact: Vec<f64> = values.iter().map(|&x| f64::from(x)).collect();
        let mean = exact.iter().sum::<f64>() / 1000.0;
        let variance = exact.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1000.0;
        let table = Table::new(Features::Dense { width: 1, values }, vec![0.0; 1000]);
        let slice = Slice { shard: Shard(0), start: 0, origin: 0, picked: Picked::All(1000) };
        let batch = Batch { table: &table, slices: vec![slice], rows_step: 1000 };
        let pass = |shift: &[f64]| {
            let sums = sums(shift, 2, &batch).unwrap();
            Found::new(&sums.class_weights, shift, (&sums.first, &sums.second))
        };
        let first = pass(&[0.0, 0.0]);
        assert!(first.lost_digits(1e-9));
        let second = pass(&first.means);
        assert!((second.variances[0] / variance - 1.0).abs() < 1e-9, "{:?}", second.variances);
        assert!(!second.lost_digits(1e-9));
    }
}
