//! Where the centres start. The default is k-means‖ (Bahmani, Moseley, Vattani, Kumar, Vassilvitskii,
//! "Scalable k-means++", VLDB 2012): from one row drawn uniformly, each round draws every row with
//! probability ℓ·d²(x)/φ, where d²(x) is its squared distance to the candidates so far and φ the sum of all;
//! ℓ = oversampling · k. Each candidate is then weighted by the rows nearest to it, and the few candidates
//! are clustered by weighted k-means++ and Lloyd's iterations, by every replica for itself.
//!
//! A round is two steps: `Cost` measures rows against the newest candidates only (what is known of the older
//! ones is in memory, by shard), `Sample` draws. Draws depend on seed, step and shard, never on the worker:
//! any number of workers finds the same candidates. A row counts by its weight throughout, and one that weighs nothing
//! is never drawn.

use super::super::pca::moments;
use super::assign::Assigner;
use super::points::{Points, global};
use super::state::{self, Phase, Progress};
use super::weighted::cluster_candidates;
use crate::{Cells, Moment, Work};
use starlings_core::{Block, Fault, Model, Result, Rng, Rows, Update, Values};
use starlings_data::{Slice, Table};
use std::collections::BTreeSet;

/// Candidates of one round at most, as a multiple of ℓ. The expected number is at most ℓ.
const ROUND_LIMIT: f64 = 4.0;

/// How k-means‖ samples.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// Rows drawn in a round, as a multiple of k.
    pub oversampling: f64,
    /// Rounds.
    pub rounds: usize,
}

/// Where the centres start.
#[derive(Clone, PartialEq, Debug)]
pub enum Seeding {
    /// k-means‖.
    Scalable(Sampling),
    /// Rows drawn uniformly without replacement.
    Random,
    /// The first rows of the data.
    First,
    /// These centres, one after the other.
    Given(Vec<f64>),
}

impl Seeding {
    /// The rows that the first step fetches.
    pub(super) fn wanted_first(&self, k: usize, rows: u64, seed: u64) -> Vec<i64> {
        let mut rng = Rng::named(seed, "k-means start", &[]);
        match self {
            Seeding::Scalable(_) => draw_distinct(1, rows, &mut rng),
            Seeding::Random => draw_distinct(k as u64, rows, &mut rng),
            Seeding::First => (0..k as i64).collect(),
            Seeding::Given(_) => Vec::new(),
        }
    }
}

/// `count` different numbers below `bound` (Floyd's algorithm), increasing.
pub(super) fn draw_distinct(count: u64, bound: u64, rng: &mut Rng) -> Vec<i64> {
    let mut drawn = BTreeSet::new();
    for last in bound - count..bound {
        let number = rng.below(last + 1);
        let number = if drawn.contains(&number) { last } else { number };
        drawn.insert(number);
    }
    drawn.into_iter().map(|number| number as i64).collect()
}

/// What is remembered of a shard: for each row the squared distance to its nearest candidate, and which.
pub(super) fn remember(model: &Model, table: &Table, slice: &Slice, cells: &mut Cells) {
    let covered = Progress::read(model).covered as usize;
    cells.insert("squared".into(), Values::F64(vec![f64::INFINITY; slice.len()]));
    cells.insert("candidate".into(), Values::I64(vec![0; slice.len()]));
    for batch in 0..covered {
        measure(model, batch, table, slice, cells);
    }
}

