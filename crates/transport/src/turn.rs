//! Senders take turns, and none waits for its turn past its deadline (a mutex would).

use crate::lock::{enter, wait_until};
use starlings_core::Deadline;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex};

/// A value that one thread at a time may hold, for as long as a write takes.
pub(crate) struct Turn<T> {
    value: Mutex<Option<T>>,
    free: Condvar,
}

/// The value, until dropped.
pub(crate) struct Held<'a, T> {
    turn: &'a Turn<T>,
    value: Option<T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Turn<T> {
        Turn { value: Mutex::new(Some(value)), free: Condvar::new() }
    }

    /// The value, or `None` when the deadline passed before it was free.
    pub(crate) fn take(&self, by: Deadline) -> Option<Held<'_, T>> {
        let mut guard = wait_until(enter(&self.value), &self.free, by, Option::is_some);
        guard.take().map(|value| Held { turn: self, value: Some(value) })
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        *enter(&self.turn.value) = self.value.take();
        self.turn.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_turn_is_not_awaited_past_the_deadline() {
        let turn = Turn::new(5);
        let mut held = turn.take(Deadline::after_ms(1000)).unwrap();
        assert!(turn.take(Deadline::after_ms(5)).is_none());
        *held += 1;
        drop(held);
        assert_eq!(*turn.take(Deadline::after_ms(0)).unwrap(), 6);
    }
}
