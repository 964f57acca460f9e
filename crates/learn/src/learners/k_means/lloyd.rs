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

/// The contribution: sums, counts, inertia and, when centres are empty, the farthest rows.
pub(super) fn contribute(work: &mut Work<'_>) {
    let (k, width) = (state::count(work.model), state::width(work.model));
    let progress = Progress::read(work.model);
    let table = work.batch.table;
    let assigner = Assigner::new(work.model.f64("centres"), width, table);
    let mut sums = vec![0.0; k * width];
    let mut counts = vec![0; k];
    let mut inertia = 0.0;
    let mut points = Points::default();
    for slice in &work.batch.slices {
        // What the seeding remembered of the rows is of no more use.
        work.memory.shard(slice.shard).clear();
        let mut farthest = Farthest::new(progress.empty as usize);
        assigner.visit(table, slice, |tile| {
            add_tile(table, tile, &mut sums);
            tile.labels.iter().for_each(|&label| counts[label as usize] += 1);
            inertia += tile.squared.iter().sum::<f64>();
            farthest.see(tile);
        });
        for &(squared, row, label) in &farthest.rows {
            points.add(slice, table, row, &[squared, f64::from(label)]);
        }
    }
    work.outbox.emit(Block::dense("sums", sums));
    work.outbox.emit(Block::counts("counts", counts));
    work.outbox.emit(Block::dense("inertia", vec![inertia]));
    work.outbox.emit(Block::rows("farthest", points.into_rows(progress.rows, width + 2)));
}

/// Adds the rows of a tile onto the sums of their centres.
fn add_tile(table: &Table, tile: &Tile<'_>, sums: &mut [f64]) {
    let width = table.width();
    match table.features {
        Features::Dense { .. } => for_each_stretch(table, tile.rows, |from, stretch| {
            let to = from + stretch.len() / width;
            add_rows(width, stretch, &tile.labels[from..to], sums);
        }),
        Features::Sparse { .. } => {
            for (&row, &label) in tile.rows.iter().zip(tile.labels) {
                let Row::Sparse(columns, values) = table.row(row) else { continue };
                let sum = &mut sums[label as usize * width..(label as usize + 1) * width];
                for (&column, &x) in columns.iter().zip(values) {
                    sum[column as usize] += f64::from(x);
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

    fn see(&mut self, tile: &Tile<'_>) {
        if self.limit == 0 {
            return;
        }
        for ((&row, &label), &squared) in tile.rows.iter().zip(tile.labels).zip(tile.squared) {
            let full = self.rows.len() == self.limit;
            if full && self.rows.last().is_some_and(|&(least, ..)| squared <= least) {
                continue;
            }
            self.rows.truncate(self.limit - 1);
            let place = self.rows.partition_point(|&(other, ..)| other >= squared);
            self.rows.insert(place, (squared, row, label));
        }
    }
}

/// Moves the centres.
pub(super) fn apply(model: &mut Model, update: &Update) -> Result<Outcome> {
    let width = state::width(model);
    let mut progress = Progress::read(model);
    let (tolerance, _) = state::thresholds(model);
    let inertia = update.f64("inertia")[0];
    if !inertia.is_finite() {
        return Err(Fault::caller(
            "the squared distances are too large for floating-point numbers",
        )
        .hint("scale the features, for example to variance 1"));
    }
    let mut sums = update.f64("sums").to_vec();
    let mut counts = update.i64("counts").to_vec();
    fill_empty(update, &mut sums, &mut counts, width)?;
    let mut shift = 0.0;
    let centres = model.f64_mut("centres").chunks_exact_mut(width);
    for ((centre, sum), &count) in centres.zip(sums.chunks_exact(width)).zip(&counts) {
        if count > 0 {
            for (c, sum) in centre.iter_mut().zip(sum) {
                let moved = sum / count as f64;
                shift += (moved - *c).powi(2);
                *c = moved;
            }
        }
    }
    let tried = progress.empty > 0;
    progress.empty = counts.iter().filter(|&&count| count == 0).count() as i64;
    progress.iterations += 1;
    // Centres that are still empty after the farthest rows were offered have nowhere better to go.
    let settled = shift <= tolerance && (progress.empty == 0 || tried);
    progress.write(model);
    Ok(Outcome {
        objective: Some(inertia),
        done: settled || progress.iterations >= progress.iterations_max,
        iterations: Some(progress.iterations as u64),
    })
}

/// Gives the farthest rows that were sent to the centres without rows.
fn fill_empty(update: &Update, sums: &mut [f64], counts: &mut [i64], width: usize) -> Result<()> {
    let sent = update.rows("farthest");
    let sent = sent.ok_or_else(|| Fault::peer(None, "the farthest rows are missing"))?;
    let values = sent.values.as_f64().expect("points are f64");
    let mut offers: Vec<&[f64]> = values.chunks_exact(width + 2).collect();
    // A stable sort: among equally far rows the one with the lower number comes first.
    offers.sort_by(|a, b| b[0].total_cmp(&a[0]));
    let mut offers = offers.into_iter().filter(|offer| offer[0] > 0.0);
    for empty in 0..counts.len() {
        if counts[empty] > 0 {
            continue;
        }
        // The last row of a cluster is not taken from it: that would only empty another.
        let Some(offer) = offers.find(|offer| counts[offer[1] as usize] > 1) else { break };
        let (from, point) = (offer[1] as usize, &offer[2..]);
        for (feature, x) in point.iter().enumerate() {
            sums[from * width + feature] -= x;
            sums[empty * width + feature] = *x;
        }
        counts[from] -= 1;
        counts[empty] = 1;
    }
    Ok(())
}
