//! Mapped memory: the one place that turns a file descriptor into pointers. Whoever holds a [`Mapping`] can reach
//! words that are shared with other processes as atomics, and bulk numbers as bounds-checked raw ranges; never as
//! Rust slices, because another process may write them at any time.
//!
//! Unsafe, because mapping memory and making references into it is; every offset is checked here.

#![allow(
    unsafe_code,
    reason = "shared memory is reached through raw pointers; all of them are made here"
)]

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A file mapped whole, until dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    is_writable: bool,
}

/// Who may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The owner.
    Write,
    /// Everyone else.
    Read,
}

// SAFETY: the mapping is plain memory that no thread owns. Words are reached as atomics; ranges are raw pointers,
// whose users (the kernels) say who may write when.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file of at least `bytes`. The caller has made sure that the file cannot shrink, or touching it
    /// could end the process.
    pub(super) fn of(file: impl AsFd, bytes: usize, access: Access) -> std::io::Result<Mapping> {
        let protection = match access {
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
            Access::Read => ProtFlags::READ,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address zero");
        Ok(Mapping { base, bytes, is_writable: access == Access::Write })
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A word at an offset. On a mapping for reading it may only be loaded.
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        let place = self.range(offset, 4);
        assert!(offset.is_multiple_of(4), "words are aligned");
        // SAFETY: inside the mapping, aligned, alive as long as `self`, and only ever accessed atomically.
        unsafe { &*place.cast() }
    }

    /// A long word at an offset. On a mapping for reading it may only be loaded.
    pub(super) fn long(&self, offset: usize) -> &AtomicU64 {
        let place = self.range(offset, 8);
        assert!(offset.is_multiple_of(8), "long words are aligned");
        // SAFETY: as for `word`.
        unsafe { &*place.cast() }
    }

    /// Bytes to read. They may change under the reader; see the sequence of a slot.
    pub(super) fn range(&self, offset: usize, bytes: usize) -> *const u8 {
        self.place(offset, bytes).cast_const()
    }

    /// Bytes to write.
    pub(super) fn range_mut(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(self.is_writable, "only the owner writes a segment");
        self.place(offset, bytes)
    }

    fn place(&self, offset: usize, bytes: usize) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.bytes), "outside of the segment");
        // SAFETY: within the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `of` with this length; references into it cannot outlive `self`. A failure would leave
        // the memory mapped, which harms nobody.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
