//! Gradient boosting by two workers on a link of 100 Mbit/s: histograms of all features, of elected ones, or rows once and
//! then best splits (`parallelism` data, voting, feature). Bytes are those that left both sides of the link; the bound is
//! what the busier direction needs for them.

use super::namespaces::Namespaces;
use super::sheet::{Finding, Sheet, bytes, number};
use super::slow_links::{Submission, load, submitted, watched};
use super::trial::Trial;
use super::{Study, Suite, learners};

pub(super) const STUDY: Study = Study { name: "slow-trees", run };

const BITS_PER_SECOND: u64 = 100_000_000;
/// A name and what it sets in `[learner]`.
const WAYS: &[(&str, &[&str])] = &[
    ("data-parallel", &["parallelism=data"]),
    ("voting-parallel, 4 votes", &["parallelism=voting", "votes=4"]),
    ("voting-parallel, 2 votes", &["parallelism=voting", "votes=2"]),
    ("feature-parallel", &["parallelism=feature"]),
];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let python = suite.python.as_ref().ok_or("the data needs the peers' Python (bench --setup)")?;
    let folder = learners::scaled(&suite.root.join("target/bench/data"), suite.is_quick);
    learners::made(suite, python, &folder, ("collisions", "collisions.parquet"))?;
    let namespaces = Namespaces::new(BITS_PER_SECOND)?;
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for &(name, sets) in WAYS {
        let file =
            |end: &str| folder.join(format!("collisions{end}.parquet")).display().to_string();
        let mut all: Vec<String> = sets.iter().map(|set| format!("learner.{set}")).collect();
        all.extend([
            format!("data.train=\"{}\"", file("-some")),
            format!("data.test=\"{}\"", file("-test")),
            "learner.trees=20".to_string(),
        ]);
        let submission = Submission { name, file: "boosting.toml", sets: all, trace: None };
        let both = || submitted(suite, &namespaces, &submission);
        match watched(&namespaces, both) {
            Ok((trial, wire)) => rows.push(line(&trial, wire)),
            Err(why) => finding.skip(format!("{name}: {why}")),
        }
    }
    let notes = vec![format!(
        "A fifth of the large set (200,000 × 28), 20 trees of 63 leaves, 255 bins; two workers, one on each side of a link of \
         100 Mbit/s, with TLS. Training time. Data-parallel and feature-parallel grow the same trees. Load of the machine \
         at the end: {}.",
        load()
    )];
    let header = vec!["how", "s", "bound, s", "bytes", "objective", "accuracy", "processor s"];
    let title = "Gradient boosting over 100 Mbit/s: voting-parallel against data-parallel";
    let sheet = Sheet { title: title.to_string(), notes, header, rows };
    finding.sheets.push(("slow-trees".to_string(), sheet));
    Ok(finding)
}

fn line(trial: &Trial, wire: [u64; 2]) -> Vec<String> {
    let busier = *wire.iter().max().expect("two sides") as f64;
    eprintln!("  {}: {:.1} s, {} bytes", trial.name, trial.seconds, wire.iter().sum::<u64>());
    vec![
        trial.name.clone(),
        number(Some(trial.seconds), 2),
        number(Some(busier * 8.0 / BITS_PER_SECOND as f64), 2),
        bytes(wire.iter().sum::<u64>() as f64),
        number(Some(trial.objective), 6),
        trial.metric.clone(),
        number(Some(trial.processor_seconds), 2),
    ]
}
