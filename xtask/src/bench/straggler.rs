//! One worker of three slowed four times, by stopping its process again and again: what each consistency makes of it,
//! as time to the same objective. On a busy machine a process that was stopped is let run before others, so that the
//! length of a stop is first found by trial. And one of two slowed three times, each with a core of its own on two cores:
//! what `deal = "speed"` makes of it beside the ideal.

use super::plot::{Chart, Mark, Scale, Series};
use super::sheet::{Finding, Sheet, bytes, number};
use super::trial::{Process, Trial};
use super::{Study, Suite};
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "straggler", run };

const LIMIT: Duration = Duration::from_mins(4);
/// A slow worker runs so long between two stops: short beside a step, or each message to it would wait longer than one to a
/// slow machine does.
const RUN: f64 = 0.000_3;

/// A flock whose last worker is slow: events come from the first.
#[derive(Clone, Copy)]
struct Hurdle {
    workers: u64,
    /// How slow the last one has to be.
    slowness: f64,
    /// Passes over the rows: enough that what the first ones cost, until speeds are known and rows have moved, is a small
    /// share, as it is of a job that is worth dealing by speed.
    epochs: u32,
}

const THREE: Hurdle = Hurdle { workers: 3, slowness: 4.0, epochs: 20 };
const TWO: Hurdle = Hurdle { workers: 2, slowness: 3.0, epochs: 60 };
/// The same as a job of a few seconds, in which the first deals weigh most.
const SHORT: Hurdle = Hurdle { epochs: 20, ..TWO };

const SETTINGS: &[(&str, &[&str])] = &[
    ("bsp", &["topology=star"]),
    ("bsp, deal by speed", &["topology=star", "deal=speed"]),
    ("ssp 3", &["topology=star", "consistency=ssp"]),
    ("async", &["topology=star", "consistency=async"]),
    ("backup-workers 1", &["topology=star", "consistency=backup-workers"]),
    ("local 8", &["consistency=local"]),
    ("local 8, deal by speed", &["consistency=local", "deal=speed"]),
];

/// What two workers do, in turns.
const PAIR: &[(&str, &[&str])] = &[
    ("bsp", &["topology=star"]),
    ("bsp, deal by speed", &["topology=star", "deal=speed"]),
    ("local 8, deal by speed", &["consistency=local", "deal=speed"]),
];
const PAIR_ROUNDS: usize = 3;

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let mut finding = Finding::default();
    for (case, hurdle) in [("two", TWO), ("short", SHORT)] {
        if suite.wants(case) {
            let sheet = two(suite, hurdle)?;
            finding.sheets.push((format!("straggler-{case}"), sheet));
        }
    }
    if suite.wants("three") {
        three(suite, &mut finding)?;
    }
    Ok(finding)
}

