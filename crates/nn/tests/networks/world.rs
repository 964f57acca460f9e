//! What these tests stand on: learners by name, tables made here, and one step of one worker.

use starlings_core::{Model, Params, Result, Shard, Step, Update};
use starlings_data::{Batch, Encoding, Features, Picked, Schema, Slice, Table, Target};
use starlings_learn::{Facts, Learner, Memory, Moment, NoWires, Outbox, Place, Work};
use starlings_nn::NETWORKS;

/// A network by name, with parameters as in a job file.
pub(crate) fn network(name: &str, settings: &str) -> Result<Box<dyn Learner>> {
    let entry = NETWORKS.iter().find(|entry| entry.name == name).expect("in the catalogue");
    let params: Params = entry.check("learner", &settings.parse().unwrap())?;
    (entry.build)(&params)
}

pub(crate) fn table(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Table {
    Table::new(Features::Dense { width, values }, labels)
}

/// What is known of a table with so many classes; 1 is numbers, 0 is no labels.
pub(crate) fn facts(table: &Table, outputs: usize) -> Facts {
    let target = match outputs {
        0 => Target::None,
        1 => Target::Number,
        classes => Target::Classes((0..classes).map(|class| class.to_string()).collect()),
    };
    let schema = Schema {
        columns: vec![],
        encoding: Encoding::OneHot,
        features: table.width(),
        target,
        label: None,
    };
    Facts {
        rows: table.rows() as u64,
        schema,
        shards: 1,
        seed: 3,
        epochs: Some(2),
        steps: None,
        batch: 32,
    }
}

/// All rows, in these shares.
pub(crate) fn batch<'a>(table: &'a Table, shares: &[usize]) -> Batch<'a> {
    let mut start = 0;
    let slices = shares.iter().enumerate().map(|(shard, &rows)| {
        let slice = Slice {
            shard: Shard(shard as u32),
            start,
            origin: start as u64,
            picked: Picked::All(rows),
        };
        start += rows;
        slice
    });
    Batch { slices: slices.collect(), table, rows_step: table.rows() as u64 }
}

pub(crate) fn moment(rows: u64) -> Moment {
    Moment { step: Step(0), pass: 0, seed: 3, rows }
}

/// What one worker contributes.
pub(crate) fn contribution(
    learner: &dyn Learner,
    model: &Model,
    batch: &Batch<'_>,
) -> Result<Update> {
    contribution_at(learner, model, batch, moment(batch.rows_step))
}

/// The same at another moment.
pub(crate) fn contribution_at(
    learner: &dyn Learner,
    model: &Model,
    batch: &Batch<'_>,
    moment: Moment,
) -> Result<Update> {
    let mut outbox = Outbox::new();
    learner.contribute(&mut Work {
        moment,
        place: Place::WHOLE,
        model,
        batch,
        memory: &mut Memory::new(),
        wires: &mut NoWires,
        outbox: &mut outbox,
    })?;
    Ok(outbox.take())
}

/// The numbers of a dense f32 block.
pub(crate) fn f32s<'a>(update: &'a Update, name: &str) -> &'a [f32] {
    use starlings_core::{Body, Values};
    match update.get(name).map(|block| &block.body) {
        Some(Body::Dense(Values::F32(values))) => values,
        _ => panic!("no dense f32 block '{name}'"),
    }
}
