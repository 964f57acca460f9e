//! One cut after the other. The rows of the leaf that is cut are drawn from (`Draw`), then 2-means runs from several
//! pairs of them at once (`Iterate`), a last pass measures what each pair came to (`Settle`), and the best becomes the
//! children of the leaf. Which leaf a row is in is remembered by shard, and found again by descending the tree.

use super::super::k_means::points::Points;
use super::super::pca::moments;
use super::tree::{Plane, Tree, squared_distance, squared_length};
use crate::{Cells, Moment, Work};
use starlings_core::{Block, Fault, Model, Result, Rng, Role, Tensor, Update, Values};
use starlings_data::{Row, Slice, Table};

/// Rows drawn beyond one a trial, so that a pair can be chosen far apart.
const SPARE: usize = 16;
/// Draws that may find only equal rows before a leaf is left whole.
const DRAWS_MAX: i64 = 10;

const PROGRESS: &str = "progress";
const PAIRS: &str = "pairs";
const LIMIT: &str = "limit";

/// What the next step does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Sums the mean of all rows.
    Root = 0,
    /// Draws rows of the leaf.
    Draw = 1,
    /// An iteration of 2-means, for all trials.
    Iterate = 2,
    /// Measures what the trials came to.
    Settle = 3,
}

/// The counters.
struct Progress {
    phase: Phase,
    leaf: usize,
    iterations: i64,
    iterations_max: i64,
    draws: i64,
    trials: usize,
    rows: i64,
}

impl Progress {
    fn read(model: &Model) -> Progress {
        let &[phase, leaf, iterations, iterations_max, draws, trials, rows] = model.i64(PROGRESS)
        else {
            panic!("'progress' has seven numbers");
        };
        let phase = match phase {
            0 => Phase::Root,
            1 => Phase::Draw,
            2 => Phase::Iterate,
            _ => Phase::Settle,
        };
        let (leaf, trials) = (leaf as usize, trials as usize);
        Progress { phase, leaf, iterations, iterations_max, draws, trials, rows }
    }

    fn write(&self, model: &mut Model) {
        let (leaf, trials) = (self.leaf as i64, self.trials as i64);
        let numbers = vec![
            self.phase as i64,
            leaf,
            self.iterations,
            self.iterations_max,
            self.draws,
            trials,
            self.rows,
        ];
        let values = Values::I64(numbers);
        model.set(PROGRESS, Tensor { shape: vec![7], values, role: Role::State });
    }
}

/// Before the first step.
pub(super) fn init(model: &mut Model, iterations_max: u64, (trials, rows): (usize, u64)) {
    let (iterations_max, rows) = (iterations_max as i64, rows as i64);
    let phase = Phase::Root;
    Progress { phase, leaf: 0, iterations: 0, iterations_max, draws: 0, trials, rows }.write(model);
    let width = model.get("nodes").map_or(0, Tensor::width);
    let pairs = vec![0.0; trials * 2 * width];
    model.set(PAIRS, Tensor::of(&[trials, 2, width], pairs, Role::State));
    model.set(LIMIT, Tensor::of(&[1], vec![0.0], Role::State));
}

/// Turns to a leaf.
pub(super) fn begin(model: &mut Model, leaf: usize) {
    let progress = Progress::read(model);
    Progress { phase: Phase::Draw, leaf, iterations: 0, draws: 0, ..progress }.write(model);
}

/// Brings what is remembered of a shard, the leaf of each row, up to the tree.
pub(super) fn refresh(tree: &Tree<'_>, table: &Table, slice: &Slice, cells: &mut Cells) {
    let mut leaves = match cells.remove("leaf") {
        Some(Values::I64(leaves)) => leaves,
        _ => vec![0; slice.len()],
    };
    for (row, leaf) in slice.rows().zip(&mut leaves) {
        *leaf = tree.leaf(table.row(row), *leaf as usize) as i64;
    }
    cells.insert("leaf".into(), Values::I64(leaves));
}

/// The contribution of a worker.
pub(super) fn contribute(work: &mut Work<'_>) {
    let tree = Tree::read(work.model);
    for slice in &work.batch.slices {
        refresh(&tree, work.batch.table, slice, work.memory.shard(slice.shard));
    }
    let progress = Progress::read(work.model);
    let width = work.model.get("nodes").map_or(0, Tensor::width);
    match progress.phase {
        Phase::Root => {
            let sums = moments(work.batch, width);
            work.outbox.emit(Block::dense("moments", sums));
        }
        Phase::Draw => draw(work, &progress, width),
        Phase::Iterate => iterate(work, &progress, width),
        Phase::Settle => settle(work, &progress, width),
    }
}

/// The rows of the leaf that is cut, with their weights.
fn rows_of_leaf<'a>(
    table: &'a Table,
    slice: &'a Slice,
    cells: &'a Cells,
    leaf: usize,
) -> impl Iterator<Item = (usize, f64)> + 'a {
    let leaves = cells["leaf"].as_i64().expect("leaves are i64");
    let mine = slice.rows().zip(leaves).filter(move |(_, at)| **at == leaf as i64);
    mine.map(|(row, _)| (row, table.weight(row))).filter(|(_, weight)| *weight > 0.0)
}

