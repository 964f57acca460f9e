//! Strangers at the doors of a job that trains: the steps a second under siege, in calm and in a storm, in turns within one job. A
//! siege is the kit of garbage that the tests have (`crates/cli/tests/cli/attacks.rs`) at each open port, then two thousand connections that say nothing, all
//! open at once; a storm opens as many anew every second. A step of the job computes for some 25 ms: one of half a millisecond would
//! measure how soon the scheduler wakes whom. Strangers and job share this machine's cores, so that what the strangers themselves
//! need of them is told, too, and so is what a step costs the workers.

// The kit is the tests' own: what is measured is what is tested.
#[path = "../../../crates/cli/tests/cli/attacks.rs"]
#[expect(clippy::unwrap_used, reason = "test code, too")]
mod attacks;

use super::interval::{Interval, Verdict};
use super::sheet::{Finding, Sheet, number};
use super::slow_links::load;
use super::trial::Process;
use super::turns::median;
use super::{Study, Suite};
use attacks::{Attack, Target, Then, kit};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study { name: "siege", run };

const JOB: &str = "[data]\ntrain = 'synthetic://classification?rows=60000&features=32&classes=64'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nsteps = 1000000000\nbatch = 60000\nseed = 3\n\
    [cluster]\nworkers = 2\ntransport = 'tcp'\nlauncher = 'flock'\nticket = 'starlings.ticket'\n";

