//! The catalogue of transports: one file each, two lines here.

pub mod memory;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod shared;
pub mod tcp;

use starlings_core::Entry;

/// Which transport an entry stands for; the engine connects workers accordingly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// Queues between threads of one process.
    Memory,
    /// MPI's messages, between processes that mpirun started.
    #[cfg(feature = "mpi")]
    Mpi,
    /// Shared memory between processes of one host, for sums; sockets carry the rest.
    Shared,
    /// Sockets, plain on this machine and inside TLS beyond it.
    Tcp,
}

/// All transports.
pub static TRANSPORTS: &[Entry<TransportKind>] = &[
    memory::ENTRY,
    #[cfg(feature = "mpi")]
    mpi::ENTRY,
    shared::ENTRY,
    tcp::ENTRY,
];
