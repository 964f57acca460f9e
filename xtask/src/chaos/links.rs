//! Cut links: each worker in a network namespace of its own on a bridge, the coordinator and the one who submits in another.
//! A link is cut without a word to anybody (its far end goes down), in both directions or in one (packets leave for an
//! address that nobody has), for good or for a moment. `cargo xtask chaos --links`; needs root and `ip`.

use super::herd::Process;
use super::jobs::Job;
use super::play::Tools;
use crate::bench::namespaces::{GUARD, call};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const RUN_MAX: Duration = Duration::from_secs(120);
/// How long silence may take to be noticed: a second, more where beats were uneven, and what it takes to regroup.
const NOTICED_MAX: f64 = 10.0;

/// What is done to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// A worker hears and is heard by nobody.
    Off,
    /// The coordinator does not hear a worker, which hears it.
    Unheard,
    /// A worker does not hear the coordinator, which hears it.
    Deaf,
    /// A worker is not heard by another one, which it hears; both are heard by the coordinator.
    Between,
    /// A worker and another one do not hear each other; both are heard by the coordinator.
    Apart,
    /// A worker hears and is heard by nobody for less than half of what silence takes.
    Blink,
    /// A worker and another one do not hear each other for less than half of what silence takes.
    BlinkApart,
}

const CUTS: [Cut; 7] =
    [Cut::Off, Cut::Unheard, Cut::Deaf, Cut::Between, Cut::Apart, Cut::Blink, Cut::BlinkApart];

impl Cut {
    /// Whether it is over before it counts as silence.
    fn is_moment(self) -> bool {
        matches!(self, Cut::Blink | Cut::BlinkApart)
    }

    /// The workers one of whom must go.
    fn concerns(self, victim: usize) -> Vec<usize> {
        match self {
            Cut::Between | Cut::Apart | Cut::BlinkApart => vec![victim, next(victim)],
            Cut::Off | Cut::Unheard | Cut::Deaf | Cut::Blink => vec![victim],
        }
    }
}

fn next(worker: usize) -> usize {
    (worker + 1) % WORKERS
}

/// Plays every cut so many times.
pub(super) fn run(tools: &Tools, rounds: u64) -> Result<(), String> {
    if let Err(why) = call("ip netns list") {
        println!("links are not cut here: {why}");
        return Ok(());
    }
    let yard = match Yard::new(WORKERS) {
        Ok(yard) => yard,
        Err(why) => {
            println!("links are not cut here, for namespaces cannot be made (root can): {why}");
            return Ok(());
        }
    };
    let calm = play(tools, &yard, None)?.digest;
    println!("| cut | runs | failures | noticed after p50 | max |\n|---|---:|---:|---:|---:|");
    let mut failed = 0;
    for cut in CUTS {
        let (mut noticed, mut failures) = (Vec::new(), 0);
        for round in 0..rounds {
            let victim = round as usize % WORKERS;
            let played = play(tools, &yard, Some((cut, victim)));
            let verdict = played.and_then(|played| {
                noticed.extend(played.noticed);
                played.judge(cut, &calm)
            });
            if let Err(why) = verdict {
                failures += 1;
                println!("FAILED {cut:?} of worker {victim}: {why}");
            }
        }
        noticed.sort_by(f64::total_cmp);
        let told = |at: usize| noticed.get(at).map_or("–".to_string(), |it| format!("{it:.2} s"));
        let (half, last) = (told(noticed.len() / 2), told(noticed.len().saturating_sub(1)));
        println!("| {cut:?} | {rounds} | {failures} | {half} | {last} |");
        failed += failures;
    }
    if failed == 0 { Ok(()) } else { Err(format!("{failed} runs with cut links failed")) }
}

struct Played {
    code: Option<i32>,
    digest: Value,
    faults: Vec<Value>,
    /// Seconds from the cut to the new lineup.
    noticed: Option<f64>,
    /// How the workers whose link was cut ended, and what they said.
    concerned: Vec<(Option<i32>, String)>,
    others: Vec<Option<i32>>,
    story: String,
}

