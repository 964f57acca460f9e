//! What sparse regression computes from rows: moments, Gram matrices of some columns, gradients. All sums are f64 and
//! weighted; columns are centred by means that all workers have agreed on, so that offsets never swallow a variance.

use super::state::Moments;
use crate::kernels::gram::{Gram, triangle_len};
use crate::rows::{add_row, product};
use pulp::{Arch, Simd, WithSimd};
use starlings_data::{Batch, Features, Row};

/// The sum of weights, of y, then of all features.
pub(crate) fn moments(batch: &Batch<'_>, features: usize) -> Vec<f64> {
    let mut sums = vec![0.0; 2 + features];
    let table = batch.table;
    for row in batch.rows() {
        let weight = table.weight(row);
        sums[0] += weight;
        sums[1] += weight * f64::from(table.labels[row]);
        add_row(table.row(row), weight, &mut sums[2..]);
    }
    sums
}

/// The upper triangle of the Gram matrix of the columns in `set` and y, centred.
pub(crate) fn gram(batch: &Batch<'_>, moments: Moments<'_>, set: &[usize]) -> Vec<f64> {
    match &batch.table.features {
        Features::Dense { .. } => dense_gram(batch, moments, set),
        Features::Sparse { .. } => sparse_gram(batch, moments, set),
    }
}

fn dense_gram(batch: &Batch<'_>, moments: Moments<'_>, set: &[usize]) -> Vec<f64> {
    let mut sums = Gram::new(set.len() + 1);
    let mut room = vec![0.0; set.len() + 1];
    let means: Vec<f64> = set.iter().map(|&column| moments.means[column]).collect();
    let everything = set.iter().copied().eq(0..batch.table.width());
    for row in batch.rows() {
        let Row::Dense(x) = batch.table.row(row) else { continue };
        let weight = batch.table.weight(row).sqrt();
        let (y, columns) = room.split_last_mut().expect("y has a place");
        *y = (f64::from(batch.table.labels[row]) - moments.centre) * weight;
        if everything {
            let from = x.iter().zip(&means);
            columns.iter_mut().zip(from).for_each(|(z, (&x, m))| *z = (f64::from(x) - m) * weight);
        } else {
            let from = set.iter().zip(&means);
            let centred = from.map(|(&column, m)| (f64::from(x[column]) - m) * weight);
            columns.iter_mut().zip(centred).for_each(|(z, x)| *z = x);
        }
        sums.push(&room);
    }
    sums.into_triangle()
}

/// Products of entries only; the means are taken out at the end, with the sums of these very rows.
fn sparse_gram(batch: &Batch<'_>, moments: Moments<'_>, set: &[usize]) -> Vec<f64> {
    let width = set.len() + 1;
    let mut places = vec![u32::MAX; moments.means.len()];
    set.iter().enumerate().for_each(|(place, &column)| places[column] = place as u32);
    let start = |place: usize| place * width - place * place.saturating_sub(1) / 2 - place;
    let mut sums = vec![0.0; triangle_len(width)];
    let mut firsts = vec![0.0; width];
    let (mut mass, mut found) = (0.0, Vec::new());
    for row in batch.rows() {
        let Row::Sparse(entries, x) = batch.table.row(row) else { continue };
        let weight = batch.table.weight(row);
        let pairs =
            entries.iter().zip(x).map(|(&entry, &x)| (places[entry as usize], f64::from(x)));
        found.clear();
        found.extend(pairs.filter(|(place, _)| *place != u32::MAX));
        found.sort_unstable_by_key(|(place, _)| *place);
        let y = f64::from(batch.table.labels[row]) - moments.centre;
        found.push((width as u32 - 1, y));
        for (at, &(i, x)) in found.iter().enumerate() {
            let scaled = weight * x;
            firsts[i as usize] += scaled;
            let into = &mut sums[start(i as usize)..];
            found[at..].iter().for_each(|&(j, other)| into[j as usize] += scaled * other);
        }
        mass += weight;
    }
    let mut means: Vec<f64> = set.iter().map(|&column| moments.means[column]).collect();
    means.push(0.0);
    let mut at = 0;
    for i in 0..width {
        for j in i..width {
            sums[at] += mass * means[i] * means[j] - means[i] * firsts[j] - means[j] * firsts[i];
            at += 1;
        }
    }
    sums
}

/// Residuals at the weights: y minus prediction. `weights` ends with the intercept where there is one.
pub(crate) fn residual(row: Row<'_>, label: f32, weights: &[f64], features: usize) -> f64 {
    let intercept = weights.get(features).copied().unwrap_or(0.0);
    f64::from(label) - product(row, weights) - intercept
}

/// Sums of residuals: the gradient's of all features, then r, r² and y² about its mean.
pub(crate) fn gradient(
    batch: &Batch<'_>,
    moments: Moments<'_>,
    weights: &[f64],
    keep: impl FnMut(usize, f64),
) -> Vec<f64> {
    let features = moments.means.len();
    let mut sums = vec![0.0; features + 3];
    let pass = GradientPass { batch, moments, weights, keep, sums: &mut sums };
    Arch::new().dispatch(pass);
    let total = sums[features];
    for (sum, mean) in sums.iter_mut().zip(moments.means) {
        *sum -= mean * total;
    }
    sums
}

struct GradientPass<'a, K> {
    batch: &'a Batch<'a>,
    moments: Moments<'a>,
    weights: &'a [f64],
    keep: K,
    sums: &'a mut [f64],
}

impl<K: FnMut(usize, f64)> WithSimd for GradientPass<'_, K> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let (table, features) = (self.batch.table, self.moments.means.len());
        let (slopes, totals) = self.sums.split_at_mut(features);
        for row in self.batch.rows() {
            let (label, weight) = (table.labels[row], table.weight(row));
            let r = residual(table.row(row), label, self.weights, features);
            (self.keep)(row, r);
            add_row(table.row(row), weight * r, slopes);
            totals[0] += weight * r;
            totals[1] += weight * r * r;
            totals[2] += weight * (f64::from(label) - self.moments.centre).powi(2);
        }
    }
}

/// Sums of squares of all features about their means, then the number of their entries that are not zero.
pub(crate) fn squares(batch: &Batch<'_>, means: &[f64]) -> Vec<f64> {
    let features = means.len();
    let mut sums = vec![0.0; 2 * features];
    let (squares, entries) = sums.split_at_mut(features);
    let (mut firsts, mut mass) = (vec![0.0; features], 0.0);
    for row in batch.rows() {
        let weight = batch.table.weight(row);
        match batch.table.row(row) {
            Row::Dense(x) => {
                for ((&x, mean), (square, entry)) in
                    x.iter().zip(means).zip(squares.iter_mut().zip(entries.iter_mut()))
                {
                    *square += weight * (f64::from(x) - mean).powi(2);
                    *entry += f64::from(u8::from(x != 0.0));
                }
            }
            Row::Sparse(columns, x) => {
                for (&column, &x) in columns.iter().zip(x) {
                    let (column, x) = (column as usize, f64::from(x));
                    squares[column] += weight * x * x;
                    firsts[column] += weight * x;
                    entries[column] += 1.0;
                }
                mass += weight;
            }
        }
    }
    for ((square, first), mean) in squares.iter_mut().zip(firsts).zip(means) {
        *square += mass * mean * mean - 2.0 * mean * first;
    }
    sums
}