/// Measures the rows of a slice against one batch of candidates. Doing it twice changes nothing.
fn measure(model: &Model, batch: usize, table: &Table, slice: &Slice, cells: &mut Cells) {
    let width = state::width(model);
    let (points, ends) = state::candidates(model);
    let (from, to) = (if batch == 0 { 0 } else { ends[batch - 1] }, ends[batch]);
    if from == to {
        return;
    }
    let assigner = Assigner::new(&points[from as usize * width..to as usize * width], width, table);
    let Some(Values::F64(mut squared)) = cells.remove("squared") else {
        panic!("a shard is adopted before it is measured");
    };
    let Some(Values::I64(mut candidate)) = cells.remove("candidate") else {
        panic!("a shard is adopted before it is measured");
    };
    assigner.visit(table, slice, |tile| {
        for (place, (&label, &distance)) in tile.labels.iter().zip(tile.squared).enumerate() {
            let row = tile.first + place;
            if distance < squared[row] {
                squared[row] = distance;
                candidate[row] = from + i64::from(label);
            }
        }
    });
    cells.insert("squared".into(), Values::F64(squared));
    cells.insert("candidate".into(), Values::I64(candidate));
}

/// The contribution of a worker to the steps of the seeding.
pub(super) fn contribute(work: &mut Work<'_>, progress: Progress, seeding: &Seeding) {
    let first = *seeding == Seeding::First;
    match progress.phase {
        Phase::Statistics => {
            work.outbox.emit(statistics(work));
            emit_wanted(work, progress, first);
        }
        Phase::TopUp => emit_wanted(work, progress, first),
        Phase::Cost => {
            let cost = contribute_cost(work);
            work.outbox.emit(Block::dense("cost", vec![cost]));
        }
        Phase::Sample => {
            contribute_sample(work, progress, ell(seeding, state::count(work.model)));
        }
        Phase::Weights => contribute_weights(work),
        Phase::Lloyd | Phase::Gather => unreachable!("the seeding is over"),
    }
}

/// Rows that weigh something, Σw, and Σwx and Σwx² of every feature.
fn statistics(work: &Work<'_>) -> Block {
    let table = work.batch.table;
    let mut sums = moments(work.batch, state::width(work.model));
    let counted = work.batch.rows().filter(|&row| table.weight(row) > 0.0).count();
    sums.insert(0, counted as f64);
    Block::dense("statistics", sums)
}

/// The wanted rows, unless they weigh nothing; the first rows of the data whatever they weigh.
fn emit_wanted(work: &mut Work<'_>, progress: Progress, first: bool) {
    let wanted = state::wanted(work.model);
    let mut points = Points::default();
    for slice in &work.batch.slices {
        for row in slice.rows() {
            let weighs = first || work.batch.table.weight(row) > 0.0;
            if weighs && wanted.binary_search(&(global(slice, row) as i64)).is_ok() {
                points.add(slice, work.batch.table, row, &[]);
            }
        }
    }
    let rows = points.into_rows(progress.rows, state::width(work.model));
    work.outbox.emit(Block::rows("points", rows));
}

fn contribute_cost(work: &mut Work<'_>) -> f64 {
    let covered = Progress::read(work.model).covered as usize;
    let batches = state::candidates(work.model).1.len();
    let mut cost = 0.0;
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        for batch in covered..batches {
            measure(work.model, batch, work.batch.table, slice, cells);
        }
        let squared = cells["squared"].as_f64().expect("distances are f64");
        let weighed = slice.rows().map(|row| work.batch.table.weight(row)).zip(squared);
        cost += weighed.map(|(weight, squared)| weight * squared).sum::<f64>();
    }
    cost
}

fn contribute_sample(work: &mut Work<'_>, progress: Progress, ell: f64) {
    let (_, cost) = state::thresholds(work.model);
    let mut points = Points::default();
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        let squared = cells["squared"].as_f64().expect("distances are f64");
        let mut rng = work.moment.shard_rng("k-means||", slice.shard);
        for (row, distance) in slice.rows().zip(squared) {
            let weight = work.batch.table.weight(row);
            if rng.uniform() * cost < ell * weight * distance {
                points.add(slice, work.batch.table, row, &[]);
            }
        }
    }
    let rows = points.into_rows(progress.rows, state::width(work.model));
    work.outbox.emit(Block::rows("points", rows));
}

