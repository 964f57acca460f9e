//! The model-parallel solver: coordinates are scheduled (`schedule`), workers sum x·r of the scheduled block over their
//! own rows, replicas move the block's coordinates all at once (Kim et al., "STRADS: a distributed framework for
//! scheduled model parallel machine learning", EuroSys 2016). Residuals live in memory by shard.
//!
//! One exchange a step: the sums of this block travel together with the products of the next candidates, by which the
//! next block is chosen, as STRADS pipelines its scheduler. After every pass (as many moves as there are features) a
//! survey measures the duality gap, makes the residuals anew and tells priorities where the gradient points.

use super::SparseRegression;
use super::descent::{Penalty, STILL, step};
use super::passes;
use super::schedule::{Room, choose, draw};
use super::state::{Counters, Moments, Phase, SCALE};
use super::survey::{self, CURVATURES, POINT, Survey, VALUES};
use crate::kernels::gram::whole;
use crate::{Cells, Moment, Outcome, Work};
use starlings_core::{Block, Kind, Model, Result, Role, Tensor, Update, Values};
use starlings_data::{Batch, Features, Row, Slice};

/// How much each coordinate wants to be drawn.
pub(crate) const PRIORITIES: &str = "schedule.priorities";
/// The coordinates that move in this step; −1 where there is none.
pub(crate) const BLOCK: &str = "schedule.block";
/// The coordinates of which the next block is chosen; −1 where there is none.
const CANDIDATES: &str = "schedule.candidates";
/// The coordinates that the last step moved; −1 where there is none.
const MOVED: &str = "schedule.moved";
/// By how much, in the units of the data.
const MOVES: &str = "schedule.moves";
/// Entries that are not zero in each column.
const LOADS: &str = "schedule.loads";
/// The largest move since the last survey, in units of y.
const LARGEST: &str = "schedule.largest";
/// Moves since the last survey.
const TALLY: &str = "schedule.tally";
/// The memory's cells: residuals, and the steps that they contain.
const RESIDUALS: &str = "residuals";
const STEP: &str = "step";

/// How coordinates are scheduled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Scheduling {
    /// Most coordinates that move together.
    pub(crate) block: usize,
    /// Coordinates of which they are chosen.
    pub(crate) candidates: usize,
    /// Correlation from which on coordinates never move together.
    pub(crate) theta: f64,
    /// What every coordinate's priority has beyond its recent change, in deviations of y.
    pub(crate) eta: f64,
}

impl Scheduling {
    pub(crate) fn init(&self, model: &mut Model, features: usize) {
        let nobody = |len: usize| Tensor {
            shape: vec![len],
            values: Values::I64(vec![-1; len]),
            role: Role::State,
        };
        let (block, candidates) = (self.block.min(features), self.candidates.min(features));
        model.set(BLOCK, nobody(block));
        model.set(MOVED, nobody(block));
        model.set(CANDIDATES, nobody(candidates));
        model.set(MOVES, Tensor::zeros(Kind::F64, &[block], Role::State));
        for name in [PRIORITIES, LOADS] {
            model.set(name, Tensor::zeros(Kind::F64, &[features], Role::State));
        }
        model.set(LARGEST, Tensor::zeros(Kind::F64, &[1], Role::State));
        model.set(TALLY, Tensor::zeros(Kind::I64, &[1], Role::State));
    }

    /// Moves the block, and chooses the next.
    pub(super) fn apply_block(
        &self,
        of: &SparseRegression,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        let mut counters = Counters::of(model);
        let penalty = survey::stages(of, model)[counters.stage].penalty;
        let moved = self.move_block(of, model, update.f64("partials"), penalty);
        let next = self.next_block(model, update.f64("products"));
        put(model, BLOCK, &next);
        let mut rng = moment.rng("candidates");
        let drawn = draw(model.f64(PRIORITIES), model.i64(CANDIDATES).len(), &mut rng);
        put(model, CANDIDATES, &drawn);
        let movable = model.f64(CURVATURES).iter().filter(|curvature| **curvature > 0.0).count();
        let tally = &mut model.i64_mut(TALLY)[0];
        *tally += moved as i64;
        if *tally >= movable as i64 {
            *tally = 0;
            counters.sweeps += 1;
            counters.phase = Phase::Gradient;
        }
        counters.store(model);
        Ok(Outcome { iterations: Some(counters.sweeps), ..Outcome::default() })
    }

