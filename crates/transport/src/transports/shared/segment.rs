//! A seat's segment: anonymous memory (`memfd`) that its seat maps for writing and everybody else for reading. It is
//! sealed before it is offered: it can neither shrink, which would let a reader be killed by the kernel, nor be
//! mapped for writing once more.

use super::heap::{self, Heap, HeapOffer};
use super::layout::{IDENTITY_BYTES, SEGMENT_BYTES, identity};
use super::mapping::{Mapping, opened};
use crate::token::random_bytes;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use serde::{Deserialize, Serialize};
use starlings_core::{Epoch, Fault, JobId, Result, Seat};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MAGIC: u64 = u64::from_le_bytes(*b"STARSHM\x01");
const LAYOUT: u64 = 2;

/// Whose segment it is. A segment with another identity than the expected one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The job.
    pub job: JobId,
    /// The period with a fixed member list; a new one uses new segments.
    pub epoch: Epoch,
    /// The seat that owns it and alone writes it.
    pub seat: Seat,
    /// A random number that only the owner's peers are told: a descriptor that was closed and used again for
    /// something else does not have it.
    pub nonce: u64,
}

impl Identity {
    /// The identity of a new segment, with a nonce that nobody can guess.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn fresh(job: JobId, epoch: Epoch, seat: Seat) -> Result<Identity> {
        Ok(Identity { job, epoch, seat, nonce: u64::from_le_bytes(random_bytes()?) })
    }
}

/// What a seat tells its peers over their links, so that they find its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// The process.
    pub pid: u32,
    /// The descriptor in it.
    pub descriptor: i32,
    /// Length.
    pub bytes: u64,
    /// Whose it is.
    pub identity: Identity,
    /// The heap of the process, where it has one.
    pub heap: Option<HeapOffer>,
}

/// The segment of this seat.
#[derive(Debug)]
pub struct Segment {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    identity: Identity,
    heap: Option<&'static Heap>,
}

/// Another seat's segment, for reading.
#[derive(Clone, Debug)]
pub struct View {
    pub(super) mapping: Arc<Mapping>,
    pub(super) seat: Seat,
    /// The heap of the seat's process.
    pub(super) heap: Option<Arc<Mapping>>,
}

impl Segment {
    /// Makes a segment. Memory is taken when it is touched.
    ///
    /// # Errors
    /// When the machine has no memory files or no room in its tables.
    pub fn new(identity: Identity) -> Result<Segment> {
        Segment::make(identity)
            .map_err(|why| Fault::machine(format!("cannot make shared memory: {why}")))
    }

    fn make(identity: Identity) -> std::io::Result<Segment> {
        let (file, mapping) = Mapping::sealed("starlings", SEGMENT_BYTES, |mapping| {
            let write = |offset, value| mapping.long(offset).store(value, Ordering::Relaxed);
            write(identity::MAGIC, MAGIC);
            write(identity::LAYOUT, LAYOUT);
            write(identity::JOB, identity.job.0);
            mapping.word(identity::EPOCH).store(identity.epoch.0, Ordering::Relaxed);
            mapping.word(identity::SEAT).store(identity.seat.0, Ordering::Relaxed);
            write(identity::NONCE, identity.nonce);
            write(identity::BYTES, SEGMENT_BYTES as u64);
        })?;
        Ok(Segment { file, mapping: Arc::new(mapping), identity, heap: None })
    }

    /// Offers the heap of this process along with the segment, where its allocator is a
    /// [`NearbyAllocator`](super::NearbyAllocator): one heap for the life of the process, of at most so many bytes.
    #[must_use]
    pub fn with_heap(mut self, bytes: usize) -> Segment {
        self.heap = heap::heap(bytes);
        self
    }

    /// What peers in other processes need.
    #[must_use]
    pub fn offer(&self) -> Offer {
        Offer {
            pid: std::process::id(),
            descriptor: self.file.as_raw_fd(),
            bytes: self.mapping.bytes() as u64,
            identity: self.identity,
            heap: self.heap.map(Heap::offer),
        }
    }

    /// The segment as peers in this process read it: through the same mapping.
    #[must_use]
    pub fn view(&self) -> View {
        let heap = self.heap.map(|heap| heap.mapping().clone());
        View { mapping: self.mapping.clone(), seat: self.identity.seat, heap }
    }

    /// Whose it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

impl View {
    /// Maps the segment of a peer on this host for reading.
    ///
    /// # Errors
    /// A peer elsewhere or of another user, or a file that is not what was offered. None of it is grave: the links
    /// still carry everything.
    pub fn open(offer: &Offer) -> Result<View> {
        let file = opened(offer.pid, offer.descriptor);
        let seat = offer.identity.seat;
        let refuse = |why: String| Fault::peer(Some(seat), format!("no shared memory: {why}"));
        let file = file.map_err(|why| refuse(format!("cannot open it: {why}")))?;
        let view = View::of_file(&file, offer).map_err(refuse)?;
        let heap = offer.heap.and_then(|heap| heap::view(offer.pid, &heap));
        Ok(View { heap, ..view })
    }

    /// Whether the heap of the seat's process can be read, too.
    #[must_use]
    pub fn has_heap(&self) -> bool {
        self.heap.is_some()
    }

    /// Checks before anything is touched: the kernel's word on length and seals, then the owner's on the rest.
    pub(super) fn of_file(file: impl AsFd, offer: &Offer) -> Result<View, String> {
        let mapping = Mapping::offered(file, offer.bytes, SEGMENT_BYTES)?;
        if identity_of(&mapping) != Some((offer.identity, offer.bytes)) {
            return Err("it is of another layout, job, epoch or seat".to_string());
        }
        Ok(View { mapping: Arc::new(mapping), seat: offer.identity.seat, heap: None })
    }
}

fn identity_of(mapping: &Mapping) -> Option<(Identity, u64)> {
    assert!(mapping.bytes() >= IDENTITY_BYTES, "checked before it was mapped");
    let read = |offset| mapping.long(offset).load(Ordering::Relaxed);
    let known = read(identity::MAGIC) == MAGIC && read(identity::LAYOUT) == LAYOUT;
    let identity = Identity {
        job: JobId(read(identity::JOB)),
        epoch: Epoch(mapping.word(identity::EPOCH).load(Ordering::Relaxed)),
        seat: Seat(mapping.word(identity::SEAT).load(Ordering::Relaxed)),
        nonce: read(identity::NONCE),
    };
    known.then_some((identity, read(identity::BYTES)))
}