/// One of two slowed three times, in turns, with the ideal beside it.
fn two(suite: &Suite<'_>, hurdle: Hurdle) -> Result<Sheet, String> {
    let (first, stop) = calibrate(suite, hurdle)?;
    let (mut nobody, mut slow) = (Vec::new(), vec![Vec::new(); PAIR.len()]);
    slow[0].push(first);
    for round in 0..if suite.is_quick { 1 } else { PAIR_ROUNDS } {
        nobody.push(trial(suite, ("bsp, nobody slow", PAIR[0].1), (hurdle, None))?);
        for (setting, trials) in PAIR.iter().zip(&mut slow).skip(usize::from(round == 0)) {
            trials.push(trial(suite, *setting, (hurdle, Some(stop)))?);
        }
    }
    let middle = |of: &dyn Fn(&Trial) -> f64, trials: &[Trial]| {
        let mut values: Vec<f64> = trials.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let seconds = |trials: &[Trial]| middle(&|trial| trial.seconds, trials);
    let slow_by = |trials: &[Trial]| middle(&|trial| slowness(trial).unwrap_or(f64::NAN), trials);
    // As fast as one worker and a slow one's share of a second are together.
    let (alone, slow_times) = (seconds(&nobody), slow_by(&slow[0]));
    let ideal = alone * 2.0 / (1.0 + 1.0 / slow_times);
    let row = |name: &str, trials: &[Trial], is_slow: bool| {
        let over = seconds(trials) / if is_slow { ideal } else { alone } - 1.0;
        vec![
            name.to_string(),
            number(Some(seconds(trials)), 2),
            format!("{:+.0} %", 100.0 * over),
            number(Some(slow_by(trials)), 2),
            trials.iter().map(|trial| said(&trial.deals)).collect::<Vec<_>>().join("; "),
            number(Some(trials[0].objective), 4),
            trials.len().to_string(),
        ]
    };
    let mut rows = vec![row("bsp, nobody slow", &nobody, false)];
    rows.push(vec!["the ideal".to_string(), number(Some(ideal), 2), "+0 %".to_string()]);
    rows[1].resize(7, "–".to_string());
    rows.extend(PAIR.iter().zip(&slow).map(|(setting, trials)| row(setting.0, trials, true)));
    let note = format!(
        "`bench/jobs/straggler.toml` with two worker processes and {} passes, the second stopped {:.2} ms for every {:.1} ms that it runs in all \
         rows but the first, which makes its computation {slow_times:.2} times as long. The ideal is what the first row's time would be \
         if one worker and 1/{slow_times:.2} of another did the work of two, communication included. Seconds of training, medians of \
         runs in turns. New deals: the steps of which each was the first. Load of the machine at the end: {}.",
        hurdle.epochs,
        stop * 1e3,
        RUN * 1e3,
        super::slow_links::load()
    );
    Ok(Sheet {
        title: format!("One worker of two slowed three times, {} passes", hurdle.epochs),
        notes: vec![note],
        header: vec![
            "how",
            "s in all",
            "over the ideal",
            "slowness",
            "new deals",
            "final objective",
            "runs",
        ],
        rows,
    })
}

fn said(deals: &[u64]) -> String {
    deals.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

fn three(suite: &Suite<'_>, finding: &mut Finding) -> Result<(), String> {
    let mut all = Vec::new();
    all.push(trial(suite, ("bsp, nobody slow", SETTINGS[0].1), (THREE, None))?);
    let (bsp, stop) = calibrate(suite, THREE)?;
    all.push(bsp);
    for setting in &SETTINGS[1..] {
        match trial(suite, *setting, (THREE, Some(stop))) {
            Ok(trial) => all.push(trial),
            Err(why) => finding.skip(format!("{}: {why}", setting.0)),
        }
    }
    // Half of the passes: whoever leaves contributions out, or lets seat 0 run ahead, needs more passes than others.
    let points = &all[0].points;
    let middle = points.get((points.len() / 2).saturating_sub(1)).ok_or("it had no pass")?;
    let target = middle.1 * 1.01;
    let bsp = all.iter().find(|trial| trial.name == "bsp").and_then(|t| t.reached(target));
    let rows = all.iter().map(|trial| {
        let reached = trial.reached(target);
        vec![
            trial.name.clone(),
            number(reached, 2),
            number(bsp.zip(reached).map(|(bsp, this)| bsp / this), 2),
            number(Some(trial.seconds), 2),
            number(slowness(trial), 2),
            bytes(trial.bytes),
            number(Some(trial.last()), 4),
            number(Some(trial.objective), 4),
        ]
    });
    let note = format!(
        "Softmax regression on made data (`bench/jobs/straggler.toml`), three worker processes, the last of them stopped \
         again and again in all rows but the first, {:.2} ms for every {:.1} ms that it runs. Slowness is its time of computation \
         beside the mean of the others. Target: the mean loss of a pass of seat 0 is at most \
         {target:.4}, 1.01 times what it is in the middle of the run in which nobody is slow. One run each. Load of the machine at the \
         end: {}.",
        stop * 1e3,
        RUN * 1e3,
        super::slow_links::load()
    );
    let sheet = Sheet {
        title: "One worker of three slowed four times".to_string(),
        notes: vec![note],
        header: vec![
            "how",
            "s to target",
            "× bsp",
            "s in all",
            "slowness",
            "bytes",
            "last pass",
            "final objective",
        ],
        rows: rows.collect(),
    };
    finding.sheets.push(("straggler".to_string(), sheet));
    finding.pictures.push(("straggler".to_string(), picture(&all, target)));
    Ok(())
}

fn trial(
    suite: &Suite<'_>,
    (name, sets): (&str, &[&str]),
    (hurdle, stop): (Hurdle, Option<f64>),
) -> Result<Trial, String> {
    let model = std::env::temp_dir().join(format!("starlings-straggler-{}", std::process::id()));
    let mut command = Command::new(&suite.binary);
    command.arg("train").arg(suite.root.join("bench/jobs/straggler.toml"));
    command.args(["--workers", &hurdle.workers.to_string(), "--launcher", "processes", "--json"]);
    command.arg("--out").arg(&model);
    command.args(sets.iter().flat_map(|set| ["--set".to_string(), format!("cluster.{set}")]));
    let epochs = if suite.is_quick { 2 } else { hurdle.epochs };
    command.args(["--set", &format!("train.epochs={epochs}")]);
    let mut process = Process::start(&mut command)?;
    let brake = match stop {
        Some(stop) => Some(Brake::on(slow_process(&process, hurdle.workers - 1)?, stop)?),
        None => None,
    };
    let said = process.finish(LIMIT);
    drop(brake);
    let _ = std::fs::remove_file(&model);
    let trial = Trial::from_events(name, &said?)?;
    eprintln!("  {name}: {:.1} s", trial.seconds);
    Ok(trial)
}

/// A run under bsp in which the worker is about as slow as it should be, and the length of a stop that made it so.
fn calibrate(suite: &Suite<'_>, hurdle: Hurdle) -> Result<(Trial, f64), String> {
    let wanted = hurdle.slowness;
    let mut stop = RUN * (wanted - 1.0);
    for _ in 0..3 {
        let trial = trial(suite, SETTINGS[0], (hurdle, Some(stop)))?;
        let seen = slowness(&trial).ok_or("the report has no paces")?;
        eprintln!("  stops of {:.2} ms make it {seen:.2} times as slow", stop * 1e3);
        if (0.85 * wanted..1.15 * wanted).contains(&seen) {
            return Ok((trial, stop));
        }
        stop = (stop * (wanted - 1.0) / (seen - 1.0).max(0.2)).clamp(RUN, 0.2);
    }
    Ok((trial(suite, SETTINGS[0], (hurdle, Some(stop)))?, stop))
}

/// The slow seat's time of computation beside the mean of the others'. Under gates that let it fall behind it does less.
fn slowness(trial: &Trial) -> Option<f64> {
    let (slow, others) = trial.computation.split_last()?;
    Some(slow / (others.iter().sum::<f64>() / others.len() as f64))
}

/// The process of the seat that is to be slow, as the events name it.
fn slow_process(process: &Process, rank: u64) -> Result<u64, String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let text = process.so_far()?;
        let mut events =
            text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let seat = events.find(|event| event["event"] == "worker" && event["rank"] == rank);
        if let Some(id) = seat.and_then(|event| event["pid"].as_u64()) {
            return Ok(id);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("no worker told its process in 60 s".to_string())
}

/// Stops and continues a process until it is dropped. A thread of its own, at so few instructions a turn that the others hardly
/// lose any of their cores.
struct Brake {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Brake {
    fn on(id: u64, stop: f64) -> Result<Brake, String> {
        let process = i32::try_from(id).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| format!("{id} is no process"))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let turns = move || {
            run_first();
            while !over.load(Ordering::Relaxed) && kill_process(process, Signal::STOP).is_ok() {
                std::thread::sleep(Duration::from_secs_f64(stop));
                let _ = kill_process(process, Signal::CONT);
                std::thread::sleep(Duration::from_secs_f64(RUN));
            }
        };
        Ok(Brake { is_over, thread: Some(std::thread::spawn(turns)) })
    }
}

/// This thread runs before all others where that is allowed: stops would else last as long as the others compute, and the
/// worker would not only be slow but erratic.
fn run_first() {
    let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(number) = thread.file_name() {
        let _ = Command::new("chrt").args(["--fifo", "--pid", "1"]).arg(number).output();
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn picture(all: &[Trial], target: f64) -> String {
    let series =
        all.iter().map(|trial| Series { name: trial.name.clone(), points: trial.points.clone() });
    let chart = Chart {
        title: "One worker of three slowed four times".to_string(),
        across: ("seconds", Scale::Linear),
        up: ("mean loss of a pass", Scale::Linear),
        mark: Mark::Line,
        series: series.collect(),
        target: Some(("target".to_string(), target)),
    };
    chart.svg()
}
