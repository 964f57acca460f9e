//! Laws of learners, checked with the reference driver on small data made here: the number of workers does
//! not matter, the same run gives the same bits, a run can be resumed anywhere, an empty batch has the shape
//! of a full one, owners may apply their rows alone, sums may come late, and predictions have the promised form.

use super::learner_data::{Case, cases};
use super::learner_late::sums_may_come_late;
use super::{Verdict, ensure};
use crate::drive::{Drive, Driven, Run, drive};
use crate::graph;
use starlings_core::{
    Ability, Blame, Block, Body, Fault, Kind, Model, Role, Rows, Shard, Step, Update, Values,
};
use starlings_data::{Batch, Dealer, Holding, Row, Table};
use starlings_learn::{
    Appetite, Cells, Learner, Memory, Moment, NoWires, Outbox, Place, Rebuilds, Work,
};
use std::sync::Arc;

/// Few passes over few rows, in batches that do not divide them.
const OPTIONS: Drive = Drive { workers: 1, shards: 16, seed: 7, batch: 10, epochs: Some(3) };

/// How far objectives of exact learners may differ, as a share of themselves.
const EXACT: f64 = 1e-9;

/// Runs a learner through all laws on all data of its task.
///
/// # Errors
/// The broken law.
pub fn check(learner: &dyn Learner) -> Verdict {
    check_on(learner, &|_| true)
}

/// The same on data that `prepare` has changed first, for learners that want counts or times; it says whether the
/// data are such that the learner has something to learn.
///
/// # Errors
/// The broken law.
pub fn check_on(learner: &dyn Learner, prepare: &dyn Fn(&mut Table) -> bool) -> Verdict {
    check_within(learner, prepare, EXACT)
}

/// The same for learners that compute in f32: objectives may differ by this share of themselves where sums are made
/// in another order. Bits must be equal wherever the order is the same.
///
/// # Errors
/// The broken law.
pub fn check_within(
    learner: &dyn Learner,
    prepare: &dyn Fn(&mut Table) -> bool,
    tolerance: f64,
) -> Verdict {
    for case in cases(learner) {
        let mut table = (*case.table).clone();
        if !prepare(&mut table) {
            continue;
        }
        let case = Case { table: Arc::new(table), ..case };
        check_case(learner, &case, tolerance).map_err(|law| format!("{}: {law}", case.name))?;
    }
    Ok(())
}

fn check_case(learner: &dyn Learner, case: &Case, tolerance: f64) -> Verdict {
    let alone = match train(learner, case, 1) {
        Ok(driven) => driven,
        Err(fault) => {
            ensure!(!case.must_learn, "refused: {fault}");
            ensure!(fault.blame() == Blame::Caller, "refused with the wrong blame: {fault}");
            ensure!(train(learner, case, 3).is_err(), "one worker refuses, three do not: {fault}");
            return Ok(());
        }
    };
    workers_do_not_matter(learner, case, &alone, tolerance)?;
    runs_repeat(learner, case)?;
    runs_resume(learner, case, tolerance)?;
    steps_can_be_taken_again(learner, case)?;
    predictions_have_the_promised_form(learner, case, &alone.model)?;
    rows_are_predicted_one_by_one(learner, case, &alone.model, tolerance)?;
    the_graph_computes_the_predictions(learner, case, &alone.model, tolerance)?;
    if learner.weighs() {
        weights_count(learner, case, &alone, tolerance)?;
    }
    for steps in [0, alone.steps / 2] {
        let scene = Scene::after(learner, case, steps).map_err(|fault| fault.to_string())?;
        empty_batches_have_the_shape_of_full_ones(learner, case, &scene)?;
        if learner.sums_late() {
            let update = scene.contribution(learner, &scene.dealer.everything())?;
            sums_may_come_late(learner, (&scene.model, &update), &scene.moment)?;
        }
        if learner.gives().contains(&Ability::RowWise) {
            owners_apply_their_rows_alone(learner, case, &scene)?;
        }
    }
    Ok(())
}

fn train(learner: &dyn Learner, case: &Case, workers: u32) -> starlings_core::Result<Driven> {
    let options = Drive { workers, ..OPTIONS };
    let facts = options.facts(&case.schema, case.table.rows() as u64);
    drive(learner, &facts, &case.holding(OPTIONS.shards), &options)
}

