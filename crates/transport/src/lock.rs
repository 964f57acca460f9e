//! Locks that outlive a panic of their holder: state below is replaced whole, never left half-changed, so
//! that a poisoned lock may be entered.

use starlings_core::Deadline;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Enters a lock.
pub(crate) fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until `ready` or the deadline, whichever is first; the caller looks which it was.
pub(crate) fn wait_until<'a, T>(
    mut guard: MutexGuard<'a, T>,
    signal: &Condvar,
    by: Deadline,
    ready: impl Fn(&T) -> bool,
) -> MutexGuard<'a, T> {
    while !ready(&guard) {
        let Some(left) = by.left() else { break };
        guard = signal.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    guard
}