/// A round has a siege, and every third one a storm, which is not judged. A siege takes some 20 s, and so does the calm after it.
const ROUNDS: usize = 9;
/// Connections that say nothing.
const SILENT: usize = 2_000;
/// Calls of the kit that are under way at each door at the same time: fewer than the places that one address has.
const CALLERS: usize = 12;
/// How long a storm and the first calm take; other calms take as long as what was before them.
const WINDOW: Duration = Duration::from_secs(8);
/// A call that is still open then was never going to be closed: the limit is five seconds.
const PATIENCE: Duration = Duration::from_secs(40);
/// Ticks in a second of the processor times under `/proc`: the same in every Linux (`USER_HZ`).
const TICKS: f64 = 100.0;
const START_MAX: Duration = Duration::from_secs(60);
/// Most bytes that a stranger is told, and whoever shows the token.
const TOLD_MAX: [usize; 2] = [36, 4096];
/// What strangers may cost, and how much a process may grow.
const GOAL: f64 = 0.05;
const GROWTH_MIB_MAX: f64 = 64.0;

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let folder = std::env::temp_dir().join(format!("starlings-siege-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|why| why.to_string())?;
    let found = besieged(suite, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    found
}

fn besieged(suite: &Suite<'_>, folder: &Path) -> Result<Finding, String> {
    let mut camp = Camp::pitch(suite, folder)?;
    let before = camp.usage()?;
    let (mut sieges, mut storms) = (Vec::new(), Vec::new());
    let mut calm = camp.window(|_| pass(WINDOW))?;
    for round in 1..=if suite.is_quick { 1 } else { ROUNDS } {
        for (rows, name) in [(&mut sieges, "siege"), (&mut storms, "storm")] {
            if name == "storm" && round % 3 != 1 {
                continue;
            }
            let loud = match name {
                "siege" => camp.window(Camp::siege)?,
                _ => camp.window(Camp::storm)?,
            };
            let length = Duration::from_secs_f64(loud.seconds);
            let after = camp.window(|_| pass(length))?;
            let turn = Turn { before: calm, loud, after: after.clone() };
            eprintln!("  {name} {round}: {:.3} of the calm's pace", turn.ratio());
            rows.push(turn);
            calm = after;
        }
    }
    let after = camp.usage()?;
    let faults = camp.end()?;
    let mut finding = Finding::default();
    let doors = camp.doors.len();
    finding.sheets.push(("siege".to_string(), summary(&sieges, &storms, (doors, faults))));
    finding.sheets.push(("siege-members".to_string(), members(&before, &after)));
    finding.sheets.push(("siege-rounds".to_string(), rounds(&sieges, &storms)));
    Ok(finding)
}

fn pass(time: Duration) -> Result<Calls, String> {
    std::thread::sleep(time);
    Ok(Calls::default())
}

/// The job, and where its strangers call.
struct Camp {
    coordinator: Process,
    workers: Vec<Process>,
    train: Process,
    target: Target,
    doors: Vec<SocketAddr>,
}

impl Camp {
    fn pitch(suite: &Suite<'_>, folder: &Path) -> Result<Camp, String> {
        std::fs::write(folder.join("job.toml"), JOB).map_err(|why| why.to_string())?;
        let binary = std::path::absolute(&suite.binary).map_err(|why| why.to_string())?;
        let start =
            |words: &[&str]| Process::start(Command::new(&binary).args(words).current_dir(folder));
        let coordinator = start(&["coordinator", "--listen", "127.0.0.1:0"])?;
        let line = said(&coordinator, "listening on ")?;
        let address = line["listening on ".len()..].split(';').next().unwrap_or_default();
        let join = |host| start(&["worker", "--join", address, "--host", host]);
        let workers = vec![join("anne")?, join("bert")?];
        let at = format!("cluster.coordinator={address}");
        let train = start(&["train", "job.toml", "--json", "--set", &at])?;
        said(&train, "{\"event\":\"step\"")?;
        let coordinates = address.parse().map_err(|_| format!("{address} is no address"))?;
        let target = Target::read(&folder.join("starlings.ticket"), coordinates);
        let mut doors = listening(&workers)?;
        doors.push(coordinates);
        Ok(Camp { coordinator, workers, train, target, doors })
    }

    /// How far the job comes while something is done.
    fn window(&self, act: impl FnOnce(&Camp) -> Result<Calls, String>) -> Result<Window, String> {
        let (begun, mine) = (self.pace()?, processor_seconds("self")?);
        let served = processor_seconds(&self.coordinator.id().to_string())?;
        let worked = self.worked()?;
        let calls = act(self)?;
        let ended = self.pace()?;
        if ended.0 <= begun.0 {
            return Err("no step was made".to_string());
        }
        let (steps, seconds) = (ended.0 - begun.0, ended.1 - begun.1);
        Ok(Window {
            pace: steps / seconds,
            seconds,
            work: (self.worked()? - worked) / steps,
            calls,
            strangers: (processor_seconds("self")? - mine) / seconds,
            coordinator: (processor_seconds(&self.coordinator.id().to_string())? - served)
                / seconds,
        })
    }

    /// Seconds of processor time that the workers have had.
    fn worked(&self) -> Result<f64, String> {
        self.workers.iter().map(|worker| processor_seconds(&worker.id().to_string())).sum()
    }

    /// The last step that was told, and when it was made.
    fn pace(&self) -> Result<(f64, f64), String> {
        let said = self.train.so_far()?;
        let mut events = said.lines().rev().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let step = events.find(|event| event["event"] == "step").ok_or("no step was told")?;
        step["step"].as_f64().zip(step["seconds"].as_f64()).ok_or(format!("{step} has no step"))
    }

    /// The whole kit at each door, then silent connections, all open at once until they are closed.
    fn siege(&self) -> Result<Calls, String> {
        let attacks = kit(&self.target);
        self.at_each_door(|door| harass(door, &attacks))?;
        let mut silent = self.at_each_door(flood)?.into_iter().flatten().collect::<Vec<_>>();
        for stream in &mut silent {
            closed(stream)?;
        }
        Ok(Calls { kit: attacks.len() * self.doors.len(), silent: silent.len() })
    }

    /// Silent connections at each door, all dropped and opened anew every second.
    fn storm(&self) -> Result<Calls, String> {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < WINDOW {
            let wave = Instant::now();
            let silent = self.at_each_door(flood)?;
            count += silent.iter().map(Vec::len).sum::<usize>();
            std::thread::sleep(Duration::from_secs(1).saturating_sub(wave.elapsed()));
        }
        Ok(Calls { kit: 0, silent: count })
    }

    /// Does the same at all doors, at the same time.
    fn at_each_door<T: Send>(
        &self,
        act: impl Fn(SocketAddr) -> Result<T, String> + Sync,
    ) -> Result<Vec<T>, String> {
        let act = &act;
        std::thread::scope(|scope| {
            let strangers: Vec<_> =
                self.doors.iter().map(|&door| scope.spawn(move || act(door))).collect();
            strangers
                .into_iter()
                .map(|stranger| stranger.join().expect("strangers return"))
                .collect()
        })
    }

    fn usage(&self) -> Result<Vec<Usage>, String> {
        let workers = self.workers.iter().enumerate();
        let named = workers.map(|(rank, worker)| (format!("worker {rank}"), worker));
        let all = named.chain([("coordinator".to_string(), &self.coordinator)]);
        all.map(|(name, process)| Usage::of(name, process.id())).collect()
    }

    /// Ends the job and counts the faults that it told of, and whoever is gone.
    fn end(&mut self) -> Result<usize, String> {
        let said = self.train.so_far()?;
        let faults = said.lines().filter(|line| line.starts_with("{\"event\":\"fault\"")).count();
        let gone = |process: &Process| !Path::new(&format!("/proc/{}/fd", process.id())).exists();
        let gone = self.workers.iter().chain([&self.coordinator]).filter(|it| gone(it)).count();
        let pid = Pid::from_raw(self.train.id() as i32).ok_or("train is no process")?;
        kill_process(pid, Signal::TERM).map_err(|why| why.to_string())?;
        // To have been stopped is no success: what counts is that it ends.
        let _ = self.train.finish(START_MAX);
        Ok(faults + gone)
    }
}

/// Waits for a line that begins so.
fn said(process: &Process, start: &str) -> Result<String, String> {
    let by = Instant::now() + START_MAX;
    while Instant::now() < by {
        let text = process.so_far()?;
        // Without its end a line may be half of one.
        let mut whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        if let Some(line) = whole.find(|line| line.starts_with(start)) {
            return Ok(line.trim_end().to_string());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("nobody said '{start}'"))
}

/// All calls of the kit at one door, some at a time.
fn harass(door: SocketAddr, attacks: &[Attack]) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let caller = || -> Result<(), String> {
        while let Some(attack) = attacks.get(next.fetch_add(1, Ordering::Relaxed)) {
            call(door, attack).map_err(|why| format!("{}: {why}", attack.name))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().try_for_each(|caller| caller.join().expect("callers return"))
    })
}

/// One call of the kit: it must be closed from the other side, having been told next to nothing.
fn call(door: SocketAddr, attack: &Attack) -> Result<(), String> {
    let mut stream = open(door)?;
    match attack.then {
        // Sending may fail once the other side has closed: that is what it should do.
        Then::Listen => drop(stream.write_all(&attack.bytes)),
        Then::HangUp => {
            drop(stream.write_all(&attack.bytes));
            drop(stream.shutdown(Shutdown::Write));
        }
        Then::Drip => {
            for byte in &attack.bytes {
                if stream.write_all(&[*byte]).is_err() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
    let told = closed(&mut stream)?;
    match told <= TOLD_MAX[usize::from(attack.knows_the_token)] {
        true => Ok(()),
        false => Err(format!("was told {told} bytes")),
    }
}

fn open(door: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect_timeout(&door, PATIENCE).map_err(|why| why.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|why| why.to_string())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(|why| why.to_string())?;
    Ok(stream)
}

fn flood(door: SocketAddr) -> Result<Vec<TcpStream>, String> {
    (0..SILENT).map(|_| open(door)).collect()
}

/// Waits until the other side has closed: the bytes that came before.
fn closed(stream: &mut TcpStream) -> Result<usize, String> {
    let (mut told, mut buffer) = (0, [0; 4096]);
    loop {
        use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(told),
            Ok(count) => told += count,
            Err(why) if why.kind() == Interrupted => {}
            Err(why) if matches!(why.kind(), WouldBlock | TimedOut) => {
                return Err(format!("still open after {PATIENCE:?}"));
            }
            Err(_) => return Ok(told),
        }
    }
}

/// Where processes listen: their sockets, looked up in the kernel's table.
fn listening(processes: &[Process]) -> Result<Vec<SocketAddr>, String> {
    let mut inodes = BTreeSet::new();
    for process in processes {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", process.id()));
        for entry in entries.map_err(|why| why.to_string())?.flatten() {
            let link: PathBuf = std::fs::read_link(entry.path()).unwrap_or_default();
            let name = link.to_string_lossy().into_owned();
            inodes.extend(
                name.strip_prefix("socket:[").map(|it| it.trim_end_matches(']').to_string()),
            );
        }
    }
    let table = std::fs::read_to_string("/proc/net/tcp").map_err(|why| why.to_string())?;
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    // 0A is LISTEN.
    let mine = rows.filter(|row| row.get(3) == Some(&"0A"));
    let mine = mine.filter(|row| row.get(9).is_some_and(|inode| inodes.contains(*inode)));
    let port = |row: Vec<&str>| u16::from_str_radix(row.get(1)?.split(':').nth(1)?, 16).ok();
    Ok(mine.filter_map(port).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect())
}

/// Seconds of processor time that a process has had.
fn processor_seconds(process: &str) -> Result<f64, String> {
    let stat =
        std::fs::read_to_string(format!("/proc/{process}/stat")).map_err(|why| why.to_string())?;
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks =
        after.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / TICKS)
}

/// Calls in a window.
#[derive(Clone, Copy, Default)]
struct Calls {
    kit: usize,
    silent: usize,
}

/// What the job did for some time.
#[derive(Clone)]
struct Window {
    /// Steps a second.
    pace: f64,
    seconds: f64,
    calls: Calls,
    /// Seconds of processor time of the workers in a step.
    work: f64,
    /// Processor time in a second of time: of the strangers themselves, and of the coordinator.
    strangers: f64,
    coordinator: f64,
}

/// A siege or storm between two calms.
struct Turn {
    before: Window,
    loud: Window,
    after: Window,
}

impl Turn {
    fn ratio(&self) -> f64 {
        self.loud.pace / f64::midpoint(self.before.pace, self.after.pace)
    }

    /// How much more a step took of the workers' own processor time.
    fn work(&self) -> f64 {
        self.loud.work / f64::midpoint(self.before.work, self.after.work) - 1.0
    }
}

/// What a process holds.
struct Usage {
    name: String,
    peak_mib: f64,
    threads: u64,
    descriptors: usize,
}

impl Usage {
    fn of(name: String, process: u32) -> Result<Usage, String> {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(path).map_err(|why| format!("{name}: {why}"))?;
        let number = |field: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let open =
            std::fs::read_dir(format!("/proc/{process}/fd")).map_err(|why| why.to_string())?;
        let peak_mib = number("VmHWM:") as f64 / 1024.0;
        Ok(Usage { name, peak_mib, threads: number("Threads:"), descriptors: open.count() })
    }
}

fn summary(sieges: &[Turn], storms: &[Turn], (doors, faults): (usize, usize)) -> Sheet {
    let header = vec![
        "what",
        "turns",
        "steps/s in calm",
        "steps/s",
        "slower",
        "95 % interval",
        "< 5 %, no fault",
        "strangers' own, % of all cores",
        "coordinator, % of all cores",
        "and in calm",
        "workers' processor time a step",
    ];
    let calls = |turns: &[Turn]| turns.last().map_or_else(Calls::default, |turn| turn.loud.calls);
    let (siege, storm) = (calls(sieges), calls(storms));
    let notes = vec![
        format!(
            "One job of two workers of a thread each and a coordinator, as three processes over TCP on loopback, and its strangers on the same cores. Open ports while it trains: {doors}. \
             A siege: the kit ({} calls, at all ports at the same time), then {} connections that say nothing, open at once until the last is closed by the listener. A storm: {} such connections \
             in {} s, all opened anew every second, or as soon as the last could be opened; it is told, not judged. Between any two is a calm as long as what was before it; a ratio is that of a turn's pace to \
             the mean of the calms before and after it, costs are medians of the turns' own, and the interval is that of the sign test. Faults told and processes gone in all of it: {faults}. \
             Load of the machine at the end: {}.",
            siege.kit,
            siege.silent,
            storm.silent,
            WINDOW.as_secs(),
            load(),
        ),
        "The job fills all cores. What the strangers themselves take of them it loses, whatever its doors do, and up to as many times as there are cores where they take it from one worker, for whom \
         the others wait: strangers elsewhere would not cost that. What the doors do in the workers is in the last column, with all that strangers do to caches."
            .to_string(),
    ];
    let rows = vec![row("siege", sieges, Some(faults)), row("storm", storms, None)];
    Sheet { title: "Strangers at the doors of a job that trains".to_string(), notes, header, rows }
}

/// A row of the summary; with a number of faults it is judged.
fn row(name: &str, turns: &[Turn], faults: Option<usize>) -> Vec<String> {
    let of = |value: fn(&Turn) -> f64| median(turns.iter().map(value).collect());
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let cost =
        Interval::of_median(&turns.iter().map(|turn| 1.0 - turn.ratio()).collect::<Vec<_>>());
    let judged = match faults {
        None => "–",
        Some(0) => cost.below(GOAL).word(),
        Some(_) => Verdict::No.word(),
    };
    let interval = match cost.low.is_finite() {
        true => format!("{} to {}", percent(cost.low), percent(cost.high)),
        false => "too few turns".to_string(),
    };
    vec![
        name.to_string(),
        turns.len().to_string(),
        number(Some(of(|turn| f64::midpoint(turn.before.pace, turn.after.pace))), 2),
        number(Some(of(|turn| turn.loud.pace)), 2),
        percent(cost.middle),
        interval,
        judged.to_string(),
        percent(of(|turn| turn.loud.strangers) / cores),
        percent(of(|turn| turn.loud.coordinator) / cores),
        percent(of(|turn| turn.after.coordinator) / cores),
        format!("{:+.1} %", 100.0 * of(Turn::work)),
    ]
}

fn members(before: &[Usage], after: &[Usage]) -> Sheet {
    let row = |(before, after): (&Usage, &Usage)| {
        let grown = after.peak_mib - before.peak_mib;
        vec![
            before.name.clone(),
            number(Some(before.peak_mib), 1),
            number(Some(after.peak_mib), 1),
            if grown < GROWTH_MIB_MAX { "yes" } else { "no" }.to_string(),
            format!("{} → {}", before.threads, after.threads),
            format!("{} → {}", before.descriptors, after.descriptors),
        ]
    };
    Sheet {
        title: "What the members hold, before and after".to_string(),
        notes: vec!["Memory is the largest resident set so far.".to_string()],
        header: vec![
            "who",
            "MiB before",
            "MiB after",
            "grown by < 64 MiB",
            "threads",
            "descriptors",
        ],
        rows: before.iter().zip(after).map(row).collect(),
    }
}

fn rounds(sieges: &[Turn], storms: &[Turn]) -> Sheet {
    let row = |name: &str, at: usize, turn: &Turn| {
        let paces = [&turn.before, &turn.loud, &turn.after].map(|it| number(Some(it.pace), 2));
        let mut row = vec![format!("{name} {}", at + 1)];
        row.extend(paces);
        row.extend([number(Some(turn.ratio()), 3), number(Some(turn.loud.seconds), 1)]);
        row
    };
    let rows = |name, turns: &[Turn]| -> Vec<Vec<String>> {
        turns.iter().enumerate().map(|(at, turn)| row(name, at, turn)).collect()
    };
    Sheet {
        title: "Every turn, steps a second".to_string(),
        notes: Vec::new(),
        header: vec!["turn", "calm before", "loud", "calm after", "ratio", "seconds"],
        rows: [rows("siege", sieges), rows("storm", storms)].concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn turn(paces: [f64; 3]) -> Turn {
        let window = |pace| Window {
            pace,
            seconds: 10.0,
            calls: Calls { kit: 58, silent: SILENT },
            work: 0.05,
            strangers: 0.1,
            coordinator: 0.01,
        };
        let [before, loud, after] = paces.map(window);
        Turn { before, loud, after }
    }

    #[test]
    fn a_slow_siege_a_fault_and_too_much_noise_are_told() {
        let turns = |paces: [f64; 6]| paces.map(|pace| turn([100.0, pace, 100.0]));
        let judged = |turns: &[Turn], faults| summary(turns, turns, (1, faults)).rows[0][6].clone();
        let fast = turns([99.0, 98.0, 97.0, 101.0, 100.0, 96.0]);
        assert_eq!((judged(&fast, 0).as_str(), judged(&fast, 1).as_str()), ("yes", "no"));
        assert_eq!(judged(&turns([90.0, 91.0, 92.0, 93.0, 94.0, 80.0]), 0), "no");
        assert_eq!(judged(&turns([90.0, 99.0, 98.0, 97.0, 102.0, 99.0]), 0), "undecided");
        assert_eq!(judged(&fast[..5], 0), "undecided");
    }

    #[test]
    fn a_call_that_is_told_too_much_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            for bytes in [36, 37] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&vec![0; bytes]).unwrap();
            }
        });
        let attack = Attack {
            name: "silence",
            bytes: Vec::new(),
            then: Then::Listen,
            knows_the_token: false,
        };
        call(door, &attack).unwrap();
        assert!(call(door, &attack).unwrap_err().contains("37"));
        answering.join().unwrap();
    }

    #[test]
    fn this_process_has_had_the_processor() {
        assert!(processor_seconds("self").is_ok_and(|seconds| seconds >= 0.0));
        assert!(processor_seconds("no process").is_err());
    }
}
