//! Cut links: each worker in a network namespace of its own on a bridge, the coordinator and the one who submits in another.
//! A link is cut without a word to anybody (its far end goes down), in both directions or in one (packets leave for an
//! address that nobody has), for good or for a moment. `cargo xtask chaos --links`; needs root and `ip`. What came of it
//! is kept in `bench/links.md`.

use super::herd::Process;
use super::play::Tools;
use super::sheet::bound;
use super::verdict::TOO_LATE;
use crate::bench::machine;
use crate::bench::namespaces::{GUARD, call};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WORKERS: usize = 3;
const RUN_MAX: Duration = Duration::from_secs(120);
/// How long silence may take to be noticed: a second, more where beats were uneven, and what it takes to regroup.
const NOTICED_MAX: f64 = 10.0;
/// How long the undisturbed job takes at least, so that every cut falls into it and is over before it ends.
const JOB_SECONDS: f64 = 8.0;
/// Iterations with which its length is measured, and the most that it is given.
const ITERATIONS: (u64, u64) = (200, 1_000_000);

/// What is done to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Cut {
    /// A worker hears and is heard by nobody.
    #[default]
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
    fn name(self) -> &'static str {
        match self {
            Cut::Off => "a worker from everybody",
            Cut::Unheard => "a worker to the coordinator, one way",
            Cut::Deaf => "the coordinator to a worker, one way",
            Cut::Between => "a worker to another, one way",
            Cut::Apart => "between two workers",
            Cut::Blink => "a worker from everybody, for a moment",
            Cut::BlinkApart => "between two workers, for a moment",
        }
    }

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

/// Passes over all rows, folded shard by shard: whoever was lost, it ends in the bits of an undisturbed run.
fn job(iterations: u64) -> String {
    format!(
        "[data]\ntrain = 'synthetic://blobs?rows=12000&features=6&centers=12&seed=1'\n\
         [learner]\nname = 'gaussian-mixture'\ncomponents = 4\nmax_iterations = {iterations}\n\
         tolerance = 0.0\n\
         [train]\nseed = 3\nshards = 8\n\
         [cluster]\nlauncher = 'flock'\nworkers = {WORKERS}\nticket = 'starlings.ticket'\n\
         fold = 'reproducible'\n"
    )
}

/// Plays every cut so many times.
pub(super) fn run(root: &Path, tools: &Tools, rounds: u64, record: bool) -> Result<(), String> {
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
    let job = long_enough(tools, &yard)?;
    let calm = play(tools, &yard, &job, None)?;
    println!("{} steps, {:.1} s undisturbed", calm.steps, calm.seconds);
    let mut rows: Vec<Row> = CUTS.iter().map(|&cut| Row { cut, ..Row::default() }).collect();
    for round in 0..rounds {
        for row in &mut rows {
            let victim = round as usize % WORKERS;
            let played = play(tools, &yard, &job, Some((row.cut, victim)));
            let verdict = played.and_then(|played| {
                row.noticed.extend(played.noticed);
                played.judge(row.cut, &calm.digest)
            });
            row.runs += 1;
            if let Err(why) = verdict {
                row.failures += 1;
                println!("FAILED {:?} of worker {victim}: {why}", row.cut);
            }
        }
        println!("{}", table(&mut rows));
    }
    if record {
        let (path, machine) = (root.join("bench/links.md"), machine::describe(None).json());
        std::fs::write(&path, page(&mut rows, &machine))
            .map_err(|why| format!("{}: {why}", path.display()))?;
    }
    match rows.iter().map(|row| row.failures).sum::<usize>() {
        0 => Ok(()),
        failed => Err(format!("{failed} runs with cut links failed")),
    }
}

/// A job that takes some seconds on this machine, as it is now.
fn long_enough(tools: &Tools, yard: &Yard) -> Result<String, String> {
    let (few, most) = ITERATIONS;
    let short = play(tools, yard, &job(few), None)?;
    let iterations = few as f64 * JOB_SECONDS / short.seconds.max(1e-3);
    Ok(job((iterations as u64).clamp(few, most)))
}

