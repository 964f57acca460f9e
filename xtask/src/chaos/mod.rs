//! Real processes under every mishap: `cargo xtask chaos` plays seeded runs of the release binary in which workers, newcomers
//! and coordinators die or stand still at named places of the protocol and at random moments, and checks what comes out.
//! Start reading at `scenario.rs`; `points.rs` is the list of named places.

mod chance;
mod herd;
mod jobs;
mod links;
mod play;
mod points;
mod rivals;
mod scenario;
mod sheet;
mod soak;
mod sums;
mod verdict;

use crate::chores::compiler_with;
use jobs::Job;
use play::Tools;
use scenario::{Family, Scenario};
use serde_json::Value;
use sheet::Line;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Runs of each kind of cut, unless fewer are asked for.
const LINKS_MAX: u64 = 10;

/// Runs of each size beside torchft, unless fewer are asked for.
const RIVALS_MAX: u64 = 15;

/// Seconds without a step that are worth a word.
const LONG_STALL: f64 = 2.0;

/// What the person asked for.
#[derive(Clone, PartialEq, Debug)]
struct Options {
    runs: u64,
    seed: u64,
    only: String,
    minutes: f64,
    /// Runs that are played at the same time.
    side_by_side: u64,
    binary: Option<PathBuf>,
    is_recorded: bool,
    /// Links are cut in network namespaces instead.
    links: bool,
    /// Sums beside those of torchft instead.
    torchft: bool,
    /// The peers' Python, if it is another than ours.
    python: Option<PathBuf>,
}

/// Plays runs, tells what went wrong in which, and records the counts.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    points::check_sites(root)?;
    let tools = tools(root, &options)?;
    if options.links {
        let rounds = options.runs.min(LINKS_MAX);
        return links::run(root, &tools, rounds, options.is_recorded);
    }
    if options.torchft {
        let (runs, python) = (options.runs.min(RIVALS_MAX), options.python);
        return rivals::run(root, &tools, (runs, options.seed), (python, options.is_recorded));
    }
    let calm = Calm::default();
    let (start, next, lines) = (Instant::now(), AtomicU64::new(0), Mutex::new(Vec::new()));
    let play = || -> Result<(), String> {
        while start.elapsed() < Duration::from_secs_f64(options.minutes * 60.0) {
            let Some(scenario) = next_scenario(&options, &next) else { return Ok(()) };
            let line = one(&tools, &scenario, &calm, options.runs == 1)?;
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(line);
            if lines.len() % 50 == 0 {
                let failed = lines.iter().filter(|line: &&Line| line.failure.is_some()).count();
                println!("{} runs, {failed} failures, {:.0?}", lines.len(), start.elapsed());
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let players: Vec<_> = (0..options.side_by_side).map(|_| scope.spawn(play)).collect();
        let ended = players.into_iter().map(|player| player.join().expect("players do not panic"));
        ended.collect::<Result<Vec<()>, String>>()
    })?;
    let lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    let campaign =
        sheet::campaign(&lines, start.elapsed().as_secs_f64() / 60.0, options.side_by_side);
    println!("{}", sheet::page(std::slice::from_ref(&campaign)));
    if options.is_recorded {
        sheet::record(root, &campaign)?;
    }
    match lines.iter().filter(|line| line.failure.is_some()).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} runs failed", lines.len())),
    }
}

/// One long job, and members that come and go.
pub(crate) fn soak(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let tools = tools(root, &options)?;
    let soaked = soak::run(&tools, options.seed, options.minutes.min(60.0))?;
    keep_soak(root, &options, &soaked)
}

