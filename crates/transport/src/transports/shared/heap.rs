//! Memory of a process that its neighbours can read: one sealed memory file, out of which an allocator serves the large
//! vectors that are made to be contributed (see [`starlings_core::contributing`]). Sums of such vectors copy nothing into
//! slots, although nobody but the allocator knows that they are special.
//!
//! Blocks come in a few sizes and go back to the shelf of their size. The file does not shrink, so only what is
//! contributed again and again belongs here. An allocator may neither allocate nor panic, so nothing here does.
//!
//! Unsafe, because it is an allocator.

#![allow(unsafe_code, reason = "an allocator hands out raw memory")]

use super::mapping::{Mapping, opened};
use crate::token::random_bytes;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use serde::{Deserialize, Serialize};
use starlings_core::{contributing, is_contributing};
use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

const MAGIC: u64 = u64::from_le_bytes(*b"STARHEA\x01");
const MAGIC_AT: usize = 0;
const NONCE_AT: usize = 8;
const BYTES_AT: usize = 16;
/// Where blocks begin.
pub(super) const FIRST: usize = PAGE;
const PAGE: usize = 4096;
/// Smaller vectors are copied into slots: that costs less than to say where they lie.
pub(super) const LARGE: usize = 64 << 10;
/// Larger ones would keep too much for good.
const LARGEST: usize = 1 << 30;
/// Sizes of blocks: four to every doubling, from `LARGE` to `LARGEST`.
const SIZES: usize = 4 * (LARGEST.ilog2() - LARGE.ilog2()) as usize + 1;

/// Where the heap lies in this process; zero as long as there is none.
static BASE: AtomicUsize = AtomicUsize::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static SHELVES: Mutex<Shelves> = Mutex::new(Shelves { fresh: FIRST, first: [0; SIZES] });
static HEAP: OnceLock<Option<Heap>> = OnceLock::new();

/// What can be handed out.
struct Shelves {
    /// From here on nothing has ever been handed out.
    fresh: usize,
    /// The first free block of each size, or 0; its first word says where the next one is.
    first: [usize; SIZES],
}

/// The heap of this process.
#[derive(Debug)]
pub(super) struct Heap {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    nonce: u64,
}

/// What a process tells its neighbours, so that they find its heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeapOffer {
    descriptor: i32,
    bytes: u64,
    nonce: u64,
}

/// An allocator that puts large vectors which are made to be contributed where neighbours can read them, once there are
/// neighbours, and leaves all else to another allocator.
///
/// ```
/// use starlings_transport::shared::NearbyAllocator;
///
/// #[global_allocator]
/// static ALLOCATOR: NearbyAllocator<std::alloc::System> = NearbyAllocator(std::alloc::System);
///
/// assert_eq!(vec![1; 100_000].len(), 100_000);
/// ```
#[derive(Debug)]
pub struct NearbyAllocator<A>(pub A);

