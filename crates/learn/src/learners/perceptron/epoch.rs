//! One epoch on the shards that a worker holds: each goes over its rows from the common weights and tells by how
//! much it moved them, in integers on a grid.

use crate::kernels::products::{add_scaled, dots};
use crate::{Moment, by_shard, refusals};
use starlings_core::{Fault, Kind, Result, Rows, Values};
use starlings_data::{Batch, Row, Slice};

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

    /// Classes that the scores tell apart.
    pub(super) fn classes(self) -> usize {
        self.scores.max(2)
    }
}

/// An epoch before it runs.
pub(super) struct Epoch<'a> {
    pub(super) layout: Layout,
    /// The common weights.
    pub(super) start: &'a [f64],
    /// The grid of each row of the weights.
    pub(super) grids: &'a [f64],
    /// Whether shards count by their mistakes.
    pub(super) by_errors: bool,
    /// The moment by which rows are shuffled, if they are.
    pub(super) shuffle: Option<Moment>,
}

/// What the shards of a worker tell.
pub(super) struct Sums {
    /// Shards with rows that count.
    pub(super) shards: i64,
    pub(super) mistakes: i64,
    /// By how much shards moved the weights, on the grids.
    pub(super) moves: Vec<i64>,
    /// By how much the mean weights within the epoch lie from the start.
    pub(super) means: Vec<i64>,
    /// One row for each shard: Σw, Σw|margin| and Σw of what wrong scores beat right ones by.
    pub(super) margins: Rows,
}

impl Epoch<'_> {
    /// Runs over all shards of a batch.
    pub(super) fn over(&self, batch: &Batch<'_>, shards: u32) -> Sums {
        let size = self.start.len();
        let mut sums = Sums {
            shards: 0,
            mistakes: 0,
            moves: vec![0; size],
            means: vec![0; size],
            margins: Rows::none(Kind::F64, shards, 3),
        };
        let mut margins = Vec::new();
        let mut run = Run::new(self.layout, self.start);
        for slice in &batch.slices {
            run.restart();
            self.go_over(batch, slice, &mut run);
            sums.margins.index.push(slice.shard.0);
            margins.extend(run.margins);
            if run.seen == 0 {
                continue;
            }
            let share = if self.by_errors { run.mistakes as f64 } else { 1.0 };
            self.round(&run.moves, share, &mut sums.moves);
            // A move at the i-th of n rows is in the weights after n − i of them.
            let seen = run.seen as f64;
            run.moves.iter_mut().zip(&run.late).for_each(|(by, late)| *by -= late / seen);
            self.round(&run.moves, share, &mut sums.means);
            sums.shards += 1;
            sums.mistakes += run.mistakes;
        }
        sums.margins.values = Values::F64(margins);
        sums
    }

    fn go_over(&self, batch: &Batch<'_>, slice: &Slice, run: &mut Run) {
        let mut rows: Vec<usize> = slice.rows().collect();
        if let Some(moment) = self.shuffle {
            moment.shard_rng("perceptron", slice.shard).shuffle(&mut rows);
        }
        for row in rows.into_iter().filter(|&row| batch.table.weight(row) > 0.0) {
            run.see(
                batch.table.row(row),
                batch.table.labels[row] as usize,
                batch.table.weight(row),
            );
        }
    }

    /// Adds numbers, one row a score, to integers, one row a feature.
    fn round(&self, moves: &[f64], share: f64, into: &mut [i64]) {
        let (rows, scores) = (self.layout.rows(), self.layout.scores);
        for (score, moves) in moves.chunks_exact(rows).enumerate() {
            for (row, (by, grid)) in moves.iter().zip(self.grids).enumerate() {
                into[row * scores + score] += (by * share / grid).round() as i64;
            }
        }
    }
}

/// Weights on their way through a shard, one row a score.
struct Run {
    layout: Layout,
    start: Vec<f64>,
    weights: Vec<f64>,
    /// The weights less the start.
    moves: Vec<f64>,
    /// Each move times the number of rows before it.
    late: Vec<f64>,
    scores: Vec<f64>,
    seen: usize,
    mistakes: i64,
    margins: [f64; 3],
}

impl Run {
    fn new(layout: Layout, start: &[f64]) -> Run {
        let start = by_score(layout, start);
        let zeros = vec![0.0; start.len()];
        Run {
            layout,
            weights: start.clone(),
            moves: zeros.clone(),
            late: zeros,
            scores: vec![0.0; layout.scores],
            start,
            seen: 0,
            mistakes: 0,
            margins: [0.0; 3],
        }
    }

    fn restart(&mut self) {
        self.weights.copy_from_slice(&self.start);
        self.moves.fill(0.0);
        self.late.fill(0.0);
        (self.seen, self.mistakes, self.margins) = (0, 0, [0.0; 3]);
    }