impl Played {
    fn judge(&self, cut: Cut, calm: &Value) -> Result<(), String> {
        let wrong = |why: &str| Err(format!("{why}: {:?}\n{}", self.faults, self.story));
        if self.code != Some(0) || self.others.iter().any(|code| *code != Some(0)) {
            return wrong("the survivors did not end well");
        }
        if self.digest != *calm {
            return wrong("the model has other bits");
        }
        let lost: Vec<_> = self.concerned.iter().filter(|(code, _)| *code != Some(0)).collect();
        if cut.is_moment() {
            let fine = self.faults.is_empty() && lost.is_empty();
            return if fine { Ok(()) } else { wrong("taken for dead after a moment of silence") };
        }
        if self.noticed.is_none_or(|seconds| seconds > NOTICED_MAX) {
            return wrong("silence was not noticed in time");
        }
        let [(_, said)] = lost[..] else {
            return wrong("not exactly one of those who were cut off was lost");
        };
        if !said.contains("error: ") {
            return wrong("the one who was lost does not say so");
        }
        Ok(())
    }
}

fn play(tools: &Tools, yard: &Yard, cut: Option<(Cut, usize)>) -> Result<Played, String> {
    let folder = tools.folder.join("links");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|why| why.to_string())?;
    let text = format!(
        "{}[cluster]\nlauncher = 'flock'\nworkers = {WORKERS}\nticket = 'starlings.ticket'\n{}",
        Job::Passes.text(),
        Job::Passes.cluster()
    );
    std::fs::write(folder.join("job.toml"), text).map_err(|why| why.to_string())?;
    let home = yard.address(WORKERS);
    let start = |name: &str, place: usize, words: &[&str]| {
        Process::start(name, yard.command(place, &tools.starlings).args(words).current_dir(&folder))
    };
    let listen = format!("{home}:7077");
    let mut coordinator =
        start("coordinator", WORKERS, &["coordinator", "--listen", &listen, "--tls"])?;
    coordinator.line("listening on ", Instant::now() + Duration::from_secs(30))?;
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let host = format!("host-{worker}");
        let words = ["worker", "--join", &listen, "--host", &host];
        workers.push(start(&format!("worker {worker}"), worker, &words)?);
    }
    let at = format!("cluster.coordinator={listen}");
    let mut train = start("train", WORKERS, &["train", "job.toml", "--json", "--set", &at])?;
    let done = disturb(yard, cut, &mut train)?;
    let by = Instant::now() + RUN_MAX;
    let code = train.wait(by).and_then(|status| status.code());
    let codes: Vec<Option<i32>> =
        workers.iter_mut().map(|worker| worker.wait(by).and_then(|status| status.code())).collect();
    coordinator.wait(by);
    let events: Vec<(Instant, Value)> = train
        .lines(0)
        .into_iter()
        .filter_map(|(at, line)| Some((at, serde_json::from_str(&line).ok()?)))
        .collect();
    let of = |kind: &'static str| events.iter().filter(move |(_, event)| event["event"] == kind);
    let regrouped = of("regrouped").next().map(|(at, _)| *at);
    // Of two that cannot reach each other either may go.
    let concerned = cut.map_or(Vec::new(), |(cut, victim)| cut.concerns(victim));
    let mut story = train.last_words();
    workers.iter().for_each(|worker| story += &worker.last_words());
    Ok(Played {
        code,
        digest: of("report").next().map_or(Value::Null, |(_, report)| report["digest"].clone()),
        faults: of("fault").map(|(_, fault)| fault["message"].clone()).collect(),
        noticed: done.zip(regrouped).map(|(cut, at)| (at - cut).as_secs_f64()),
        others: codes
            .iter()
            .enumerate()
            .filter(|(at, _)| !concerned.contains(at))
            .map(|(_, code)| *code)
            .collect(),
        concerned: concerned.into_iter().map(|it| (codes[it], workers[it].complaints())).collect(),
        story,
    })
}