fn workers_do_not_matter(
    learner: &dyn Learner,
    case: &Case,
    alone: &Driven,
    tolerance: f64,
) -> Verdict {
    let expected = alone.grade.objective;
    ensure!(expected.is_finite(), "the objective is {expected}");
    for workers in [2, 3, 4] {
        let driven = train(learner, case, workers).map_err(|fault| fault.to_string())?;
        let found = driven.grade.objective;
        let off = (found - expected).abs() / expected.abs().max(1e-12);
        ensure!(off <= tolerance, "{workers} workers reach {found}, one reaches {expected}");
        ensure!(
            driven.steps == alone.steps,
            "{workers} workers take {} steps, one takes {}",
            driven.steps,
            alone.steps
        );
    }
    Ok(())
}

fn runs_repeat(learner: &dyn Learner, case: &Case) -> Verdict {
    let digest = || train(learner, case, 3).map(|driven| driven.model.digest());
    let (first, second) = (digest(), digest());
    let same = matches!((&first, &second), (Ok(first), Ok(second)) if first == second);
    ensure!(same, "the same run twice gives different bits");
    Ok(())
}

fn runs_resume(learner: &dyn Learner, case: &Case, tolerance: f64) -> Verdict {
    let whole = train(learner, case, 2).map_err(|fault| fault.to_string())?;
    let cuts = [1, whole.steps / 2, whole.steps.saturating_sub(1)];
    for steps in cuts.into_iter().filter(|&steps| steps < whole.steps) {
        let onto =
            |workers| resumed(learner, case, (steps, workers)).map_err(|fault| fault.to_string());
        let resumed = onto(2)?;
        let same = resumed.model.digest() == whole.model.digest()
            && resumed.memory == whole.memory
            && resumed.steps == whole.steps;
        ensure!(same, "a run resumed after step {steps} of {} ends elsewhere", whole.steps);
        // What is remembered goes with its shard: shards may move to others at any step.
        let (elsewhere, wanted) = (onto(3)?, whole.grade.objective);
        let found = elsewhere.grade.objective;
        let off = (found - wanted).abs() / wanted.abs().max(1e-12);
        ensure!(
            off <= tolerance && elsewhere.steps == whole.steps,
            "resumed after step {steps} on three workers {} steps end at {found}, on two {} at {wanted}",
            elsewhere.steps,
            whole.steps
        );
    }
    Ok(())
}

fn resumed(
    learner: &dyn Learner,
    case: &Case,
    (steps, workers): (u64, u32),
) -> starlings_core::Result<Driven> {
    let options = Drive { workers: 2, ..OPTIONS };
    let holding = case.holding(options.shards);
    let facts = options.facts(&case.schema, case.table.rows() as u64);
    let mut run = Run::start(learner, &facts, &holding, &options)?;
    for _ in 0..steps {
        run.step()?;
    }
    let (steps, model, memory) = run.checkpoint();
    let options = Drive { workers, ..options };
    let mut run = Run::resume(learner, &holding, &options, (steps, &model, &memory));
    while run.step()? {}
    run.finish()
}

/// Laws `Again` and `Memory`: a step that was begun and given up leaves no trace, and what is remembered of rows is made
/// again from rows and model as the learner promises. State may count work that was done twice; weights may not.
fn steps_can_be_taken_again(learner: &dyn Learner, case: &Case) -> Verdict {
    let told = |fault: Fault| fault.to_string();
    let whole = train(learner, case, 2).map_err(told)?;
    let begun = stumbling(learner, case, OPTIONS, |_| false).map_err(told)?;
    ensure_alike(&whole, &begun, "begun twice")?;
    match learner.rebuilds() {
        Rebuilds::Never => Ok(()),
        Rebuilds::Exactly => {
            let forgotten = stumbling(learner, case, OPTIONS, |_| true).map_err(told)?;
            ensure_alike(&whole, &forgotten, "forgotten by one worker")
        }
        Rebuilds::Nearly => {
            let options = Drive { epochs: None, ..OPTIONS };
            let whole = stumbling(learner, case, options, |_| false).map_err(told)?;
            let middle = whole.steps / 2;
            let forgotten =
                stumbling(learner, case, options, |step| step == middle).map_err(told)?;
            let (wanted, found) = (whole.grade.objective, forgotten.grade.objective);
            // An optimum of zero is approached for ever.
            ensure!(
                (wanted - found).abs() <= 1e-4 * wanted.abs().max(1e-4),
                "with step {middle} forgotten by one worker training ends at {found}, without at {wanted}"
            );
            Ok(())
        }
    }
}

