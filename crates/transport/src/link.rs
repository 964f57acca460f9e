//! A link: frames to and from one peer. They arrive whole, once and in order, or the link reports its
//! peer lost; every call has a deadline.

use crate::{Frame, Header};
use starlings_core::Deadline;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Why a link failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer is gone, or the link is closed. Final.
    #[error("connection lost: {0}")]
    Lost(String),
    /// Nothing happened in time. A receive may be tried again and loses nothing; a send that timed out has
    /// broken the link.
    #[error("deadline passed")]
    Deadline,
    /// Bytes that no peer of ours sends: wrong magic, length, checksum, sequence, job or epoch. Final.
    #[error("protocol broken: {0}")]
    Broken(String),
}

/// Frames to and from one peer. `send` may be called from several threads; `receive` from one at a time.
///
/// Laws: frames arrive in the order they were sent, each once and whole; `receive` returns
/// [`LinkError::Deadline`] not later than 10 % after its deadline; when the peer closes or dies, frames sent before
/// are still delivered (or the link reports the loss) and then every call returns [`LinkError::Lost`].
pub trait Link: Send + Sync {
    /// Sends a frame.
    ///
    /// # Errors
    /// See [`LinkError`]. A payload above [`crate::PAYLOAD_BYTES_MAX`] is a bug of the caller and panics.
    fn send(&self, header: Header, payload: &[u8], by: Deadline) -> Result<(), LinkError>;

    /// Receives the next frame.
    ///
    /// # Errors
    /// See [`LinkError`].
    fn receive(&self, by: Deadline) -> Result<Frame, LinkError>;

    /// Closes both directions. Waiting calls return [`LinkError::Lost`].
    fn close(&self);

    /// Bytes sent so far, headers included.
    fn bytes_sent(&self) -> u64;

    /// Gives back the memory of a payload that was received here, for payloads to come, where that is worth anything.
    fn recycle(&self, payload: Vec<u8>) {
        drop(payload);
    }

    /// This link as one that may fall silent without being lost, where that is possible.
    fn pulsed(&self) -> Option<&dyn Pulsed> {
        None
    }

    /// This link as one that a thread may watch together with others, where that is possible.
    fn polled(&self) -> Option<&dyn Polled> {
        None
    }
}

/// A link over a network. It may be cut without a word to either side, and then only silence tells.
pub trait Pulsed: Link {
    /// Bytes received so far, of frames or of parts of frames: more of them only if the peer is alive and heard.
    fn bytes_received(&self) -> u64;

    /// Whether something has arrived that nobody has read yet, the end of the link included. Then it is this side that is
    /// slow, not the peer that is silent.
    fn has_unread(&self) -> bool;

    /// Sends an empty frame, for the peer to hear that this side is there. Never waits: while others send, or what was
    /// sent has not left, the peer hears of this side anyway, and nothing is done. Not counted among the bytes sent.
    ///
    /// # Errors
    /// The link has ended.
    fn beat(&self, header: Header) -> Result<(), LinkError>;
}

/// Memory of a receiver, for payloads that shall lie there and nowhere else.
pub trait Places {
    /// Where the payload of such a frame shall lie: as many bytes as it has. Asked again whenever more of it has arrived, and
    /// written to before its checksum is known, so that it must be memory that nobody uses unless the frame arrives whole.
    fn room(&mut self, header: &Header, length: usize) -> Option<&mut [u8]>;
}

/// No place for anything: payloads get memory of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nowhere;

impl Places for Nowhere {
    fn room(&mut self, _header: &Header, _length: usize) -> Option<&mut [u8]> {
        None
    }
}

/// A frame that arrived whole, in order and undamaged, partly where its receiver wanted it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Landed {
    /// What the sender says of it, and the rest of its payload.
    pub frame: Frame,
    /// So many bytes of the payload come before the rest: they lie at their place.
    pub placed: usize,
}

impl Landed {
    /// The frame, for a receiver that has given no place.
    pub(crate) fn whole(self) -> Result<Frame, LinkError> {
        match self.placed {
            0 => Ok(self.frame),
            _ => Err(LinkError::Broken("a part of a frame lies with another receiver".to_string())),
        }
    }
}

/// A link whose frames can be awaited together with those of other links, by the thread that wants them.
///
/// Law: after [`Polled::receive_now`] found nothing, the descriptor is readable as soon as more has arrived.
pub trait Polled: Link {
    /// What becomes readable when something arrives, the end of the link included.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// The next frame if it is here; never waits. What has arrived of a frame is kept.
    ///
    /// # Errors
    /// As [`Link::receive`], except for the deadline.
    fn receive_now(&self) -> Result<Option<Frame>, LinkError> {
        self.receive_now_into(&mut Nowhere)?.map(Landed::whole).transpose()
    }

    /// As [`Polled::receive_now`], but a large payload is read straight to its place, where it has one. When a place is
    /// no longer there for the rest of a payload, the rest gets memory of its own.
    ///
    /// # Errors
    /// As [`Polled::receive_now`].
    fn receive_now_into(&self, places: &mut dyn Places) -> Result<Option<Landed>, LinkError>;

    /// As [`Link::send`], but calls `wait` whenever it would have to wait for room: a caller that reads meanwhile
    /// cannot hold up a peer that sends at the same time.
    ///
    /// # Errors
    /// As [`Link::send`].
    fn send_meanwhile(
        &self,
        header: Header,
        payload: &[u8],
        by: Deadline,
        wait: &mut dyn FnMut(),
    ) -> Result<(), LinkError>;

    /// Waits until there is room to send, the link ends or the time is over.
    fn await_room(&self, time: Duration);
}