/// Every row gets a key, exponential with its weight as rate; the smallest of all shards are the draw
/// (Efraimidis and Spirakis, 2006).
fn draw(work: &mut Work<'_>, progress: &Progress, width: usize) {
    let wanted = progress.trials + SPARE;
    let mut points = Points::default();
    for slice in &work.batch.slices {
        let mut rng = work.moment.shard_rng("bisecting", slice.shard);
        let cells = work.memory.shard(slice.shard);
        let mut keys: Vec<(f64, usize)> = Vec::new();
        for (row, weight) in rows_of_leaf(work.batch.table, slice, cells, progress.leaf) {
            let key = -(1.0 - rng.uniform()).ln() / weight;
            if keys.len() == wanted && keys.last().is_some_and(|(last, _)| key >= *last) {
                continue;
            }
            keys.truncate(wanted - 1);
            keys.insert(keys.partition_point(|(other, _)| *other <= key), (key, row));
        }
        keys.iter().for_each(|&(key, row)| points.add(slice, work.batch.table, row, &[key]));
    }
    work.outbox.emit(Block::rows("points", points.into_rows(progress.rows, width + 1)));
}

fn planes(model: &Model, width: usize) -> Vec<Plane> {
    let pairs = model.f64(PAIRS).chunks_exact(2 * width);
    pairs.map(|pair| Plane::between(&pair[..width], &pair[width..])).collect()
}

fn iterate(work: &mut Work<'_>, progress: &Progress, width: usize) {
    let planes = planes(work.model, width);
    let mut sums = vec![0.0; planes.len() * 2 * width];
    let mut masses = vec![0.0; planes.len() * 2];
    let table = work.batch.table;
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        for (row, weight) in rows_of_leaf(table, slice, cells, progress.leaf) {
            for (trial, plane) in planes.iter().enumerate() {
                let at = 2 * trial + plane.side(table.row(row));
                masses[at] += weight;
                add(table.row(row), weight, &mut sums[at * width..(at + 1) * width]);
            }
        }
    }
    work.outbox.emit(Block::dense("sums", sums));
    work.outbox.emit(Block::dense("masses", masses));
}

fn add(row: Row<'_>, weight: f64, sum: &mut [f64]) {
    match row {
        Row::Dense(values) => {
            sum.iter_mut().zip(values).for_each(|(sum, x)| *sum += weight * f64::from(*x));
        }
        Row::Sparse(columns, values) => {
            let entries = columns.iter().zip(values);
            entries.for_each(|(&column, &x)| sum[column as usize] += weight * f64::from(x));
        }
    }
}

fn settle(work: &mut Work<'_>, progress: &Progress, width: usize) {
    let planes = planes(work.model, width);
    let pairs = work.model.f64(PAIRS);
    let lengths: Vec<f64> = pairs.chunks(width.max(1)).map(squared_length).collect();
    let (mut masses, mut inertias) = (vec![0.0; planes.len() * 2], vec![0.0; planes.len() * 2]);
    let table = work.batch.table;
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        for (row, weight) in rows_of_leaf(table, slice, cells, progress.leaf) {
            for (trial, plane) in planes.iter().enumerate() {
                let at = 2 * trial + plane.side(table.row(row));
                let centre = &pairs[at * width..(at + 1) * width];
                masses[at] += weight;
                inertias[at] += weight * squared_distance(table.row(row), centre, lengths[at]);
            }
        }
    }
    work.outbox.emit(Block::dense("masses", masses));
    work.outbox.emit(Block::dense("inertias", inertias));
}

/// Applies a step, and says whether the cut is over.
pub(super) fn apply(
    model: &mut Model,
    update: &Update,
    moment: &Moment,
    tolerance: f64,
) -> Result<bool> {
    let progress = Progress::read(model);
    match progress.phase {
        Phase::Root => plant(model, update, tolerance).map(|()| true),
        Phase::Draw => choose(model, update, moment, progress),
        Phase::Iterate => {
            advance(model, update, progress);
            Ok(false)
        }
        Phase::Settle => {
            keep_best(model, update, &progress)?;
            Ok(true)
        }
    }
}

fn plant(model: &mut Model, update: &Update, tolerance: f64) -> Result<()> {
    let sums = update.f64("moments");
    if !sums.iter().all(|x| x.is_finite()) || sums[0] <= 0.0 {
        return Err(Fault::caller(
            "bisecting-k-means: the sums of squares are not finite, or all rows weigh nothing",
        )
        .hint("scale the features, for example to variance 1"));
    }
    let (weight, sums) = (sums[0], &sums[1..]);
    let (first, second) = sums.split_at(sums.len() / 2);
    let means: Vec<f64> = first.iter().map(|sum| sum / weight).collect();
    let variances =
        second.iter().zip(&means).map(|(sum, mean)| (sum / weight - mean * mean).max(0.0));
    let variance = variances.sum::<f64>();
    model.f64_mut("nodes")[..means.len()].copy_from_slice(&means);
    model.f64_mut("masses")[0] = weight;
    model.f64_mut("inertias")[0] = variance * weight;
    model.f64_mut(LIMIT)[0] = tolerance * variance / means.len() as f64;
    Ok(())
}

