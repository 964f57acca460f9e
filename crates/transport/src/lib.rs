//! Stop 7 of the walk: bytes between workers. A transport does not know what bytes mean.

mod frame;
mod link;

pub use frame::{Frame, HEADER_BYTES, Header, Lane, PAYLOAD_BYTES_MAX};
pub use link::{Link, LinkError};
