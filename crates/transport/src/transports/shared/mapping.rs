//! Mapped memory: the one place that turns a file descriptor into pointers. Whoever holds a [`Mapping`] can reach
//! words that are shared with other processes as atomics, and bulk numbers as bounds-checked raw ranges; never as
//! Rust slices, because another process may write them at any time.
//!
//! Unsafe, because mapping memory and making references into it is; every offset is checked here.

#![allow(
    unsafe_code,
    reason = "shared memory is reached through raw pointers; all of them are made here"
)]

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
    memfd_create, open,
};
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

    /// A memory file of this process, mapped for writing and filled; sealed then, so that it can neither shrink, which would
    /// let a reader be killed by the kernel, nor be mapped for writing once more.
    pub(super) fn sealed(
        name: &str,
        bytes: usize,
        fill: impl FnOnce(&Mapping),
    ) -> std::io::Result<(OwnedFd, Mapping)> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let mapping = Mapping::of(&file, bytes, Access::Write)?;
        fill(&mapping);
        let still = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, still)?;
        Ok((file, mapping))
    }

    /// Maps another's file for reading, after the kernel's word on its seals and length: it must have as many bytes as was
    /// offered, of which at least `least`.
    pub(super) fn offered(file: impl AsFd, bytes: u64, least: usize) -> Result<Mapping, String> {
        let file = file.as_fd();
        let seals = fcntl_get_seals(file).map_err(|_| "it is no memory file".to_string())?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::FUTURE_WRITE) {
            return Err("it is not sealed".to_string());
        }
        let length = fstat(file).map_err(|why| why.to_string())?.st_size as u64;
        let length = usize::try_from(length).unwrap_or(0);
        if length as u64 != bytes || length < least {
            return Err(format!("it has {length} bytes instead of {bytes}"));
        }
        Mapping::of(file, length, Access::Read).map_err(|why| why.to_string())
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

/// The file that another process of this host has under a descriptor.
pub(super) fn opened(pid: u32, descriptor: i32) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(open(format!("/proc/{pid}/fd/{descriptor}"), flags, Mode::empty())?)
}
