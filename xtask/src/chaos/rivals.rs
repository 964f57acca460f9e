//! Head to head with torchft (github.com/pytorch/torchft) over gloo, `cargo xtask chaos --torchft`: the same script for both, in
//! turns. Members sum, one is killed with SIGKILL at a seeded moment, the others go on. Every sum names its contributors by
//! its bits and is checked; the stall is measured on the same clock, by when the lines of the survivors are read. What came of it is kept in
//! `bench/torchft.md` and `bench/torchft.json`.

use super::chance::Chance;
use super::herd::Process;
use super::play::Tools;
use super::sheet::quantiles;
use super::sums::check;
use super::verdict::stall;
use crate::bench::{machine, peers};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Sums of a run, the pause after each, and the numbers of one. The pause stands for a step's computation.
const ROUNDS: u64 = 150;
const PAUSE_MS: u64 = 4;
const NUMBERS: u64 = 500;
const SIZES: [usize; 2] = [2, 3];
/// Python needs some seconds to load torch on a small machine.
const START_MAX: Duration = Duration::from_secs(60);
const RUN_MAX: Duration = Duration::from_secs(90);

/// Who is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rival {
    Ours,
    Torchft { name: &'static str, heartbeat_timeout_ms: u64, quorum_tick_ms: u64 },
}

/// Torchft with what it does by itself, and with its timeout as long as ours on one host and no slower to look.
const RIVALS: [Rival; 3] = [
    Rival::Ours,
    Rival::Torchft {
        name: "torchft, its defaults",
        heartbeat_timeout_ms: 5_000,
        quorum_tick_ms: 100,
    },
    Rival::Torchft { name: "torchft, a second", heartbeat_timeout_ms: 1_000, quorum_tick_ms: 10 },
];

impl Rival {
    fn name(self) -> &'static str {
        match self {
            Rival::Ours => "starlings",
            Rival::Torchft { name, .. } => name,
        }
    }
}

/// Who is killed, and when: after so many sums of whoever is furthest, and a little later.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Script {
    seed: u64,
    workers: usize,
    victim: usize,
    sums: usize,
    ms: u64,
}

impl Script {
    fn of(seed: u64, workers: usize) -> Script {
        let mut chance = Chance::new(seed);
        let victim = chance.within(0, workers as u64 - 1) as usize;
        let (sums, ms) = (chance.within(20, 100) as usize, chance.within(0, 10));
        Script { seed, workers, victim, sums, ms }
    }
}

/// The programs of both.
struct Programs<'a> {
    named_sums: &'a Path,
    python: PathBuf,
    script: PathBuf,
}

/// What came of one run.
#[derive(Default)]
struct Outcome {
    stall: Option<f64>,
    /// Seconds between two sums, usually.
    usual: Option<f64>,
    sums: u64,
    /// Sums that were thrown away and made again, of all survivors.
    again: u64,
    /// Sums that a survivor has not made itself: it took over the state of another.
    taken: u64,
    wrong: Vec<String>,
    hung: bool,
}

/// Plays so many runs of each rival and size in turns.
pub(super) fn run(
    root: &Path,
    tools: &Tools,
    (runs, seed): (u64, u64),
    (python, is_recorded): (Option<PathBuf>, bool),
) -> Result<(), String> {
    let python = peers::python(root, python);
    let python = python.ok_or("no Python of the peers: `cargo xtask bench --setup` makes it")?;
    // The programs run in folders of their own.
    let python = std::path::absolute(python).map_err(|why| why.to_string())?;
    let programs = Programs {
        named_sums: tools.named_sums.as_deref().ok_or("named_sums was not built")?,
        script: root.join("bench/peers/torchft_kill.py"),
        python,
    };
    let machine = machine::describe(Some(&programs.python)).json();
    if machine["versions"]["torchft"].is_null() {
        return Err("that Python has no torchft: `cargo xtask bench --setup` installs it".into());
    }
    let mut lines = Vec::new();
    for round in 0..runs {
        for workers in SIZES {
            let script = Script::of(seed + round, workers);
            let mut order = RIVALS;
            if round % 2 == 1 {
                order.reverse();
            }
            for rival in order {
                let outcome = play(&programs, tools, rival, script)?;
                let line = line(rival, script, &outcome);
                println!("{line}");
                lines.push(line);
            }
        }
    }
    let record = json!({ "machine": machine, "runs": lines });
    println!("{}", page(&record));
    if is_recorded {
        keep(root, &record)?;
    }
    let ours = lines.iter().filter(|line| line["rival"] == Rival::Ours.name());
    match ours.filter(|line| line["wrong"] != json!([]) || line["hung"] == true).count() {
        0 => Ok(()),
        failed => Err(format!("{failed} runs of ours failed")),
    }
}

