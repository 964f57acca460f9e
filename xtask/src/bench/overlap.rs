//! How much of what travels over a link of 100 Mbit/s is hidden behind what is computed, by wait-free back-propagation: the
//! gradients of upper layers leave while those of lower ones are computed. The figures are those that `train --trace` writes
//! beside the trace: microseconds of all workers in which they compute, in which gradients travel, and in which both.

use super::namespaces::Namespaces;
use super::sheet::{Finding, Sheet, bytes, number};
use super::slow_links::{Submission, load, submitted, watched};
use super::{Study, Suite};
use serde_json::Value;
use std::path::Path;

pub(super) const STUDY: Study = Study { name: "overlap", run };

const BITS_PER_SECOND: u64 = 100_000_000;
/// What is to be hidden at least, of what could be.
const GOAL: f64 = 0.7;
/// A name, the job and what it sets.
const WAYS: &[(&str, &str, &[&str])] = &[
    ("cnn, batch 512", "overlap-cnn.toml", &[]),
    ("cnn, batch 512, half", "overlap-cnn.toml", &["cluster.codec=half"]),
    ("cnn, batch 512, tree", "overlap-cnn.toml", &["cluster.topology=tree"]),
    ("cnn, batch 2048", "overlap-cnn.toml", &["train.batch=2048", "train.epochs=8"]),
    (
        "cnn, batch 2048, half",
        "overlap-cnn.toml",
        &["train.batch=2048", "train.epochs=8", "cluster.codec=half"],
    ),
    ("cnn, batch 4096", "overlap-cnn.toml", &["train.batch=4096", "train.epochs=16"]),
    ("mlp, batch 256", "overlap-mlp.toml", &[]),
    ("mlp, batch 256, half", "overlap-mlp.toml", &["cluster.codec=half"]),
];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let namespaces = Namespaces::new(BITS_PER_SECOND)?;
    let trace = std::env::temp_dir().join(format!("starlings-overlap-{}.json", std::process::id()));
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for &(name, file, sets) in WAYS.iter().filter(|way| suite.wants(way.0)) {
        let sets = sets.iter().map(|set| (*set).to_string()).collect();
        let submission = Submission { name, file, sets, trace: Some(&trace) };
        let both = || submitted(suite, &namespaces, &submission);
        let found = watched(&namespaces, both)
            .and_then(|(trial, wire)| Ok((trial, wire, overlap(&trace)?)));
        match found {
            Ok((trial, wire, [computing, travelling, both, share])) => {
                eprintln!("  {name}: {:.0} % hidden", 100.0 * share);
                rows.push(vec![
                    name.to_string(),
                    number(Some(trial.seconds), 2),
                    number(Some(computing / 1e6), 2),
                    number(Some(travelling / 1e6), 2),
                    number(Some(both / 1e6), 2),
                    format!("{:.0} %", 100.0 * share),
                    if share >= GOAL { "yes" } else { "no" }.to_string(),
                    bytes(wire.iter().sum::<u64>() as f64),
                ]);
            }
            Err(why) => finding.skip(format!("{name}: {why}")),
        }
    }
    let _ = std::fs::remove_file(&trace);
    let notes = vec![format!(
        "Two workers, one on each side of a link of 100 Mbit/s, with TLS. Seconds of both workers together, from the trace. \
         Hidden is the time in which both happen, as a share of the shorter of the two: where gradients take longer than \
         the work, as those of the perceptron do, no more than its backward passes can be hidden. Load of the machine at \
         the end: {}.",
        load()
    )];
    let header =
        vec!["how", "s", "computing, s", "travelling, s", "both, s", "hidden", "≥ 70 %", "bytes"];
    let title = "Wait-free back-propagation over 100 Mbit/s".to_string();
    finding.sheets.push(("overlap".to_string(), Sheet { title, notes, header, rows }));
    Ok(finding)
}

/// Computing, travelling, both (in microseconds) and the share, as the trace says.
fn overlap(trace: &Path) -> Result<[f64; 4], String> {
    let text = std::fs::read_to_string(trace).map_err(|why| format!("the trace: {why}"))?;
    let trace: Value = serde_json::from_str(&text).map_err(|why| format!("the trace: {why}"))?;
    let told = &trace["otherData"]["overlap"];
    let figure = |key: &str| told[key].as_f64().ok_or_else(|| format!("the trace has no {key}"));
    Ok([figure("computation")?, figure("communication")?, figure("both")?, figure("share")?])
}
