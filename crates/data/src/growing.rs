//! Numbers that grow at their end while others read those before: rows that come to a worker are put behind the rows that it
//! has, beside the training, and nothing is copied or held twice. Whoever had the numbers keeps seeing as many as before;
//! whoever gets the grown ones sees all. Room for more is memory that nobody has touched, so it costs nothing until it is used.

#![allow(unsafe_code, reason = "one thread writes where no reader of the same memory looks yet")]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first of the numbers of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Growing<T> {
    buffer: Arc<Buffer<T>>,
    len: usize,
}

/// A vector's memory, taken apart. Numbers before `taken` are written once, before anybody sees them, and never again.
#[derive(Debug)]
struct Buffer<T> {
    start: NonNull<T>,
    capacity: usize,
    taken: AtomicUsize,
}

// SAFETY: it owns numbers as a vector does; what is shared of them does not change.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above; `taken` gives each place to one writer only.
unsafe impl<T: Send + Sync> Sync for Buffer<T> {}

impl<T: Copy> Growing<T> {
    /// The numbers of a vector; its spare capacity is the room for more.
    pub(crate) fn of(values: Vec<T>) -> Growing<T> {
        let mut values = ManuallyDrop::new(values);
        let start = NonNull::new(values.as_mut_ptr()).expect("vectors have no null");
        let (len, capacity) = (values.len(), values.capacity());
        Growing { buffer: Arc::new(Buffer { start, capacity, taken: AtomicUsize::new(len) }), len }
    }

    pub(crate) fn numbers(&self) -> &[T] {
        // SAFETY: so many are written, stay as they are, and live as long as the buffer.
        unsafe { std::slice::from_raw_parts(self.buffer.start.as_ptr(), self.len) }
    }

    /// These numbers and more behind them, if there is room for them and nobody has put others there.
    pub(crate) fn grown(&self, more: &[T]) -> Option<Growing<T>> {
        let len = self.len.checked_add(more.len()).filter(|len| *len <= self.buffer.capacity)?;
        let (was, order) = (self.len, Ordering::Relaxed);
        self.buffer.taken.compare_exchange(was, len, order, order).ok()?;
        // SAFETY: the places are within the capacity, and this call alone has taken them; nobody reads them before it returns.
        unsafe {
            let to = self.buffer.start.as_ptr().add(was);
            std::ptr::copy_nonoverlapping(more.as_ptr(), to, more.len());
        }
        Some(Growing { buffer: Arc::clone(&self.buffer), len })
    }

    /// How many more have room behind these: none where others have been put.
    pub(crate) fn room(&self) -> usize {
        let is_last = self.buffer.taken.load(Ordering::Relaxed) == self.len;
        if is_last { self.buffer.capacity - self.len } else { 0 }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: this memory was a vector's, and nobody has it any more. Numbers need no drop of their own.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), 0, self.capacity) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_room(len: usize, more: usize) -> Growing<u32> {
        let mut values = Vec::with_capacity(len + more);
        values.extend(0..len as u32);
        Growing::of(values)
    }

    #[test]
    fn what_was_there_stays_where_it_is_and_is_followed_by_the_rest() {
        let few = with_room(3, 4);
        let more = few.grown(&[3, 4]).unwrap();
        assert_eq!((few.numbers(), more.numbers()), (&[0, 1, 2][..], &[0, 1, 2, 3, 4][..]));
        assert_eq!(few.numbers().as_ptr(), more.numbers().as_ptr(), "nothing is copied");
        assert!(more.room() >= 2);
        drop(few);
        assert_eq!(more.grown(&[5, 6]).unwrap().numbers(), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn nobody_overwrites_what_another_has_put_there_or_leaves_the_room() {
        let few = with_room(3, 4);
        let more = few.grown(&[3]).unwrap();
        assert!(few.grown(&[9]).is_none());
        assert_eq!(few.room(), 0);
        assert_eq!(more.numbers(), [0, 1, 2, 3]);
        let room = more.room();
        assert!(more.grown(&vec![0; room + 1]).is_none());
        assert_eq!(more.grown(&vec![0; room]).unwrap().room(), 0);
        assert!(Growing::<u32>::of(Vec::new()).grown(&[1]).is_none());
    }

    #[test]
    fn readers_see_their_numbers_while_others_are_written() {
        let few = with_room(1_000, 100_000);
        let reader = few.clone();
        let whole = std::thread::scope(|scope| {
            let sum = scope.spawn(move || {
                (0..200).map(|_| reader.numbers().iter().sum::<u32>()).collect::<Vec<_>>()
            });
            let grown = (0..100).fold(few.clone(), |before, _| before.grown(&[7; 1_000]).unwrap());
            assert!(sum.join().unwrap().iter().all(|sum| *sum == 999 * 500));
            grown
        });
        assert_eq!(whole.numbers()[1_000..], [7; 100_000]);
    }
}
