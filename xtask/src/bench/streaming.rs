//! More rows than memory: 100,000,000 made rows, of which a process of at most 4 GB trains k-means and logistic regression.
//! The rows lie in a file that the job itself writes. With `--quick` 3,000,000 rows in 200 MB. What counts is the largest
//! resident set; the same job with all the memory there is stands beside it, and its model must have the same bits.

use super::sheet::{Finding, Sheet, number};
use super::trial::Process;
use super::{Study, Suite};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "streaming", run };

const LIMIT: Duration = Duration::from_mins(60);
const CASES: &[(&str, &str)] =
    &[("k-means", "streaming-k-means.toml"), ("logistic regression", "streaming-logistic.toml")];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let mut finding = Finding::default();
    let mut rows = Vec::new();
    let memory = if suite.is_quick { "200MB" } else { "4GB" };
    for (name, job) in CASES.iter().filter(|case| suite.wants(case.0)) {
        for (how, memory) in [("streamed", memory), ("in memory", "1TB")] {
            eprintln!("{name}, {how}");
            match once(suite, job, memory) {
                Ok((report, peak)) => rows.push(row(&format!("{name}, {how}"), &report, peak)),
                Err(why) => finding.skip(format!("{name}, {how}: {why}")),
            }
        }
    }
    let sheet = Sheet {
        title: format!("More rows than memory: {memory}"),
        notes: vec![
            "`bench/jobs/streaming-*.toml`, two workers as threads of one process, made data. Peak: the largest resident set of \
             the process, pages of the file among it. Loading makes the rows and writes the file. Models of the same learner \
             must have the same digest."
                .to_string(),
        ],
        header: vec!["what", "rows", "s to load", "s to train", "peak, MB", "objective", "digest"],
        rows,
    };
    finding.sheets.push(("streaming".to_string(), sheet));
    Ok(finding)
}

fn row(name: &str, report: &Value, peak: u64) -> Vec<String> {
    let rows = report["samples"].as_f64().zip(report["steps"].as_f64());
    let digest = report["digest"].as_str().unwrap_or_default();
    vec![
        name.to_string(),
        number(rows.map(|(samples, steps)| samples / steps), 0),
        number(report["load_seconds"].as_f64(), 1),
        number(report["seconds"].as_f64(), 1),
        number(Some(peak as f64 / 1e6), 0),
        number(report["objective"].as_f64(), 6),
        digest.chars().take(12).collect(),
    ]
}

/// Runs a job once: its report, and the largest resident set of its process in bytes.
fn once(suite: &Suite<'_>, job: &str, memory: &str) -> Result<(Value, u64), String> {
    let mut command = Command::new(&suite.binary);
    let job = suite.root.join("bench/jobs").join(job);
    command.arg("train").arg(&job).args(["--workers", "2", "--json"]);
    command.args(["--set", &format!("data.memory={memory}")]);
    if suite.is_quick {
        let text = std::fs::read_to_string(&job).map_err(|why| why.to_string())?;
        let place = text.split('"').find(|word| word.starts_with("synthetic://"));
        let place = place.ok_or("the job makes no data")?;
        let place = place.replace("rows=100000000", "rows=3000000");
        command.args(["--set", &format!("data.train=\"{place}\"")]);
    }
    let mut process = Process::start(&mut command)?;
    let (begun, mut peak) = (Instant::now(), 0);
    while let Some(now) = high_water(process.id()).filter(|_| begun.elapsed() < LIMIT) {
        peak = now;
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = process.finish(Duration::from_secs(10))?;
    let mut lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let report = lines.rfind(|line| line["event"] == "report");
    Ok((report.ok_or("it ended without a report")?, peak))
}

/// The largest resident set of a process so far; `None` when it has ended.
fn high_water(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_resident_set_of_a_process_is_read() {
        assert!(high_water(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(high_water(u32::MAX), None);
    }
}
