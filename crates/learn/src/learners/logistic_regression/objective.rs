//! Log-loss and its gradient over rows: the one place where logistic regression meets data. With two classes
//! there is one score z a row and the loss is ln(1 + eᶻ) − y·z; with more there are as many scores as
//! classes and the loss is ln Σ eᶻ − z of the right class.
//!
//! Four rows are taken at a time: they are read from memory once, and serve both the scores and the
//! gradient while they are in the nearest cache. Sums over rows are f64.

use crate::kernels::products::{add_scaled, dots};
use pulp::{Arch, Simd, WithSimd};
use starlings_core::{Factors, Fault, Result};
use starlings_data::{Batch, Features, Row, Table};

/// The shape of the weights: one row a feature, then perhaps one for the intercept; one column a score.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Layout {
    pub(super) features: usize,
    pub(super) scores: usize,
    pub(super) intercept: bool,
}

impl Layout {
    /// Rows of the weights.
    pub(super) fn rows(self) -> usize {
        self.features + usize::from(self.intercept)
    }

    /// Numbers in the weights.
    pub(super) fn len(self) -> usize {
        self.rows() * self.scores
    }

    /// Classes that the scores tell apart.
    pub(super) fn classes(self) -> usize {
        self.scores.max(2)
    }
}

/// Sums over rows.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Sums {
    /// Of the log-loss.
    pub(super) loss: f64,
    /// Of right answers.
    pub(super) correct: f64,
}

/// Refuses rows that do not fit the weights.
pub(super) fn check_width(layout: Layout, batch: &Batch<'_>) -> Result<()> {
    let width = batch.table.width();
    if width == layout.features || batch.is_empty() {
        return Ok(());
    }
    Err(Fault::caller(format!("rows have {width} features, the model has {}", layout.features))
        .hint("use data with the columns that the model was trained on"))
}

/// Refuses rows whose labels are not class codes.
pub(super) fn check_labels(layout: Layout, batch: &Batch<'_>) -> Result<()> {
    let classes = layout.classes() as f32;
    for row in batch.rows() {
        match batch.table.labels.get(row) {
            Some(&label) if label >= 0.0 && label < classes => {}
            Some(label) => {
                return Err(Fault::caller(format!("row {row} has the label code {label}"))
                    .hint(format!("codes of classes are 0 to {}", layout.classes() - 1)));
            }
            None => return Err(Fault::caller(format!("row {row} has no label"))),
        }
    }
    Ok(())
}

/// Loss and right answers, without a gradient.
pub(super) fn evaluate(layout: Layout, weights: &[f64], batch: &Batch<'_>) -> Sums {
    match &batch.table.features {
        Features::Dense { .. } => dense(layout, weights, batch, None),
        Features::Sparse { .. } => sparse(layout, weights, batch, |_, _| {}),
    }
}

/// Loss, and the sum of the rows' gradients written to `gradient` (the shape of the weights).
pub(super) fn gradient(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    gradient: &mut [f64],
) -> Sums {
    let scores = layout.scores;
    gradient.fill(0.0);
    match &batch.table.features {
        Features::Dense { .. } => {
            let mut columns = vec![0.0; layout.len()];
            let sums = dense(layout, weights, batch, Some(&mut columns));
            transpose(&columns, layout.rows(), gradient);
            sums
        }
        Features::Sparse { .. } => sparse(layout, weights, batch, |row, residuals| {
            scatter(batch.table.row(row), residuals, gradient, |column| column as usize);
            if layout.intercept {
                let last = &mut gradient[layout.features * scores..];
                last.iter_mut().zip(residuals).for_each(|(g, r)| *g += r);
            }
        }),
    }
}

/// The gradient as the outer products it is the sum of: a row's features with what its scores should change by.
pub(super) fn factors(layout: Layout, weights: &[f64], batch: &Batch<'_>) -> Factors {
    let mut probable = Vec::new();
    probabilities(layout, weights, batch, &mut probable);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (row, probable) in batch.rows().zip(probable.chunks_exact(layout.classes())) {
        if let Row::Dense(x) = batch.table.row(row) {
            left.extend(x.iter().map(|&x| f64::from(x)));
            left.extend(layout.intercept.then_some(1.0));
        }
        let label = batch.table.labels[row] as usize;
        let change = |class: usize| probable[class] - f64::from(u8::from(class == label));
        match layout.scores {
            1 => right.push(change(1)),
            scores => right.extend((0..scores).map(change)),
        }
    }
    Factors { rows: layout.rows() as u32, width: layout.scores as u32, left, right }
}

