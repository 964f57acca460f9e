//! Taking turns: one round runs every contender once, so that a noisy minute of the machine hits all alike. A
//! contender is a command that prints JSON; the last line with `seconds` or `median_seconds` is its measurement.

use super::memory::Peak;
use crate::stage::wait_and;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A contender that takes longer in one round is ended.
const LIMIT: Duration = Duration::from_mins(15);

/// Files without a name so far: each has one of its own for a moment.
static FILES: AtomicU64 = AtomicU64::new(0);

/// Someone who takes part in a case.
pub(super) struct Contender {
    /// For people: "starlings, 2 workers", "scikit-learn".
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// Rounds it takes part in, at most: a slow peer may sit out.
    pub(super) rounds_max: usize,
}

/// What a contender measured over all rounds, or why it has nothing.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) result: Result<Figures, String>,
}

/// Medians over the rounds.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figures {
    /// Seconds of the work itself, as the contender reports them.
    pub(super) seconds: f64,
    /// The same of each round.
    pub(super) seconds_each: Vec<f64>,
    /// The fastest of the rounds.
    pub(super) seconds_min: f64,
    /// Seconds from the start of its process to its end.
    pub(super) wall_seconds: f64,
    /// Rounds.
    pub(super) rounds: usize,
    /// The last round's whole line: objective, metrics, version.
    pub(super) detail: Value,
    /// The most memory it held in any round, with its children, in megabytes.
    pub(super) megabytes: Option<f64>,
}

/// One round: seconds from start to end, what was printed, and the most memory in megabytes.
type Round = (f64, Value, Option<f64>);

/// Runs all contenders in turns, every other round from the last to the first. One that fails is not asked again.
pub(super) fn take(contenders: &[Contender], rounds: usize) -> Vec<Measured> {
    let mut seen: Vec<Result<Vec<Round>, String>> =
        contenders.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..rounds {
        let mut order: Vec<_> = contenders.iter().zip(&mut seen).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for (contender, seen) in order {
            let Ok(lines) = seen else { continue };
            if round >= contender.rounds_max {
                continue;
            }
            eprintln!("  round {} of {rounds}: {}", round + 1, contender.name);
            match once(contender) {
                Ok(measured) => lines.push(measured),
                Err(why) => *seen = Err(why),
            }
        }
    }
    let named = contenders.iter().zip(seen);
    named
        .map(|(contender, seen)| Measured {
            name: contender.name.clone(),
            result: seen.and_then(figures),
        })
        .collect()
}

fn once(contender: &Contender) -> Result<Round, String> {
    let mut said = tempfile()?;
    let mut complained = tempfile()?;
    let copy = |file: &File| file.try_clone().map_err(|why| why.to_string());
    let start = Instant::now();
    let mut child = Command::new(&contender.program)
        .args(&contender.arguments)
        .envs(contender.environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(copy(&said)?)
        .stderr(copy(&complained)?)
        .spawn()
        .map_err(|why| format!("{}: {why}", contender.program.display()))?;
    let mut peak = Peak::default();
    let status = wait_and(&mut child, LIMIT, &mut |process| peak.look(process))?;
    let wall = start.elapsed().as_secs_f64();
    if !status.success() {
        let stderr = content(&mut complained)?;
        let last =
            stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message").trim();
        return Err(format!("{status}: {last}"));
    }
    let line = measurement(&content(&mut said)?).ok_or("it printed no measurement")?;
    Ok((wall, line, peak.megabytes()))
}

/// A file without a name, for output: unlike a pipe it cannot fill up and stall the contender.
pub(super) fn tempfile() -> Result<File, String> {
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("xtask-bench-{}-{number}", std::process::id()));
    let options = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
    let file = options.map_err(|why| format!("{}: {why}", path.display()))?;
    std::fs::remove_file(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    Ok(file)
}

fn content(file: &mut File) -> Result<String, String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.read_to_end(&mut bytes))
        .map_err(|why| why.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last JSON line that holds a measurement.
fn measurement(text: &str) -> Option<Value> {
    let lines =
        text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok());
    lines.into_iter().find(|line| seconds(line).is_some())
}

fn seconds(line: &Value) -> Option<f64> {
    line["median_seconds"].as_f64().or_else(|| line["seconds"].as_f64())
}

fn figures(lines: Vec<Round>) -> Result<Figures, String> {
    let detail = lines.last().map(|(_, line, _)| line.clone()).ok_or("it took part in no round")?;
    let work: Vec<f64> = lines.iter().filter_map(|(_, line, _)| seconds(line)).collect();
    let least = |(_, line, _): &Round| line["min_seconds"].as_f64().or_else(|| seconds(line));
    Ok(Figures {
        seconds: median(work.clone()),
        seconds_each: work,
        seconds_min: lines.iter().filter_map(least).fold(f64::INFINITY, f64::min),
        wall_seconds: median(lines.iter().map(|(wall, ..)| *wall).collect()),
        rounds: lines.len(),
        megabytes: lines.iter().filter_map(|(.., most)| *most).reduce(f64::max),
        detail,
    })
}

/// The middle; the mean of the two middles of an even number.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str, rounds_max: usize) -> Contender {
        Contender {
            name: name.to_string(),
            program: PathBuf::from("sh"),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            rounds_max,
        }
    }

    #[test]
    fn contenders_take_turns_and_a_failure_does_not_stop_the_others() {
        let good =
            shell("good", r#"echo '{"event":"step"}'; echo '{"seconds": 2.5, "objective": 7}'"#, 2);
        let bad = shell("bad", "echo no such module >&2; exit 1", 9);
        let measured = take(&[good, bad], 3);
        let figures = measured[0].result.clone().unwrap();
        assert_eq!((figures.seconds, figures.seconds_min, figures.rounds), (2.5, 2.5, 2));
        assert_eq!(figures.detail["objective"], 7);
        assert!(measured[1].result.clone().unwrap_err().contains("no such module"));
    }

    #[test]
    fn medians_stand_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 8.0]), 3.0);
    }

    #[test]
    fn the_last_measurement_counts() {
        let text = "{\"median_seconds\": 1}\n{\"median_seconds\": 2, \"min_seconds\": 1.5}\n{\"other\": 3}\nwords";
        assert_eq!(measurement(text).unwrap()["median_seconds"], 2);
        assert!(measurement("words only").is_none());
    }
}