/// One that was short, or only tried, proves nothing: it is kept where that is asked for.
fn keep_soak(root: &Path, options: &Options, soaked: &Value) -> Result<(), String> {
    if options.is_recorded {
        sheet::add(&root.join("bench/soak.json"), soaked)?;
    }
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options {
        runs: 1_000,
        seed: 0,
        only: String::new(),
        minutes: 1e6,
        side_by_side: 2,
        binary: None,
        is_recorded: false,
        links: false,
        torchft: false,
        python: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |word: &String| {
            word.parse::<u64>().map_err(|_| format!("{argument} takes a number, not {word}"))
        };
        match argument.as_str() {
            "--runs" => options.runs = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--minutes" => options.minutes = number(value()?)? as f64,
            "--side-by-side" => options.side_by_side = number(value()?)?.max(1),
            "--only" => options.only = value()?.clone(),
            "--binary" => options.binary = Some(PathBuf::from(value()?)),
            "--record" => options.is_recorded = true,
            "--links" => options.links = true,
            "--torchft" => options.torchft = true,
            "--python" => options.python = Some(PathBuf::from(value()?)),
            other => return Err(format!("unknown flag '{other}'")),
        }
    }
    Ok(options)
}

/// The next run that was asked for: seeds in order, but only those whose sentence has the words.
fn next_scenario(options: &Options, next: &AtomicU64) -> Option<Scenario> {
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        if at >= options.runs {
            return None;
        }
        let scenario = Scenario::of(options.seed + at);
        let sentence = format!("{} {}", scenario.family.name(), scenario.sentence());
        if sentence.contains(&options.only) {
            return Some(scenario);
        }
    }
}

