//! Senders take turns, and none waits for its turn past its deadline (a mutex would).

use crate::lock::{enter, wait_until};
use starlings_core::Deadline;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex};

/// A value that one thread at a time may hold, for as long as a write takes.
pub(crate) struct Turn<T> {
    place: Mutex<Place<T>>,
    free: Condvar,
}

struct Place<T> {
    value: Option<T>,
    /// Threads that wait for the value: where there are none, nobody need be woken.
    waiting: usize,
}

/// The value, until dropped.
pub(crate) struct Held<'a, T> {
    turn: &'a Turn<T>,
    value: Option<T>,
}

impl<T> Turn<T> {
    pub(crate) fn new(value: T) -> Turn<T> {
        let place = Place { value: Some(value), waiting: 0 };
        Turn { place: Mutex::new(place), free: Condvar::new() }
    }

    /// The value, or `None` when the deadline passed before it was free.
    pub(crate) fn take(&self, by: Deadline) -> Option<Held<'_, T>> {
        let mut place = enter(&self.place);
        if place.value.is_none() {
            place.waiting += 1;
            place = wait_until(place, &self.free, by, |place| place.value.is_some());
            place.waiting -= 1;
        }
        place.value.take().map(|value| Held { turn: self, value: Some(value) })
    }

    /// The value, if nobody holds it.
    pub(crate) fn take_now(&self) -> Option<Held<'_, T>> {
        enter(&self.place).value.take().map(|value| Held { turn: self, value: Some(value) })
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
        let mut place = enter(&self.turn.place);
        place.value = self.value.take();
        let is_awaited = place.waiting > 0;
        drop(place);
        if is_awaited {
            self.turn.free.notify_one();
        }
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
