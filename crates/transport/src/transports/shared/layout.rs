//! Where things lie in a segment. Pages that were never touched take no memory, so the layout is generous.
//!
//! ```text
//! 0        identity: magic, layout, job, epoch, seat, nonce, bytes
//! 4096     port 0 … port 15, each: counters and slot sequences (a page), places of lent numbers, then the slots
//! ```
//!
//! Everything that is written often has a cache line of its own.

/// The page that says whose segment this is.
pub(super) const IDENTITY_BYTES: usize = 4096;
/// Sums that may be under way at the same time between the same seats, one in each port.
pub const PORTS: usize = 16;
/// Bytes of one slot: small enough that a slot is still in a second-level cache when peers read it.
pub(super) const SLOT_BYTES: usize = 512 << 10;
/// Slots of a port: one chunk is posted, one reduced and one gathered at the same time.
pub(super) const SLOTS: usize = 3;
/// Numbers begin at multiples of this within a slot, and slices end there.
pub(super) const LINE: usize = 64;

/// Parts of a sum that may be lent; sums of more parts are copied.
pub(super) const LENT_MAX: usize = 1024;

/// The sequence of a slot whose sum its seat has given up.
pub(super) const WITHDRAWN: u64 = u64::MAX;

const COUNTER_BYTES: usize = 4096;
const PORT_HEAD_BYTES: usize = COUNTER_BYTES + 16 * LENT_MAX;
const PORT_BYTES: usize = PORT_HEAD_BYTES + SLOTS * SLOT_BYTES;
/// All of a segment.
pub(super) const SEGMENT_BYTES: usize = IDENTITY_BYTES + PORTS * PORT_BYTES;

/// The fields of the identity page.
pub(super) mod identity {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const LAYOUT: usize = 8;
    pub(crate) const JOB: usize = 16;
    pub(crate) const EPOCH: usize = 24;
    pub(crate) const SEAT: usize = 28;
    pub(crate) const NONCE: usize = 32;
    pub(crate) const BYTES: usize = 40;
}

/// The offsets of one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Port(usize);

impl Port {
    pub(super) fn new(index: usize) -> Port {
        assert!(index < PORTS, "a segment has {PORTS} ports");
        Port(IDENTITY_BYTES + index * PORT_BYTES)
    }

    /// How many chunks this seat has contributed.
    pub(super) fn posted(self) -> usize {
        self.0
    }

    /// How many chunks this seat has reduced its slice of.
    pub(super) fn reduced(self) -> usize {
        self.0 + LINE
    }

    /// How many chunks this seat has finished with, so that their slots may be used again.
    pub(super) fn taken(self) -> usize {
        self.0 + 2 * LINE
    }

    /// Whether this seat sleeps and wants to be woken.
    pub(super) fn asleep(self) -> usize {
        self.0 + 3 * LINE
    }

    /// The sequence of a slot's contribution; the digest of the sum's shape lies beside it.
    pub(super) fn sequence(self, chunk: u64) -> usize {
        self.0 + (4 + slot(chunk)) * LINE
    }

    /// The digest of the sum's shape.
    pub(super) fn shape(self, chunk: u64) -> usize {
        self.sequence(chunk) + 8
    }

    /// Whether a chunk is of a sum of which this seat lends parts.
    pub(super) fn is_lent(self, chunk: u64) -> usize {
        self.sequence(chunk) + 16
    }

    /// Where a part of the sum lies that this seat lends: its contribution and its total.
    pub(super) fn lent(self, part: usize) -> (usize, usize) {
        let at = self.0 + COUNTER_BYTES + 16 * part;
        (at, at + 8)
    }

    /// The sequence of a slot's total.
    pub(super) fn total_sequence(self, chunk: u64) -> usize {
        self.0 + (4 + SLOTS + slot(chunk)) * LINE
    }

    /// The numbers of a slot: what this seat contributes to the others' slices, and in its own slice, which nobody
    /// else needs of its contribution, the total.
    pub(super) fn numbers(self, chunk: u64) -> usize {
        self.0 + PORT_HEAD_BYTES + slot(chunk) * SLOT_BYTES
    }
}

fn slot(chunk: u64) -> usize {
    (chunk % SLOTS as u64) as usize
}
