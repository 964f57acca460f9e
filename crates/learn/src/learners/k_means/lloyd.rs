//! Lloyd's iteration (Lloyd 1957, 1982): assign every row to its nearest centre, then move every centre to
//! the mean of its rows. Sums and counts of rows add up over workers, so that the result is that of one.
//!
//! A centre without rows stays where it is for one iteration; in the next, every shard also sends its rows
//! farthest from their centres, and the empty centres move there, the farthest first (scikit-learn moves
//! them an iteration earlier; Spark never does).

use super::assign::{Assigner, Tile, for_each_stretch};
use super::points::Points;
use super::state::{self, Progress};
use crate::kernels::distances::add_rows;
use crate::{Outcome, Work};
use starlings_core::{Block, Fault, Model, Result, Update};
use starlings_data::{Features, Row, Table};

/// Farthest rows that one shard sends at most.
const FARTHEST_MAX: usize = 64;
/// Numbers before the features of a row that is sent: squared distance, centre and weight.
const PREFIX: usize = 3;
/// How many distances to centres were computed.
pub(super) const DISTANCES: &str = "distances";

/// The contribution: sums, counts, inertia and, when centres are empty, the farthest rows.
pub(super) fn contribute(work: &mut Work<'_>) {
    let (k, width) = (state::count(work.model), state::width(work.model));
    let progress = Progress::read(work.model);
    let table = work.batch.table;
    let assigner = Assigner::new(work.model.f64("centres"), width, table);
    let mut sums = vec![0.0; k * width];
    let mut counts = vec![0.0; k];
    let (mut inertia, mut distances) = (0.0, 0);
    let mut points = Points::default();
    for slice in &work.batch.slices {
        // What the seeding remembered of the rows is of no more use.
        work.memory.shard(slice.shard).clear();
        let mut farthest = Farthest::new(progress.empty as usize);
        assigner.visit(table, slice, |tile| {
            add_tile(table, tile, &mut sums);
            for ((&row, &label), squared) in tile.rows.iter().zip(tile.labels).zip(tile.squared) {
                let weight = table.weight(row);
                counts[label as usize] += weight;
                inertia += weight * squared;
            }
            distances += (tile.rows.len() * k) as i64;
            farthest.see(table, tile);
        });
        for &(squared, row, label) in &farthest.rows {
            points.add(slice, table, row, &[squared, f64::from(label), table.weight(row)]);
        }
    }
    work.outbox.emit(Block::dense("sums", sums));
    work.outbox.emit(Block::dense("counts", counts));
    work.outbox.emit(Block::counts(DISTANCES, vec![distances]));
    work.outbox.emit(Block::dense("inertia", vec![inertia]));
    work.outbox.emit(Block::rows("farthest", points.into_rows(progress.rows, width + PREFIX)));
}

/// Adds the rows of a tile onto the sums of their centres.
fn add_tile(table: &Table, tile: &Tile<'_>, sums: &mut [f64]) {
    add_labelled(table, tile.rows, tile.labels, sums);
}

/// Adds rows, each as often as it weighs, onto the sums of their centres.
pub(super) fn add_labelled(table: &Table, rows: &[usize], labels: &[u32], sums: &mut [f64]) {
    let width = table.width();
    if table.weights.is_empty() && matches!(table.features, Features::Dense { .. }) {
        for_each_stretch(table, rows, |from, stretch| {
            let to = from + stretch.len() / width;
            add_rows(width, stretch, &labels[from..to], sums);
        });
        return;
    }
    for (&row, &label) in rows.iter().zip(labels) {
        let weight = table.weight(row);
        let sum = &mut sums[label as usize * width..(label as usize + 1) * width];
        match table.row(row) {
            Row::Dense(values) => {
                sum.iter_mut().zip(values).for_each(|(sum, x)| *sum += weight * f64::from(*x));
            }
            Row::Sparse(columns, values) => {
                for (&column, &x) in columns.iter().zip(values) {
                    sum[column as usize] += weight * f64::from(x);
                }
            }
        }
    }
}

/// The rows of a shard farthest from their centres: (squared distance, row in the table, centre).
struct Farthest {
    limit: usize,
    rows: Vec<(f64, usize, u32)>,
}

impl Farthest {
    fn new(limit: usize) -> Farthest {
        Farthest { limit: limit.min(FARTHEST_MAX), rows: Vec::new() }
    }

