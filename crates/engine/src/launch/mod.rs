//! Where workers run: the catalogue of launchers.

pub mod flock;
#[cfg(feature = "mpi")]
pub mod mpi;
pub(crate) mod place;
pub(crate) mod processes;
pub(crate) mod threads;
mod told;

use crate::train::{Task, Trained};
use starlings_core::{Blame, Entry, Fault, Result};

/// Runs a job's workers and brings back the model.
pub type Launcher = fn(&Task) -> Result<Trained>;

/// All launchers.
pub static LAUNCHERS: &[Entry<Launcher>] = &[
    flock::ENTRY,
    #[cfg(feature = "mpi")]
    mpi::ENTRY,
    processes::ENTRY,
    threads::ENTRY,
];

/// When several workers failed, the fault that says why. Losing a peer is what the others see of it: a
/// worker's own complaint goes first.
pub(crate) fn worst(faults: Vec<Fault>) -> Option<Fault> {
    faults.into_iter().min_by_key(|fault| match fault.blame() {
        Blame::Caller => 0,
        Blame::Machine => 1,
        Blame::Interrupted => 2,
        Blame::Peer(Some(_)) => 3,
        Blame::Peer(None) => 4,
    })
}
