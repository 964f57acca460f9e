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
    let titles = ["rank", "host", "process", "standing", "step", "lag", "sent", "phase"];
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
        figures::bytes(member.bytes),
        match member.busy_seconds {
            0..10 => member.phase.clone(),
            seconds => format!("{} for {seconds} s", member.phase),
        },
    ]
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
    format!("job {job:016x} on {running} workers{changes}{patience}\n")
}