fn ensure_alike(whole: &Driven, other: &Driven, why: &str) -> Verdict {
    let weights = |run: &Driven| -> Vec<_> {
        let weights = run.model.iter().filter(|(_, tensor)| tensor.role == Role::Weight);
        weights.map(|(name, tensor)| (name.to_string(), tensor.clone())).collect()
    };
    ensure!(
        weights(whole) == weights(other) && whole.steps == other.steps,
        "with steps {why} {} steps end at {}, without {} at {}",
        other.steps,
        other.grade.objective,
        whole.steps,
        whole.grade.objective
    );
    Ok(())
}

fn stumbling(
    learner: &dyn Learner,
    case: &Case,
    options: Drive,
    forgets: impl Fn(u64) -> bool,
) -> starlings_core::Result<Driven> {
    let options = Drive { workers: 2, ..options };
    let facts = options.facts(&case.schema, case.table.rows() as u64);
    let mut run = Run::start(learner, &facts, &case.holding(options.shards), &options)?;
    let mut step = 0;
    while run.stumble(forgets(step))? {
        step += 1;
    }
    run.finish()
}

fn predictions_have_the_promised_form(
    learner: &dyn Learner,
    case: &Case,
    model: &Model,
) -> Verdict {
    let dealer = Dealer::new(case.holding(OPTIONS.shards), OPTIONS.seed, OPTIONS.batch);
    let mut out = Vec::new();
    learner.predict(model, &dealer.everything(), &mut out).map_err(|fault| fault.to_string())?;
    let wanted = case.table.rows() * learner.outputs(model);
    ensure!(out.len() == wanted, "{} predictions instead of {wanted}", out.len());
    ensure!(out.iter().all(|number| number.is_finite()), "a prediction is not finite");
    Ok(())
}

/// What is said of a row does not depend on the rows beside it: data may be predicted piece by piece.
fn rows_are_predicted_one_by_one(
    learner: &dyn Learner,
    case: &Case,
    model: &Model,
    tolerance: f64,
) -> Verdict {
    let said = |shards: &[Shard]| -> Result<Vec<f64>, String> {
        let holding = Holding::whole(case.table.clone(), 3).only(shards);
        let dealer = Dealer::new(holding, OPTIONS.seed, OPTIONS.batch);
        let mut out = Vec::new();
        let said = learner.predict(model, &dealer.everything(), &mut out);
        said.map(|()| out).map_err(|fault| fault.to_string())
    };
    let together = said(&[Shard(0), Shard(1), Shard(2)])?;
    let apart = [said(&[Shard(0)])?, said(&[Shard(1)])?, said(&[Shard(2)])?].concat();
    ensure!(together.len() == apart.len(), "{} and {} answers", together.len(), apart.len());
    for (at, (one, other)) in together.iter().zip(&apart).enumerate() {
        let off = (one - other).abs() / one.abs().max(1.0);
        ensure!(
            off <= tolerance.max(1e-9),
            "number {at} is {one} among all rows, and {other} among a third of them"
        );
    }
    Ok(())
}

fn the_graph_computes_the_predictions(
    learner: &dyn Learner,
    case: &Case,
    model: &Model,
    tolerance: f64,
) -> Verdict {
    let Some(graph) = learner.graph(model) else { return Ok(()) };
    let dealer = Dealer::new(case.holding(OPTIONS.shards), OPTIONS.seed, OPTIONS.batch);
    let mut wanted = Vec::new();
    learner.predict(model, &dealer.everything(), &mut wanted).map_err(|fault| fault.to_string())?;
    let width = case.table.width();
    let mut values = vec![0.0; case.table.rows() * width];
    for (row, into) in values.chunks_exact_mut(width).enumerate() {
        match case.table.row(row) {
            Row::Dense(x) => into.iter_mut().zip(x).for_each(|(to, x)| *to = f64::from(*x)),
            Row::Sparse(columns, x) => {
                columns.iter().zip(x).for_each(|(c, x)| into[*c as usize] = f64::from(*x));
            }
        }
    }
    let found = graph::evaluate(&graph, graph::Matrix { width, values })?;
    ensure!(
        (found.width, found.values.len()) == (learner.outputs(model), wanted.len()),
        "the graph gives {} numbers a row, {} are promised",
        found.width,
        learner.outputs(model)
    );
    for (at, (found, wanted)) in found.values.iter().zip(&wanted).enumerate() {
        let off = (found - wanted).abs() / wanted.abs().max(1.0);
        ensure!(
            off <= tolerance.max(1e-6),
            "number {at} of the graph is {found}, of predict {wanted}"
        );
    }
    Ok(())
}

