//! The catalogue of transports: one file each, two lines here.

pub mod memory;
pub mod tcp;

use starlings_core::Entry;

/// Which transport an entry stands for; the engine connects workers accordingly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// Queues between threads of one process.
    Memory,
    /// Sockets, plain on this machine and inside TLS beyond it.
    Tcp,
}

/// All transports.
pub static TRANSPORTS: &[Entry<TransportKind>] = &[memory::ENTRY, tcp::ENTRY];
