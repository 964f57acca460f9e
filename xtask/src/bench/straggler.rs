//! One worker of three slowed four times, by stopping its process again and again: what each consistency makes of it,
//! as time to the same objective. And one of two slowed three times, each with a core of its own on two cores, by a rival
//! on the slow one's core: what `deal = "speed"` makes of it beside the ideal. How long a stop is, or how long the rival keeps
//! the core, is first found by trial.

use super::brake::{Brake, RUN, pin};
use super::plot::{Chart, Mark, Scale, Series};
use super::sheet::{Finding, Sheet, bytes, number};
use super::trial::{Process, Trial};
use super::{Study, Suite};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "straggler", run };

const LIMIT: Duration = Duration::from_mins(4);

/// A flock whose last worker is slow: events come from the first.
#[derive(Clone, Copy)]
struct Hurdle {
    workers: u64,
    /// How slow the last one has to be.
    slowness: f64,
    /// Passes over the rows: enough that what the first ones cost, until speeds are known and rows have moved, is a small
    /// share, as it is of a job that is worth dealing by speed.
    epochs: u32,
    how: How,
}

/// What makes the last worker slow.
#[derive(Clone, Copy, PartialEq)]
enum How {
    /// It is stopped: there are more workers than cores, so that none has a core of its own. The signals take time from the
    /// others, too.
    Stops,
    /// A rival takes its core, where it is alone: nobody else is disturbed.
    Rival,
}

const THREE: Hurdle = Hurdle { workers: 3, slowness: 4.0, epochs: 20, how: How::Stops };
const TWO: Hurdle = Hurdle { workers: 2, slowness: 3.0, epochs: 60, how: How::Rival };
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
        "`bench/jobs/straggler.toml` with two worker processes and {} passes, each on a core of its own. In all rows but the first a rival \
         takes the second one's core for {:.2} ms after every {:.1} ms, which makes its computation {slow_times:.2} times as long. The ideal is what the first row's time would be \
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
    let brake = hinder(&process, hurdle, stop)?;
    let said = process.finish(LIMIT);
    drop(brake);
    let _ = std::fs::remove_file(&model);
    let trial = Trial::from_events(name, &said?)?;
    eprintln!("  {name}: {:.1} s", trial.seconds);
    Ok(trial)
}

/// Puts workers where they should be, and slows the last one, if it is to be slow.
fn hinder(process: &Process, hurdle: Hurdle, stop: Option<f64>) -> Result<Option<Brake>, String> {
    let last = hurdle.workers - 1;
    if hurdle.how == How::Stops {
        return stop.map(|stop| Brake::stops(worker(process, last)?, stop)).transpose();
    }
    for rank in 0..hurdle.workers {
        pin(worker(process, rank)?, rank)?;
    }
    Ok(stop.map(|stop| Brake::rival(last, stop)))
}

/// A run under bsp in which the worker is about as slow as it should be, and the length of a stop that made it so.
fn calibrate(suite: &Suite<'_>, hurdle: Hurdle) -> Result<(Trial, f64), String> {
    let wanted = hurdle.slowness;
    let mut stop = RUN * (wanted - 1.0);
    for _ in 0..3 {
        let trial = trial(suite, SETTINGS[0], (hurdle, Some(stop)))?;
        let seen = slowness(&trial).ok_or("the report has no paces")?;
        eprintln!("  {:.2} ms at a time make it {seen:.2} times as slow", stop * 1e3);
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

/// The process of a seat, as the events name it.
fn worker(process: &Process, rank: u64) -> Result<u64, String> {
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
