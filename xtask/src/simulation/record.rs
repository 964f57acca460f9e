//! How many seeds were run on which commit, so that "so many seeds, no failure" can be checked: `bench/simulated.json`.

use super::Stretch;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Adds a stretch without a failure to the record.
pub(super) fn add(root: &Path, stretch: Stretch<'_>, seconds: f64) -> Result<(), String> {
    if !git(root, &["status", "--porcelain", "--", "crates"])?.is_empty() {
        return Err("sources have changed since the last commit: nothing is recorded".to_string());
    }
    let path = root.join("bench/simulated.json");
    let mut runs: Vec<Value> = match std::fs::read_to_string(&path) {
        Ok(text) => {
            serde_json::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))?
        }
        Err(_) => Vec::new(),
    };
    runs.push(json!({
        "machine": stretch.machine,
        "from": stretch.from,
        "seeds": stretch.seeds,
        "failures": 0,
        "seconds": seconds.round(),
        "commit": git(root, &["rev-parse", "HEAD"])?,
    }));
    let lines: Vec<String> = runs.iter().map(|run| format!("  {run}")).collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    std::fs::write(&path, text).map_err(|why| format!("{}: {why}", path.display()))
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(arguments).current_dir(root).output();
    let output = output.map_err(|why| format!("git did not start: {why}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_string()),
        false => Err(format!("git {}: {}", arguments.join(" "), output.status)),
    }
}
