//! `starlings coordinator`: waits for workers and for one job, and watches over it.

use crate::output::say;
use crate::signals;
use clap::Args;
use starlings::{Coordinator, MembershipOptions, Result, resolve};
use std::path::PathBuf;

/// Wait for workers and one job, and watch over it
#[derive(Args)]
#[command(after_long_help = "\
The coordinator writes a ticket: a small secret file without which nobody gets in. Copy it to the hosts of the \
workers. Beyond this machine links must be inside TLS.

Examples:
  starlings coordinator
  starlings coordinator --listen 10.0.0.5:7077 --tls --ticket flock.ticket")]
pub(crate) struct Arguments {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7077")]
    listen: String,
    /// Encrypt and authenticate all links
    #[arg(long)]
    tls: bool,
    /// Where to write the ticket that lets workers in
    #[arg(long, value_name = "FILE", default_value = "starlings.ticket")]
    ticket: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let stop = signals::stop()?;
    let address = resolve(&arguments.listen)?;
    let coordinator = Coordinator::bind(address, arguments.tls, MembershipOptions::default())?;
    coordinator.ticket().save(&arguments.ticket)?;
    // Whole, because a job file's paths are relative to the job file and not to this folder.
    let (address, path) = (coordinator.address(), arguments.ticket.canonicalize()?);
    let ticket = path.display();
    say(&format!(
        "listening on {address}; the ticket is {ticket}\n\n\
         Next, on each host: starlings worker --join {address} --ticket {ticket}\n\
         Then: starlings train JOB.toml --launcher flock --set cluster.coordinator={address} \
         --set cluster.ticket={ticket}\n"
    ))?;
    coordinator.run(&|| stop.asked())
}
