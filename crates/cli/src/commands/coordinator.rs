//! `starlings coordinator`: waits for workers and for one job, and watches over it.

use crate::output::say;
use crate::signals;
use clap::Args;
use starlings::{Coordinator, MembershipOptions, Result, Ticket, resolve};
use std::path::PathBuf;

/// Wait for workers and one job, and watch over it
#[derive(Args)]
#[command(after_long_help = "\
The coordinator writes a ticket: a small secret file without which nobody gets in. Copy it to the hosts of the \
workers. Beyond this machine links must be inside TLS.

What it must not forget is in a journal beside the ticket. Should it die, workers go on, and another one takes over \
with --resume, here or on another address.

Examples:
  starlings coordinator
  starlings coordinator --resume
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
    /// Take over the job of a coordinator that died: its workers go on, and return to this one
    #[arg(long)]
    resume: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let stop = signals::stop()?;
    let address = resolve(&arguments.listen)?;
    let options = MembershipOptions::default();
    let mut journal = arguments.ticket.clone().into_os_string();
    journal.push(".journal");
    let coordinator = match arguments.resume {
        true => {
            let ticket = Ticket::load(&arguments.ticket)?;
            Coordinator::resume(address, ticket, options, journal.as_ref())?
        }
        false => Coordinator::durable(address, arguments.tls, options, journal.as_ref())?,
    };
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
