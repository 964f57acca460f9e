//! `starlings worker`: joins a coordinator and takes part in its job.

use crate::output::complain;
use crate::signals;
use clap::Args;
use starlings::{JoinOptions, Result, Served, Ticket, resolve};
use std::path::PathBuf;
use std::time::Duration;

/// Join a coordinator and take part in its job
#[derive(Args)]
#[command(after_long_help = "\
The worker reads the data itself, so the job's paths must mean the same files on its host. SIGTERM and Ctrl-C \
end it politely: it finishes its step, and the others go on without it (exit code 130); the last one ends the job. A \
worker that stood still or was cut off, and was left behind by the others, joins again by itself, three times at most.

Example:
  starlings worker --join 10.0.0.5:7077 --ticket flock.ticket")]
pub(crate) struct Arguments {
    /// Where the coordinator is
    #[arg(long, value_name = "ADDRESS")]
    join: String,
    /// The ticket that the coordinator wrote
    #[arg(long, value_name = "FILE", default_value = "starlings.ticket")]
    ticket: PathBuf,
    /// This host's name in reports [default: its own]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// How long to wait for the coordinator to be there
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,
    /// Say nothing unless something fails
    #[arg(long)]
    quiet: bool,
    /// Started by a launcher, which tells its user what happens and its workers when to stop
    #[arg(long, hide = true)]
    launched: bool,
}

impl Arguments {
    pub(super) fn quiet(&self) -> bool {
        self.quiet || self.launched
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let is_quiet = arguments.quiet();
    let options = JoinOptions {
        coordinator: resolve(&arguments.join)?,
        ticket: Ticket::load(&arguments.ticket)?,
        host: arguments.host.unwrap_or_else(host_name),
        stop: if arguments.launched { signals::stop_by_launcher() } else { signals::stop() }?,
        patience: Duration::from_secs(arguments.patience),
        ticket_path: Some(arguments.ticket.clone()),
    };
    if !is_quiet {
        complain(&format!("joining {} as {}", options.coordinator, options.host));
    }
    let served = starlings::serve_and_tell(&options, &|fault| {
        if !is_quiet {
            complain(&format!("{fault}; joining again"));
        }
    })?;
    if !is_quiet {
        complain(match served {
            Served::Worked => "the job is done",
            Served::TooLate => "the job ended before this worker had a seat",
        });
    }
    Ok(())
}

/// What this host calls itself.
fn host_name() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let program = || std::process::Command::new("hostname").output().ok();
    let name = kernel.or_else(|| String::from_utf8(program()?.stdout).ok());
    let name = name.map(|name| name.trim().to_string()).filter(|name| !name.is_empty());
    name.unwrap_or_else(|| "localhost".to_string())
}