    /// Minimises over each coordinate of the block by itself. Gives how many there are.
    fn move_block(
        &self,
        of: &SparseRegression,
        model: &mut Model,
        sums: &[f64],
        penalty: Penalty,
    ) -> usize {
        let block = listed(model, BLOCK);
        let Moments { mass, square, .. } = Moments::of(model);
        let mut values = model.f64(VALUES).to_vec();
        let mut moves = vec![0.0; block.len()];
        for ((&column, sum), moved) in block.iter().zip(sums).zip(&mut moves) {
            let unit = unit(model, column);
            let curvature = model.f64(CURVATURES)[column];
            let next = step(values[column], sum / mass / unit, curvature, penalty);
            let change = next - values[column];
            values[column] = next;
            *moved = change / unit;
            let felt = change.abs() * curvature.sqrt();
            model.f64_mut(LARGEST)[0] = felt.max(model.f64(LARGEST)[0]);
            model.f64_mut(PRIORITIES)[column] = felt + self.eta * square.sqrt();
        }
        survey::move_to(of, model, values);
        put(model, MOVED, &block);
        model.f64_mut(MOVES)[..moves.len()].copy_from_slice(&moves);
        block.len()
    }

    /// The next block, from the products of the candidates' columns.
    fn next_block(&self, model: &Model, products: &[f64]) -> Vec<usize> {
        let candidates = listed(model, CANDIDATES);
        let width = candidates.len() + 1;
        let products = whole(products, width);
        let correlation = |a: usize, b: usize| {
            let norms = products[a * width + a] * products[b * width + b];
            if norms > 0.0 { products[a * width + b].abs() / norms.sqrt() } else { 1.0 }
        };
        let loads = model.f64(LOADS);
        let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
        let block = model.i64(BLOCK).len();
        let room = Room { block, theta: self.theta, work: mean * block as f64 };
        let chosen = choose(candidates.len(), room, correlation, |a| loads[candidates[a]]);
        chosen.into_iter().map(|place| candidates[place]).collect()
    }

    /// Takes a survey: closes stages, or goes on with blocks.
    pub(super) fn apply_gradient(
        &self,
        of: &SparseRegression,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        let survey = Survey::read(of, model, update)?;
        let mut counters = Counters::of(model);
        if counters.phase == Phase::Survey {
            let squares = update.f64("squares");
            model.f64_mut(LOADS).copy_from_slice(&squares[squares.len() / 2..]);
        }
        let sweeps = counters.sweeps;
        let moved = std::mem::take(&mut model.f64_mut(LARGEST)[0]);
        let still = counters.phase == Phase::Gradient && moved <= STILL * survey.square.sqrt();
        let closed = survey.close(of, model, &mut counters, still);
        if let Some((penalty, _)) = closed.left {
            self.set_priorities(model, &survey, penalty);
            let mut rng = moment.rng("candidates");
            let drawn = draw(model.f64(PRIORITIES), model.i64(CANDIDATES).len(), &mut rng);
            put(model, CANDIDATES, &drawn);
            counters.phase = Phase::Block;
        }
        // The residuals were made anew: nothing is left to be taken from them.
        put(model, MOVED, &[]);
        counters.store(model);
        let done = closed.left.is_none();
        Ok(Outcome { objective: closed.objective, done, iterations: Some(sweeps) })
    }

    /// What each coordinate would change by, if it moved alone, and a little more.
    fn set_priorities(&self, model: &mut Model, survey: &Survey, penalty: Penalty) {
        let curvatures = model.f64(CURVATURES);
        let little = self.eta * survey.square.sqrt();
        let points = survey.values.iter().zip(&survey.slopes).zip(curvatures);
        let priorities = points.map(|((&value, &slope), &curvature)| match curvature > 0.0 {
            true => {
                let change = step(value, slope, curvature, penalty) - value;
                change.abs() * curvature.sqrt() + little
            }
            false => 0.0,
        });
        *model.f64_mut(PRIORITIES) = priorities.collect();
    }
}

/// The residuals of a shard at the weights, for a worker that has not held it before.
pub(super) fn adopt(model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
    let (weights, features) = (model.f64(POINT), Moments::of(model).means.len());
    let label = |row: usize| batch.table.labels.get(row).copied().unwrap_or(0.0);
    let fits = batch.table.width() == features;
    let residual = |row: usize| match fits {
        true => passes::residual(batch.table.row(row), label(row), weights, features),
        false => 0.0,
    };
    store(cells, slice.rows().map(residual).collect(), Counters::of(model).steps);
}

/// The gradient of all features; the residuals that it makes are remembered.
pub(super) fn gradient(work: &mut Work<'_>) -> Vec<f64> {
    let (model, batch) = (work.model, work.batch);
    let (moments, steps) = (Moments::of(model), Counters::of(model).steps);
    let mut sums = vec![0.0; moments.means.len() + 3];
    for slice in &batch.slices {
        let mut residuals = Vec::with_capacity(slice.len());
        let shard = alone(batch, slice);
        let part = passes::gradient(&shard, moments, model.f64(POINT), |_, r| residuals.push(r));
        sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
        store(work.memory.shard(slice.shard), residuals, steps);
    }
    sums
}

