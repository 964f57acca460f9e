//! How fast logistic regression is, with one thread and with two, each thread a worker of the reference loop: dense
//! 1,000,000 × 100 with correlated features, or sparse 500,000 × 50,000 with popular and rare columns.
//!
//! Usage: `logistic_speed dense|sparse [FOLDER] [learner parameters as TOML]`. Prints iterations, passes over the features,
//! seconds and the objective. With a folder the rows are left there (`logistic_dense.f32`, or `.starts`, `.columns`
//! and `.values`, and `.labels`), so that `bench/peers/logistic_arrays.py` can time scikit-learn on the same numbers.

use starlings_core::{Entry, Model, Rng, Shard, Step, Update};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{
    Cells, Facts, LEARNERS, Learner, Memory, Moment, NoWires, Outbox, Place, Work,
};
use std::sync::Arc;

const SHARDS: u32 = 16;

#[expect(clippy::print_stdout, reason = "an example shows its figures")]
#[expect(clippy::disallowed_methods, reason = "an example that measures reads the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "dense".to_string());
    let is_sparse = kind == "sparse";
    let table = Arc::new(if is_sparse { sparse() } else { dense() });
    if let Some(folder) = arguments.next().filter(|folder| !folder.is_empty()) {
        save(&table, &format!("{folder}/logistic_{kind}"))?;
    }
    let default =
        if is_sparse { "l2 = 1e-5\ntolerance = 1e-6" } else { "l2 = 1e-4\ntolerance = 1e-6" };
    let params = arguments.next().unwrap_or_else(|| default.to_string());
    let entry = Entry::find("learner", LEARNERS, "logistic-regression")?;
    let learner = (entry.build)(&entry.check("learner", &params.parse()?)?)?;
    for threads in [1, 2, 1, 2] {
        let start = std::time::Instant::now();
        let (model, objective, iterations) = train(&*learner, &table, threads)?;
        let seconds = start.elapsed().as_secs_f64();
        let passes = model.i64("descent.counters")[6];
        println!(
            "{threads} threads: {seconds:.3} s, {iterations} iterations, {passes} passes, objective \
             {objective:.9}"
        );
    }
    Ok(())
}

/// 100 features that share 10 causes and differ in scale, so that the solver has something to do.
fn dense() -> Table {
    const ROWS: usize = 1_000_000;
    const WIDTH: usize = 100;
    const CAUSES: usize = 10;
    let mut rng = Rng::named(1, "logistic speed", &[]);
    let mixing: Vec<f64> = (0..CAUSES * WIDTH).map(|_| rng.normal()).collect();
    let scales: Vec<f64> = (0..WIDTH).map(|_| (2.0 * rng.uniform() - 1.0).exp()).collect();
    let rule: Vec<f64> = (0..WIDTH).map(|_| 0.2 * rng.normal()).collect();
    let (mut values, mut labels) = (Vec::with_capacity(ROWS * WIDTH), Vec::with_capacity(ROWS));
    for _ in 0..ROWS {
        let causes: [f64; CAUSES] = std::array::from_fn(|_| rng.normal());
        let mut score = -0.5;
        for feature in 0..WIDTH {
            let shared: f64 = causes
                .iter()
                .enumerate()
                .map(|(at, cause)| cause * mixing[at * WIDTH + feature])
                .sum();
            let x = shared + 0.3 * rng.normal();
            score += rule[feature] * x / 3.3;
            values.push((x * scales[feature]) as f32);
        }
        labels.push(f32::from(u8::from(rng.uniform() < 1.0 / (1.0 + (-2.0 * score).exp()))));
    }
    Table::new(Features::Dense { width: WIDTH, values }, labels)
}