/// Pairs of the drawn rows: each row in turn, with another drawn in proportion to the squared distance.
fn choose(model: &mut Model, update: &Update, moment: &Moment, progress: Progress) -> Result<bool> {
    let width = model.get("nodes").map_or(0, Tensor::width);
    let found = update.rows("points").and_then(|rows| rows.values.as_f64());
    let found =
        found.ok_or_else(|| Fault::peer(None, "the rows drawn by the others are missing"))?;
    let mut points: Vec<&[f64]> = found.chunks_exact(width + 1).collect();
    points.sort_by(|a, b| a[0].total_cmp(&b[0]));
    points.truncate(progress.trials + SPARE);
    let points: Vec<&[f64]> = points.iter().map(|point| &point[1..]).collect();
    if points.iter().all(|point| *point == points[0]) {
        // A leaf of equal rows has nowhere to be cut; one of nearly only equal rows is drawn from again.
        let whole = points.len() < 2 || progress.draws >= DRAWS_MAX;
        if whole {
            model.i64_mut("whole")[progress.leaf] = 1;
        }
        Progress { draws: progress.draws + 1, ..progress }.write(model);
        return Ok(whole);
    }
    let mut rng = moment.rng("bisecting pairs");
    let mut pairs = Vec::with_capacity(progress.trials * 2 * width);
    for trial in 0..progress.trials {
        let first = points[trial % points.len()];
        pairs.extend_from_slice(first);
        pairs.extend_from_slice(partner(first, &points, &mut rng));
    }
    *model.f64_mut(PAIRS) = pairs;
    Progress { phase: Phase::Iterate, iterations: 0, ..progress }.write(model);
    Ok(false)
}

fn partner<'a>(first: &[f64], points: &[&'a [f64]], rng: &mut Rng) -> &'a [f64] {
    let squared =
        |point: &[f64]| -> f64 { point.iter().zip(first).map(|(a, b)| (a - b) * (a - b)).sum() };
    let total: f64 = points.iter().map(|point| squared(point)).sum();
    let (target, mut sum, mut chosen) = (rng.uniform() * total, 0.0, points[0]);
    for point in points {
        let distance = squared(point);
        sum += distance;
        if distance > 0.0 {
            chosen = point;
            if sum > target {
                break;
            }
        }
    }
    chosen
}

fn advance(model: &mut Model, update: &Update, progress: Progress) {
    let width = model.get("nodes").map_or(0, Tensor::width);
    let limit = model.f64(LIMIT)[0];
    let centres = model.f64_mut(PAIRS).chunks_exact_mut(width);
    let means = update.f64("sums").chunks_exact(width).zip(update.f64("masses"));
    let mut shifts = vec![0.0; progress.trials];
    for (at, (centre, (sum, &mass))) in centres.zip(means).enumerate() {
        if mass > 0.0 {
            for (c, sum) in centre.iter_mut().zip(sum) {
                shifts[at / 2] += (sum / mass - *c).powi(2);
                *c = sum / mass;
            }
        }
    }
    let iterations = progress.iterations + 1;
    let still = shifts.iter().all(|&shift| shift <= limit);
    let over = still || iterations >= progress.iterations_max;
    let phase = if over { Phase::Settle } else { Phase::Iterate };
    Progress { phase, iterations, ..progress }.write(model);
}

/// The trial of the least inertia becomes the children of the leaf, if both have rows.
fn keep_best(model: &mut Model, update: &Update, progress: &Progress) -> Result<()> {
    let (masses, inertias) = (update.f64("masses"), update.f64("inertias"));
    if !inertias.iter().all(|x| x.is_finite()) {
        return Err(Fault::caller("bisecting-k-means: the squared distances are not finite")
            .hint("scale the features, for example to variance 1"));
    }
    let cost = |trial: usize| inertias[2 * trial] + inertias[2 * trial + 1];
    let two = |trial: &usize| masses[2 * trial] > 0.0 && masses[2 * trial + 1] > 0.0;
    let best = (0..progress.trials).filter(two).min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
    let Some(best) = best else {
        model.i64_mut("whole")[progress.leaf] = 1;
        return Ok(());
    };
    let width = model.get("nodes").map_or(0, Tensor::width);
    let child = Tree::read(model).count();
    let pair = model.f64(PAIRS)[best * 2 * width..(best + 1) * 2 * width].to_vec();
    model.f64_mut("nodes")[child * width..(child + 2) * width].copy_from_slice(&pair);
    model.f64_mut("masses")[child..child + 2].copy_from_slice(&masses[2 * best..2 * best + 2]);
    let measured = &inertias[2 * best..2 * best + 2];
    model.f64_mut("inertias")[child..child + 2].copy_from_slice(measured);
    model.i64_mut("children")[progress.leaf] = child as i64;
    Ok(())
}
