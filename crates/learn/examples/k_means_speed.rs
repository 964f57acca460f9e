//! How fast an iteration of k-means is, with one worker and with two, on a million rows of 32 features and
//! 100 centres that start at the first rows.
//!
//! `cargo run --release -p starlings-learn --example k_means_speed [FILE.npy [START.npy]]`: the file is a matrix of
//! little-endian f32, so that other programs can be measured on the same rows; without it rows are drawn. Each of the
//! algorithms that give Lloyd's clusters is run, and says how many distances it computed.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use starlings_core::{Fault, Model, Result, Rng, Shard, Step, Update};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::k_means::{Algorithm, KMeans, Seeding};
use starlings_learn::{Facts, Learner, Memory, Moment, NoWires, Outbox, Outcome, Place, Work};
use std::sync::Arc;
use std::time::Instant;

const SHARDS: u32 = 16;
const ITERATIONS: u64 = 20;
const CLUSTERS: usize = 100;

fn main() -> Result<()> {
    let table = match std::env::args().nth(1) {
        Some(path) => read_npy(&path)?,
        None => draw(1_000_000, 32),
    };
    let (rows, width) = (table.rows() as u64, table.width());
    let holding = Holding::whole(Arc::new(table), SHARDS);
    let seeding = match std::env::args().nth(2) {
        Some(path) => match read_npy(&path)?.features {
            Features::Dense { values, .. } => {
                Seeding::Given(values.iter().map(|&value| f64::from(value)).collect())
            }
            Features::Sparse { .. } => return Err(Fault::caller("the start is a matrix")),
        },
        None => Seeding::First,
    };
    let schema = Schema {
        columns: Vec::new(),
        encoding: Encoding::OneHot,
        features: width,
        target: Target::None,
        label: None,
    };
    let facts =
        Facts { rows, schema, shards: SHARDS, seed: 1, epochs: None, steps: None, batch: 1 };
    println!("{rows} rows x {width} features, {CLUSTERS} centres");
    for algorithm in [Algorithm::Lloyd, Algorithm::Hamerly, Algorithm::Elkan] {
        let (iterations_max, tolerance, seeding) = (ITERATIONS, 0.0, seeding.clone());
        let learner = KMeans { k: CLUSTERS, algorithm, iterations_max, tolerance, seeding };
        for workers in [1, 2] {
            let mut model = learner.init(&facts, Place::WHOLE)?;
            let (seconds, outcome) = train(&learner, &mut model, &holding, workers)?;
            let iterations = outcome.iterations.unwrap_or(0);
            println!(
                "{algorithm:?}, {workers} worker(s): {iterations} iterations, {:.4} s each, {} distances, inertia {:.1}",
                seconds / iterations as f64,
                model.i64("distances")[0],
                inertia(&learner, &model, &holding)?
            );
        }
    }
    Ok(())
}

struct Worker {
    dealer: Dealer,
    memory: Memory,
}

/// Trains, and gives the seconds of all iterations together: the first step, which gathers rows, is not one.
fn train(
    learner: &KMeans,
    model: &mut Model,
    holding: &Holding,
    workers: u32,
) -> Result<(f64, Outcome)> {
    let mut workers: Vec<Worker> = (0..workers)
        .map(|worker| {
            let mine: Vec<Shard> =
                (0..SHARDS).filter(|s| s % workers == worker).map(Shard).collect();
            let mut memory = Memory::new();
            mine.iter().for_each(|&shard| memory.insert(shard, Default::default()));
            Worker { dealer: Dealer::new(holding.only(&mine), 1, 1), memory }
        })
        .collect();
    let (mut step, mut start) = (0, Instant::now());
    loop {
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
        let outcome = learner.apply(model, &sum, &moment)?;
        if outcome.done {
            return Ok((start.elapsed().as_secs_f64(), outcome));
        }
        if step == 0 {
            start = Instant::now();
        }
        step += 1;
    }
}

/// The sum of squared distances over all rows.
fn inertia(learner: &KMeans, model: &Model, holding: &Holding) -> Result<f64> {
    let mut found = Vec::new();
    learner.predict(model, &Dealer::new(holding.clone(), 1, 1).everything(), &mut found)?;
    Ok(found.chunks_exact(2).map(|pair| pair[1]).sum())
}

fn contribute(
    learner: &KMeans,
    model: &Model,
    worker: &mut Worker,
    moment: Moment,
) -> Result<Update> {
    let mut outbox = Outbox::new();
    let batch = worker.dealer.everything();
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

/// Rows around 100 centres.
fn draw(rows: usize, width: usize) -> Table {
    let mut rng = Rng::named(3, "rows", &[]);
    let centres: Vec<f64> = (0..CLUSTERS * width).map(|_| 2.0 * rng.normal()).collect();
    let mut values = Vec::with_capacity(rows * width);
    for _ in 0..rows {
        let centre = rng.below(CLUSTERS as u64) as usize * width;
        for c in &centres[centre..centre + width] {
            values.push((c + 1.5 * rng.normal()) as f32);
        }
    }
    Table::new(Features::Dense { width, values }, Vec::new())
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
