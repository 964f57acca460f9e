//! The simulator by the million: `cargo xtask simulate` runs many seeds of the real machines in the release profile on
//! all cores, `cargo xtask planted` shows that it would see bugs if there were any.

mod planted;
mod record;

pub(crate) use planted::run as planted;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The simulations, as `crates/testkit/src/sim` names them.
const MACHINES: [&str; 6] =
    ["surviving", "merging", "collecting", "serving", "owning", "membership"];

/// What the person asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Options {
    seeds: u64,
    from: u64,
    machines: Vec<&'static str>,
    is_recorded: bool,
}

/// One stretch of seeds.
#[derive(Clone, Copy)]
struct Stretch<'a> {
    machine: &'a str,
    from: u64,
    seeds: u64,
}

/// Runs seeds until one fails.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let binary = build(root, None)?;
    for machine in options.machines {
        let stretch = Stretch { machine, from: options.from, seeds: options.seeds };
        let told = simulate(&binary, stretch, None)?;
        let seconds = told["seconds"].as_f64().unwrap_or(0.0);
        if let Some(seed) = told["seed"].as_u64() {
            let (why, replay) = (text(&told["why"]), text(&told["replay"]));
            println!("{machine}: seed {seed} fails: {why}\nreplay it: {replay}");
            return Err(format!("{machine} fails with seed {seed}"));
        }
        println!("{machine}: {} seeds, 0 failures, {seconds:.0} s", options.seeds);
        if options.is_recorded {
            record::add(root, stretch, seconds)?;
        }
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options =
        Options { seeds: 100_000, from: 0, machines: MACHINES.to_vec(), is_recorded: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |word: &String| {
            word.parse().map_err(|_| format!("{argument} takes a number, not {word}"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number(value()?)?,
            "--from" => options.from = number(value()?)?,
            "--record" => options.is_recorded = true,
            "--machine" => {
                let name = value()?;
                let known = MACHINES.iter().find(|machine| *machine == name);
                let all = MACHINES.join(", ");
                options.machines =
                    vec![known.ok_or(format!("no machine '{name}'; there are {all}"))?];
            }
            other => return Err(format!("unknown flag '{other}'")),
        }
    }
    Ok(options)
}

/// Builds the simulator in the release profile and asks cargo where it lies. With a wrapper the project's own crates,
/// and only they, are compiled through it.
fn build(root: &Path, wrapper: Option<&Path>) -> Result<PathBuf, String> {
    let arguments = ["build", "--release", "-p", "starlings-testkit", "--bin", "simulate"];
    let mut cargo = Command::new("cargo");
    cargo.args(arguments).arg("--message-format=json-render-diagnostics").current_dir(root);
    if let Some(wrapper) = wrapper {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    }
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|why| format!("cargo: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let binary = messages
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back();
    binary.filter(|_| output.status.success()).ok_or_else(|| "the simulator did not build".into())
}

/// Runs one stretch on all cores; its answer is JSON.
fn simulate(binary: &Path, stretch: Stretch<'_>, bug: Option<&str>) -> Result<Value, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let output = Command::new(binary)
        .arg(stretch.machine)
        .args([stretch.from, stretch.seeds, threads as u64].map(|number| number.to_string()))
        .args(bug)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| format!("the simulator did not start: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().next_back().and_then(|line| serde_json::from_str(line).ok());
    told.ok_or_else(|| format!("the simulator ended with {} and said nothing", output.status))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let read = options("--machine serving --from 7 --seeds 1").unwrap();
        assert_eq!((read.machines, read.from, read.seeds), (vec!["serving"], 7, 1));
        assert_eq!(options("").unwrap().machines, MACHINES);
        assert!(options("--machine toaster").unwrap_err().contains("surviving"));
        assert!(options("--seeds many").unwrap_err().contains("many"));
        assert!(options("--seeds").unwrap_err().contains("needs a value"));
        assert!(options("--fast").unwrap_err().contains("--fast"));
    }
}
