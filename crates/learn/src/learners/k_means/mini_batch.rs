//! Mini-batch k-means (Sculley, "Web-scale k-means clustering", WWW 2010): each batch is assigned to the centres as they
//! are, and a centre moves towards its rows at a rate of one over the rows that it has seen so far, so that it stays the
//! mean of all of them. Approximate: rows of early batches were assigned to centres that have moved since.
//!
//! The first batches are a sample from which every replica seeds the centres.

use super::lloyd::{check_finite, count_distances};
use super::points::Points;
use super::seeding::{draw_distinct, points, thinned};
use super::state::{self, Phase, Progress};
use super::weighted::cluster_candidates;
use super::{KMeans, Seeding};
use crate::{Moment, Outcome, Work};
use starlings_core::{Block, Fault, Kind, Model, Result, Role, Tensor, Update};

/// How much each centre has seen.
const SEEN: &str = "seen";
/// Rows of the sample, at least, and as a multiple of k.
const SAMPLE_MIN: usize = 1000;
const SAMPLE_OF_K: usize = 10;

/// Adds what mini-batches remember to a model.
pub(super) fn init(model: &mut Model, k: usize) {
    model.set(SEEN, Tensor::zeros(Kind::F64, &[k], Role::State));
}

fn sample(k: usize, rows: i64) -> usize {
    (SAMPLE_OF_K * k).max(SAMPLE_MIN).min(rows as usize)
}

/// The rows of a batch, for the sample.
pub(super) fn contribute_sample(work: &mut Work<'_>, progress: Progress) {
    let limit = sample(state::count(work.model), progress.rows);
    let table = work.batch.table;
    let mut found = Points::default();
    for slice in &work.batch.slices {
        let weighing = slice.rows().filter(|&row| table.weight(row) > 0.0);
        weighing.take(limit).for_each(|row| found.add(slice, table, row, &[]));
    }
    let rows = found.into_rows(progress.rows, state::width(work.model));
    work.outbox.emit(Block::rows("points", rows));
}

/// Adds to the sample, and seeds the centres when it is complete.
pub(super) fn apply_sample(
    learner: &KMeans,
    model: &mut Model,
    update: &Update,
    moment: &Moment,
) -> Result<()> {
    let mut progress = Progress::read(model);
    let (k, width) = (state::count(model), state::width(model));
    let wanted = sample(k, progress.rows);
    let missing = wanted - state::candidate_count(model).min(wanted);
    let kept = thinned(points(update)?, missing, moment);
    state::add_candidates(model, &kept, width);
    let found = state::candidate_count(model);
    // After a whole pass no new rows will come.
    let complete = found >= wanted || (moment.pass > 0 && found >= k);
    if !complete {
        return match moment.pass > 1 {
            true => Err(Fault::caller(format!(
                "{k} clusters cannot be made of {found} rows that weigh something"
            ))
            .hint("set k to that or less, or look at the column of weights")),
            false => Ok(()),
        };
    }
    let mut rng = moment.rng("k-means sample");
    let candidates = state::candidates(model).0.to_vec();
    let centres = match learner.seeding {
        Seeding::Random => draw_distinct(k as u64, found as u64, &mut rng)
            .into_iter()
            .flat_map(|at| &candidates[at as usize * width..(at as usize + 1) * width])
            .copied()
            .collect(),
        _ => cluster_candidates(&candidates, &vec![1.0; found], (k, width), &mut rng),
    };
    *model.f64_mut("centres") = centres;
    state::drop_candidates(model);
    progress.phase = Phase::Lloyd;
    progress.write(model);
    Ok(())
}

/// Moves each centre towards its rows of the batch.
pub(super) fn apply(model: &mut Model, update: &Update) -> Result<Outcome> {
    let inertia = check_finite(update)?;
    count_distances(model, update);
    let width = state::width(model);
    let (sums, counts) = (update.f64("sums"), update.f64("counts"));
    let mut seen = model.f64(SEEN).to_vec();
    let centres = model.f64_mut("centres").chunks_exact_mut(width);
    let batch = sums.chunks_exact(width).zip(counts);
    for ((centre, (sum, &count)), seen) in centres.zip(batch).zip(&mut seen) {
        if count > 0.0 {
            *seen += count;
            centre.iter_mut().zip(sum).for_each(|(c, sum)| *c += (sum - count * *c) / *seen);
        }
    }
    *model.f64_mut(SEEN) = seen;
    Ok(Outcome { objective: inertia, ..Outcome::default() })
}
