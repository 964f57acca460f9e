//! What sufficient factors save over a link of 100 Mbit/s (Xie et al., 2016; Zhang et al., "Poseidon", 2017): a perceptron of
//! 784-4096-4096-10, whose two large matrices are 20 million numbers, by small batches, of which a gradient is a few
//! vectors. Each way takes the same steps to the same objective, for all of them are exact; what differs is bytes and seconds.
//!
//! Of K rows of a step an M × N matrix leaves as K(M + N) numbers to everyone or as 2MN/P to each of P: `auto` weighs them layer by
//! layer, so that it must not be behind the better of the two.

use super::namespaces::Namespaces;
use super::sheet::{Finding, Sheet, bytes, number};
use super::slow_links::{Submission, load, submitted, watched};
use super::trial::Trial;
use super::{Study, Suite};

pub(super) const STUDY: Study = Study { name: "factors", run };

const BITS_PER_SECOND: u64 = 100_000_000;
const FILE: &str = "factors-mlp.toml";
/// Rows of a step: of the larger, vectors are eight times as many.
const BATCHES: &[u64] = &[32, 256];
const STEPS: u64 = 10;
const STEPS_QUICK: u64 = 2;
/// A name and what it sets; the first is what the others are measured by.
const WAYS: &[(&str, &[&str])] = &[
    ("raw, ring", &[]),
    ("half fp16, ring", &["cluster.codec=half"]),
    ("factors, mesh", &["cluster.topology=mesh", "cluster.codec=factors"]),
    ("auto, mesh", &["cluster.topology=mesh", "cluster.codec=auto"]),
];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let namespaces = Namespaces::new(BITS_PER_SECOND)?;
    let steps = if suite.is_quick { STEPS_QUICK } else { STEPS };
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for batch in BATCHES {
        let mut plain: Option<Trial> = None;
        for &(way, sets) in WAYS {
            let name = format!("batch {batch}, {way}");
            if !suite.wants(&name) {
                continue;
            }
            let mut all = vec![format!("train.batch={batch}"), format!("train.steps={steps}")];
            all.extend(sets.iter().map(|set| (*set).to_string()));
            let submission = Submission { name: &name, file: FILE, sets: all, trace: None };
            match watched(&namespaces, || submitted(suite, &namespaces, &submission)) {
                Ok((trial, wire)) => {
                    eprintln!("  {name}: {:.2} s", trial.seconds);
                    let raw = plain.get_or_insert_with(|| trial.clone());
                    rows.push(row(&name, (&trial, raw), wire, steps));
                }
                Err(why) => finding.skip(format!("{name}: {why}")),
            }
        }
    }
    let notes = vec![format!(
        "Two workers, one on each side of a link of 100 Mbit/s, with TLS; {steps} steps each, one run. Bytes are those that left \
         both sides in a step, packet headers and the end of the run included; the bound is what the busier direction needs \
         for them. Load of the machine at the end: {}.",
        load()
    )];
    let header =
        vec!["how", "s a step", "× raw", "bound, s", "bytes a step", "objective", "processor s"];
    let title = "Sufficient factors of a perceptron 784-4096-4096-10 over 100 Mbit/s".to_string();
    finding.sheets.push(("factors".to_string(), Sheet { title, notes, header, rows }));
    Ok(finding)
}

fn row(name: &str, (trial, raw): (&Trial, &Trial), wire: [u64; 2], steps: u64) -> Vec<String> {
    let busier = *wire.iter().max().expect("two sides") as f64;
    let each = steps as f64;
    vec![
        name.to_string(),
        number(Some(trial.seconds / each), 3),
        number(Some(raw.seconds / trial.seconds), 2),
        number(Some(busier * 8.0 / BITS_PER_SECOND as f64 / each), 3),
        bytes(wire.iter().sum::<u64>() as f64 / each),
        number(Some(trial.objective), 5),
        number(Some(trial.processor_seconds), 2),
    ]
}