/// Rows of words: thirty draws each, popular ones more often, counted.
fn sparse() -> Table {
    const ROWS: usize = 500_000;
    const WIDTH: usize = 50_000;
    const DRAWS: usize = 30;
    let mut rng = Rng::named(2, "logistic speed", &[]);
    let rule: Vec<f64> = (0..WIDTH).map(|_| rng.normal()).collect();
    let (mut starts, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut labels = Vec::with_capacity(ROWS);
    for _ in 0..ROWS {
        // Column c is drawn with a chance of about 1/c.
        let mut row: Vec<u32> = (0..DRAWS)
            .map(|_| ((WIDTH as f64).powf(rng.uniform()) as u32).min(WIDTH as u32 - 1))
            .collect();
        row.sort_unstable();
        let mut score = 0.0;
        for same in row.chunk_by(|a, b| a == b) {
            columns.push(same[0]);
            values.push(same.len() as f32);
            score += 0.4 * rule[same[0] as usize] * same.len() as f64;
        }
        starts.push(columns.len());
        labels.push(f32::from(u8::from(rng.uniform() < 1.0 / (1.0 + (-score).exp()))));
    }
    Table::new(Features::Sparse { width: WIDTH, starts, columns, values }, labels)
}

fn save(table: &Table, stem: &str) -> std::io::Result<()> {
    let floats =
        |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    match &table.features {
        Features::Dense { values, .. } => std::fs::write(format!("{stem}.f32"), floats(values))?,
        Features::Sparse { starts, columns, values, .. } => {
            let starts: Vec<u8> = starts.iter().flat_map(|x| (*x as i64).to_le_bytes()).collect();
            std::fs::write(format!("{stem}.starts"), starts)?;
            let columns: Vec<u8> = columns.iter().flat_map(|x| x.to_le_bytes()).collect();
            std::fs::write(format!("{stem}.columns"), columns)?;
            std::fs::write(format!("{stem}.values"), floats(values))?;
        }
    }
    std::fs::write(format!("{stem}.labels"), floats(&table.labels))
}

/// A worker: its rows and what it remembers of them.
struct Worker {
    dealer: Dealer,
    memory: Memory,
}

fn train(
    learner: &dyn Learner,
    table: &Arc<Table>,
    workers: u32,
) -> starlings_core::Result<(Model, f64, u64)> {
    let target = Target::Classes(vec!["0".to_string(), "1".to_string()]);
    let (encoding, features, rows) = (Encoding::OneHot, table.width(), table.rows() as u64);
    let schema = Schema { columns: vec![], encoding, features, target, label: None };
    let facts =
        Facts { rows, schema, shards: SHARDS, seed: 1, epochs: None, steps: None, batch: 256 };
    let mut model = learner.init(&facts, Place::WHOLE)?;
    let holding = Holding::whole(Arc::clone(table), SHARDS);
    let mut crew: Vec<Worker> = (0..workers)
        .map(|worker| {
            let mine: Vec<Shard> =
                (0..SHARDS).filter(|s| s % workers == worker).map(Shard).collect();
            let dealer = Dealer::new(holding.only(&mine), 1, 256);
            let mut memory = Memory::new();
            for slice in &dealer.everything().slices {
                let mut cells = Cells::new();
                learner.adopt(&model, &dealer.everything(), slice, &mut cells);
                memory.insert(slice.shard, cells);
            }
            Worker { dealer, memory }
        })
        .collect();
    for step in 0.. {
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows };
        let updates = std::thread::scope(|scope| {
            let threads: Vec<_> = crew
                .iter_mut()
                .map(|worker| scope.spawn(|| contribution(learner, &model, worker, moment)))
                .collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
        });
        let mut sum: Option<Update> = None;
        for update in updates {
            match &mut sum {
                None => sum = Some(update?),
                Some(sum) => sum.fold(&update?).expect("same blocks"),
            }
        }
        let outcome = learner.apply(&mut model, &sum.expect("a worker"), &moment)?;
        if outcome.done {
            let objective = outcome.objective.unwrap_or(f64::NAN);
            return Ok((model, objective, outcome.iterations.unwrap_or(0)));
        }
    }
    unreachable!("the loop is endless")
}

fn contribution(
    learner: &dyn Learner,
    model: &Model,
    worker: &mut Worker,
    moment: Moment,
) -> starlings_core::Result<Update> {
    let mut outbox = Outbox::new();
    learner.contribute(&mut Work {
        moment,
        place: Place::WHOLE,
        model,
        batch: &worker.dealer.everything(),
        memory: &mut worker.memory,
        wires: &mut NoWires,
        outbox: &mut outbox,
    })?;
    Ok(outbox.take())
}
