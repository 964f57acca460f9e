//! Isotonic regression: the step function of one feature that never falls (or never rises) and is nearest to the labels
//! in squared error, by pooling adjacent violators (Barlow, Bartholomew, Bremner and Brunk, "Statistical inference
//! under order restrictions", 1972). Between the steps it is interpolated, beyond them it is constant.
//!
//! Exact on any flock. Rows need sorting by the feature, and a feature is an f32: its bits, put in order, are a number
//! below 2³² (`order.rs`), which serves as the row number of a block. So workers send (Σw, Σwy) by value, the fold of
//! the blocks is the sorted union, and pooling runs over it in `apply`. Pooling goes from left to right with a stack
//! of pools, so values may come range by range, each exchange of bounded size, with the stack in the model between.
//! Pooling on each worker first would send less, but is not exact: a pool of one worker may have to be cut by
//! a value of another.

mod direction;
mod order;
mod pools;

use super::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use crate::{columns, refusals};
use direction::Direction;
use pools::Pools;
use starlings_core::{
    Ability, Block, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params,
    Result, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use std::collections::BTreeMap;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "isotonic-regression",
    summary: "A number that only rises (or only falls) with one feature, by pooling adjacent violators",
    reference: "Barlow, Bartholomew, Bremner and Brunk, Statistical inference under order restrictions, 1972",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Isotonic::new(params))),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "feature",
        kind: ParamKind::Text,
        default: Some("0"),
        help: "the feature: a column's name, or a number from 0 in quotes",
    },
    Param {
        name: "increasing",
        kind: ParamKind::Choice(&["true", "false", "auto"]),
        default: Some("true"),
        help: "whether labels rise with the feature; auto: as the sign of Spearman's correlation says",
    },
];

/// Values that one exchange may hold, unless a range of 2¹⁶ neighbouring values has more rows.
const VALUES_MAX: u64 = 1 << 20;
/// The feature; whether the function rises (1), falls (0) or is yet to be told (2).
const SHAPE: &str = "shape";
/// Which range is next, and whether ranges are known; see [`Phase`].
const PROGRESS: &str = "progress";
/// Where ranges end.
const RANGES: &str = "ranges";

struct Isotonic {
    feature: String,
    increasing: Option<bool>,
    values_max: u64,
}

/// What the next step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Counts values and labels by rank, to tell the direction.
    Rank = 0,
    /// Sums products of ranks.
    Correlate = 1,
    /// Counts rows by the first bits of their value, to cut ranges.
    Count = 2,
    /// Sums labels by value in one range.
    Pool = 3,
}

impl Isotonic {
    fn new(params: &Params) -> Isotonic {
        let increasing = match params.text("increasing") {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        };
        Isotonic { feature: params.text("feature").to_string(), increasing, values_max: VALUES_MAX }
    }

    fn after_direction(&self, rows: u64) -> Phase {
        if rows <= self.values_max { Phase::Pool } else { Phase::Count }
    }
}

fn phase(model: &Model) -> Phase {
    match model.i64(PROGRESS)[0] {
        0 => Phase::Rank,
        1 => Phase::Correlate,
        2 => Phase::Count,
        _ => Phase::Pool,
    }
}

fn feature(model: &Model) -> usize {
    model.i64(SHAPE)[0] as usize
}

fn rises(model: &Model) -> bool {
    model.i64(SHAPE)[1] == 1
}

/// The range of keys that the next step pools, and whether it is the last.
fn range(model: &Model) -> (u32, u32, bool) {
    let (ends, next) = (model.i64(RANGES), model.i64(PROGRESS)[1] as usize);
    let from = if next == 0 { 0 } else { ends[next - 1] };
    (from as u32, ends[next] as u32, next + 1 == ends.len())
}

