//! Buffers that live in a seat's segment: sums of them copy nothing into slots, for peers read them where they are.
//!
//! Unsafe, because slices are made of shared memory. It is sound as long as everybody follows the protocol: only the
//! owner writes its segment, its peers read a buffer only while the owner is inside a sum that borrows it, and they
//! read through raw pointers.

#![allow(unsafe_code, reason = "slices of this seat's own shared memory")]

use super::layout::{ARENA, LINE};
use super::mapping::Mapping;
use super::segment::Segment;
use starlings_core::{Fault, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A vector of f32 of fixed length in shared memory, zeros at first. Its place is not given back before the segment is.
///
/// ```
/// use starlings_core::{Epoch, JobId, Seat};
/// use starlings_transport::shared::{Identity, Segment, SharedBuffer};
///
/// let identity = Identity::fresh(JobId(1), Epoch(0), Seat(0)).unwrap();
/// let segment = Segment::new(identity, 1 << 20).unwrap();
/// let mut buffer = SharedBuffer::new(&segment, 1000).unwrap();
/// buffer.as_mut_slice().fill(2.0);
/// assert_eq!(buffer.as_slice()[999], 2.0);
/// ```
#[derive(Debug)]
pub struct SharedBuffer {
    mapping: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl SharedBuffer {
    /// Takes room for `len` numbers from the segment's arena.
    ///
    /// # Errors
    /// When the arena is full.
    pub fn new(segment: &Segment, len: usize) -> Result<SharedBuffer> {
        let mapping = segment.mapping().clone();
        let bytes = len.checked_mul(4).and_then(|bytes| bytes.checked_next_multiple_of(LINE));
        let room = mapping.bytes() - ARENA;
        let take = |taken: usize| taken.checked_add(bytes?).filter(|&end| end <= room);
        let taken = segment.arena_taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        match taken {
            Ok(before) => Ok(SharedBuffer { mapping, offset: ARENA + before, len }),
            Err(_) => Err(Fault::caller(format!("no room for {len} numbers in shared memory"))
                .hint("make the segment with a larger arena")),
        }
    }

    /// The numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        let place = self.mapping.range(self.offset, self.len * 4);
        // SAFETY: within the mapping, aligned to a line, taken by nobody else, and written by this process alone, which
        // needs `&mut self` for it.
        unsafe { std::slice::from_raw_parts(place.cast(), self.len) }
    }

    /// The numbers, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        let place = self.mapping.range_mut(self.offset, self.len * 4);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(place.cast(), self.len) }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    pub(super) fn is_in(&self, mapping: &Arc<Mapping>) -> bool {
        Arc::ptr_eq(&self.mapping, mapping)
    }
}
