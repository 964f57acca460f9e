//! The first phases: a sample of the rows makes the bins, and sums of the labels say what scores begin with.

use super::feature_parallel;
use super::losses::Loss;
use super::ranking::{self, RELEVANCE_MAX};
use super::resident::{Part, parts};
use super::state::{Clock, Phase, Setup};
use crate::Work;
use crate::trees::columns::whole;
use crate::trees::descent::{DIGITS, Descent, LEVELS, key};
use crate::trees::fixed::{self, EXPONENTS};
use crate::trees::sample::Sample;
use crate::trees::store::{each_row, segments};
use crate::trees::tree;
use starlings_core::{Block, Fault, Model, Result, Role, Tensor, Update};
use starlings_data::Table;

/// Emits the sample, how large labels and weights are, and, for ranking, the groups.
pub(super) fn sample(setup: &Setup<'_>, work: &mut Work<'_>) -> Result<()> {
    let (rows, batch) = (work.moment.rows, work.batch);
    let width = work.model.i64("categorical").len();
    let sample = Sample::new(rows, width, work.moment.seed);
    work.outbox.emit(Block::counts("sample", sample.gather(batch)));
    let mut exponents = vec![0; 2 * EXPONENTS];
    for row in batch.rows() {
        let (label, weight) = (check_label(setup.loss, batch.table, row)?, batch.table.weight(row));
        fixed::count((f64::from(label) * weight) as f32, &mut exponents[..EXPONENTS]);
        fixed::count(weight as f32, &mut exponents[EXPONENTS..]);
    }
    work.outbox.emit(Block::counts("exponents", exponents));
    if setup.loss == Loss::LambdaRank {
        let mut queries = vec![0; rows as usize];
        let mut tables = batch.rows();
        each_row(&segments(batch), |_, global| {
            let row = tables.next().expect("as many rows as the segments have");
            queries[global as usize] =
                ranking::word(batch.table.groups[row], batch.table.labels[row]);
        });
        work.outbox.emit(Block::counts("queries", queries));
    }
    Ok(())
}

fn check_label(loss: Loss, table: &Table, row: usize) -> Result<f32> {
    let label = table.labels[row];
    let refuse = |what: &str, hint: &str| {
        Err(Fault::caller(format!("gradient-boosting: the label of a row is {label}, {what}"))
            .hint(hint.to_string()))
    };
    if !label.is_finite() {
        return refuse("not a finite number", "remove or mend such rows");
    }
    match loss {
        Loss::Poisson if label < 0.0 => refuse("not a count", "poisson wants labels of 0 or more"),
        Loss::LambdaRank if !(0.0..=RELEVANCE_MAX).contains(&label) || label.fract() != 0.0 => {
            refuse("not a grade", "lambdarank wants whole labels from 0 to 30")
        }
        Loss::LambdaRank if table.groups.is_empty() => Err(Fault::caller(
            "gradient-boosting: lambdarank orders the rows of groups, and there are none",
        )
        .hint("name the column of groups: [data] group")),
        _ => Ok(label),
    }
}

/// Makes the bins.
pub(super) fn apply_sample(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    rows: u64,
    seed: u64,
) {
    let categorical: Vec<bool> = model.i64("categorical").iter().map(|&is| is != 0).collect();
    let sample = Sample::new(rows, categorical.len(), seed);
    if !continues(model) {
        sample.columns(update.i64("sample"), &categorical, setup.options.bins).save(model);
    }
    let exponents = update.i64("exponents");
    let bounds = vec![fixed::bound(&exponents[..EXPONENTS]), fixed::bound(&exponents[EXPONENTS..])];
    model.set("label_bounds", Tensor::of(&[2], bounds, Role::State));
    if setup.loss == Loss::LambdaRank {
        model.set("queries", whole(update.i64("queries").to_vec(), Role::State));
    }
    model.set("descent", whole(vec![0; 2], Role::State));
}