/// What came of one kind of cut.
#[derive(Default)]
struct Row {
    cut: Cut,
    runs: usize,
    failures: usize,
    noticed: Vec<f64>,
}

fn table(rows: &mut [Row]) -> String {
    let mut text = "| cut | runs | failures | 95 % bound | noticed after p50 | max |\n\
        |---|---:|---:|---|---:|---:|\n"
        .to_string();
    for Row { cut, runs, failures, noticed } in rows {
        noticed.sort_by(f64::total_cmp);
        let told = |at: usize| noticed.get(at).map_or("–".to_string(), |it| format!("{it:.2} s"));
        let (half, last) = (told(noticed.len() / 2), told(noticed.len().saturating_sub(1)));
        let bound = match failures {
            0 => format!("< {:.0} %", 100.0 * bound(*runs)),
            _ => "–".to_string(),
        };
        text += &format!("| {} | {runs} | {failures} | {bound} | {half} | {last} |\n", cut.name());
    }
    text
}

fn page(rows: &mut [Row], machine: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_string();
    format!(
        "# Cut links\n\n\
         Written by `cargo xtask chaos --links --record`: {WORKERS} workers, each in a network namespace of its own, the coordinator in \
         another, all links inside TLS. A cut makes no sound: packets vanish. A moment is 0.3 s. A failure is a job that does not end in the bits of an \
         undisturbed run, silence that is not noticed, somebody lost who is not concerned, or anybody lost after a moment of silence.\n\n\
         {}, commit {}, {}, {} cores.\n\n{}",
        text(&machine["date"]),
        text(&machine["versions"]["commit"]),
        text(&machine["processor"]),
        machine["cores"],
        table(rows)
    )
}

struct Played {
    code: Option<i32>,
    digest: Value,
    steps: Value,
    /// How long the training took.
    seconds: f64,
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
        // Whoever was lost and is there after all comes again, if the job is not over by then.
        let again = |said: &str| said.contains("joining again");
        let gone = |(code, said): &&(Option<i32>, String)| *code != Some(0) || again(said);
        let lost: Vec<_> = self.concerned.iter().filter(gone).collect();
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
        if !said.contains("error: ") && !said.contains(TOO_LATE) && !again(said) {
            return wrong("the one who was lost does not say so");
        }
        Ok(())
    }
}

fn play(
    tools: &Tools,
    yard: &Yard,
    job: &str,
    cut: Option<(Cut, usize)>,
) -> Result<Played, String> {
    let folder = tools.folder.join("links");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|why| why.to_string())?;
    std::fs::write(folder.join("job.toml"), job).map_err(|why| why.to_string())?;
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
    let report = of("report").next().map_or(Value::Null, |(_, report)| report.clone());
    if cut.is_none() && code != Some(0) {
        return Err(format!("the undisturbed run failed\n{story}"));
    }
    Ok(Played {
        code,
        digest: report["digest"].clone(),
        steps: report["steps"].clone(),
        seconds: report["seconds"].as_f64().unwrap_or(0.0),
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
    await_events(train, ("step", 4), Duration::from_secs(60));
    if train.ended().is_some() {
        return Err(format!("the job was over before the cut\n{}", train.last_words()));
    }
    yard.cut(cut, victim)?;
    let since = Instant::now();
    let patience = if cut.is_moment() { 300 } else { 20_000 };
    await_events(train, ("regrouped", 1), Duration::from_millis(patience));
    yard.mend(cut, victim)?;
    Ok(Some(since))
}

/// Waits until so many events of a kind were told, the job is over or the time is up.
fn await_events(train: &mut Process, (kind, count): (&str, usize), patience: Duration) {
    let start = format!("{{\"event\":\"{kind}\"");
    let (mut read, mut found, by) = (0, 0, Instant::now() + patience);
    while found < count && train.ended().is_none() && Instant::now() < by {
        let lines = train.lines(read);
        read += lines.len();
        found += lines.iter().filter(|(_, line)| line.starts_with(&start)).count();
        std::thread::sleep(Duration::from_millis(2));
    }
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