// SAFETY: a block of the heap is as large as asked, aligned to a page and handed out once until it is given back; all else
// is the other allocator's. Which of them has a block is told by its address, which never changes hands.
unsafe impl<A: GlobalAlloc> GlobalAlloc for NearbyAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promised.
        take(&layout).map_or_else(|| unsafe { self.0.alloc(layout) }, |(block, _)| block)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match take(&layout) {
            Some((block, true)) => block,
            Some((block, false)) => {
                // SAFETY: the block has at least so many bytes.
                unsafe { block.write_bytes(0, layout.size()) };
                block
            }
            // SAFETY: as the caller promised.
            None => unsafe { self.0.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match offset_of(block) {
            Some(offset) => give_back(offset, layout.size()),
            // SAFETY: as the caller promised.
            None => unsafe { self.0.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if offset_of(block).is_none() {
            // SAFETY: as the caller promised.
            return unsafe { self.0.realloc(block, layout, size) };
        }
        if size_of(layout.size()).is_some() && size_of(layout.size()) == size_of(size) {
            return block;
        }
        // SAFETY: the caller promised that the size is not too large; both blocks have the bytes that are copied, and a
        // block that is handed out overlaps no other.
        unsafe {
            let grown = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !grown.is_null() {
                grown.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            grown
        }
    }
}

/// Opens the heap of this process, of at most `bytes`, once and for all. `None` where its allocator is another one, or the
/// system has no memory files.
pub(super) fn heap(bytes: usize) -> Option<&'static Heap> {
    let opened = HEAP.get_or_init(|| {
        let heap = Heap::open(bytes).ok()?;
        let base = heap.mapping.range_mut(0, heap.mapping.bytes()) as usize;
        LENGTH.store(heap.mapping.bytes(), Ordering::Relaxed);
        BASE.store(base, Ordering::Release);
        let tried = black_box(contributing(|| vec![0_u8; LARGE]));
        let is_served = offset_of(tried.as_ptr()).is_some();
        if !is_served {
            BASE.store(0, Ordering::Release);
        }
        is_served.then_some(heap)
    });
    opened.as_ref()
}

/// Where in this process's heap something lies.
pub(super) fn offset_of(place: *const u8) -> Option<usize> {
    let base = BASE.load(Ordering::Acquire);
    let offset = (place as usize).wrapping_sub(base);
    (base != 0 && offset < LENGTH.load(Ordering::Relaxed)).then_some(offset)
}

/// A block for a layout that belongs here, and whether it was never used.
fn take(layout: &Layout) -> Option<(*mut u8, bool)> {
    if layout.size() < LARGE || !is_contributing() || layout.align() > PAGE {
        return None;
    }
    let base = BASE.load(Ordering::Acquire);
    let at = size_of(layout.size()).filter(|_| base != 0)?;
    let mut shelves = SHELVES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = *shelves.first.get(at)?;
    let (offset, is_fresh) = if found == 0 {
        let end = shelves.fresh.checked_add(bytes_of(at))?;
        if end > LENGTH.load(Ordering::Relaxed) {
            return None;
        }
        (std::mem::replace(&mut shelves.fresh, end), true)
    } else {
        // SAFETY: a free block's first word was written when it was given back.
        let next = unsafe { ((base + found) as *const usize).read() };
        *shelves.first.get_mut(at)? = next;
        (found, false)
    };
    Some(((base + offset) as *mut u8, is_fresh))
}

fn give_back(offset: usize, size: usize) {
    let mut shelves = SHELVES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(first) = size_of(size).and_then(|at| shelves.first.get_mut(at)) else { return };
    let next = std::mem::replace(first, offset);
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: a block that was handed out and is nobody's any more; it is aligned to a page.
    unsafe { ((base + offset) as *mut usize).write(next) };
}

/// Which size of blocks serves so many bytes; `None` for what does not belong here.
fn size_of(bytes: usize) -> Option<usize> {
    if !(LARGE..=LARGEST).contains(&bytes) {
        return None;
    }
    let whole = bytes.ilog2();
    let quarters = (bytes - (1 << whole)).div_ceil(1 << (whole - 2));
    Some(4 * (whole - LARGE.ilog2()) as usize + quarters)
}

/// The bytes of a size of blocks, whole pages.
fn bytes_of(at: usize) -> usize {
    (LARGE << (at / 4)) / 4 * (4 + at % 4)
}

impl Heap {
    fn open(bytes: usize) -> std::io::Result<Heap> {
        let bytes = bytes.next_multiple_of(PAGE).max(2 * PAGE);
        let nonce = random_bytes().map_err(|why| std::io::Error::other(why.to_string()))?;
        let nonce = u64::from_le_bytes(nonce);
        let (file, mapping) = Mapping::sealed("starlings-heap", bytes, |mapping| {
            for (at, word) in [(MAGIC_AT, MAGIC), (NONCE_AT, nonce), (BYTES_AT, bytes as u64)] {
                mapping.long(at).store(word, Ordering::Relaxed);
            }
        })?;
        Ok(Heap { file, mapping: Arc::new(mapping), nonce })
    }

    /// What neighbours need.
    pub(super) fn offer(&self) -> HeapOffer {
        HeapOffer {
            descriptor: self.file.as_raw_fd(),
            bytes: self.mapping.bytes() as u64,
            nonce: self.nonce,
        }
    }

    /// The heap as peers in this process read it.
    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

/// Maps the heap of another process of this host for reading. `None` where it cannot be had: its vectors are then copied.
pub(super) fn view(pid: u32, offer: &HeapOffer) -> Option<Arc<Mapping>> {
    view_of_file(opened(pid, offer.descriptor).ok()?, offer)
}

/// Checks the kernel's word on the file, then the owner's on what it is.
pub(super) fn view_of_file(file: impl AsFd, offer: &HeapOffer) -> Option<Arc<Mapping>> {
    let mapping = Mapping::offered(file, offer.bytes, 2 * PAGE).ok()?;
    let read = |at| mapping.long(at).load(Ordering::Relaxed);
    let is_it =
        [read(MAGIC_AT), read(NONCE_AT), read(BYTES_AT)] == [MAGIC, offer.nonce, offer.bytes];
    is_it.then(|| Arc::new(mapping))
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