fn contribute_weights(work: &mut Work<'_>) {
    let (_, ends) = state::candidates(work.model);
    let mut masses = vec![0.0; ends.last().map_or(0, |&end| end as usize)];
    for slice in &work.batch.slices {
        let cells = work.memory.shard(slice.shard);
        let nearest = cells["candidate"].as_i64().expect("candidates are i64");
        for (row, &candidate) in slice.rows().zip(nearest) {
            masses[candidate as usize] += work.batch.table.weight(row);
        }
    }
    work.outbox.emit(Block::dense("weights", masses));
}

/// Applies a step of the seeding: the model's next phase is set.
pub(super) fn apply(
    seeding: &Seeding,
    tolerance: f64,
    model: &mut Model,
    update: &Update,
    moment: &Moment,
) -> Result<()> {
    let mut progress = Progress::read(model);
    let width = state::width(model);
    match progress.phase {
        Phase::Statistics => {
            let sums = update.f64("statistics");
            check_counted(sums[0], state::count(model))?;
            state::set_thresholds(model, tolerance * mean_variance(&sums[2..], sums[1]), 0.0);
            progress.phase = start(seeding, model, points(update)?)?;
        }
        Phase::Cost => {
            let cost = update.f64("cost")[0];
            state::set_thresholds(model, state::thresholds(model).0, cost);
            progress.covered = state::candidates(model).1.len() as i64;
            progress.phase = after_cost(seeding, model, progress, cost);
        }
        Phase::Sample => {
            let limit = (ROUND_LIMIT * ell(seeding, state::count(model))).ceil() as usize;
            let kept = thinned(points(update)?, limit, moment);
            state::add_candidates(model, &kept, width);
            progress.round += 1;
            progress.phase = Phase::Cost;
        }
        Phase::TopUp => {
            let found = points(update)?.values.as_f64().expect("points are f64");
            state::add_candidates(model, found, width);
            progress.phase = after_top_up(seeding, model);
        }
        Phase::Weights => {
            let (candidates, _) = state::candidates(model);
            let weights = update.f64("weights");
            let mut rng = moment.rng("k-means++");
            let centres =
                cluster_candidates(candidates, weights, (state::count(model), width), &mut rng);
            *model.f64_mut("centres") = centres;
            state::drop_candidates(model);
            progress.phase = Phase::Lloyd;
        }
        Phase::Lloyd | Phase::Gather => unreachable!("the seeding is over"),
    }
    if progress.phase == Phase::TopUp {
        let mut rng = moment.rng("k-means top up");
        let k = state::count(model) as u64;
        state::set_wanted(model, draw_distinct(k, progress.rows as u64, &mut rng));
    }
    progress.write(model);
    Ok(())
}

fn check_counted(counted: f64, k: usize) -> Result<()> {
    if counted >= k as f64 {
        return Ok(());
    }
    Err(Fault::caller(format!(
        "{k} clusters cannot be made of {counted} rows that weigh something"
    ))
    .hint("set k to that or less, or look at the column of weights"))
}

/// Rows that a round draws, on average: ℓ.
pub(super) fn ell(seeding: &Seeding, k: usize) -> f64 {
    match seeding {
        Seeding::Scalable(sampling) => (sampling.oversampling * k as f64).max(1.0),
        _ => 0.0,
    }
}

fn start(seeding: &Seeding, model: &mut Model, found: &Rows) -> Result<Phase> {
    let width = state::width(model);
    let values = found.values.as_f64().expect("points are f64");
    let missing = found.index.len() != state::wanted(model).len();
    match seeding {
        Seeding::Given(_) => Ok(Phase::Lloyd),
        Seeding::First if missing => {
            Err(Fault::peer(None, "not all rows that the centres start from were sent"))
        }
        Seeding::First => {
            model.f64_mut("centres").copy_from_slice(values);
            Ok(Phase::Lloyd)
        }
        // A row that was drawn but weighs nothing was not sent: others are drawn for it.
        Seeding::Random => {
            state::add_candidates(model, values, width);
            Ok(after_top_up(seeding, model))
        }
        Seeding::Scalable(_) => {
            state::add_candidates(model, values, width);
            Ok(if missing { Phase::TopUp } else { Phase::Cost })
        }
    }
}

