//! Plays a run of loops of one's own (`named_sums`): every sum names its contributors by its bits, so that a wrong one cannot
//! hide. Histories of all members are checked against each other afterwards.

use super::herd::{Process, signal};
use super::play::Tools;
use super::scenario::{Action, Deed, Scenario};
use super::verdict::stall;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: u64 = 150;
const PAUSE_MS: u64 = 4;
/// Above 256 KiB a result is not kept: members wait for each other instead.
const LARGE: u64 = 40_000;
const SMALL: u64 = 500;
const RUN_MAX: Duration = Duration::from_secs(60);

/// What became of it.
pub(super) struct Summed {
    pub(super) reached: bool,
    pub(super) sums: u64,
    /// In seconds; `None` where nobody was lost.
    pub(super) stall: Option<(&'static str, f64)>,
    pub(super) verdict: Result<(), String>,
    /// For people, where something is wrong.
    pub(super) story: String,
}

/// Plays a run to its end and checks it.
pub(super) fn play(tools: &Tools, scenario: &Scenario) -> Result<Summed, String> {
    let program = tools.named_sums.as_deref().ok_or("named_sums was not built")?;
    let folder = tools.folder.join(format!("run-{}", scenario.seed));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut host = Command::new(program);
    host.args(["host", &scenario.workers.to_string(), "ticket"]).current_dir(&folder);
    let mut host = Process::start("host", &mut host)?;
    let line = host.line("listening on ", Instant::now() + Duration::from_secs(30))?;
    let address = line["listening on ".len()..].to_string();
    let mut members = Vec::new();
    for index in 0..scenario.workers {
        members.push(Member::start(scenario, index, (program, &folder, &address))?);
    }
    let by = Instant::now() + RUN_MAX;
    let mut done = vec![false; scenario.deeds.len()];
    while members.iter_mut().any(|member| member.process.ended().is_none()) && Instant::now() < by {
        disturb(scenario, &mut members, &mut done);
        std::thread::sleep(Duration::from_millis(1));
    }
    let hanging: Vec<String> = members
        .iter_mut()
        .filter_map(|member| {
            member.process.ended().is_none().then(|| format!("{} hangs", member.process.name))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(10));
    host.wait(Instant::now() + Duration::from_secs(10));
    let histories: Vec<Vec<(Instant, Value)>> = members.iter().map(Member::history).collect();
    let verdict = match hanging.is_empty() {
        true => judge(scenario, &mut members, &histories),
        false => Err(hanging.join("; ")),
    };
    let reached = members.iter().any(|member| member.reached);
    let story = members.iter().map(|member| member.process.last_words()).collect::<String>();
    let _ = std::fs::remove_dir_all(&folder);
    let stall = worst(scenario, &members, &histories);
    let sums = histories.iter().map(|history| history.len() as u64).sum();
    Ok(Summed { reached, sums, stall, verdict, story: story + &host.last_words() })
}

struct Member {
    process: Process,
    frozen: Option<(Instant, u64)>,
    was_frozen: bool,
    reached: bool,
    armed: Option<Action>,
}

impl Member {
    fn start(
        scenario: &Scenario,
        index: usize,
        (program, folder, address): (&Path, &Path, &str),
    ) -> Result<Member, String> {
        let width = if scenario.large { LARGE } else { SMALL };
        let mut command = Command::new(program);
        command.args(["join", address, "ticket"]).current_dir(folder);
        command.args([ROUNDS, PAUSE_MS, width].map(|number| number.to_string()));
        if !scenario.one_host {
            command.arg(format!("host-{index}"));
        }
        let (word, armed) = scenario.set_for_member(index).unzip();
        command.envs(word.map(|word| ("STARLINGS_FAIL", word)));
        let process = Process::start(&format!("member {index}"), &mut command)?;
        let armed = armed.flatten();
        Ok(Member { process, frozen: None, was_frozen: false, reached: false, armed })
    }

    fn history(&self) -> Vec<(Instant, Value)> {
        let lines = self.process.lines(0).into_iter();
        lines.filter_map(|(at, line)| Some((at, serde_json::from_str(&line).ok()?))).collect()
    }
}

/// Does what is due.
fn disturb(scenario: &Scenario, members: &mut [Member], done: &mut [bool]) {
    let furthest = members.iter().map(|member| member.process.lines(0).len()).max().unwrap_or(0);
    for (at, (moment, deed)) in scenario.deeds.iter().enumerate() {
        if done[at] || furthest < moment.steps {
            continue;
        }
        done[at] = true;
        std::thread::sleep(Duration::from_millis(moment.ms));
        match *deed {
            Deed::Kill(victim) => members[victim].process.signal("KILL"),
            Deed::Freeze(victim, ms) => {
                members[victim].process.signal("STOP");
                members[victim].frozen = Some((Instant::now(), ms));
                members[victim].was_frozen = true;
            }
            _ => {}
        }
    }
    for member in members {
        match member.armed {
            Some(Action::Stop) if !member.was_frozen && member.process.is_stopped() => {
                member.frozen = Some((Instant::now(), scenario.thaw_ms));
                (member.was_frozen, member.reached) = (true, true);
            }
            Some(Action::Kill) if member.process.was_killed() => member.reached = true,
            _ => {}
        }
        if member.frozen.is_some_and(|(at, ms)| at.elapsed() >= Duration::from_millis(ms)) {
            member.frozen = None;
            signal(member.process.id(), "CONT");
        }
    }
}

fn judge(
    scenario: &Scenario,
    members: &mut [Member],
    histories: &[Vec<(Instant, Value)>],
) -> Result<(), String> {
    let mut agreed: BTreeMap<u64, (&Value, &Value)> = BTreeMap::new();
    for (index, member) in members.iter_mut().enumerate() {
        let history = &histories[index];
        let status = member.process.ended();
        let survived = status.is_some_and(|status| status.success());
        if !survived && !scenario.may_lose(index) {
            return Err(format!("member {index} ended with {status:?} and was not to be lost"));
        }
        if survived && history.len() as u64 != ROUNDS {
            return Err(format!("member {index} has {} sums of {ROUNDS}", history.len()));
        }
        // A sum is committed when the next one is done: the last one of the lost was theirs alone.
        let committed = if survived { history.len() } else { history.len().saturating_sub(1) };
        for (at, (_, sum)) in history.iter().enumerate().take(committed) {
            check(sum, at as u64).map_err(|why| format!("member {index}, {why}"))?;
            let told = (&sum["names"], &sum["digest"]);
            let first = *agreed.entry(at as u64).or_insert(told);
            if first != told {
                return Err(format!("sum {at} is {told:?} at member {index}, {first:?} elsewhere"));
            }
        }
    }
    // Whoever is gone does not come back.
    let names: Vec<i64> = agreed.values().map(|(names, _)| names.as_i64().unwrap_or(0)).collect();
    match names.windows(2).position(|pair| pair[1] & !pair[0] != 0) {
        Some(at) => Err(format!("members {:b} follow {:b}", names[at + 1], names[at])),
        None => Ok(()),
    }
}

/// One sum: the right round, the bits of whom it names, and their numbers.
pub(super) fn check(sum: &Value, round: u64) -> Result<(), String> {
    if sum["round"] != round {
        return Err(format!("sum {} instead of {round}", sum["round"]));
    }
    let members = sum["members"].as_array().into_iter().flatten().filter_map(Value::as_u64);
    let bits = members.fold(0, |bits, member| bits | 1i64 << member);
    if sum["names"] != bits {
        return Err(format!("wrong sum {round}: bits {} of {}", sum["names"], sum["members"]));
    }
    match &sum["wrong"] {
        Value::Null => Ok(()),
        at => Err(format!("wrong sum {round}: number {at} of {}", sum["members"])),
    }
}

/// The longest stall of a survivor.
fn worst(
    scenario: &Scenario,
    members: &[Member],
    histories: &[Vec<(Instant, Value)>],
) -> Option<(&'static str, f64)> {
    let froze = members.iter().any(|member| member.was_frozen);
    let by_deed = scenario.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Kill(_)));
    let killed = by_deed || scenario.half.is_some();
    let kind = match froze {
        true => "freeze",
        false if killed || members.iter().any(|member| member.reached) => "kill",
        false => return None,
    };
    let whole = histories.iter().filter(|history| history.len() as u64 == ROUNDS);
    let stalls = whole
        .filter_map(|history| stall(&history.iter().map(|(at, _)| *at).collect::<Vec<Instant>>()));
    stalls.max_by(f64::total_cmp).map(|seconds| (kind, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn wrong_sums_are_seen() {
        let sum = |names: i64, wrong: Value| json!({"round": 3, "names": names, "members": [0, 2], "wrong": wrong, "digest": "0"});
        check(&sum(5, Value::Null), 3).unwrap();
        assert!(check(&sum(5, Value::Null), 2).unwrap_err().contains("instead of 2"));
        assert!(check(&sum(7, Value::Null), 3).unwrap_err().contains("wrong sum"));
        assert!(check(&sum(5, json!(9)), 3).unwrap_err().contains("number 9"));
    }
}