    fn see(&mut self, table: &Table, tile: &Tile<'_>) {
        if self.limit == 0 {
            return;
        }
        for ((&row, &label), &squared) in tile.rows.iter().zip(tile.labels).zip(tile.squared) {
            let full = self.rows.len() == self.limit;
            if table.weight(row) <= 0.0 {
                continue;
            }
            if full && self.rows.last().is_some_and(|&(least, ..)| squared <= least) {
                continue;
            }
            self.rows.truncate(self.limit - 1);
            let place = self.rows.partition_point(|&(other, ..)| other >= squared);
            self.rows.insert(place, (squared, row, label));
        }
    }
}

/// Refuses sums that are not finite. Where the step knows the inertia, it is given back.
pub(super) fn check_finite(update: &Update) -> Result<Option<f64>> {
    let inertia = update.get("inertia").map(|block| block.f64s()[0]);
    let finite =
        inertia.is_none_or(f64::is_finite) && update.f64("sums").iter().all(|x| x.is_finite());
    if finite {
        return Ok(inertia);
    }
    Err(Fault::caller("the squared distances are too large for floating-point numbers")
        .hint("scale the features, for example to variance 1"))
}

/// Adds the distances computed in a step to those computed before it.
pub(super) fn count_distances(model: &mut Model, update: &Update) {
    let computed = update.i64(DISTANCES)[0];
    model.i64_mut(DISTANCES)[0] += computed;
}

/// Moves the centres, and notes how far each went.
pub(super) fn apply(model: &mut Model, update: &Update) -> Result<Outcome> {
    let width = state::width(model);
    let mut progress = Progress::read(model);
    let (tolerance, _) = state::thresholds(model);
    let inertia = check_finite(update)?;
    count_distances(model, update);
    let mut sums = update.f64("sums").to_vec();
    let mut counts = update.f64("counts").to_vec();
    if progress.empty > 0 {
        fill_empty(update, &mut sums, &mut counts, width)?;
    }
    let mut drifts = vec![0.0; counts.len()];
    let centres = model.f64_mut("centres").chunks_exact_mut(width);
    for (((centre, sum), &count), drift) in
        centres.zip(sums.chunks_exact(width)).zip(&counts).zip(&mut drifts)
    {
        if count > 0.0 {
            for (c, sum) in centre.iter_mut().zip(sum) {
                let moved = sum / count;
                *drift += (moved - *c).powi(2);
                *c = moved;
            }
        }
    }
    let shift: f64 = drifts.iter().sum();
    state::set_drifts(model, drifts.iter().map(|drift| drift.sqrt()).collect());
    let tried = progress.empty > 0;
    progress.empty = counts.iter().filter(|&&count| count <= 0.0).count() as i64;
    progress.iterations += 1;
    // Centres that are still empty after the farthest rows were offered have nowhere better to go.
    let settled = shift <= tolerance && (progress.empty == 0 || tried);
    progress.write(model);
    Ok(Outcome {
        objective: inertia,
        done: settled || progress.iterations >= progress.iterations_max,
        iterations: Some(progress.iterations as u64),
    })
}

/// Gives the farthest rows that were sent to the centres without rows.
fn fill_empty(update: &Update, sums: &mut [f64], counts: &mut [f64], width: usize) -> Result<()> {
    let sent = update.rows("farthest");
    let sent = sent.ok_or_else(|| Fault::peer(None, "the farthest rows are missing"))?;
    let values = sent.values.as_f64().expect("points are f64");
    let mut offers: Vec<&[f64]> = values.chunks_exact(width + PREFIX).collect();
    // A stable sort: among equally far rows the one with the lower number comes first.
    offers.sort_by(|a, b| b[0].total_cmp(&a[0]));
    let mut offers = offers.into_iter().filter(|offer| offer[0] > 0.0);
    for empty in 0..counts.len() {
        if counts[empty] > 0.0 {
            continue;
        }
        // The last row of a cluster is not taken from it: that would only empty another.
        let others = |offer: &&[f64]| counts[offer[1] as usize] > offer[2] * (1.0 + 1e-9);
        let Some(offer) = offers.find(others) else { break };
        let (from, weight, point) = (offer[1] as usize, offer[2], &offer[PREFIX..]);
        for (feature, x) in point.iter().enumerate() {
            sums[from * width + feature] -= weight * x;
            sums[empty * width + feature] = weight * x;
        }
        counts[from] -= weight;
        counts[empty] = weight;
    }
    Ok(())
}
