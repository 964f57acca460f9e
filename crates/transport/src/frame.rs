//! Frames: the only thing that crosses a link. A fixed header of 48 bytes, little-endian, then the payload.
//! Lengths are checked before memory is taken; a CRC32C covers header and payload.
//!
//! ```text
//!  0  magic      u32   "SLNG"            24  step      u64
//!  4  length     u32   payload bytes     32  tag       u32
//!  8  job        u64                     36  sequence  u64
//! 16  epoch      u32                     44  checksum  u32   CRC32C of bytes 0..44 and the payload
//! 20  lane       u8,  kind u8, 2 × zero
//! ```

use starlings_core::Step;

/// Largest payload of any frame.
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// Which conversation a frame belongs to. Each lane has its own queue at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Sums under way.
    Exchange,
    /// Requests to a server shard.
    Request,
    /// A server shard's answers.
    Answer,
    /// Wires between stages.
    Wire,
    /// Membership, jobs, events.
    Control,
}

impl Lane {
    /// All lanes in the order of their numbers.
    pub const ALL: [Lane; 5] =
        [Lane::Exchange, Lane::Request, Lane::Answer, Lane::Wire, Lane::Control];
}

/// What the sender says of a frame. Job, epoch and sequence are the link's own business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which conversation.
    pub lane: Lane,
    /// What kind of message within it.
    pub kind: u8,
    /// The step it belongs to.
    pub step: Step,
    /// What it concerns: a chunk's number, a shard, a part.
    pub tag: u32,
}

/// A frame that arrived whole, in order and undamaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What the sender says of it.
    pub header: Header,
    /// Its bytes.
    pub payload: Vec<u8>,
}
