//! How fast logistic regression is: L-BFGS on 1,000,000 × 100 dense rows, with one thread and with two, each
//! thread a worker of the reference loop. Prints iterations, evaluations, seconds and the objective, and
//! leaves the rows as `logistic_speed.f32` and `logistic_speed.labels` in the directory named by the first
//! argument (if any), so that a peer can be timed on the same numbers.

use starlings_core::{Entry, Model, Rng, Shard, Step, Update};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{Facts, LEARNERS, Learner, Memory, Moment, NoWires, Outbox, Place, Work};
use std::sync::Arc;

const ROWS: usize = 1_000_000;
const WIDTH: usize = 100;
const SHARDS: u32 = 16;

#[expect(clippy::print_stdout, reason = "an example shows its figures")]
#[expect(clippy::disallowed_methods, reason = "an example that measures reads the clock")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let table = Arc::new(table());
    if let Some(directory) = std::env::args().nth(1) {
        save(&table, &directory)?;
    }
    let entry = Entry::find("learner", LEARNERS, "logistic-regression")?;
    let learner = (entry.build)(&entry.check("learner", &toml::Table::new())?)?;
    for workers in [1, 2, 1, 2] {
        let start = std::time::Instant::now();
        let (objective, iterations, steps) = train(&*learner, &table, workers)?;
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{workers} threads: {seconds:.3} s, {iterations} iterations, {steps} evaluations, \
             objective {objective:.12}"
        );
    }
    Ok(())
}

/// Normal features; classes by a linear rule with noise.
fn table() -> Table {
    let mut rng = Rng::named(1, "logistic speed", &[]);
    let rule: Vec<f64> = (0..WIDTH).map(|_| 0.3 * rng.normal()).collect();
    let mut values = Vec::with_capacity(ROWS * WIDTH);
    let mut labels = Vec::with_capacity(ROWS);
    for _ in 0..ROWS {
        let mut score = 0.0;
        for weight in &rule {
            let x = rng.normal() as f32;
            score += weight * f64::from(x);
            values.push(x);
        }
        labels.push(f32::from(u8::from(rng.uniform() < 1.0 / (1.0 + (-score).exp()))));
    }
    Table::new(Features::Dense { width: WIDTH, values }, labels)
}

fn save(table: &Table, directory: &str) -> std::io::Result<()> {
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let Features::Dense { values, .. } = &table.features else { return Ok(()) };
    std::fs::write(format!("{directory}/logistic_speed.f32"), bytes(values))?;
    std::fs::write(format!("{directory}/logistic_speed.labels"), bytes(&table.labels))
}

fn train(
    learner: &dyn Learner,
    table: &Arc<Table>,
    workers: u32,
) -> starlings_core::Result<(f64, u64, u64)> {
    let target = Target::Classes(vec!["0".to_string(), "1".to_string()]);
    let encoding = Encoding::OneHot;
    let schema = Schema { columns: vec![], encoding, features: WIDTH, target, label: None };
    let rows = ROWS as u64;
    let facts = Facts { rows, schema, shards: SHARDS, seed: 1, epochs: None, batch: 256 };
    let mut model = learner.init(&facts, Place::WHOLE)?;
    let holding = Holding::whole(Arc::clone(table), SHARDS);
    let dealers: Vec<Dealer> = (0..workers)
        .map(|worker| {
            let mine: Vec<Shard> =
                (0..SHARDS).filter(|s| s % workers == worker).map(Shard).collect();
            Dealer::new(holding.only(&mine), 1, 256)
        })
        .collect();
    for step in 0.. {
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows };
        let updates = std::thread::scope(|scope| {
            let threads: Vec<_> = dealers
                .iter()
                .map(|dealer| scope.spawn(|| contribution(learner, &model, dealer, moment)))
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
            return Ok((objective, outcome.iterations.unwrap_or(0), step + 1));
        }
    }
    unreachable!("the loop is endless")
}

fn contribution(
    learner: &dyn Learner,
    model: &Model,
    dealer: &Dealer,
    moment: Moment,
) -> starlings_core::Result<Update> {
    let mut outbox = Outbox::new();
    learner.contribute(&mut Work {
        moment,
        place: Place::WHOLE,
        model,
        batch: &dealer.everything(),
        memory: &mut Memory::new(),
        wires: &mut NoWires,
        outbox: &mut outbox,
    })?;
    Ok(outbox.take())
}
