//! What a figure was measured on: without it a figure is a rumour.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The machine, the date and the versions.
pub(crate) struct Machine {
    /// As `2026-01-31T12:00:00Z`.
    pub(crate) date: String,
    name: String,
    processor: String,
    cores: usize,
    memory_gigabytes: u64,
    /// Names with versions: compiler, commit, peers.
    versions: Vec<(String, String)>,
}

impl Machine {
    /// The folder of a run.
    pub(crate) fn folder(&self) -> String {
        let day = self.date.replace([':', 'Z'], "");
        format!("{day}-{}", self.name)
    }

    /// One paragraph for people.
    pub(crate) fn sentence(&self) -> String {
        let versions: Vec<String> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let Machine { processor, cores, memory_gigabytes, .. } = self;
        format!("{processor}, {cores} cores, {memory_gigabytes} GB; {}.", versions.join(", "))
    }

    pub(crate) fn json(&self) -> Value {
        let versions: serde_json::Map<String, Value> =
            self.versions.iter().map(|(name, version)| (name.clone(), json!(version))).collect();
        json!({
            "date": self.date,
            "processor": self.processor,
            "cores": self.cores,
            "memory_gigabytes": self.memory_gigabytes,
            "versions": versions,
        })
    }

    #[cfg(test)]
    pub(crate) fn example() -> Machine {
        Machine {
            date: "2026-01-31T12:00:00Z".to_string(),
            name: "epyc-2".to_string(),
            processor: "AMD EPYC".to_string(),
            cores: 2,
            memory_gigabytes: 8,
            versions: vec![("rustc".to_string(), "1.95.0".to_string())],
        }
    }
}

/// Asks the machine.
pub(crate) fn describe(python: Option<&Path>) -> Machine {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = information.lines().find(|line| line.starts_with("model name"));
    let processor =
        model.and_then(|line| line.split_once(": ")).map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes =
        memory.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    Machine {
        date: answer("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"])
            .unwrap_or_else(|| "undated".to_string()),
        name: format!("{}-{cores}", slug(processor)),
        processor: processor.trim().to_string(),
        cores,
        memory_gigabytes: kilobytes / 1_000_000,
        versions: versions(python),
    }
}

fn versions(python: Option<&Path>) -> Vec<(String, String)> {
    let mut versions = Vec::new();
    let mut enter = |name: &str, version: Option<String>| {
        versions.extend(version.map(|version| (name.to_string(), version)));
    };
    enter("commit", answer("git", &["describe", "--always", "--dirty"]));
    enter("rustc", answer("rustc", &["--version"]).and_then(|line| word(&line, 1)));
    enter("Open MPI", answer("mpirun", &["--version"]).and_then(|line| word(&line, 3)));
    for package in ["numpy", "scikit-learn", "torch", "torchft", "pyspark", "mpi4py"] {
        let question =
            format!("from importlib.metadata import version; print(version('{package}'))");
        enter(package, python.and_then(|python| answer(python.to_str()?, &["-c", &question])));
    }
    versions
}

/// The first line that a program prints, if it succeeds.
fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_string())
}

fn word(line: &str, index: usize) -> Option<String> {
    line.split_whitespace().nth(index).map(str::to_string)
}

/// The processor's name as a part of a folder's name. The host's name is nobody's business.
fn slug(processor: &str) -> String {
    let plain = processor.to_lowercase().replace("(r)", "").replace("(tm)", "");
    let words: Vec<&str> =
        plain.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    words.iter().take(3).copied().collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_a_folder_of_its_own_with_date_and_machine() {
        assert_eq!(Machine::example().folder(), "2026-01-31T120000-epyc-2");
        assert_eq!(slug("AMD EPYC 7763 64-Core Processor"), "amd-epyc-7763");
        assert_eq!(slug("Intel(R) Xeon(R) CPU @ 2.20GHz"), "intel-xeon-cpu");
    }

    #[test]
    fn the_sentence_names_processor_cores_and_versions() {
        assert_eq!(Machine::example().sentence(), "AMD EPYC, 2 cores, 8 GB; rustc 1.95.0.");
    }
}