/// Emits sums of labels and weights over the training rows, and for losses that begin with a quantile its digits.
pub(super) fn prior(setup: &Setup<'_>, work: &mut Work<'_>) -> Result<()> {
    let (model, batch, rows) = (work.model, work.batch, work.moment.rows);
    let segments = segments(batch);
    let tables: Vec<usize> = batch.rows().collect();
    let weigh = |row: usize| batch.table.weight(tables[row]);
    let parts = parts(setup, model, (&segments, &weigh), work.moment.seed);
    let scales = model.f64("label_bounds").iter().map(|&bound| fixed::scale(bound, rows));
    let [labels, weights] = [0, 1].map(|at| scales.clone().nth(at).expect("both are there"));
    let level = Clock::load(model).level;
    let descent = Descent::load(model.i64("descent"))[0];
    let mut digits = vec![0; if setup.loss.quantile().is_some() { DIGITS } else { 0 }];
    let mut sums = vec![0; 3 + setup.outputs];
    for (row, part) in batch.rows().zip(parts) {
        if part != Part::Train {
            continue;
        }
        let (label, weight) = (batch.table.labels[row], batch.table.weight(row));
        let grid = fixed::grid(weight, weights);
        sums[0] += fixed::grid(f64::from(label) * weight, labels);
        sums[1] += grid;
        sums[2] += 1;
        if setup.loss == Loss::Softmax {
            sums[3 + label as usize] += grid;
        }
        if !digits.is_empty() {
            descent.count(level, key(label), grid, &mut digits);
        }
    }
    work.outbox.emit(Block::counts("prior", sums));
    work.outbox.emit(Block::counts("digits", digits));
    Ok(())
}

/// Says what scores begin with, or takes the next digit of it.
pub(super) fn apply_prior(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    clock: &mut Clock,
    rows: u64,
) -> Result<()> {
    let sums = update.i64("prior");
    if sums[2] == 0 {
        return Err(Fault::caller("gradient-boosting: no row is left to learn from")
            .hint("all rows weigh nothing or are held out"));
    }
    clock.rows = sums[2] as u64;
    let [labels, weights] = [0, 1].map(|at| fixed::scale(model.f64("label_bounds")[at], rows));
    let weight = sums[1] as f64 / weights;
    if let Some(alpha) = setup.loss.quantile() {
        let mut descent = Descent::load(model.i64("descent"));
        descent[0].descend(clock.level, alpha, update.i64("digits"));
        model.set("descent", whole(Descent::save(&descent), Role::State));
        clock.level += 1;
        if clock.level < LEVELS {
            return Ok(());
        }
        clock.level = 0;
        begin_with(model, |_| f64::from(descent[0].found()));
    } else if setup.loss == Loss::Softmax {
        let share = |class: usize| sums[3 + class] as f64 / sums[1].max(1) as f64;
        begin_with(model, |class| setup.loss.start(share(class)));
    } else {
        begin_with(model, |_| setup.loss.start(sums[0] as f64 / labels / weight));
    }
    clock.phase = if feature_parallel::deals(setup) { Phase::Gather } else { first_phase(setup) };
    Ok(())
}

/// Sets what scores begin with, unless an earlier model has said it.
fn begin_with(model: &mut Model, score: impl Fn(usize) -> f64) {
    if !continues(model) {
        model.f64_mut("base").iter_mut().enumerate().for_each(|(at, base)| *base = score(at));
    }
}

/// Whether the first trees are those of an earlier model, so that bins and first scores are too.
fn continues(model: &Model) -> bool {
    model.i64("continued")[0] != 0
}

/// What an earlier model is made of.
const EARLIER: [&str; 7] =
    ["base", "bins", "bin_starts", "categorical", "nodes", "sets", "tree_starts"];

/// Takes over the trees of an earlier model, with its bins and first scores. As many trees as the parameters say come
/// after them.
pub(super) fn go_on(model: &mut Model, earlier: &Model) -> Result<()> {
    let refuse = |what: &str| {
        Err(Fault::caller(format!("gradient-boosting: the earlier model {what}")).hint(
            "name a model that gradient-boosting trained on the same columns, with the same loss",
        ))
    };
    if EARLIER.iter().any(|name| earlier.get(name).is_none()) {
        return refuse("lacks its trees");
    }
    if earlier.i64("categorical") != model.i64("categorical") {
        return refuse("has other columns");
    }
    let outputs = model.f64("base").len();
    if earlier.f64("base").len() != outputs {
        return refuse("tells other classes apart");
    }
    for name in EARLIER {
        model.set(name, earlier.get(name).cloned().expect("looked for above"));
    }
    let mut clock = Clock::load(model);
    clock.iterations += tree::count(model) / outputs;
    clock.save(model);
    model.i64_mut("continued")[0] = 1;
    Ok(())
}

/// The phase with which an iteration begins.
pub(super) fn first_phase(setup: &Setup<'_>) -> Phase {
    if setup.loss == Loss::LambdaRank { Phase::Scores } else { Phase::Scale }
}
