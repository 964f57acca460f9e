//! What must hold of every training run, whatever was done to it.

use super::play::{Played, Worker};
use super::points::At;
use super::scenario::{Deed, Family};
use serde_json::Value;
use std::time::Instant;

/// What a worker says that comes again when the job is over: no error, and so not called one.
pub(super) const TOO_LATE: &str = "the job ended before this worker had a seat";

/// Finds what is wrong with a run.
pub(super) fn judge(played: &mut Played, calm: &Value) -> Result<(), String> {
    ended_well(played)?;
    steps_only_grow(played)?;
    nobody_else_is_blamed(played)?;
    survivors_end_well(played)?;
    let report = played.events.last().filter(|event| event["event"] == "report");
    let report = report.ok_or("the last event is no report")?;
    played.scenario.job.check(report, calm)?;
    let wanted = played.scenario.job.completion();
    let told = played.events.iter().filter(|event| event["event"] == "regrouped");
    for regrouped in told {
        if regrouped["completion"] != wanted {
            return Err(format!("{regrouped} was not completed by {wanted}"));
        }
    }
    Ok(())
}

fn ended_well(played: &mut Played) -> Result<(), String> {
    match played.status {
        None => Err("hangs".to_string()),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("train ended with {status}")),
    }
}

/// Steps are reported once, in order, and never taken back; after going back to a checkpoint they are done again.
fn steps_only_grow(played: &Played) -> Result<(), String> {
    let mut last = None;
    for event in &played.events {
        if event["event"] == "regrouped" && event["completion"] == "restore" {
            last = None;
        }
        if event["event"] != "step" {
            continue;
        }
        let step = event["step"].as_u64();
        if step <= last {
            return Err(format!("step {step:?} was reported after {last:?}"));
        }
        last = step;
    }
    Ok(())
}

/// Only whoever was killed, or stood still for long, is told as lost.
fn nobody_else_is_blamed(played: &Played) -> Result<(), String> {
    for fault in played.events.iter().filter(|event| event["event"] == "fault") {
        let message = fault["message"].as_str().unwrap_or_default();
        let number = message.split("(process ").nth(1).and_then(|rest| rest.split(')').next());
        let Some(id) = number.and_then(|word| word.parse::<u32>().ok()) else { continue };
        let blamed = played.workers.iter().position(|worker| worker.id == id);
        let fair = blamed.is_some_and(|worker| may_go(played, worker));
        if !fair {
            return Err(format!("taken for dead and was not: {message}"));
        }
    }
    Ok(())
}

fn survivors_end_well(played: &mut Played) -> Result<(), String> {
    let mut wrong = Vec::new();
    for index in 0..played.workers.len() {
        let may_go = may_go(played, index);
        let Worker { process, newcomer, was_frozen, .. } = &mut played.workers[index];
        let Some(process) = process else { continue };
        let Some(status) = process.ended() else {
            wrong.push(format!("{} is still there", process.name));
            continue;
        };
        // A newcomer may find the job over before it has a seat, or nobody there any more.
        let late = || process.complaints().contains("no coordinator answered");
        let late = *newcomer && (status.code() == Some(130) || late());
        let fine = status.success() || may_go || late;
        if !fine {
            wrong.push(format!("{} ended with {status}", process.name));
        }
        let says_so = |said: &str| said.contains("error: ") || said.contains(TOO_LATE);
        if *was_frozen && !status.success() && !says_so(&process.complaints()) {
            wrong
                .push(format!("{} stood still, was left behind and does not say so", process.name));
        }
    }
    for coordinator in &mut played.coordinators {
        if coordinator.ended().is_none() {
            wrong.push(format!("{} is still there", coordinator.name));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Whether a worker may be lost in this run.
fn may_go(played: &Played, worker: usize) -> bool {
    let newcomer = played.workers[worker].newcomer;
    let at_newcomer = played.scenario.armed.is_some_and(|armed| armed.point.at == At::Newcomer);
    if newcomer { at_newcomer } else { played.scenario.may_lose(worker) }
}

/// The longest gap between two committed steps less the usual one, in seconds.
pub(super) fn stall(times: &[Instant]) -> Option<f64> {
    let mut gaps: Vec<f64> =
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    gaps.sort_by(f64::total_cmp);
    Some((gaps.last()? - gaps.get(gaps.len() / 2)?).max(0.0))
}

/// Under which name the stall of a run is told; `None` where nothing stalls it or what stalls it is not ours.
pub(super) fn stall_kind(played: &Played) -> Option<&'static str> {
    let froze = played.workers.iter().any(|worker| worker.was_frozen);
    let coordinator = played.coordinators.len() > 1;
    let killed = played.scenario.deeds.iter().any(|(_, deed)| matches!(deed, Deed::Kill(_)));
    match played.scenario.family {
        _ if froze => Some("freeze"),
        _ if coordinator => Some("coordinator"),
        Family::Points if played.reached => Some("kill"),
        _ if killed => Some("kill"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_stall_is_the_longest_gap_less_the_usual_one() {
        let start = Instant::now();
        let at = [0, 10, 20, 530, 540].map(|ms| start + Duration::from_millis(ms));
        assert!((stall(&at).unwrap() - 0.5).abs() < 1e-9);
        assert_eq!(stall(&at[..1]), None);
    }
}
