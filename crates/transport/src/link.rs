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
    fn receive_now(&self) -> Result<Option<Frame>, LinkError>;

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