    /// One row: a margin that is not positive is a mistake, and moves the weights.
    fn see(&mut self, row: Row<'_>, truth: usize, weight: f64) {
        scores_of(self.layout, &self.weights, row, &mut self.scores);
        let margin = margin(&self.scores, truth);
        let own = [1.0, margin.value.abs(), (-margin.value).max(0.0)];
        self.margins.iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        if margin.value <= 0.0 {
            self.mistakes += 1;
            match margin.rival {
                None => self.shift(0, row, if truth == 1 { weight } else { -weight }),
                Some(rival) => {
                    self.shift(truth, row, weight);
                    self.shift(rival, row, -weight);
                }
            }
        }
        self.seen += 1;
    }

    fn shift(&mut self, score: usize, row: Row<'_>, by: f64) {
        let rows = self.layout.rows();
        let range = score * rows..(score + 1) * rows;
        let late = by * self.seen as f64;
        let vectors = [(&mut self.weights, by), (&mut self.moves, by), (&mut self.late, late)];
        for (vector, by) in vectors {
            let vector = &mut vector[range.clone()];
            match row {
                Row::Dense(x) => add_scaled([x], [by], &mut vector[..x.len()]),
                Row::Sparse(columns, values) => {
                    let entries = columns.iter().zip(values);
                    entries.for_each(|(&c, &x)| vector[c as usize] += by * f64::from(x));
                }
            }
            if self.layout.intercept {
                vector[rows - 1] += by;
            }
        }
    }
}

/// By how much the right score beats the best of the others, and which that is (none where there is one score).
pub(super) struct Margin {
    pub(super) value: f64,
    rival: Option<usize>,
}

/// The margin of a row.
pub(super) fn margin(scores: &[f64], truth: usize) -> Margin {
    if let [score] = scores {
        return Margin { value: if truth == 1 { *score } else { -score }, rival: None };
    }
    let others = (0..scores.len()).filter(|&class| class != truth);
    let rival =
        others.reduce(|best, class| if scores[class] > scores[best] { class } else { best });
    let rival = rival.expect("init wants two classes");
    Margin { value: scores[truth] - scores[rival], rival: Some(rival) }
}

/// The class with the largest score, the first of equals.
pub(super) fn answer(scores: &[f64]) -> usize {
    if let [score] = scores {
        return usize::from(*score > 0.0);
    }
    (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
}

/// Calls `visit` with each row's number in the table and its scores.
pub(super) fn each(
    layout: Layout,
    weights: &[f64],
    batch: &Batch<'_>,
    mut visit: impl FnMut(usize, &[f64]),
) {
    let weights = by_score(layout, weights);
    let mut scores = vec![0.0; layout.scores];
    for row in batch.rows() {
        scores_of(layout, &weights, batch.table.row(row), &mut scores);
        visit(row, &scores);
    }
}

fn scores_of(layout: Layout, weights: &[f64], row: Row<'_>, scores: &mut [f64]) {
    for (score, weights) in scores.iter_mut().zip(weights.chunks_exact(layout.rows())) {
        let product = match row {
            Row::Dense(x) => dots([x], &weights[..layout.features])[0],
            Row::Sparse(columns, values) => {
                columns.iter().zip(values).map(|(&c, &x)| f64::from(x) * weights[c as usize]).sum()
            }
        };
        *score = product + if layout.intercept { weights[layout.features] } else { 0.0 };
    }
}

/// Weights with one row a score.
fn by_score(layout: Layout, weights: &[f64]) -> Vec<f64> {
    let (rows, scores) = (layout.rows(), layout.scores);
    (0..weights.len()).map(|at| weights[(at % rows) * scores + at / rows]).collect()
}

/// The grid of each row of the weights: a power of two, 2⁻⁶¹ of what the moves of all shards cannot exceed. No row moves
/// a weight by more than its feature, and a shard counts for at most as many mistakes as there are rows.
pub(super) fn grids(sizes: &[f64], by_errors: bool, rows: i64) -> Vec<f64> {
    let shares = if by_errors { rows.max(1) as f64 } else { 1.0 };
    let grid = |size: &f64| match size * shares {
        bound if bound > 0.0 => (bound.log2().ceil() - 61.0).exp2(),
        _ => 1.0,
    };
    sizes.iter().map(grid).collect()
}

/// Σ w|x| of every row of the weights, one row for each shard.
pub(super) fn sizes(layout: Layout, batch: &Batch<'_>, shards: u32) -> Result<Rows> {
    let width = layout.rows();
    by_shard::sums(batch, (shards, width), |slice, sums| {
        for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
            let weight = batch.table.weight(row);
            let size = |x: f32| weight * f64::from(x).abs();
            match batch.table.row(row) {
                Row::Dense(x) => sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += size(x)),
                Row::Sparse(columns, x) => {
                    columns.iter().zip(x).for_each(|(&c, &x)| sums[c as usize] += size(x));
                }
            }
            if layout.intercept {
                sums[width - 1] += weight;
            }
        }
        if sums.iter().all(|sum| sum.is_finite()) {
            return Ok(());
        }
        let found = refusals::find_number(batch, "which is not finite", f32::is_finite);
        Err(found
            .unwrap_or_else(|| Fault::caller("sums of features overflow"))
            .hint("leave such rows out, or fill the number in"))
    })
}