/// Plays one run to its end and checks it.
fn play(
    programs: &Programs<'_>,
    tools: &Tools,
    rival: Rival,
    script: Script,
) -> Result<Outcome, String> {
    let folder = tools.folder.join(format!("rivals-{}-{}", script.seed, script.workers));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut host = Process::start("host", programs.host(rival, script).current_dir(&folder))?;
    let line = host.line("listening on ", Instant::now() + START_MAX)?;
    let address = &line["listening on ".len()..];
    let mut members = Vec::new();
    for index in 0..script.workers {
        let mut member = programs.member(rival, index, address);
        let member = Process::start(&format!("member {index}"), member.current_dir(&folder))?;
        members.push(member);
    }
    if rival != Rival::Ours {
        for member in &mut members {
            member.line("ready", Instant::now() + START_MAX)?;
        }
        std::fs::write(folder.join("go"), "").map_err(|why| why.to_string())?;
    }
    disturb(&mut members, script);
    let outcome = judge(&mut members, script);
    let _ = std::fs::remove_dir_all(&folder);
    if outcome.hung || !outcome.wrong.is_empty() {
        members.iter().for_each(|member| print!("{}", member.last_words()));
    }
    Ok(outcome)
}

impl Programs<'_> {
    fn host(&self, rival: Rival, script: Script) -> Command {
        match rival {
            Rival::Ours => {
                let mut host = Command::new(self.named_sums);
                host.args(["host", &script.workers.to_string(), "ticket"]);
                host
            }
            Rival::Torchft { heartbeat_timeout_ms, quorum_tick_ms, .. } => {
                let mut host = Command::new(&self.python);
                host.arg(&self.script).arg("lighthouse");
                host.args([heartbeat_timeout_ms, quorum_tick_ms].map(|it| it.to_string()));
                host
            }
        }
    }

    fn member(&self, rival: Rival, index: usize, address: &str) -> Command {
        let numbers = [ROUNDS, PAUSE_MS, NUMBERS].map(|number| number.to_string());
        match rival {
            Rival::Ours => {
                let mut member = Command::new(self.named_sums);
                member.args(["join", address, "ticket"]).args(numbers);
                // Of different hosts by name, so that sums go over TCP as gloo's do.
                member.arg(format!("host-{index}"));
                member
            }
            Rival::Torchft { .. } => {
                let mut member = Command::new(&self.python);
                member.arg(&self.script).args(["replica", &index.to_string(), address]);
                member.args(numbers);
                member
            }
        }
    }
}