/// Emits the sums of the block and the products of the candidates.
pub(super) fn contribute(work: &mut Work<'_>) {
    let (model, batch) = (work.model, work.batch);
    let (block, candidates) = (listed(model, BLOCK), listed(model, CANDIDATES));
    let moments = Moments::of(model);
    let mut sums = vec![0.0; block.len()];
    for slice in &batch.slices {
        let residuals = caught_up(work.memory.shard(slice.shard), model, batch, slice);
        let (mut total, table) = (0.0, batch.table);
        let places = placed(table, &block);
        for (row, r) in slice.rows().zip(residuals) {
            let weighted = table.weight(row) * r;
            total += weighted;
            each_of(table.row(row), &block, &places, |place, x| sums[place] += weighted * x);
        }
        let means = block.iter().map(|&column| moments.means[column]);
        sums.iter_mut().zip(means).for_each(|(sum, mean)| *sum -= mean * total);
    }
    work.outbox.emit(Block::dense("partials", sums));
    work.outbox.emit(Block::dense("products", passes::gram(batch, moments, &candidates)));
}

/// The residuals of a shard, with the last step's moves taken from them, however often that is asked.
fn caught_up<'a>(
    cells: &'a mut Cells,
    model: &Model,
    batch: &Batch<'_>,
    slice: &Slice,
) -> &'a [f64] {
    let steps = Counters::of(model).steps;
    let known = cells.get(STEP).and_then(Values::as_i64).map_or(steps, |step| step[0]);
    let residuals = match cells.get_mut(RESIDUALS) {
        Some(Values::F64(residuals)) => residuals,
        _ => panic!("{} has no residuals", slice.shard),
    };
    if known < steps {
        let (moved, moves) = (listed(model, MOVED), model.f64(MOVES));
        let means = Moments::of(model).means;
        let shift: f64 = moved.iter().zip(moves).map(|(&column, by)| means[column] * by).sum();
        let places = placed(batch.table, &moved);
        for (row, residual) in slice.rows().zip(residuals.iter_mut()) {
            *residual += shift;
            let row = batch.table.row(row);
            each_of(row, &moved, &places, |place, x| *residual -= x * moves[place]);
        }
        cells.insert(STEP.to_string(), Values::I64(vec![steps]));
    }
    cells.get(RESIDUALS).and_then(Values::as_f64).unwrap_or(&[])
}

/// For sparse rows: the place of each column in a list, `u32::MAX` where it has none.
fn placed(table: &starlings_data::Table, list: &[usize]) -> Vec<u32> {
    match &table.features {
        Features::Dense { .. } => Vec::new(),
        Features::Sparse { width, .. } => {
            let mut places = vec![u32::MAX; *width];
            list.iter().enumerate().for_each(|(place, &column)| places[column] = place as u32);
            places
        }
    }
}

/// Visits the numbers of a row in the listed columns, by their place in the list.
#[inline(always)]
fn each_of(row: Row<'_>, list: &[usize], places: &[u32], mut visit: impl FnMut(usize, f64)) {
    match row {
        Row::Dense(x) => {
            list.iter().enumerate().for_each(|(place, &column)| visit(place, f64::from(x[column])));
        }
        Row::Sparse(entries, x) => {
            for (&entry, &x) in entries.iter().zip(x) {
                let place = places[entry as usize];
                if place != u32::MAX {
                    visit(place as usize, f64::from(x));
                }
            }
        }
    }
}

fn store(cells: &mut Cells, residuals: Vec<f64>, steps: i64) {
    cells.insert(RESIDUALS.to_string(), Values::F64(residuals));
    cells.insert(STEP.to_string(), Values::I64(vec![steps]));
}

fn unit(model: &Model, column: usize) -> f64 {
    model.get(SCALE).map_or(1.0, |_| model.f64(SCALE)[column])
}

/// Writes a list of coordinates; what is left of the tensor says that there is none.
fn put(model: &mut Model, name: &str, list: &[usize]) {
    let places = model.i64_mut(name);
    places.fill(-1);
    places.iter_mut().zip(list).for_each(|(place, &column)| *place = column as i64);
}

/// The coordinates of a list.
fn listed(model: &Model, name: &str) -> Vec<usize> {
    model.i64(name).iter().filter_map(|&column| usize::try_from(column).ok()).collect()
}

/// One shard of a batch.
fn alone<'a>(batch: &Batch<'a>, slice: &Slice) -> Batch<'a> {
    Batch { table: batch.table, slices: vec![slice.clone()], rows_step: batch.rows_step }
}
