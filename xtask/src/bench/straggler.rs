//! One worker of three slowed four times, by stopping its process again and again: what each consistency makes of it,
//! as time to the same objective. On a busy machine a process that was stopped is let run before others, so that the
//! length of a stop is first found by trial.

use super::plot::{Chart, Mark, Scale, Series};
use super::sheet::{Finding, Sheet, bytes, number};
use super::trial::{Process, Trial};
use super::{Study, Suite};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "straggler", run };

const LIMIT: Duration = Duration::from_mins(4);
/// The last seat: events come from the first.
const SLOW_RANK: u64 = 2;
/// Runs for 10 ms and is stopped for as long as said, until it is gone. Only builtins: a new process for each signal
/// would slow the others.
const BRAKE: &str = "exec 9<> <(:); while kill -STOP $0 2>/dev/null; do read -t $1 -u 9; \
                     kill -CONT $0 2>/dev/null; read -t 0.01 -u 9; done";
/// Stops on a machine with nothing else to do, in seconds, and how slow the worker has to be.
const STOP: f64 = 0.03;
const SLOWNESS: f64 = 4.0;

const SETTINGS: &[(&str, &[&str])] = &[
    ("bsp", &["topology=star"]),
    ("bsp, deal by speed", &["topology=star", "deal=speed"]),
    ("ssp 3", &["topology=star", "consistency=ssp"]),
    ("async", &["topology=star", "consistency=async"]),
    ("backup-workers 1", &["topology=star", "consistency=backup-workers"]),
    ("local 8", &["consistency=local"]),
];

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let mut finding = Finding::default();
    let mut all = Vec::new();
    all.push(trial(suite, ("bsp, nobody slow", SETTINGS[0].1), None)?);
    let (bsp, stop) = calibrate(suite)?;
    all.push(bsp);
    for setting in SETTINGS[1..].iter().filter(|setting| suite.wants(setting.0)) {
        match trial(suite, *setting, Some(stop)) {
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
         again and again in all rows but the first, {:.0} ms for every 10 ms that it runs. Slowness is its time of computation \
         beside the mean of the others. Target: the mean loss of a pass of seat 0 is at most \
         {target:.4}, 1.01 times what it is in the middle of the run in which nobody is slow. One run each. Load of the machine at the \
         end: {}.",
        stop * 1e3,
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
    Ok(finding)
}

fn trial(
    suite: &Suite<'_>,
    (name, sets): (&str, &[&str]),
    stop: Option<f64>,
) -> Result<Trial, String> {
    let model = std::env::temp_dir().join(format!("starlings-straggler-{}", std::process::id()));
    let mut command = Command::new(&suite.binary);
    command.arg("train").arg(suite.root.join("bench/jobs/straggler.toml"));
    command.args(["--workers", "3", "--launcher", "processes", "--json", "--out"]).arg(&model);
    command.args(sets.iter().flat_map(|set| ["--set".to_string(), format!("cluster.{set}")]));
    if suite.is_quick {
        command.args(["--set", "train.epochs=2"]);
    }
    let mut process = Process::start(&mut command)?;
    let brake = match stop {
        Some(stop) => Some(Brake::on(slow_process(&process)?, stop)?),
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
fn calibrate(suite: &Suite<'_>) -> Result<(Trial, f64), String> {
    let mut stop = STOP;
    for _ in 0..3 {
        let trial = trial(suite, SETTINGS[0], Some(stop))?;
        let seen = slowness(&trial).ok_or("the report has no paces")?;
        eprintln!("  stops of {:.0} ms make it {seen:.2} times as slow", stop * 1e3);
        if (0.8 * SLOWNESS..1.2 * SLOWNESS).contains(&seen) {
            return Ok((trial, stop));
        }
        stop = (stop * (SLOWNESS - 1.0) / (seen - 1.0).max(0.2)).clamp(0.01, 0.2);
    }
    Ok((trial(suite, SETTINGS[0], Some(stop))?, stop))
}

/// The slow seat's time of computation beside the mean of the others'. Under gates that let it fall behind it does less.
fn slowness(trial: &Trial) -> Option<f64> {
    let (slow, others) = trial.computation.split_last()?;
    Some(slow / (others.iter().sum::<f64>() / others.len() as f64))
}

/// The process of the seat that is to be slow, as the events name it.
fn slow_process(process: &Process) -> Result<u64, String> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let text = process.so_far()?;
        let mut events =
            text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let seat = events.find(|event| event["event"] == "worker" && event["rank"] == SLOW_RANK);
        if let Some(id) = seat.and_then(|event| event["pid"].as_u64()) {
            return Ok(id);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("no worker told its process in 60 s".to_string())
}

/// Stops and continues a process until it is dropped.
struct Brake {
    id: u64,
    _shell: Process,
}

impl Brake {
    fn on(id: u64, stop: f64) -> Result<Brake, String> {
        let words = ["-c", BRAKE, &id.to_string(), &format!("{stop:.3}")];
        let shell = Process::start(Command::new("bash").args(words))?;
        Ok(Brake { id, _shell: shell })
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.id.to_string()]).output();
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