/// Weights of one change nothing, and what a row of weight zero says is of no account.
fn weights_count(learner: &dyn Learner, case: &Case, plain: &Driven, tolerance: f64) -> Verdict {
    let with = |change: &dyn Fn(&mut Table)| -> Result<Driven, String> {
        let mut table = (*case.table).clone();
        change(&mut table);
        let weighted = Case { table: Arc::new(table), schema: case.schema.clone(), ..*case };
        train(learner, &weighted, 2).map_err(|fault| fault.to_string())
    };
    let rows = case.table.rows();
    let ones = with(&|table| table.weights = vec![1.0; rows])?;
    let (found, wanted) = (ones.grade.objective, plain.grade.objective);
    let off = (found - wanted).abs() / wanted.abs().max(1e-12);
    ensure!(off <= tolerance, "with weights of one the objective is {found}, without {wanted}");
    if rows < 20 || case.table.labels.is_empty() {
        return Ok(());
    }
    let mute = |table: &mut Table| {
        table.weights = (0..rows).map(|row| f32::from(u8::from(row % 7 != 5))).collect();
    };
    let told = with(&|table| mute(table))?;
    let lied = with(&|table| {
        mute(table);
        let rows: Vec<usize> = (0..rows).filter(|row| row % 7 == 5).collect();
        rows.into_iter().for_each(|row| table.labels[row] = table.labels[row - 1]);
    })?;
    let (told, lied) = (told.grade.objective, lied.grade.objective);
    let off = (told - lied).abs() / told.abs().max(1e-12);
    ensure!(
        off <= tolerance,
        "labels of rows that weigh nothing move the objective {told} to {lied}"
    );
    let off = (told - wanted).abs() / told.abs().max(1e-12);
    ensure!(off > tolerance, "muting every seventh row changes nothing");
    Ok(())
}

/// A moment in training at which one worker holds all rows.
struct Scene {
    moment: Moment,
    model: Model,
    memory: Memory,
    dealer: Dealer,
}

impl Scene {
    fn after(learner: &dyn Learner, case: &Case, steps: u64) -> starlings_core::Result<Scene> {
        let holding = case.holding(OPTIONS.shards);
        let facts = OPTIONS.facts(&case.schema, case.table.rows() as u64);
        let mut run = Run::start(learner, &facts, &holding, &OPTIONS)?;
        for _ in 0..steps {
            run.step()?;
        }
        let (_, model, mut memory) = run.checkpoint();
        let dealer = Dealer::new(holding, OPTIONS.seed, OPTIONS.batch);
        let pass = match learner.appetite() {
            Appetite::Batches => steps / dealer.steps_a_pass(),
            Appetite::Passes => 0,
        };
        let rows = dealer.everything().rows_step;
        for slice in &dealer.everything().slices {
            if !memory.knows(slice.shard) {
                let mut cells = Cells::new();
                learner.adopt(&model, &dealer.everything(), slice, &mut cells);
                memory.insert(slice.shard, cells);
            }
        }
        let moment = Moment { step: Step(steps), pass, seed: OPTIONS.seed, rows };
        Ok(Scene { moment, model, memory, dealer })
    }

    fn contribution(&self, learner: &dyn Learner, batch: &Batch<'_>) -> Result<Update, String> {
        let mut outbox = Outbox::new();
        let work = &mut Work {
            moment: self.moment,
            place: Place::WHOLE,
            model: &self.model,
            batch,
            memory: &mut self.memory.clone(),
            wires: &mut NoWires,
            outbox: &mut outbox,
        };
        learner.contribute(work).map_err(|fault| fault.to_string())?;
        Ok(outbox.take())
    }
}

fn empty_batches_have_the_shape_of_full_ones(
    learner: &dyn Learner,
    case: &Case,
    scene: &Scene,
) -> Verdict {
    let full = scene.contribution(learner, &scene.dealer.everything())?;
    let batch = Batch { table: &case.table, slices: vec![], rows_step: scene.moment.rows };
    let empty = scene.contribution(learner, &batch)?;
    let shapes = |update: &Update| update.blocks.iter().map(shape).collect::<Vec<_>>();
    let (full, empty) = (shapes(&full), shapes(&empty));
    ensure!(full == empty, "a full batch emits {full:?}, an empty one {empty:?}");
    Ok(())
}

