//! A link: frames to and from one peer. They arrive whole, once and in order, or the link reports its
//! peer lost; every call has a deadline.

use crate::{Frame, Header};
use starlings_core::Deadline;

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
}
