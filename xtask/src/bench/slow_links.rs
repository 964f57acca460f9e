//! Two workers on a link of 100 Mbit/s: how long until the same objective, by codec and consistency, and by PyTorch's
//! DistributedDataParallel with its hooks on the same model, data, batch and rate. Beside each time stands the least that
//! its bytes take on the link.
//!
//! The objective is that of the whole model over all training rows: losses on the way are those of a worker's own model
//! on its own rows, which flatters whoever averages rarely. Ours tells it at the end of a run only, so that each way of
//! ours runs for as many passes as `raw`, then for fewer or more, until the least number is found that is enough.

use super::namespaces::{Namespaces, Side};
use super::plot::{Chart, Mark, Scale, Series};
use super::sheet::{Finding, Sheet, bytes, number};
use super::trial::{Process, Trial};
use super::{Study, Suite};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "slow-links", run };

const BITS_PER_SECOND: u64 = 100_000_000;
const PORT: u16 = 7077;
/// One run takes no longer.
const LIMIT: Duration = Duration::from_mins(5);
/// How much worse than `raw` still counts as the same objective.
const TOLERANCE: f64 = 1.01;
/// Shares of the passes of `raw`: downwards while they are enough, upwards until they are.
const FEWER: &[f64] = &[0.67, 0.5, 0.34];
const MORE: &[f64] = &[1.34, 2.0, 3.0];
/// How often the fastest meet at the end.
const ROUNDS: usize = 3;
/// A run that takes longer is not repeated: what takes as long as `raw` also learns like it.
const SEARCHED: f64 = 12.0;

