//! A request to stop, shared by the signal handler, the launcher and the workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Around a flag that a signal handler sets.
    #[must_use]
    pub fn from_flag(flag: Arc<AtomicBool>) -> Stop {
        Stop(flag)
    }

    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether someone has asked.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
