//! How long one worker takes to compute and to apply a step of a network, on random rows. No engine: what is left is the
//! network's own time.
//!
//! `cargo run --release -p starlings-nn --example network_speed NAME 'key = value …' FEATURES CLASSES BATCH STEPS [early]`; `early` emits
//! gradients link by link, as over links of a network.

#![expect(clippy::print_stdout, reason = "a program for people")]
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use starlings_core::{Block, Entry, Fault, Result, Rng, Step};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{Facts, Memory, Moment, NoWires, Outbox, Place, Sink, Work};
use starlings_nn::NETWORKS;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the binary has, too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Takes nothing.
struct Onlooker;

impl Sink for Onlooker {
    fn take(&mut self, block: Block) -> Option<Block> {
        Some(block)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, name, params, sizes @ ..] = &arguments[..] else { return Err(usage()) };
    let (sizes, early) = match sizes {
        [sizes @ .., last] if last == "early" => (sizes, true),
        sizes => (sizes, false),
    };
    let sizes: Vec<usize> =
        sizes.iter().map(|size| size.parse().map_err(|_| usage())).collect::<Result<_>>()?;
    let [features, classes, batch, steps] = sizes[..] else { return Err(usage()) };
    let entry = Entry::find("network", NETWORKS, name)?;
    let given = params.parse().map_err(|error| Fault::caller(format!("{params}: {error}")))?;
    let learner = (entry.build)(&entry.check("learner", &given)?)?;
    let mut rng = Rng::named(1, "speed", &[]);
    let rows = 16 * batch;
    let values = (0..rows * features).map(|_| rng.normal() as f32).collect();
    let labels = (0..rows).map(|row| (row % classes) as f32).collect();
    let table = Table::new(Features::Dense { width: features, values }, labels);
    let target = Target::Classes((0..classes).map(|class| class.to_string()).collect());
    let (encoding, label) = (Encoding::OneHot, None);
    let schema = Schema { columns: Vec::new(), encoding, features, target, label };
    let facts = Facts {
        rows: rows as u64,
        schema,
        shards: 16,
        seed: 1,
        epochs: None,
        steps: None,
        batch: batch as u64,
    };
    let mut model = learner.init(&facts, Place::WHOLE)?;
    let mut dealer = Dealer::new(Holding::whole(Arc::new(table), 16), 1, batch as u64);
    let (mut computing, mut applying) = (Duration::ZERO, Duration::ZERO);
    for step in 0..steps as u64 {
        let moment = Moment { step: Step(step), pass: step / 16, seed: 1, rows: batch as u64 };
        let dealt = dealer.deal(step / 16, step % 16);
        let mut outbox = Outbox::new();
        outbox.attach(early.then(|| Box::new(Onlooker) as Box<dyn Sink>));
        let begun = Instant::now();
        learner.contribute(&mut Work {
            moment,
            place: Place::WHOLE,
            model: &model,
            batch: &dealt,
            memory: &mut Memory::new(),
            wires: &mut NoWires,
            outbox: &mut outbox,
        })?;
        let update = outbox.take();
        let computed = Instant::now();
        learner.apply(&mut model, &update, &moment)?;
        // The first steps warm caches up.
        if step >= steps as u64 / 10 {
            computing += computed - begun;
            applying += computed.elapsed();
        }
    }
    let counted = (steps - steps / 10) as f64;
    let mean = |time: Duration| time.as_secs_f64() / counted;
    let (compute, apply) = (mean(computing), mean(applying));
    println!(
        "{name}: {:.3} ms to compute, {:.3} ms to apply, {:.0} rows a second",
        1e3 * compute,
        1e3 * apply,
        batch as f64 / (compute + apply)
    );
    Ok(())
}

fn usage() -> Fault {
    Fault::caller("usage: network_speed NAME 'key = value' FEATURES CLASSES BATCH STEPS")
}
