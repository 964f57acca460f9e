//! One pass over features: scores of rows go to a visitor, which turns them into multipliers, and the rows times
//! their multipliers are added up. Losses with their gradients, products with the curvature and plain scores are all such
//! passes. Four dense rows are taken at a time: they are read from memory once and serve both the scores and the sum
//! while they are in the nearest cache. Sums over rows are f64.

use super::layout::{Layout, transpose};
use crate::kernels::products::{add_scaled, dots};
use pulp::{Arch, Simd, WithSimd};
use starlings_data::{Batch, Features, Row, Slice};

/// Who is shown the scores of rows.
pub(crate) trait Visitor {
    /// Takes the scores of N rows of the table (the first score of all, then the second of all …) and leaves there
    /// what each row is to be multiplied by. `at` counts the rows seen before these.
    fn visit<const N: usize>(&mut self, rows: [usize; N], at: usize, scores: &mut [f64]);
}

/// Shows all rows' scores to a visitor.
pub(crate) fn scores<V: Visitor>(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    visitor: &mut V,
) {
    match &batch.table.features {
        Features::Dense { .. } => dense(layout, weights, batch, visitor, None),
        Features::Sparse { .. } => sparse(layout, weights, batch, visitor, |_, _| {}),
    }
}

/// Shows all rows' scores to a visitor, and writes the sum of rows times multipliers to `sum` (the shape of the
/// weights).
pub(crate) fn sums<V: Visitor>(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    visitor: &mut V,
    sum: &mut [f64],
) {
    sum.fill(0.0);
    match &batch.table.features {
        Features::Dense { .. } => {
            let mut columns = vec![0.0; layout.len()];
            dense(layout, weights, batch, visitor, Some(&mut columns));
            transpose(&columns, layout.rows(), sum);
        }
        Features::Sparse { .. } => sparse(layout, weights, batch, visitor, |row, by| {
            scatter(batch.table.row(row), by, sum, |column| column as usize);
            if layout.intercept {
                let last = &mut sum[layout.features * layout.scores..];
                last.iter_mut().zip(by).for_each(|(sum, by)| *sum += by);
            }
        }),
    }
}

/// The same for some rows of the weights only: `touched` are the rows that a sparse batch's entries touch, in
/// order, the intercept's last; `sum` has their numbers.
pub(crate) fn touched_sums<V: Visitor>(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    visitor: &mut V,
    touched: &[u32],
) -> Vec<f64> {
    let mut sum = vec![0.0; touched.len() * layout.scores];
    let place = |column: u32| touched.partition_point(|&row| row < column);
    sparse(layout, weights, batch, visitor, |row, by| {
        scatter(batch.table.row(row), by, &mut sum, place);
        if layout.intercept {
            let from = sum.len() - layout.scores;
            sum[from..].iter_mut().zip(by).for_each(|(sum, by)| *sum += by);
        }
    });
    sum
}

/// The rows of the weights that the entries of a sparse batch touch, increasing; the intercept's last.
pub(crate) fn touched(layout: Layout, batch: &Batch<'_>) -> Vec<u32> {
    let mut columns: Vec<u32> = Vec::new();
    for row in batch.rows() {
        if let Row::Sparse(entries, _) = batch.table.row(row) {
            columns.extend_from_slice(entries);
        }
    }
    columns.sort_unstable();
    columns.dedup();
    if layout.intercept && !batch.is_empty() {
        columns.push(layout.features as u32);
    }
    columns
}

/// One shard of a batch.
pub(crate) fn alone<'a>(batch: &Batch<'a>, slice: &Slice) -> Batch<'a> {
    Batch { table: batch.table, slices: vec![slice.clone()], rows_step: batch.rows_step }
}

/// All rows of a dense batch. `sum`, if wanted, has one row a score, the intercept last in each.
fn dense<V: Visitor>(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    visitor: &mut V,
    sum: Option<&mut [f64]>,
) {
    let columns = layout.transposed(weights);
    Arch::new().dispatch(DensePass { layout, columns: &columns, batch, visitor, sum });
}

struct DensePass<'a, V> {
    layout: Layout,
    /// The weights, one row a score.
    columns: &'a [f64],
    batch: &'a Batch<'a>,
    visitor: &'a mut V,
    sum: Option<&'a mut [f64]>,
}