/// Builds the release binary with failpoints, and the loop of one's own; or takes a binary that is there.
fn tools(root: &Path, options: &Options) -> Result<Tools, String> {
    let folder = std::env::temp_dir().join(format!("starlings-chaos-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut tools = Tools { starlings: PathBuf::new(), named_sums: None, folder };
    if let Some(binary) = &options.binary {
        let binary = binary.canonicalize().map_err(|why| format!("{}: {why}", binary.display()))?;
        let named_sums = binary.parent().map(|folder| folder.join("examples/named_sums"));
        (tools.starlings, tools.named_sums) = (binary, named_sums.filter(|path| path.exists()));
        return Ok(tools);
    }
    let wrapper = compiler_with(root, "failpoints")?;
    let [starlings, named_sums] = build(root, &wrapper)?;
    // An ordinary build takes the same place: what is tried must be what was built.
    let keep = |path: &Path| {
        let kept = tools.folder.join(path.file_name().unwrap_or_default());
        std::fs::copy(path, &kept).map(|_| kept).map_err(|why| format!("{}: {why}", path.display()))
    };
    let (starlings, named_sums) = (keep(&starlings)?, keep(&named_sums)?);
    (tools.starlings, tools.named_sums) = (starlings, Some(named_sums));
    Ok(tools)
}

/// Both in one command: alone the example would want other features of other people's crates, and a build of its own.
fn build(root: &Path, wrapper: &Path) -> Result<[PathBuf; 2], String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--message-format=json-render-diagnostics"]);
    cargo.args(["--package", "starlings-cli", "--bin", "starlings"]);
    cargo.args(["--package", "starlings", "--example", "named_sums"]);
    cargo.current_dir(root).env("RUSTC_WORKSPACE_WRAPPER", wrapper);
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|why| format!("cargo: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let binaries: Vec<PathBuf> =
        messages.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect();
    let found = |name: &str| {
        let path = binaries.iter().find(|path| path.file_name().is_some_and(|it| it == name));
        path.filter(|_| output.status.success()).cloned().ok_or(format!("{name} did not build"))
    };
    Ok([found("starlings")?, found("named_sums")?])
}

/// The reports of undisturbed runs, each played when it is first wanted.
#[derive(Default)]
struct Calm(Mutex<BTreeMap<Job, Value>>);

impl Calm {
    fn report(&self, tools: &Tools, job: Job) -> Result<Value, String> {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = reports.get(&job) {
            return Ok(report.clone());
        }
        let played = play::play(tools, &Scenario::calm(job))?;
        let report = played.events.last().filter(|event| event["event"] == "report").cloned();
        let report = report.ok_or_else(|| {
            format!("the undisturbed run of {} failed\n{}", job.name(), played.train.last_words())
        })?;
        let (steps, told) = (&report["steps"], played.steps.len());
        let seconds = report["seconds"].as_f64().unwrap_or(0.0);
        println!("{}: {steps} steps, {told} of them told, {seconds:.2} s undisturbed", job.name());
        reports.insert(job, report.clone());
        Ok(report)
    }
}

/// Plays one run and tells of it if it failed or stood still for long. Where only one is played all of it is told.
fn one(tools: &Tools, scenario: &Scenario, calm: &Calm, is_alone: bool) -> Result<Line, String> {
    let mut line = Line {
        seed: scenario.seed,
        family: scenario.family,
        workers: scenario.workers,
        armed: scenario.armed.map(|armed| armed.point.name),
        reached: false,
        stall: None,
        sums: 0,
        failure: None,
    };
    let (verdict, story) = match scenario.family {
        Family::Sums => match sums::play(tools, scenario) {
            Ok(summed) => {
                (line.reached, line.stall, line.sums) = (summed.reached, summed.stall, summed.sums);
                (summed.verdict, summed.story)
            }
            Err(why) => (Err(why), String::new()),
        },
        _ => match play::play(tools, scenario) {
            Ok(mut played) => {
                let calm = calm.report(tools, scenario.job)?;
                let verdict = verdict::judge(&mut played, &calm);
                let times: Vec<Instant> = played.steps.iter().map(|(at, _)| *at).collect();
                let kind = verdict::stall_kind(&played);
                line.stall = kind.and_then(|kind| Some((kind, verdict::stall(&times)?)));
                line.reached = played.reached;
                let mut story = played.history() + &played.train.last_words();
                for process in played.workers.iter().filter_map(|worker| worker.process.as_ref()) {
                    story += &process.last_words();
                }
                played.coordinators.iter().for_each(|process| story += &process.last_words());
                (verdict, story)
            }
            Err(why) => (Err(why), String::new()),
        },
    };
    if let Some((_, seconds)) = line.stall.filter(|(_, seconds)| *seconds > LONG_STALL) {
        println!("stood still for {seconds:.1} s: {}", scenario.sentence());
    }
    match verdict {
        Err(why) => {
            println!("FAILED {}\n  {why}", scenario.sentence());
            println!("{story}  replay it: cargo xtask chaos --runs 1 --seed {}", scenario.seed);
            line.failure = Some(why);
        }
        Ok(()) if is_alone => println!("{}\n{story}", scenario.sentence()),
        Ok(()) => {}
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_leave_nothing_behind() {
        let binary = std::env::current_exe().unwrap();
        let mut options = parse(&[]).unwrap();
        options.binary = Some(binary.clone());
        let tools = tools(Path::new("."), &options).unwrap();
        let folder = tools.folder.clone();
        std::fs::write(folder.join("starlings"), "a copy").unwrap();
        drop(tools);
        assert!(!folder.exists() && binary.exists());
    }

    #[test]
    fn a_soak_is_recorded_only_where_that_is_asked_for() {
        let root = std::env::temp_dir().join(format!("starlings-soak-{}", std::process::id()));
        std::fs::create_dir_all(root.join("bench")).unwrap();
        let kept = |words: &[&str]| {
            let options = parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
            keep_soak(&root, &options.unwrap(), &Value::from(7)).unwrap();
            std::fs::read_to_string(root.join("bench/soak.json")).unwrap_or_default()
        };
        assert_eq!(kept(&["--minutes", "1"]), "");
        assert_eq!(kept(&["--record"]), "[\n  7\n]\n");
        assert_eq!(kept(&["--record"]), "[\n  7,\n  7\n]\n");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let options =
            |line: &str| parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
        let read = options("--runs 7 --seed 3 --only kills --minutes 2").unwrap();
        assert_eq!((read.runs, read.seed, read.only.as_str()), (7, 3, "kills"));
        assert_eq!(read.minutes, 2.0);
        assert!(options("--runs many").unwrap_err().contains("many"));
        assert!(options("--fast").unwrap_err().contains("--fast"));
    }
}
