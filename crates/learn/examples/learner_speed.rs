//! How fast a learner of the catalogue is, with one worker and with two, on the rows of a file.
//!
//! `cargo run --release -p starlings-learn --example learner_speed NAME 'key = value …' FILE.npy`: the file is a matrix of
//! little-endian f32, so that other programs can be measured on the same rows. For learners without labels.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use starlings_core::{Entry, Fault, Model, Result, Shard, Step, Update};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{
    Cells, Facts, LEARNERS, Learner, Memory, Moment, NoWires, Outbox, Outcome, Place, Work,
};
use std::sync::Arc;
use std::time::Instant;

const SHARDS: u32 = 16;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, params, path] = &arguments[..] else {
        return Err(Fault::caller("usage: learner_speed NAME 'key = value' FILE.npy"));
    };
    let table = read_npy(path)?;
    let (rows, features) = (table.rows() as u64, table.width());
    let entry = Entry::find("learner", LEARNERS, name)?;
    let given = params.parse().map_err(|error| Fault::caller(format!("{params}: {error}")))?;
    let learner = (entry.build)(&entry.check("learner", &given)?)?;
    let (encoding, target) = (Encoding::OneHot, Target::None);
    let schema = Schema { columns: Vec::new(), encoding, features, target, label: None };
    let facts =
        Facts { rows, schema, shards: SHARDS, seed: 1, epochs: None, steps: None, batch: 1 };
    let holding = Holding::whole(Arc::new(table), SHARDS);
    println!("{name} on {rows} rows x {features} features");
    for workers in [1, 2] {
        let mut model = learner.init(&facts, Place::WHOLE)?;
        train(&*learner, &mut model, &holding, workers)?;
    }
    Ok(())
}

struct Worker {
    dealer: Dealer,
    memory: Memory,
}

/// Trains, and says how long all steps took, and those that are iterations.
fn train(learner: &dyn Learner, model: &mut Model, holding: &Holding, count: u32) -> Result<()> {
    let mut workers: Vec<Worker> = (0..count)
        .map(|worker| {
            let mine: Vec<Shard> = (0..SHARDS).filter(|s| s % count == worker).map(Shard).collect();
            Worker { dealer: Dealer::new(holding.only(&mine), 1, 1), memory: Memory::new() }
        })
        .collect();
    let start = Instant::now();
    let (mut step, mut iterating, mut outcome) = (0, 0.0, Outcome::default());
    while !outcome.done {
        let begun = Instant::now();
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows: holding.rows_total };
        let shared = &*model;
        let updates = std::thread::scope(|scope| -> Result<Vec<Update>> {
            let running: Vec<_> = workers
                .iter_mut()
                .map(|worker| scope.spawn(move || contribute(learner, shared, worker, moment)))
                .collect();
            let joined = running.into_iter().map(|thread| thread.join().expect("no panic"));
            joined.collect()
        })?;
        let mut updates = updates.into_iter();
        let mut sum = updates.next().expect("at least one worker");
        for update in updates {
            sum.fold(&update).map_err(|error| Fault::machine(error.to_string()))?;
        }
        let before = outcome.iterations;
        outcome = learner.apply(model, &sum, &moment)?;
        if outcome.iterations.unwrap_or(0) > before.unwrap_or(0) {
            iterating += begun.elapsed().as_secs_f64();
        }
        step += 1;
    }
    let iterations = outcome.iterations.unwrap_or(0).max(1);
    println!(
        "{count} worker(s): {:.3} s for {step} steps; {iterations} iterations of {:.4} s; objective {:?}",
        start.elapsed().as_secs_f64(),
        iterating / iterations as f64,
        outcome.objective
    );
    Ok(())
}

fn contribute(
    learner: &dyn Learner,
    model: &Model,
    worker: &mut Worker,
    moment: Moment,
) -> Result<Update> {
    let mut outbox = Outbox::new();
    let batch = worker.dealer.everything();
    for slice in &batch.slices {
        if !worker.memory.knows(slice.shard) {
            let mut cells = Cells::new();
            learner.adopt(model, &batch, slice, &mut cells);
            worker.memory.insert(slice.shard, cells);
        }
    }
    learner.contribute(&mut Work {
        moment,
        place: Place::WHOLE,
        model,
        batch: &batch,
        memory: &mut worker.memory,
        wires: &mut NoWires,
        outbox: &mut outbox,
    })?;
    Ok(outbox.take())
}

/// A matrix of f32 in NumPy's format, version 1.
fn read_npy(path: &str) -> Result<Table> {
    let bytes = std::fs::read(path)?;
    let bad = || Fault::caller(format!("{path} is not a matrix of little-endian f32"));
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..10 + length]).map_err(|_| bad())?;
    if !header.contains("'<f4'") || header.contains("'fortran_order': True") {
        return Err(bad());
    }
    let shape =
        header.split_once('(').and_then(|(_, rest)| rest.split_once(')')).ok_or_else(bad)?.0;
    let width =
        shape.split(',').nth(1).and_then(|text| text.trim().parse().ok()).ok_or_else(bad)?;
    let numbers = bytes[10 + length..].as_chunks::<4>().0;
    let values = numbers.iter().map(|four| f32::from_le_bytes(*four)).collect();
    Ok(Table::new(Features::Dense { width, values }, Vec::new()))
}