/// Random rows are enough when there are k; candidates go on to be measured when there is one.
fn after_top_up(seeding: &Seeding, model: &mut Model) -> Phase {
    let (found, k) = (state::candidate_count(model), state::count(model));
    match seeding {
        Seeding::Scalable(_) if found > 0 => Phase::Cost,
        Seeding::Random if found >= k => {
            let numbers = k * state::width(model);
            let chosen = state::candidates(model).0[..numbers].to_vec();
            *model.f64_mut("centres") = chosen;
            state::drop_candidates(model);
            Phase::Lloyd
        }
        _ => Phase::TopUp,
    }
}

fn after_cost(seeding: &Seeding, model: &Model, progress: Progress, cost: f64) -> Phase {
    let Seeding::Scalable(sampling) = seeding else { unreachable!("only k-means|| measures cost") };
    let found = state::candidates(model).1.last().map_or(0, |&end| end as usize);
    // Without cost every row is a candidate already, and no round would find another.
    if progress.round < sampling.rounds as i64 && cost > 0.0 {
        Phase::Sample
    } else if found < state::count(model) {
        Phase::TopUp
    } else {
        Phase::Weights
    }
}

pub(super) fn points(update: &Update) -> Result<&Rows> {
    update
        .rows("points")
        .ok_or_else(|| Fault::peer(None, "the rows drawn by the others are missing"))
}

/// At most `limit` points, drawn uniformly when there are more.
pub(super) fn thinned(found: &Rows, limit: usize, moment: &Moment) -> Vec<f64> {
    let values = found.values.as_f64().expect("points are f64");
    if found.index.len() <= limit {
        return values.to_vec();
    }
    let mut places: Vec<usize> = (0..found.index.len()).collect();
    moment.rng("k-means|| limit").shuffle(&mut places);
    places.truncate(limit);
    places.sort_unstable();
    let width = found.width as usize;
    places.iter().flat_map(|&place| &values[place * width..(place + 1) * width]).copied().collect()
}

/// The mean over features of their variance.
fn mean_variance(sums: &[f64], rows: f64) -> f64 {
    let (first, second) = sums.split_at(sums.len() / 2);
    let variance = |(x, square): (&f64, &f64)| (square / rows - (x / rows).powi(2)).max(0.0);
    first.iter().zip(second).map(variance).sum::<f64>() / first.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Step;

    #[test]
    fn drawn_numbers_are_different_in_range_and_every_one_comes_up() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let drawn = draw_distinct(3, 10, &mut Rng::named(seed, "test", &[]));
            assert!(drawn.len() == 3 && drawn.windows(2).all(|pair| pair[0] < pair[1]));
            seen.extend(drawn);
        }
        assert_eq!(seen, (0..10).collect());
        assert_eq!(draw_distinct(4, 4, &mut Rng::named(1, "test", &[])), [0, 1, 2, 3]);
    }

    #[test]
    fn a_round_that_draws_too_many_rows_is_thinned_to_the_limit() {
        let values = (0..40).map(|i| f64::from(i / 2)).collect();
        let index = (0..20).collect();
        let found = Rows { total: 100, width: 2, index, values: Values::F64(values) };
        let moment = Moment { step: Step(3), pass: 0, seed: 1, rows: 100 };
        let kept = thinned(&found, 5, &moment);
        assert_eq!(kept.len(), 10);
        let rows: Vec<f64> = kept.chunks(2).map(|point| point[0]).collect();
        assert!(rows.windows(2).all(|pair| pair[0] < pair[1]), "{rows:?}");
        assert_ne!(rows, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(thinned(&found, 20, &moment).len(), 40);
    }
}