/// The same for some rows of the weights only: `touched` are the rows that the batch's entries touch, in
/// order, the intercept's last; `gradient` has their numbers.
pub(super) fn touched_gradient(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    touched: &[u32],
    gradient: &mut [f64],
) -> Sums {
    let place = |column: u32| touched.partition_point(|&row| row < column);
    sparse(layout, weights, batch, |row, residuals| {
        scatter(batch.table.row(row), residuals, gradient, place);
        if layout.intercept {
            let from = gradient.len() - layout.scores;
            gradient[from..].iter_mut().zip(residuals).for_each(|(g, r)| *g += r);
        }
    })
}

/// The rows of the weights that the entries of a sparse batch touch, increasing; the intercept's last.
pub(super) fn touched(layout: Layout, batch: &Batch<'_>) -> Vec<u32> {
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

/// Probabilities of all classes, row by row.
pub(super) fn probabilities(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    out: &mut Vec<f64>,
) {
    let mut scores = vec![0.0; layout.scores];
    let columns = transposed(layout, weights);
    for row in batch.rows() {
        match batch.table.row(row) {
            Row::Dense(x) => dense_scores(layout, &columns, [x], &mut scores),
            Row::Sparse(entries, values) => {
                sparse_scores(layout, weights, (entries, values), &mut scores);
            }
        }
        if let [score] = scores[..] {
            let small = (-score.abs()).exp();
            let (less, more) = (small / (1.0 + small), 1.0 / (1.0 + small));
            out.extend(if score > 0.0 { [less, more] } else { [more, less] });
        } else {
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
            let sum: f64 = scores.iter().sum();
            out.extend(scores.iter().map(|score| score / sum));
        }
    }
}

/// All rows of a dense batch. `gradient`, if wanted, has one row a score, the intercept last in each.
fn dense(layout: Layout, weights: &[f64], batch: &Batch<'_>, gradient: Option<&mut [f64]>) -> Sums {
    let columns = transposed(layout, weights);
    Arch::new().dispatch(DensePass { layout, columns: &columns, batch, gradient })
}

struct DensePass<'a> {
    layout: Layout,
    /// The weights, one row a score.
    columns: &'a [f64],
    batch: &'a Batch<'a>,
    gradient: Option<&'a mut [f64]>,
}

impl WithSimd for DensePass<'_> {
    type Output = Sums;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> Sums {
        let mut sums = Sums::default();
        let mut room = vec![0.0; 4 * self.layout.scores];
        let mut rows = self.batch.rows();
        let mut four = [0; 4];
        loop {
            let mut count = 0;
            for row in rows.by_ref().take(4) {
                four[count] = row;
                count += 1;
            }
            match count {
                4 => self.group(four, &mut room, &mut sums),
                0 => return sums,
                _ => four[..count].iter().for_each(|&row| {
                    self.group([row], &mut room, &mut sums);
                }),
            }
        }
    }
}

impl DensePass<'_> {
    #[inline(always)]
    fn group<const N: usize>(&mut self, rows: [usize; N], room: &mut [f64], sums: &mut Sums) {
        let table: &Table = self.batch.table;
        let labels = rows.map(|row| table.labels[row]);
        let rows = rows.map(|row| table.dense_rows(row, row + 1).expect("the table is dense"));
        let scores = &mut room[..N * self.layout.scores];
        dense_scores(self.layout, self.columns, rows, scores);
        residuals(scores, labels, sums);
        let Some(gradient) = &mut self.gradient else { return };
        let residuals = scores.chunks_exact(N);
        for (gradient, by) in gradient.chunks_exact_mut(self.layout.rows()).zip(residuals) {
            let by: [f64; N] = by.try_into().expect("N long");
            add_scaled(rows, by, &mut gradient[..self.layout.features]);
            if self.layout.intercept {
                gradient[self.layout.features] += by.iter().sum::<f64>();
            }
        }
    }
}

/// The scores of N rows: those of the first score for all rows, then of the second …
#[inline(always)]
fn dense_scores<const N: usize>(
    layout: Layout,
    columns: &[f64],
    rows: [&[f32]; N],
    scores: &mut [f64],
) {
    for (column, scores) in columns.chunks_exact(layout.rows()).zip(scores.chunks_exact_mut(N)) {
        let bias = if layout.intercept { column[layout.features] } else { 0.0 };
        scores.copy_from_slice(&dots(rows, &column[..layout.features]).map(|score| score + bias));
    }
}