/// A job of ours and the same for PyTorch.
struct Job {
    name: &'static str,
    /// Below `bench/jobs`.
    file: &'static str,
    /// What `data.py` makes: its name for it, the file and the scale.
    data: (&'static str, &'static str, &'static str),
    passes: u32,
    /// The last arguments of `ddp.py`: batch and rate.
    peer: [&'static str; 2],
    kind: &'static str,
    /// Settings that only make sense for this job.
    special: &'static [Setting],
}

/// A name and what it sets in `[cluster]`.
type Setting = (&'static str, &'static [&'static str]);

const JOBS: &[Job] = &[
    Job {
        name: "softmax regression, 1,024 × 256, batch 32",
        file: "links-softmax.toml",
        data: ("wide", "wide.parquet", "1"),
        passes: 6,
        peer: ["32", "8.0"],
        kind: "softmax",
        special: &[
            ("factors, mesh", &["topology=mesh", "codec=factors"]),
            ("threshold, mesh", &["topology=mesh", "codec=threshold", "codec.threshold=0.02"]),
        ],
    },
    Job {
        name: "matrix factorisation, 6,000 × 4,000, rank 32, batch 16,384",
        file: "links-factorisation.toml",
        data: ("ratings", "ratings.csv", "0.2"),
        passes: 8,
        peer: ["16384", "0.03"],
        kind: "factorisation",
        special: &[(
            "threshold, mesh",
            &["topology=mesh", "codec=threshold", "codec.threshold=0.02"],
        )],
    },
    Job {
        name: "perceptron 784-512-256-10, Fashion-MNIST, batch 256",
        file: "links-mlp.toml",
        data: ("fashion", "fashion.parquet", "1"),
        passes: 2,
        peer: ["256", "0.1"],
        kind: "mlp",
        special: &[(
            "local 25, int8, mesh",
            &["consistency=local", "consistency.steps=25", "topology=mesh", "codec=int8"],
        )],
    },
];

const APPROXIMATE: &[&str] =
    &["consistency=approximate", "consistency.significance=0.3", "consistency.decay=false"];

/// The first is what all others are measured by.
const SETTINGS: &[Setting] = &[
    ("raw, ring", &[]),
    ("half fp16, ring", &["codec=half"]),
    ("int8, mesh", &["topology=mesh", "codec=int8"]),
    ("one-bit, mesh", &["topology=mesh", "codec=one-bit"]),
    ("ternary, mesh", &["topology=mesh", "codec=ternary"]),
    ("top-k 1 %, mesh", &["topology=mesh", "codec=top-k"]),
    ("random-k 10 %, ring", &["codec=random-k"]),
    ("low-rank 2, ring", &["codec=low-rank"]),
    ("auto, mesh", &["topology=mesh", "codec=auto"]),
    ("local 8, raw", &["consistency=local"]),
    ("local 8, half", &["consistency=local", "codec=half"]),
    ("local 8, int8, mesh", &["consistency=local", "topology=mesh", "codec=int8"]),
    ("local 8, low-rank 2", &["consistency=local", "codec=low-rank"]),
    ("local 25, half", &["consistency=local", "consistency.steps=25", "codec=half"]),
    ("diloco 25, half", &["consistency=diloco", "consistency.steps=25", "codec=half"]),
    ("approximate 0.3, raw", APPROXIMATE),
    ("downpour 5, star", &["topology=star", "consistency=downpour"]),
    ("ssp 3, star", &["topology=star", "consistency=ssp"]),
];

/// A name, the hook, and how many times the passes of `raw` it gets.
const HOOKS: &[(&str, &str, u32)] = &[
    ("DDP, all-reduce", "none", 1),
    ("DDP, fp16 hook", "fp16", 1),
    ("DDP, PowerSGD 2 hook", "powersgd", 3),
];

/// A trial and the bytes that left each side of the link.
struct Timed {
    trial: Trial,
    wire: [u64; 2],
    is_peer: bool,
    passes: u32,
}

impl Timed {
    /// Seconds until the objective was this good: a peer tells it after each pass, a run of ours at its end.
    fn reached(&self, target: f64) -> Option<f64> {
        match self.is_peer {
            true => self.trial.reached(target),
            false => (self.trial.objective <= target).then_some(self.trial.seconds),
        }
    }

    /// Seconds that the busier direction needs for its bytes.
    fn bound(&self) -> f64 {
        *self.wire.iter().max().expect("two sides") as f64 * 8.0 / BITS_PER_SECOND as f64
    }
}

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let namespaces = Namespaces::new(BITS_PER_SECOND)?;
    let mut finding = Finding::default();
    for job in JOBS.iter().filter(|job| suite.wants(job.name)) {
        eprintln!("{}", job.name);
        let folder = suite.root.join("target/bench/data/links");
        make_data(suite, &folder, job)?;
        let mut all = Vec::new();
        // Peers and ours run within the same minutes: the machine may be busier later.
        peers(suite, (&namespaces, job, &folder), (&mut all, &mut finding));
        let quick = if suite.is_quick { 2 } else { usize::MAX };
        let mut target = None;
        for setting in SETTINGS.iter().chain(job.special).take(quick) {
            let attempt = |share: f64| attempt(suite, &namespaces, (job, share), *setting);
            match search(target, attempt) {
                Ok(timed) => {
                    target = target.or(Some(timed.trial.objective * TOLERANCE));
                    all.push(timed);
                }
                Err(why) => finding.skip(format!("{}: {}: {why}", job.name, setting.0)),
            }
        }
        let final_round = decide(suite, (&namespaces, job, &folder), &all);
        enter(job, (&all, final_round), &mut finding);
    }
    Ok(finding)
}

/// The run with the fewest passes that is good enough, or else the one with the most.
fn search(
    target: Option<f64>,
    attempt: impl Fn(f64) -> Result<Timed, String>,
) -> Result<Timed, String> {
    let mut best = attempt(1.0)?;
    let Some(target) = target.filter(|_| best.trial.seconds <= SEARCHED) else { return Ok(best) };
    let is_enough = best.trial.objective <= target;
    for &share in if is_enough { FEWER } else { MORE } {
        let next = attempt(share)?;
        match (is_enough, next.trial.objective <= target) {
            (true, false) => break,
            (false, true) => return Ok(next),
            // More passes do not help who is drifting away.
            (false, false) if next.trial.objective > best.trial.objective => break,
            _ => best = next,
        }
    }
    Ok(best)
}

fn attempt(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    (job, share): (&Job, f64),
    (name, sets): Setting,
) -> Result<Timed, String> {
    let passes = (f64::from(job.passes) * share).round() as u32;
    let run = || ours(suite, namespaces, (job, passes), (name, sets));
    let (trial, wire) = watched(namespaces, run)?;
    eprintln!("  {name}, {passes} passes: {:.4} in {:.1} s", trial.objective, trial.seconds);
    Ok(Timed { trial, wire, is_peer: false, passes })
}

fn make_data(suite: &Suite<'_>, folder: &Path, job: &Job) -> Result<(), String> {
    if folder.join(job.data.1).exists() {
        return Ok(());
    }
    let python = suite.python.as_ref().ok_or("the data needs the peers' Python (bench --setup)")?;
    let status = Command::new(python)
        .arg(suite.script("data.py"))
        .arg(job.data.0)
        .arg(folder)
        .arg(job.data.2)
        .status()
        .map_err(|why| format!("{}: {why}", python.display()))?;
    status.success().then_some(()).ok_or_else(|| "its data could not be made".to_string())
}

/// Runs something and counts what it puts on the link.
pub(super) fn watched(
    namespaces: &Namespaces,
    act: impl FnOnce() -> Result<Trial, String>,
) -> Result<(Trial, [u64; 2]), String> {
    let before = namespaces.bytes()?;
    let trial = act()?;
    let after = namespaces.bytes()?;
    Ok((trial, [after[0] - before[0], after[1] - before[1]]))
}

fn ours(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    (job, passes): (&Job, u32),
    (name, sets): (&str, &[&str]),
) -> Result<Trial, String> {
    let mut all = vec![format!("train.epochs={passes}")];
    all.extend(sets.iter().map(|set| format!("cluster.{set}")));
    submitted(suite, namespaces, &Submission { name, file: job.file, sets: all, trace: None })
}

/// A job for two workers, one on each side.
pub(super) struct Submission<'a> {
    /// For people.
    pub(super) name: &'a str,
    /// Below `bench/jobs`.
    pub(super) file: &'a str,
    /// What overrides it, as `table.key=value`.
    pub(super) sets: Vec<String>,
    /// Where its trace goes, if it is wanted.
    pub(super) trace: Option<&'a Path>,
}

/// Trains a job on a [`flock`].
pub(super) fn submitted(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    submission: &Submission<'_>,
) -> Result<Trial, String> {
    let said = flock(suite, namespaces, |submit, place, ticket| {
        submit.arg("train").arg(suite.root.join("bench/jobs").join(submission.file));
        submit.args(["--workers", "2", "--launcher", "flock", "--json", "--out"]);
        // Namespaces share a host, whose memory would carry what is to go over the link.
        submit.arg(scratch("model")).args(["--set", "cluster.transport=tcp"]);
        submit.args(["--set", &format!("cluster.coordinator={place}")]);
        submit.args(["--set", &format!("cluster.ticket={}", ticket.display())]);
        submit.args(submission.sets.iter().flat_map(|set| ["--set", set]));
        submit.args(submission.trace.iter().flat_map(|path| [Path::new("--trace"), path]));
    });
    let _ = std::fs::remove_file(scratch("model"));
    Trial::from_events(submission.name, &said?)
}

/// A coordinator and a worker on the left, a worker on the right, and whoever submits on the left, whose command `order`
/// completes with the coordinator's place and ticket. What that one said.
pub(super) fn flock(
    suite: &Suite<'_>,
    namespaces: &Namespaces,
    order: impl FnOnce(&mut Command, &str, &Path),
) -> Result<String, String> {
    let ticket = scratch("ticket");
    let _ = std::fs::remove_file(&ticket);
    let place = format!("{}:{PORT}", Namespaces::address(Side::Left));
    let program = |side: Side, words: &[&str]| {
        let mut command = namespaces.command(side, &suite.binary);
        command.args(words).arg("--ticket").arg(&ticket);
        command
    };
    let listen = ["coordinator", "--listen", &place, "--tls"];
    let _coordinator = Process::start(&mut program(Side::Left, &listen))?;
    appear(&ticket)?;
    let join = ["worker", "--join", &place, "--quiet"];
    let _left = Process::start(&mut program(Side::Left, &join))?;
    let _right = Process::start(&mut program(Side::Right, &join))?;
    let mut submit = namespaces.command(Side::Left, &suite.binary);
    order(&mut submit, &place, &ticket);
    let said = Process::start(&mut submit)?.finish(LIMIT);
    let _ = std::fs::remove_file(&ticket);
    said
}

fn scratch(what: &str) -> PathBuf {
    std::env::temp_dir().join(format!("starlings-links-{}.{what}", std::process::id()))
}

fn appear(path: &Path) -> Result<(), String> {
    let start = Instant::now();
    while !path.exists() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err("the coordinator wrote no ticket in 30 s".to_string());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn peers(
    suite: &Suite<'_>,
    (namespaces, job, folder): (&Namespaces, &Job, &Path),
    (all, finding): (&mut Vec<Timed>, &mut Finding),
) {
    let Some(python) = &suite.python else {
        finding.skip("PyTorch: no Python for the peers (cargo xtask bench --setup)".to_string());
        return;
    };
    for (index, hook) in HOOKS.iter().enumerate() {
        match peer(suite, (namespaces, job, folder), (python, index)) {
            Ok(timed) => all.push(timed),
            Err(why) => finding.skip(format!("{}: {}: {why}", job.name, hook.0)),
        }
    }
}

/// One of PyTorch's ways, by its index.
fn peer(
    suite: &Suite<'_>,
    (namespaces, job, folder): (&Namespaces, &Job, &Path),
    (python, index): (&Path, usize),
) -> Result<Timed, String> {
    let (name, hook, times) = HOOKS[index];
    let passes = job.passes * times;
    let seat = |side: Side, rank: &str| {
        let mut command = namespaces.command(side, python);
        command.arg(suite.script("ddp.py")).arg(job.kind).arg(folder.join(job.data.1));
        command.arg(hook).arg(passes.to_string()).args(job.peer);
        command.env("RANK", rank).env("WORLD_SIZE", "2").env("OMP_NUM_THREADS", "1");
        command.env("MASTER_ADDR", Namespaces::address(Side::Left));
        command.env("MASTER_PORT", (29_600 + index).to_string());
        command.env("GLOO_SOCKET_IFNAME", namespaces.interface(side));
        Process::start(command.env("PYTHONDONTWRITEBYTECODE", "1"))
    };
    let both = || {
        let (mut left, _right) = (seat(Side::Left, "0")?, seat(Side::Right, "1")?);
        Trial::from_peer(name, &left.finish(LIMIT)?)
    };
    let (trial, wire) = watched(namespaces, both)?;
    eprintln!("  {name}: {:.4} in {:.1} s", trial.objective, trial.seconds);
    Ok(Timed { trial, wire, is_peer: true, passes })
}

/// The objective that all have to reach, once there is a run of `raw`.
fn goal(all: &[Timed]) -> Option<f64> {
    let raw = all.iter().find(|timed| timed.trial.name == SETTINGS[0].0)?;
    Some(raw.trial.objective * TOLERANCE)
}

/// The fastest of ours and of PyTorch's in turns, for what takes seconds is at the mercy of the machine's other work:
/// names and medians of the seconds to the target, best first.
fn decide(
    suite: &Suite<'_>,
    (namespaces, job, folder): (&Namespaces, &Job, &Path),
    all: &[Timed],
) -> Vec<(String, f64)> {
    let (Some(target), Some(python)) = (goal(all), &suite.python) else { return Vec::new() };
    let fastest = |is_peer: bool, many: usize| {
        let side = all.iter().filter(|timed| timed.is_peer == is_peer);
        let mut times: Vec<(f64, &Timed)> =
            side.filter_map(|timed| Some((timed.reached(target)?, timed))).collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        times.into_iter().take(many).map(|(_, timed)| timed).collect::<Vec<_>>()
    };
    let finalists: Vec<&Timed> = fastest(false, 3).into_iter().chain(fastest(true, 1)).collect();
    let mut seconds = vec![Vec::new(); finalists.len()];
    for _ in 0..if suite.is_quick { 1 } else { ROUNDS } {
        for (finalist, seconds) in finalists.iter().zip(&mut seconds) {
            let name = finalist.trial.name.as_str();
            let again = match HOOKS.iter().position(|hook| hook.0 == name) {
                Some(index) => peer(suite, (namespaces, job, folder), (python, index)),
                None => {
                    let setting = SETTINGS.iter().chain(job.special).find(|s| s.0 == name);
                    let share = f64::from(finalist.passes) / f64::from(job.passes);
                    let setting = *setting.expect("a finalist is one of the settings");
                    attempt(suite, namespaces, (job, share), setting)
                }
            };
            seconds.extend(again.ok().and_then(|timed| timed.reached(target)));
        }
    }
    let pairs = finalists.iter().zip(seconds).filter(|(_, seconds)| !seconds.is_empty());
    let mut medians: Vec<(String, f64)> = pairs
        .map(|(finalist, seconds)| (finalist.trial.name.clone(), super::turns::median(seconds)))
        .collect();
    medians.sort_by(|a, b| a.1.total_cmp(&b.1));
    medians
}

fn enter(job: &Job, (all, last): (&[Timed], Vec<(String, f64)>), finding: &mut Finding) {
    let Some(raw) = all.iter().find(|timed| timed.trial.name == SETTINGS[0].0) else {
        finding.skip(format!("{}: there is no run of raw to measure by", job.name));
        return;
    };
    let target = raw.trial.objective * TOLERANCE;
    let plain = all.iter().find(|timed| timed.trial.name == HOOKS[0].0);
    let plain = plain.and_then(|timed| timed.reached(target));
    let ratio = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
    let rows = all.iter().map(|timed| {
        let reached = timed.reached(target);
        vec![
            timed.trial.name.clone(),
            number(reached, 2),
            number(ratio(raw.reached(target), reached), 2),
            number(ratio(plain, reached), 2),
            number(Some(timed.trial.objective), 4),
            timed.passes.to_string(),
            number(Some(timed.trial.seconds), 2),
            number(Some(timed.bound()), 2),
            bytes(timed.wire.iter().sum::<u64>() as f64),
            number(Some(timed.trial.processor_seconds), 2),
        ]
    });
    let mut notes = vec![format!(
        "Target: an objective over all training rows of at most {target:.4}, 1.01 times that of `raw` after {} passes. \
         Seconds to the target are the training time of the shortest run, in passes, that reached it. Bytes are those that \
         left both sides of the link in that run, packet headers included; the bound is what the busier direction needs \
         for them at 100 Mbit/s. One run each. Load of the machine at the end: {}.",
        job.passes,
        load()
    )];
    notes.extend(verdict(&last, plain));
    let header = vec![
        "how",
        "s to target",
        "× raw",
        "× DDP",
        "objective",
        "passes",
        "s in all",
        "bound, s",
        "bytes",
        "processor s",
    ];
    let sheet = Sheet { title: job.name.to_string(), notes, header, rows: rows.collect() };
    finding.sheets.push((format!("slow-links-{}", job.kind), sheet));
    finding.pictures.push((format!("slow-links-{}", job.kind), picture(job, all, target)));
}

/// What the last rounds say, in a sentence.
fn verdict(last: &[(String, f64)], plain: Option<f64>) -> Option<String> {
    let is_peer = |name: &str| HOOKS.iter().any(|hook| hook.0 == name);
    let ours = last.iter().find(|(name, _)| !is_peer(name))?;
    let theirs = last.iter().find(|(name, _)| is_peer(name))?;
    let plain = plain?;
    let all: Vec<String> =
        last.iter().map(|(name, seconds)| format!("{name} {seconds:.2} s")).collect();
    Some(format!(
        "The fastest once more, in turns, medians of {ROUNDS} rounds: {}. So the best of ours, {}, is {:.2} times as fast \
         as DDP's all-reduce ({plain:.2} s) and {:.2} times as fast as DDP's best, {}.",
        all.join(", "),
        ours.0,
        plain / ours.1,
        theirs.1 / ours.1,
        theirs.0
    ))
}

fn picture(job: &Job, all: &[Timed], target: f64) -> String {
    let point = |timed: &Timed| {
        let bytes = timed.wire.iter().sum::<u64>() as f64;
        let reached = timed.reached(target)?;
        Some(Series { name: timed.trial.name.clone(), points: vec![(bytes, reached)] })
    };
    let chart = Chart {
        title: format!("100 Mbit/s: {}", job.name),
        across: ("bytes on the link, both directions", Scale::Logarithmic),
        up: ("seconds until the same objective", Scale::Logarithmic),
        mark: Mark::Dots,
        series: all.iter().filter_map(point).collect(),
        target: None,
    };
    chart.svg()
}

/// How busy the machine is with other things; a figure without it misleads.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_string()
}