impl Learner for Isotonic {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        let feature = columns::feature_of(&facts.schema, "feature", &self.feature)?;
        let start = match self.increasing {
            Some(_) => self.after_direction(facts.rows),
            None => Phase::Rank,
        };
        let rises = self.increasing.map_or(2, i64::from);
        let mut model = Model::new();
        let integers = |values: Vec<i64>, role| Tensor {
            shape: vec![values.len()],
            values: Values::I64(values),
            role,
        };
        let width = facts.schema.features as i64;
        model.set(SHAPE, integers(vec![feature as i64, rises, width], Role::Weight));
        model.set(PROGRESS, integers(vec![start as i64, 0], Role::State));
        model.set(RANGES, integers(vec![i64::from(u32::MAX)], Role::State));
        for name in ["thresholds", "values"] {
            model.set(name, Tensor::zeros(Kind::F64, &[0], Role::Weight));
        }
        Pools::default().write(&mut model);
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        refusals::check_width(work.model.i64(SHAPE)[2] as usize, work.batch)?;
        let feature = feature(work.model);
        match phase(work.model) {
            Phase::Rank => {
                check(work.batch, feature)?;
                direction::count(work, feature);
            }
            Phase::Correlate => direction::correlate(work, feature),
            Phase::Count => {
                check(work.batch, feature)?;
                let counts = order::count_prefixes(work.batch, feature);
                work.outbox.emit(Block::counts("prefixes", counts));
            }
            Phase::Pool => {
                check(work.batch, feature)?;
                let (from, to, _) = range(work.model);
                work.outbox.emit(Block::rows("sums", order::sums(work.batch, feature, (from, to))));
            }
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let waiting = Outcome { iterations: Some(0), ..Outcome::default() };
        match phase(model) {
            Phase::Rank => {
                direction::rank(model, update)?;
                model.i64_mut(PROGRESS)[0] = Phase::Correlate as i64;
                Ok(waiting)
            }
            Phase::Correlate => {
                let rises = direction::decide(update.i64("correlation")) == Direction::Rising;
                direction::forget(model);
                model.i64_mut(SHAPE)[1] = i64::from(rises);
                model.i64_mut(PROGRESS)[0] = self.after_direction(moment.rows) as i64;
                Ok(waiting)
            }
            Phase::Count => {
                let ends = order::cut(update.i64("prefixes"), self.values_max);
                let shape = vec![ends.len()];
                let tensor = Tensor { shape, values: Values::I64(ends), role: Role::State };
                model.set(RANGES, tensor);
                model.i64_mut(PROGRESS)[0] = Phase::Pool as i64;
                Ok(waiting)
            }
            Phase::Pool => pool(model, update),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        refusals::check_width(work.model.i64(SHAPE)[2] as usize, work.batch)?;
        check(work.batch, feature(work.model))?;
        let mut sums = vec![0.0; 5];
        each(work.model, work.batch, |row, guess| {
            let weight = work.batch.table.weight(row);
            let truth = f64::from(work.batch.table.labels[row]);
            let error = guess - truth;
            let terms = [error * error, error.abs(), 1.0, truth, truth * truth];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
        });
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let weight = if sums[2] > 0.0 { sums[2] } else { 1.0 };
        let mean_square = sums[0] / weight;
        let spread = sums[4] / weight - (sums[3] / weight).powi(2);
        let mut metrics = BTreeMap::from([
            ("rmse".to_string(), mean_square.sqrt()),
            ("mae".to_string(), sums[1] / weight),
        ]);
        if spread > 0.0 {
            metrics.insert("r2".to_string(), 1.0 - mean_square / spread);
        }
        Grade { objective: mean_square, metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        refusals::check_width(model.i64(SHAPE)[2] as usize, batch)?;
        each(model, batch, |_, guess| out.push(guess));
        Ok(())
    }

    /// A sum of ramps, one between each two neighbouring thresholds.
    fn graph(&self, model: &Model) -> Option<Graph> {
        let (thresholds, values) = (model.f64("thresholds"), model.f64("values"));
        let first = *values.first()?;
        let pairs = thresholds.windows(2).zip(values.windows(2));
        let (mut starts, mut widths, mut slopes) = (vec![], vec![], vec![]);
        for (x, y) in pairs.filter(|(_, y)| y[0] != y[1]) {
            starts.push(x[0]);
            widths.push(x[1] - x[0]);
            slopes.push((y[1] - y[0]) / (x[1] - x[0]));
        }
        if starts.is_empty() {
            (starts, widths, slopes) = (vec![0.0], vec![0.0], vec![0.0]);
        }
        let ramps = starts.len();
        let mut graph = Graph::new();
        let starts = graph.constant("starts", &[ramps], starts);
        let widths = graph.constant("widths", &[ramps], widths);
        let slopes = graph.constant("slopes", &[ramps, 1], slopes);
        let lowest = graph.constant("first", &[1], vec![first]);
        let x = graph.node(Op::Columns(vec![feature(model)]), &[FEATURES]);
        let beyond = graph.node(Op::Sub, &[&x, &starts]);
        let beyond = graph.node(Op::Relu, &[&beyond]);
        let beyond = graph.node(Op::Min, &[&beyond, &widths]);
        let climbed = graph.node(Op::MatMul, &[&beyond, &slopes]);
        graph.node(Op::Add, &[&climbed, &lowest]);
        Some(graph)
    }
}

/// Pools a range's values; after the last range the function is known.
fn pool(model: &mut Model, update: &Update) -> Result<Outcome> {
    let (_, _, last) = range(model);
    let sign = if rises(model) { 1.0 } else { -1.0 };
    let mut pools = Pools::take(model);
    if let Some(rows) = update.rows("sums") {
        let sums = rows.values.as_f64().unwrap_or(&[]);
        for (&key, sums) in rows.index.iter().zip(sums.chunks_exact(2)) {
            pools.push(key, sums[0], sign * sums[1]);
        }
    }
    model.i64_mut(PROGRESS)[1] += 1;
    if !last {
        pools.write(model);
        return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
    }
    if pools.is_empty() {
        return Err(Fault::caller("no row has a weight above zero"));
    }
    let (thresholds, values) = pools.steps();
    let values: Vec<f64> = values.iter().map(|value| sign * value).collect();
    let shape = [thresholds.len()];
    model.set("thresholds", Tensor::of(&shape, thresholds, Role::Weight));
    model.set("values", Tensor::of(&shape, values, Role::Weight));
    Pools::default().write(model);
    Ok(Outcome { objective: None, done: true, iterations: Some(1) })
}

/// Refuses features and labels of rows that count and are not finite.
fn check(batch: &Batch<'_>, feature: usize) -> Result<()> {
    for slice in &batch.slices {
        for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
            let x = columns::number_at(batch.table, row, feature);
            let y = batch.table.labels.get(row).copied().unwrap_or(f32::NAN);
            if !x.is_finite() || !y.is_finite() {
                let row = refusals::global(slice, row);
                return Err(Fault::caller(format!(
                    "row {row} has the feature {x} and the label {y}, which must be finite"
                ))
                .at_feature(feature)
                .hint("leave such rows out"));
            }
        }
    }
    Ok(())
}

/// Calls `visit` with each row's number in the table and its prediction.
fn each(model: &Model, batch: &Batch<'_>, mut visit: impl FnMut(usize, f64)) {
    let (feature, thresholds, values) =
        (feature(model), model.f64("thresholds"), model.f64("values"));
    for row in batch.rows() {
        let x = f64::from(columns::number_at(batch.table, row, feature));
        visit(row, interpolate(thresholds, values, x));
    }
}

/// The function at x: constant beyond its ends, linear between thresholds.
fn interpolate(thresholds: &[f64], values: &[f64], x: f64) -> f64 {
    let above = thresholds.partition_point(|threshold| *threshold < x);
    match above {
        0 => values.first().copied().unwrap_or(0.0),
        above if above == thresholds.len() => values[above - 1],
        above if thresholds[above] == x => values[above],
        above => {
            let (x0, x1) = (thresholds[above - 1], thresholds[above]);
            let (y0, y1) = (values[above - 1], values[above]);
            y0 + (y1 - y0) * ((x - x0) / (x1 - x0))
        }
    }
}

#[cfg(test)]
mod tests;