/// Cuts when the job is on its way, and mends when the others have gone on. Gives when it cut.
fn disturb(
    yard: &Yard,
    cut: Option<(Cut, usize)>,
    train: &mut Process,
) -> Result<Option<Instant>, String> {
    let Some((cut, victim)) = cut else { return Ok(None) };
    let by = Instant::now() + Duration::from_secs(60);
    let count = |train: &Process, kind: &str| {
        let start = format!("{{\"event\":\"{kind}\"");
        train.lines(0).iter().filter(|(_, line)| line.starts_with(&start)).count()
    };
    while count(train, "step") < 4 && train.ended().is_none() && Instant::now() < by {
        std::thread::sleep(Duration::from_millis(2));
    }
    yard.cut(cut, victim)?;
    let since = Instant::now();
    let patience = if cut.is_moment() { 300 } else { 20_000 };
    while count(train, "regrouped") == 0
        && train.ended().is_none()
        && since.elapsed() < Duration::from_millis(patience)
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    yard.mend(cut, victim)?;
    Ok(Some(since))
}

/// Namespaces on a bridge. They go when this is dropped, and with this program.
struct Yard {
    id: u32,
    count: usize,
    guard: Option<Child>,
}

impl Yard {
    /// One namespace for each worker, one for the coordinator, and one for the bridge.
    fn new(workers: usize) -> Result<Yard, String> {
        let mut yard = Yard { id: std::process::id(), count: workers + 1, guard: None };
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "guard", &yard.hub()]);
        guard.args((0..yard.count).map(|place| yard.name(place)));
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        yard.guard = Some(guard.spawn().map_err(|why| format!("sh: {why}"))?);
        let hub = yard.hub();
        call(&format!("ip netns add {hub}"))?;
        call(&format!("ip -n {hub} link add bridge type bridge"))?;
        call(&format!("ip -n {hub} link set bridge up"))?;
        for place in 0..yard.count {
            let (name, address) = (yard.name(place), yard.address(place));
            call(&format!("ip netns add {name}"))?;
            call(&format!(
                "ip link add wire netns {name} type veth peer name port{place} netns {hub}"
            ))?;
            call(&format!("ip -n {hub} link set port{place} master bridge"))?;
            call(&format!("ip -n {hub} link set port{place} up"))?;
            call(&format!("ip -n {name} addr add {address}/24 dev wire"))?;
            call(&format!("ip -n {name} link set lo up"))?;
            call(&format!("ip -n {name} link set wire up"))?;
        }
        Ok(yard)
    }

    fn hub(&self) -> String {
        format!("starlings-hub-{}", self.id)
    }

    fn name(&self, place: usize) -> String {
        format!("starlings-{place}-{}", self.id)
    }

    fn address(&self, place: usize) -> String {
        format!("10.98.0.{}", place + 1)
    }

    fn command(&self, place: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place)]).arg(program);
        command
    }

    fn cut(&self, cut: Cut, victim: usize) -> Result<(), String> {
        let ways = self.lost_ways(cut, victim);
        if ways.is_empty() {
            return call(&format!("ip -n {} link set port{victim} down", self.hub()));
        }
        // Packets leave for an address of the wire that nobody has: they vanish without a word.
        ways.into_iter().try_for_each(|(from, to)| {
            call(&format!(
                "ip -n {} neigh replace {} lladdr 02:00:00:00:00:99 nud permanent dev wire",
                self.name(from),
                self.address(to)
            ))
        })
    }

    fn mend(&self, cut: Cut, victim: usize) -> Result<(), String> {
        let ways = self.lost_ways(cut, victim);
        if ways.is_empty() {
            return call(&format!("ip -n {} link set port{victim} up", self.hub()));
        }
        ways.into_iter().try_for_each(|(from, to)| {
            call(&format!("ip -n {} neigh del {} dev wire", self.name(from), self.address(to)))
        })
    }

    /// From whom to whom packets get lost; none where the whole link is cut.
    fn lost_ways(&self, cut: Cut, victim: usize) -> Vec<(usize, usize)> {
        let other = next(victim);
        match cut {
            Cut::Off | Cut::Blink => vec![],
            Cut::Unheard => vec![(victim, WORKERS)],
            Cut::Deaf => vec![(WORKERS, victim)],
            Cut::Between => vec![(victim, other)],
            Cut::Apart | Cut::BlinkApart => vec![(victim, other), (other, victim)],
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}