/// Kills the victim when it is time, and waits for the others' end.
fn disturb(members: &mut [Process], script: Script) {
    let by = Instant::now() + RUN_MAX;
    let mut is_killed = false;
    // Lines read and sums among them, so that no line is looked at twice while others need the processor.
    let mut heard = vec![(0, 0); members.len()];
    while members.iter_mut().any(|member| member.ended().is_none()) && Instant::now() < by {
        for (member, (lines, sums)) in members.iter().zip(&mut heard) {
            let fresh = member.lines(*lines);
            *lines += fresh.len();
            *sums += fresh.iter().filter(|(_, line)| line.contains("\"names\"")).count();
        }
        let furthest = heard.iter().map(|(_, sums)| *sums).max().unwrap_or(0);
        if !is_killed && furthest >= script.sums {
            std::thread::sleep(Duration::from_millis(script.ms));
            members[script.victim].signal("KILL");
            is_killed = true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // What was said last may still be on its way through the pipe.
    std::thread::sleep(Duration::from_millis(10));
}

/// Committed sums, and when each was read.
fn history(member: &Process) -> Vec<(Instant, Value)> {
    let told = said(member).into_iter();
    told.filter(|(_, sum)| sum["names"].is_i64()).collect()
}

fn said(member: &Process) -> Vec<(Instant, Value)> {
    let lines = member.lines(0).into_iter();
    lines.filter_map(|(at, line)| Some((at, serde_json::from_str(&line).ok()?))).collect()
}

/// All sums that count are right and the same everywhere, nobody hangs, and how long the survivors stood still.
fn judge(members: &mut [Process], script: Script) -> Outcome {
    let mut outcome = Outcome::default();
    let mut agreed: BTreeMap<u64, (Value, Value)> = BTreeMap::new();
    for (index, member) in members.iter_mut().enumerate() {
        let mut sums = history(member);
        let survivor = index != script.victim;
        if survivor {
            let last = sums.last().and_then(|(_, sum)| sum["round"].as_u64());
            let is_done = member.ended().is_some_and(|status| status.success());
            outcome.hung |= !is_done || last != Some(ROUNDS - 1);
            outcome.again +=
                said(member).iter().filter(|(_, it)| it["again"] == true).count() as u64;
            outcome.taken += ROUNDS.saturating_sub(sums.len() as u64);
            let times: Vec<Instant> = sums.iter().map(|(at, _)| *at).collect();
            outcome.stall = longest(outcome.stall, stall(&times));
            outcome.usual = longest(outcome.usual, usual(&times));
        } else {
            // A sum is committed when the next one is done: the last one of the lost was theirs alone.
            sums.pop();
        }
        outcome.sums += sums.len() as u64;
        let who = &member.name;
        for (_, sum) in sums {
            let round = sum["round"].as_u64().unwrap_or(u64::MAX);
            let counted = sum["names"].as_i64().map(i64::count_ones).map(u64::from);
            if let Err(why) = check(&sum, round) {
                outcome.wrong.push(format!("{who}, {why}"));
            } else if sum["participants"].as_u64().is_some_and(|told| Some(told) != counted) {
                outcome.wrong.push(format!("{who} counts {} in {sum}", sum["participants"]));
            }
            let told = (sum["names"].clone(), sum["digest"].clone());
            let first = agreed.entry(round).or_insert_with(|| told.clone());
            if *first != told {
                outcome
                    .wrong
                    .push(format!("sum {round} is {told:?} at {who}, {first:?} elsewhere"));
            }
        }
    }
    outcome
}

fn longest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).max_by(f64::total_cmp)
}

/// The middle gap between two sums, in seconds.
fn usual(times: &[Instant]) -> Option<f64> {
    let mut gaps: Vec<f64> =
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    gaps.sort_by(f64::total_cmp);
    gaps.get(gaps.len() / 2).copied()
}

fn line(rival: Rival, script: Script, outcome: &Outcome) -> Value {
    let seconds = |value: Option<f64>| value.map(|value| (value * 1e4).round() / 1e4);
    json!({
        "rival": rival.name(),
        "workers": script.workers,
        "seed": script.seed,
        "victim": script.victim,
        "after_sums": script.sums,
        "after_ms": script.ms,
        "stall": seconds(outcome.stall),
        "usual": seconds(outcome.usual),
        "sums": outcome.sums,
        "again": outcome.again,
        "taken": outcome.taken,
        "wrong": outcome.wrong,
        "hung": outcome.hung,
    })
}

fn keep(root: &Path, record: &Value) -> Result<(), String> {
    let runs = record["runs"].as_array().into_iter().flatten();
    let runs: Vec<String> = runs.map(|run| format!("  {run}")).collect();
    let text =
        format!("{{\"machine\": {}, \"runs\": [\n{}\n]}}\n", record["machine"], runs.join(",\n"));
    let write = |name: &str, text: String| {
        std::fs::write(root.join(name), text).map_err(|why| format!("{name}: {why}"))
    };
    write("bench/torchft.json", text)?;
    write("bench/torchft.md", page(record))
}