/// Turns scores into residuals (probability minus truth) and adds up the loss.
#[inline(always)]
fn residuals<const N: usize>(scores: &mut [f64], labels: [f32; N], sums: &mut Sums) {
    if scores.len() == N {
        binary_residuals(scores, labels, sums);
    } else {
        softmax_residuals(scores, labels, sums);
    }
}

#[inline(always)]
fn binary_residuals<const N: usize>(scores: &mut [f64], labels: [f32; N], sums: &mut Sums) {
    let mut product = 1.0;
    for (score, label) in scores.iter_mut().zip(labels) {
        let (z, truth) = (*score, f64::from(label));
        let small = (-z.abs()).exp();
        // ln(1 + eᶻ) = max(z, 0) + ln(1 + e^−|z|). The logarithms of N rows are taken at once: each factor
        // is at most 2.
        product *= 1.0 + small;
        sums.loss += z.max(0.0) - truth * z;
        sums.correct += f64::from(u8::from((z > 0.0) == (truth > 0.0)));
        let probability = if z > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) };
        *score = probability - truth;
    }
    sums.loss += product.ln();
}

#[inline(always)]
fn softmax_residuals<const N: usize>(scores: &mut [f64], labels: [f32; N], sums: &mut Sums) {
    for (n, label) in labels.into_iter().enumerate() {
        let (mut best, mut largest) = (0, f64::NEG_INFINITY);
        for (class, &score) in scores.iter().skip(n).step_by(N).enumerate() {
            if score > largest {
                (best, largest) = (class, score);
            }
        }
        let truth = label as usize;
        let right = scores[truth * N + n];
        let mut sum = 0.0;
        for score in scores.iter_mut().skip(n).step_by(N) {
            *score = (*score - largest).exp();
            sum += *score;
        }
        scores.iter_mut().skip(n).step_by(N).for_each(|score| *score /= sum);
        scores[truth * N + n] -= 1.0;
        sums.loss += sum.ln() + largest - right;
        sums.correct += f64::from(u8::from(best == truth));
    }
}

/// All rows of a sparse batch; `visit` gets each row's number and residuals.
fn sparse(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    mut visit: impl FnMut(usize, &[f64]),
) -> Sums {
    let mut sums = Sums::default();
    let mut scores = vec![0.0; layout.scores];
    for row in batch.rows() {
        let Row::Sparse(entries, values) = batch.table.row(row) else { continue };
        sparse_scores(layout, weights, (entries, values), &mut scores);
        residuals(&mut scores, [batch.table.labels[row]], &mut sums);
        visit(row, &scores);
    }
    sums
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
        for (&entry, &value) in entries.iter().zip(values) {
            *score += f64::from(value) * weights[entry as usize];
        }
        return;
    }
    for (&entry, &value) in entries.iter().zip(values) {
        let weights = &weights[entry as usize * width..][..width];
        scores.iter_mut().zip(weights).for_each(|(score, w)| *score += f64::from(value) * w);
    }
}

/// Adds residuals times the row's entries to the gradient's rows at `place(column)`.
fn scatter(row: Row<'_>, residuals: &[f64], gradient: &mut [f64], place: impl Fn(u32) -> usize) {
    let Row::Sparse(entries, values) = row else { return };
    let width = residuals.len();
    for (&entry, &value) in entries.iter().zip(values) {
        let from = place(entry) * width;
        let into = &mut gradient[from..from + width];
        into.iter_mut().zip(residuals).for_each(|(g, r)| *g += f64::from(value) * r);
    }
}

/// The weights with one row a score.
fn transposed(layout: Layout, weights: &[f64]) -> Vec<f64> {
    let mut columns = vec![0.0; layout.len()];
    transpose(weights, layout.scores, &mut columns);
    columns
}

/// Writes a matrix whose rows are `width` long as its transpose.
fn transpose(from: &[f64], width: usize, into: &mut [f64]) {
    if width == 0 {
        return;
    }
    let height = from.len() / width;
    for (r, row) in from.chunks_exact(width).enumerate() {
        row.iter().enumerate().for_each(|(c, &value)| into[c * height + r] = value);
    }
}
