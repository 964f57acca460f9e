//! Workers as real child processes of the same binary, joined over TCP on loopback. The coordinator is a
//! thread of this process; children get their ticket in a file that only this user can read.

use super::Launcher;
use super::flock::{Door, check, submit};
use crate::train::{Task, Trained};
use starlings_cluster::coordinator::Coordinator;
use starlings_cluster::membership;
use starlings_core::{Deadline, Entry, Fault, Result};
use starlings_transport::Ticket;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) const ENTRY: Entry<Launcher> = Entry {
    name: "processes",
    summary: "Workers are child processes of this binary, linked over TCP on loopback",
    reference: "fork and join, as mpirun does on one host",
    params: &[],
    gives: &[],
    needs: &[],
    build: run,
};

fn run(task: &Task) -> Result<Trained> {
    let program = task.options.program.as_deref();
    // Workers of a job that is refused would only wonder what became of it.
    let checked = check(task)?;
    with_children(program, (task.job.workers, false), |address, ticket, watch| {
        submit(task, checked, &Door { address, ticket, path: None }, watch)
    })
}

/// What may end a job early: gives the fault to end it with.
pub(crate) type Watch<'a> = &'a mut dyn FnMut() -> Option<Fault>;

/// Starts a coordinator and worker processes, inside TLS if wanted, hands them to `client`, and clears everything away
/// after it.
pub(crate) fn with_children<T>(
    program: Option<&Path>,
    (workers, tls): (u32, bool),
    client: impl FnOnce(SocketAddr, &Ticket, Watch<'_>) -> Result<T>,
) -> Result<T> {
    let program = program.ok_or_else(|| {
        Fault::caller("the launcher 'processes' needs the path of the starlings program")
    })?;
    let home = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let coordinator = Coordinator::bind(home, tls, membership::Options::default())?;
    let (address, ticket) = (coordinator.address(), coordinator.ticket().clone());
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("ticket");
    ticket.save(&path)?;
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let serve = move || coordinator.run(&|| ended.load(Ordering::Relaxed));
    let server = std::thread::Builder::new().name("coordinator".to_string()).spawn(serve)?;
    let mut children = Children::spawn(program, address, &path, workers)?;
    let result = client(address, &ticket, &mut || children.died_early());
    over.store(true, Ordering::Relaxed);
    // After a failure a child may be frozen or cut off: it is not worth waiting for.
    children.gather(Deadline::after_ms(if result.is_ok() { 5_000 } else { 500 }));
    // The coordinator's own result has reached us as the client's.
    let _ = server.join();
    result
}

/// The worker processes. None outlives this.
struct Children {
    children: Vec<Child>,
    /// Until when somebody may still say how the job ended, once all are gone.
    gone: Option<Deadline>,
}

/// On a busy host the end of a job may be heard a while after the last child has gone.
const LAST_WORDS_MS: u64 = 5_000;

impl Children {
    fn spawn(program: &Path, address: SocketAddr, ticket: &Path, count: u32) -> Result<Children> {
        let mut children = Children { children: Vec::new(), gone: None };
        for _ in 0..count {
            let child = Command::new(program)
                .args(["worker", "--launched", "--join", &address.to_string(), "--ticket"])
                .arg(ticket)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            let child = child.map_err(|error| {
                Fault::machine(format!("cannot start {}: {error}", program.display()))
            })?;
            children.children.push(child);
        }
        Ok(children)
    }

    /// When every child is gone and nobody has said how it ended, waiting is in vain.
    fn died_early(&mut self) -> Option<Fault> {
        let gone = self.children.iter_mut().all(|child| matches!(child.try_wait(), Ok(Some(_))));
        if !gone {
            return None;
        }
        let by = self.gone.get_or_insert_with(|| Deadline::after_ms(LAST_WORDS_MS));
        by.passed().then(|| Fault::peer(None, "all worker processes ended before the job did"))
    }

    /// Waits for the children to end, not for long.
    fn gather(&mut self, by: Deadline) {
        for child in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && !by.passed() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.children {
            if matches!(child.try_wait(), Ok(None)) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