/// Name, kind and the numbers that must agree for blocks to be summed.
fn shape(block: &Block) -> (String, Kind, Vec<usize>) {
    let (kind, lengths) = match &block.body {
        Body::Dense(values) => (values.kind(), vec![values.len()]),
        Body::Rows(rows) => (rows.values.kind(), vec![rows.total as usize, rows.width as usize]),
        Body::Factors(factors) => (Kind::F64, vec![factors.rows as usize, factors.width as usize]),
    };
    (block.name.clone(), kind, lengths)
}

fn owners_apply_their_rows_alone(learner: &dyn Learner, case: &Case, scene: &Scene) -> Verdict {
    let mut dealer = Dealer::new(case.holding(OPTIONS.shards), OPTIONS.seed, OPTIONS.batch);
    let batch = dealer.deal(scene.moment.pass, 0);
    let update = scene.contribution(learner, &batch)?;
    let apply = |update: &Update| -> Result<Model, String> {
        let mut model = scene.model.clone();
        learner.apply(&mut model, update, &scene.moment).map_err(|fault| fault.to_string())?;
        Ok(model)
    };
    let whole = apply(&update)?;
    for (above, below) in [(0.0, 0.4), (0.4, 1.0), (0.7, 0.7)] {
        let cut = |rows: usize| {
            let at = |share: f64| (share * rows as f64).round() as usize;
            at(above)..at(below)
        };
        let part = Update {
            blocks: update.blocks.iter().map(|b| restricted(b, &scene.model, &cut)).collect(),
        };
        let owner = apply(&part)?;
        for block in &update.blocks {
            let Some(before) = scene.model.get(&block.name) else { continue };
            let name = &block.name;
            let (rows, width) = (cut(before.rows()), before.width());
            let (whole, owner) = (whole.get(name), owner.get(name));
            let (whole, owner) = whole.zip(owner).ok_or(format!("'{name}' went away"))?;
            for row in 0..before.rows() {
                let of = |values: &Values| values.slice(row * width, (row + 1) * width);
                let wanted = if rows.contains(&row) { whole } else { before };
                ensure!(
                    of(&owner.values) == of(&wanted.values),
                    "the owner of rows {rows:?} of '{name}' gives row {row} other bits"
                );
            }
        }
        only_named_rows_change(&scene.model, &part, &owner)?;
    }
    Ok(())
}

/// Backups of owners get the rows that an update names, in its tensor and in the state beside it that is keyed by the same
/// word: nothing else may change.
fn only_named_rows_change(before: &Model, update: &Update, after: &Model) -> Verdict {
    fn word(name: &str) -> Option<&str> {
        name.split('.').next()
    }
    for (name, tensor) in before.iter() {
        let named = |row: usize| {
            update.blocks.iter().any(|block| match &block.body {
                Body::Rows(rows) => {
                    word(&block.name) == word(name)
                        && rows.total as usize == tensor.rows()
                        && rows.index.binary_search(&(row as u32)).is_ok()
                }
                Body::Dense(_) | Body::Factors(_) => false,
            })
        };
        let after = after.get(name).ok_or(format!("'{name}' went away"))?;
        let width = tensor.width();
        for row in (0..tensor.rows()).filter(|row| !named(*row)) {
            let of = |values: &Values| values.slice(row * width, (row + 1) * width);
            ensure!(
                of(&after.values) == of(&tensor.values),
                "row {row} of '{name}' changes, and the update does not name it"
            );
        }
    }
    let grown = after.iter().find(|(name, _)| before.get(name).is_none());
    ensure!(grown.is_none(), "'{}' came in a step, and has no owner", grown.map_or("", |it| it.0));
    Ok(())
}

/// The block with only some rows of the tensor it changes; statistics stay whole.
fn restricted(
    block: &Block,
    model: &Model,
    cut: &dyn Fn(usize) -> std::ops::Range<usize>,
) -> Block {
    let Some(tensor) = model.get(&block.name) else { return block.clone() };
    let range = cut(tensor.rows());
    let (from, to, width) = (range.start, range.end, tensor.width());
    let rows = match &block.body {
        Body::Rows(rows) => rows.range(from as u32, to as u32),
        Body::Dense(values) => Rows {
            total: tensor.rows() as u32,
            width: width as u32,
            index: (from as u32..to as u32).collect(),
            values: values.slice(from * width, to * width),
        },
        Body::Factors(_) => unreachable!("nobody asked for factors"),
    };
    Block::rows(block.name.clone(), rows)
}

impl Case {
    fn holding(&self, shards: u32) -> Holding {
        Holding::whole(Arc::clone(&self.table), shards)
    }
}
