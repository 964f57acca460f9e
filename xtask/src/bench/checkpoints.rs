//! What checkpoints cost a training job: the same job with and without them, in turns. Training goes on while one is
//! written, so that the cost is a copy of the model at the cut, and the processor's time for hashing and writing.

use super::sheet::{Finding, Sheet, bytes, number};
use super::slow_links::load;
use super::trial::{Process, Trial};
use super::turns::median;
use super::{Study, Suite};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) const STUDY: Study = Study { name: "checkpoints", run };

const LIMIT: Duration = Duration::from_mins(5);
const ROUNDS: usize = 5;
/// What checkpoints may cost at most.
const GOAL: f64 = 0.05;

/// A name, what it sets, and how often a checkpoint is due.
const WAYS: &[(&str, &[&str], &str)] = &[
    ("784-512-256-10, every 5 s", &[], "'5s'"),
    ("784-512-256-10, every 100 steps", &[], "100"),
    ("784-4096-4096-10, every 10 s", &["learner.hidden=[4096, 4096]", "train.epochs=6"], "'10s'"),
];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let (mut finding, mut rows) = (Finding::default(), Vec::new());
    for &(name, sets, every) in WAYS.iter().filter(|way| suite.wants(way.0)) {
        match compared(suite, sets, every) {
            Ok((plain, kept, written)) => {
                let cost = kept / plain - 1.0;
                eprintln!("  {name}: {:.1} %", 100.0 * cost);
                rows.push(vec![
                    name.to_string(),
                    bytes(written as f64),
                    number(Some(plain), 2),
                    number(Some(kept), 2),
                    format!("{:.1} %", 100.0 * cost),
                    if cost < GOAL { "yes" } else { "no" }.to_string(),
                ]);
            }
            Err(why) => finding.skip(format!("{name}: {why}")),
        }
    }
    let notes = vec![format!(
        "Perceptrons under Adam (`bench/jobs/checkpoint-mlp.toml`), two worker processes on this machine's disk; seconds of training, medians \
         of {ROUNDS} runs in turns. Load of the machine at the end: {}.",
        load()
    )];
    let header = vec!["job", "a checkpoint has", "s without", "s with", "cost", "< 5 %"];
    let title = "What checkpoints cost".to_string();
    finding.sheets.push(("checkpoints".to_string(), Sheet { title, notes, header, rows }));
    Ok(finding)
}

/// Median seconds without and with checkpoints, and the bytes of one.
fn compared(suite: &Suite<'_>, sets: &[&str], every: &str) -> Result<(f64, f64, u64), String> {
    let folder = std::env::temp_dir().join(format!("starlings-kept-{}", std::process::id()));
    let (mut plain, mut kept, mut written) = (Vec::new(), Vec::new(), 0);
    for _ in 0..if suite.is_quick { 1 } else { ROUNDS } {
        plain.push(trained(suite, sets, None)?);
        kept.push(trained(suite, sets, Some((&folder, every)))?);
        written = newest(&folder);
        let _ = std::fs::remove_dir_all(&folder);
    }
    match written {
        0 => Err("the job was over before a checkpoint was due".to_string()),
        written => Ok((median(plain), median(kept), written)),
    }
}

/// Seconds of training.
fn trained(suite: &Suite<'_>, sets: &[&str], kept: Option<(&Path, &str)>) -> Result<f64, String> {
    let model = std::env::temp_dir().join(format!("starlings-kept-{}.out", std::process::id()));
    let mut command = Command::new(&suite.binary);
    command.arg("train").arg(suite.root.join("bench/jobs/checkpoint-mlp.toml"));
    command.args(["--json", "--out"]).arg(&model);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    if suite.is_quick {
        command.args(["--set", "train.epochs=3"]);
    }
    if let Some((folder, every)) = kept {
        command.args(["--set", &format!("checkpoint.path='{}'", folder.display())]);
        command.args(["--set", &format!("checkpoint.every={every}")]);
    }
    let said = Process::start(&mut command)?.finish(LIMIT);
    let _ = std::fs::remove_file(&model);
    Ok(Trial::from_events("", &said?)?.seconds)
}

/// Bytes of the largest checkpoint in a folder.
fn newest(folder: &Path) -> u64 {
    let children = |of: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(of).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    let whole = |step: &PathBuf| children(step).iter().map(size).sum();
    children(folder).iter().map(whole).max().unwrap_or(0)
}
