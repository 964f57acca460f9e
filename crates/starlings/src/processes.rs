//! A program that becomes several: copies of itself on this machine, each with a seat in one flock. As `torchrun` and
//! `mpirun` do, the environment tells a copy where to join, so that other launchers can start the same program.

use starlings_core::{Deadline, Fault, Result};
use starlings_engine::flock::{Flock, FlockHost, FlockOptions};
use starlings_engine::launch::flock::resolve;
use starlings_engine::member::{JoinOptions, host_name};
use starlings_engine::node::serve;
use starlings_engine::stop::Stop;
use starlings_transport::Ticket;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

/// The variable that says where to join, `host:port`.
const ADDRESS: &str = "STARLINGS_JOIN";
/// The variable that says which file has the ticket.
const TICKET: &str = "STARLINGS_TICKET";
/// How long a member may go on after all have left, to write its model for example.
const LAST_WORDS: Duration = Duration::from_secs(600);

/// Makes this program a flock of so many processes. The one that was started starts copies of itself with the same
/// arguments, waits until the flock has ended, and gets `None`; each copy gets its seat. A program that finds `STARLINGS_JOIN`
/// and `STARLINGS_TICKET` in its environment joins there, whoever started it.
///
/// # Errors
/// Copies that cannot be started; whatever ended the flock; what [`Flock::join`] refuses.
pub fn launch(members: u32) -> Result<Option<Flock>> {
    launch_with(members, |options| options)
}

/// The same with other options: how the flock sums, for example.
///
/// # Errors
/// As for [`launch`].
pub fn launch_with(
    members: u32,
    options: impl FnOnce(FlockOptions) -> FlockOptions,
) -> Result<Option<Flock>> {
    #[expect(clippy::disallowed_methods, reason = "a launcher speaks through the environment")]
    let told = |name: &str| std::env::var(name).ok();
    match (told(ADDRESS), told(TICKET)) {
        (Some(address), Some(ticket)) => {
            let ticket = Ticket::load(ticket.as_ref())?;
            Flock::join(&options(FlockOptions::new(&address, ticket)?)).map(Some)
        }
        (None, None) => host(members).map(|()| None),
        _ => Err(Fault::caller(format!("one of {ADDRESS} and {TICKET} is set, not both"))
            .hint("set both to join a flock, or neither to start one")),
    }
}

/// Takes part in a job if this program was started as one of its workers, and says whether it was. The launcher `processes`
/// starts [`TrainOptions::program`](crate::TrainOptions::program) as `starlings worker …`: with this as its first act, a program
/// that has registered learners of its own can be that program.
///
/// # Errors
/// Whatever ended the job before its end.
pub fn serve_if_worker() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ["worker", "--launched", "--join", address, "--ticket", ticket] = words[..] else {
        return Ok(false);
    };
    let options = JoinOptions {
        coordinator: resolve(address)?,
        ticket: Ticket::load(ticket.as_ref())?,
        host: host_name(),
        stop: Stop::new(),
        patience: Duration::from_secs(30),
        ticket_path: Some(ticket.into()),
    };
    serve(&options).map(|()| true)
}

fn host(members: u32) -> Result<()> {
    if members == 0 {
        return Err(Fault::caller("a flock has at least one member"));
    }
    let program = std::env::current_exe()?;
    let host = FlockHost::start(members)?;
    let folder = tempfile::tempdir()?;
    let ticket = folder.path().join("ticket");
    host.ticket().save(&ticket)?;
    let mut copies = Copies(Vec::new());
    for _ in 0..members {
        copies.0.push(copy(&program, &host.address().to_string(), &ticket)?);
    }
    while !host.is_over() && copies.any_runs() {
        std::thread::sleep(Duration::from_millis(10));
    }
    copies.gather(Deadline::after(LAST_WORDS))
}

fn copy(program: &Path, address: &str, ticket: &Path) -> Result<Child> {
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1)).env(ADDRESS, address).env(TICKET, ticket);
    command
        .spawn()
        .map_err(|error| Fault::machine(format!("cannot start {}: {error}", program.display())))
}

/// The copies. None outlives this.
struct Copies(Vec<Child>);

impl Copies {
    fn any_runs(&mut self) -> bool {
        self.0.iter_mut().any(|copy| matches!(copy.try_wait(), Ok(None)))
    }

    /// Waits until all have ended. A flock outlives members that fail, so that one which succeeds is enough; whoever
    /// fails says why itself.
    fn gather(&mut self, by: Deadline) -> Result<()> {
        while self.any_runs() && !by.passed() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = |copy: &mut Child| copy.try_wait().ok().flatten();
        match self.0.iter_mut().filter_map(ended).any(|status| status.success()) {
            true => Ok(()),
            false => Err(Fault::peer(None, format!("all {} members failed", self.0.len()))),
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for copy in &mut self.0 {
            if matches!(copy.try_wait(), Ok(None)) {
                let _ = copy.kill();
                let _ = copy.wait();
            }
        }
    }
}