/// For people.
fn page(record: &Value) -> String {
    let machine = &record["machine"];
    let word = |value: &Value| value.as_str().unwrap_or("?").to_string();
    let mut text = format!(
        "# One of two and of three is killed: beside torchft over gloo\n\n\
         Written by `cargo xtask chaos --torchft --record`; every run is in `torchft.json`. {}, {}, {} cores; commit {}, torchft {}, torch {}.\n\n\
         The same script for all, in turns within one run, nothing beside it: members sum {NUMBERS} numbers and a lane of integers in which \
         member i contributes 2^i, {ROUNDS} times, {PAUSE_MS} ms apart, over TCP on loopback; one is killed with SIGKILL at a seeded \
         moment. The stall is the longest gap between two committed sums of a survivor less the usual gap, in seconds. A sum is \
         wrong if its numbers are not those of the members that its bits name, if it counts others than those, or if two members have different ones. \
         A run hangs if a survivor does not come to its last sum within {} s.\n\n\
         *Its defaults*: the lighthouse misses a replica after 5 s and looks every 100 ms. *A second*: after 1 s, as long as ours takes for silence on \
         one host, and it looks every 10 ms. Both: it waits 100 ms for stragglers (`join_timeout_ms`), quorums are not asked for in the background, and a call that waits for a peer fails after 10 s (by itself after 60).\n\n",
        word(&machine["date"]),
        word(&machine["processor"]),
        machine["cores"],
        word(&machine["versions"]["commit"]),
        word(&machine["versions"]["torchft"]),
        word(&machine["versions"]["torch"]),
        RUN_MAX.as_secs(),
    );
    text += "| lost | who | runs | stall p50 | p90 | max | usual gap, ms | sums | wrong | runs that hang | made again | taken from another |\n\
             |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for workers in SIZES {
        for rival in RIVALS {
            text += &row(record, rival, workers);
        }
    }
    text + "\n*Made again*: sums of survivors that were thrown away; *taken from another*: sums that a survivor did not make itself, because another had \
            committed them and it took over that one's state.\n"
}

fn row(record: &Value, rival: Rival, workers: usize) -> String {
    let all = record["runs"].as_array().into_iter().flatten();
    let mine: Vec<&Value> =
        all.filter(|run| run["rival"] == rival.name() && run["workers"] == workers).collect();
    let seconds =
        |key: &str| -> Vec<f64> { mine.iter().filter_map(|run| run[key].as_f64()).collect() };
    let total = |key: &str| mine.iter().filter_map(|run| run[key].as_u64()).sum::<u64>();
    let wrong: usize = mine.iter().filter_map(|run| Some(run["wrong"].as_array()?.len())).sum();
    let hung = mine.iter().filter(|run| run["hung"] == true).count();
    if seconds("stall").is_empty() {
        return String::new();
    }
    let (stalls, mut usual) = (quantiles(seconds("stall")), seconds("usual"));
    usual.sort_by(f64::total_cmp);
    format!(
        "| one of {workers} | {} | {} | {} | {} | {} | {:.1} | {} | {wrong} | {hung} | {} | {} |\n",
        rival.name(),
        mine.len(),
        stalls["p50"],
        stalls["p90"],
        stalls["max"],
        1e3 * usual.get(usual.len() / 2).copied().unwrap_or(f64::NAN),
        total("sums"),
        total("again"),
        total("taken"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_are_told_the_same_moment_and_it_falls_into_the_run() {
        for seed in 0..2_000 {
            for workers in SIZES {
                let script = Script::of(seed, workers);
                assert_eq!(script, Script::of(seed, workers));
                assert!(script.victim < workers && (script.sums as u64) < ROUNDS - 20);
            }
        }
    }

    #[test]
    fn a_page_has_a_row_for_each_rival_that_ran() {
        let script = Script::of(1, 2);
        let outcome =
            Outcome { stall: Some(0.25), usual: Some(0.005), sums: 300, ..Outcome::default() };
        let runs = [line(Rival::Ours, script, &outcome), line(RIVALS[1], script, &outcome)];
        let text = page(&json!({ "machine": {}, "runs": runs }));
        assert!(
            text.contains("| one of 2 | starlings | 1 | 0.25 | 0.25 | 0.25 | 5.0 | 300 | 0 | 0 |")
        );
        assert!(text.contains("its defaults | 1 |") && !text.contains("| one of 3 |"));
    }
}
