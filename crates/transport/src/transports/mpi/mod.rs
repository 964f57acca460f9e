//! Links over MPI (Open MPI), between processes that `mpirun` has started. One thread owns MPI and moves bytes
//! for all links ([`progress`]); a link is a mailbox at its door ([`link`]).
//!
//! MPI promises no survival: when a process dies, its launcher ends all others. What remains is to end quickly
//! and by name, for which there is [`World::abort`].

mod link;
mod progress;
#[cfg(test)]
mod tests;

pub use link::MpiLink;

use crate::TransportKind;
use crate::lock::enter;
use link::Mailbox;
use progress::{Ending, Outbox};
use starlings_core::{Deadline, Entry, Epoch, Fault, JobId, Result};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The catalogue's entry.
pub(super) const ENTRY: Entry<TransportKind> = Entry {
    name: "mpi",
    summary: "MPI's own messages between processes that mpirun started; it promises no survival: one death ends the job",
    reference: "Message Passing Interface Forum, MPI: A Message-Passing Interface Standard, version 3.1, 2015",
    params: &[],
    gives: &[],
    needs: &[],
    build: TransportKind::Mpi,
};

/// How long MPI may take to start: mpirun may still be starting processes on other hosts.
const START: Duration = Duration::from_secs(120);
/// How long the end may take once everybody has said that it is done.
const FINISH_MS: u64 = 10_000;
/// How long an abort may take before the caller ends the process in its own way.
const ABORT_MS: u64 = 2_000;

/// This process's place among those that mpirun started. There is one in a process, once.
pub struct World {
    rank: u32,
    hosts: Vec<String>,
    shared: Arc<Shared>,
    /// Disconnected when MPI has been left.
    over: Mutex<Receiver<()>>,
}

/// What the links and the thread that owns MPI have in common.
#[derive(Default)]
struct Shared {
    outbox: Outbox,
    mailboxes: Mutex<BTreeMap<Address, Arc<Mailbox>>>,
}

/// The other end of a link: a process, and which of the links to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Address {
    rank: u32,
    channel: u16,
}

impl World {
    /// Starts MPI. Without mpirun the world has this process alone.
    ///
    /// # Errors
    /// MPI was started before, does not start in time, or cannot be used beside other threads.
    pub fn start() -> Result<World> {
        let shared = Arc::new(Shared::default());
        let (tell_place, place) = sync_channel(1);
        let (alive, over) = sync_channel::<()>(1);
        let theirs = Arc::clone(&shared);
        let serve = move || {
            let _alive = alive;
            progress::serve(&theirs, &tell_place);
        };
        std::thread::Builder::new().name("mpi".to_string()).spawn(serve)?;
        let late = |_| {
            Fault::machine("MPI does not start")
                .hint("run `mpirun -n 1 hostname` to see whether Open MPI works here")
        };
        let progress::Place { rank, hosts } = place.recv_timeout(START).map_err(late)??;
        Ok(World { rank, hosts, shared, over: Mutex::new(over) })
    }

    /// This process's number.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many processes there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The host of each process, in order.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The link to another process that both ends call `channel`. Frames sent before the other end opens its
    /// own wait for it there.
    ///
    /// # Panics
    /// For a process that does not exist, and for a channel that was opened before.
    #[must_use]
    pub fn link(&self, rank: u32, channel: u16, job: JobId, epoch: Epoch) -> MpiLink {
        assert!(rank < self.size(), "there is no rank {rank} in a world of {}", self.size());
        MpiLink::open(Arc::clone(&self.shared), Address { rank, channel }, job, epoch)
    }

    /// Sends what still waits, and leaves MPI. Everybody must do so, or MPI waits for those who do not.
    ///
    /// # Errors
    /// Not everybody did, for too long.
    pub fn finish(&self) -> Result<()> {
        self.shared.outbox.end(Ending::Finish);
        match self.is_over(Deadline::after_ms(FINISH_MS)) {
            true => Ok(()),
            false => Err(Fault::peer(None, "not every process left MPI in time")),
        }
    }

    /// Ends all processes with this exit code. Returns when MPI does not manage to, or was left already: the
    /// caller then ends by itself, and mpirun sees that.
    pub fn abort(&self, code: u8) {
        self.shared.outbox.end(Ending::Abort(code));
        let _ = self.is_over(Deadline::after_ms(ABORT_MS));
    }

    fn is_over(&self, by: Deadline) -> bool {
        use std::sync::mpsc::RecvTimeoutError;
        let ended = enter(&self.over).recv_timeout(by.left().unwrap_or_default());
        ended == Err(RecvTimeoutError::Disconnected)
    }
}

impl Shared {
    /// The mailbox of an address, made by whoever comes first: the link, or a message for it.
    fn mailbox(&self, address: Address) -> Arc<Mailbox> {
        Arc::clone(enter(&self.mailboxes).entry(address).or_default())
    }
}