impl<V: Visitor> WithSimd for DensePass<'_, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let mut room = vec![0.0; 4 * self.layout.scores];
        let mut rows = self.batch.rows();
        let (mut four, mut at) = ([0; 4], 0);
        loop {
            let mut count = 0;
            for row in rows.by_ref().take(4) {
                four[count] = row;
                count += 1;
            }
            match count {
                4 => self.group(four, at, &mut room),
                0 => return,
                _ => four[..count].iter().enumerate().for_each(|(more, &row)| {
                    self.group([row], at + more, &mut room);
                }),
            }
            at += count;
        }
    }
}

impl<V: Visitor> DensePass<'_, V> {
    #[inline(always)]
    fn group<const N: usize>(&mut self, rows: [usize; N], at: usize, room: &mut [f64]) {
        let Layout { features, scores: width, intercept } = self.layout;
        let table = self.batch.table;
        let x = rows.map(|row| table.dense_rows(row, row + 1).expect("the table is dense"));
        let scores = &mut room[..N * width];
        let height = self.layout.rows();
        for (column, scores) in self.columns.chunks_exact(height).zip(scores.chunks_exact_mut(N)) {
            let bias = if intercept { column[features] } else { 0.0 };
            scores.copy_from_slice(&dots(x, &column[..features]).map(|score| score + bias));
        }
        self.visitor.visit(rows, at, scores);
        let Some(sum) = &mut self.sum else { return };
        for (sum, by) in sum.chunks_exact_mut(height).zip(scores.chunks_exact(N)) {
            let by: [f64; N] = by.try_into().expect("N long");
            add_scaled(x, by, &mut sum[..features]);
            if intercept {
                sum[features] += by.iter().sum::<f64>();
            }
        }
    }
}

/// All rows of a sparse batch; `add` gets each row's number and its multipliers.
fn sparse<V: Visitor>(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    visitor: &mut V,
    mut add: impl FnMut(usize, &[f64]),
) {
    let mut scores = vec![0.0; layout.scores];
    for (at, row) in batch.rows().enumerate() {
        let Row::Sparse(entries, values) = batch.table.row(row) else { continue };
        sparse_scores(layout, weights, (entries, values), &mut scores);
        visitor.visit([row], at, &mut scores);
        add(row, &scores);
    }
}

fn sparse_scores(
    layout: Layout,
    weights: &[f64],
    (entries, values): (&[u32], &[f32]),
    scores: &mut [f64],
) {
    let width = layout.scores;
    scores.fill(0.0);
    if layout.intercept {
        scores.copy_from_slice(&weights[layout.features * width..]);
    }
    if let [score] = scores {
        *score += sparse_dot(weights, entries, values);
        return;
    }
    for (&entry, &value) in entries.iter().zip(values) {
        let weights = &weights[entry as usize * width..][..width];
        scores.iter_mut().zip(weights).for_each(|(score, w)| *score += f64::from(value) * w);
    }
}

/// In four lanes, so that additions need not wait for each other; in a fixed order.
#[inline(always)]
fn sparse_dot(weights: &[f64], entries: &[u32], values: &[f32]) -> f64 {
    let mut lanes = [0.0; 4];
    let (fours, of_fours) = (entries.chunks_exact(4), values.chunks_exact(4));
    let rest = fours.remainder().iter().zip(of_fours.remainder());
    for (entries, values) in fours.zip(of_fours) {
        for lane in 0..4 {
            lanes[lane] += f64::from(values[lane]) * weights[entries[lane] as usize];
        }
    }
    let rest: f64 = rest.map(|(&entry, &value)| f64::from(value) * weights[entry as usize]).sum();
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]) + rest
}

/// Adds multipliers times the row's entries to the sum's rows at `place(column)`.
#[inline(always)]
fn scatter(row: Row<'_>, by: &[f64], sum: &mut [f64], place: impl Fn(u32) -> usize) {
    let Row::Sparse(entries, values) = row else { return };
    if let [by] = by {
        for (&entry, &value) in entries.iter().zip(values) {
            sum[place(entry)] += f64::from(value) * by;
        }
        return;
    }
    let width = by.len();
    for (&entry, &value) in entries.iter().zip(values) {
        let from = place(entry) * width;
        let into = &mut sum[from..from + width];
        into.iter_mut().zip(by).for_each(|(sum, by)| *sum += f64::from(value) * by);
    }
}
