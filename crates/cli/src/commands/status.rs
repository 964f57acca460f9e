//! `starlings status`: who is in a flock and what each member is doing.

use crate::output::{say, say_json, table};
use clap::Args;
use serde_json::json;
use starlings::observe::figures;
use starlings::{MemberStatus, Result, Status, Ticket, resolve, status};
use std::path::PathBuf;

/// Show the members of a flock and what each is doing
#[derive(Args)]
#[command(after_long_help = "\
Example:
  starlings status --at 10.0.0.5:7077 --ticket flock.ticket")]
pub(crate) struct Arguments {
    /// Where the coordinator is
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7077")]
    at: String,
    /// The ticket that the coordinator wrote
    #[arg(long, value_name = "FILE", default_value = "starlings.ticket")]
    ticket: PathBuf,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let status = status(resolve(&arguments.at)?, &Ticket::load(&arguments.ticket)?)?;
    if arguments.json {
        return say_json(&json!(status));
    }
    let job = match status.job_id {
        Some(job) => heading(job.0, &status),
        None => "no job yet\n".to_string(),
    };
    if status.members.is_empty() {
        return say(&(job + "no members yet\n"));
    }
    let titles = ["rank", "host", "process", "standing", "step", "lag", "heard", "sent", "phase"];
    let mut rows = vec![titles.map(str::to_string).to_vec()];
    rows.extend(status.members.iter().map(row));
    say(&(job + &table(&rows)))
}

fn row(member: &MemberStatus) -> Vec<String> {
    let known = |number: Option<String>| number.unwrap_or_else(|| "-".to_string());
    vec![
        known(member.seat.map(|seat| seat.0.to_string())),
        member.host.clone(),
        member.pid.to_string(),
        member.standing.clone(),
        known(member.step.map(|step| step.0.to_string())),
        known(member.lag.map(|lag| lag.to_string())),
        known(member.heard_ms_ago.map(|ms| format!("{ms} ms ago"))),
        figures::bytes(member.bytes),
        phase(member),
    ]
}

/// What a member does; where it has been at it for long, for how long, and when it is given up.
fn phase(member: &MemberStatus) -> String {
    match (member.busy_seconds, member.patience_left_seconds) {
        (0..10, _) => member.phase.clone(),
        (seconds, None) => format!("{} for {seconds} s", member.phase),
        (seconds, Some(left)) => {
            format!("{} for {seconds} s, given up in {left} s", member.phase)
        }
    }
}

fn heading(job: u64, status: &Status) -> String {
    let running = status.members.iter().filter(|member| member.standing == "running").count();
    let changes = match status.epoch.0 {
        0 => String::new(),
        epoch => format!(", epoch {epoch} (it began with {})", status.workers),
    };
    let patience = match status.patience_seconds {
        Some(seconds) => format!("; who makes no progress for {seconds} s is given up"),
        None => String::new(),
    };
    let waiting = status.waiting.map_or(String::new(), |it| {
        let (missing, seconds) = (it.want.saturating_sub(it.have), it.seconds_left.ceil());
        let come = if missing == 1 { "comes" } else { "come" };
        format!(
            "waiting for workers: {} of {} are here; unless {missing} more {come} within {seconds} s, the job is given up\n",
            it.have, it.want
        )
    });
    let workers = if running == 1 { "worker" } else { "workers" };
    format!("job {job:016x} on {running} {workers}{changes}{patience}\n{waiting}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_is_one_worker() {
        let member = |standing: &str| MemberStatus {
            standing: standing.to_string(),
            ..MemberStatus::default()
        };
        let (running, dead) = (member("running"), member("dead"));
        let status = |members: Vec<MemberStatus>| Status { members, ..Status::default() };
        let told = |members| heading(0, &status(members));
        assert!(told(vec![running.clone(), dead]).contains("on 1 worker\n"));
        assert!(told(vec![running.clone(), running]).contains("on 2 workers\n"));
    }

    #[test]
    fn one_that_answers_and_does_not_advance_is_shown_with_its_deadline() {
        let member = |busy_seconds, patience_left_seconds| MemberStatus {
            phase: "computation".to_string(),
            busy_seconds,
            patience_left_seconds,
            lag: Some(7),
            heard_ms_ago: Some(80),
            ..MemberStatus::default()
        };
        let stuck = row(&member(35, Some(565)));
        assert_eq!(stuck[5..7], ["7", "80 ms ago"], "steps are not milliseconds");
        assert_eq!(stuck[8], "computation for 35 s, given up in 565 s");
        assert_eq!(row(&member(35, None))[8], "computation for 35 s");
        assert_eq!(row(&member(3, Some(597)))[8], "computation");
    }
}
