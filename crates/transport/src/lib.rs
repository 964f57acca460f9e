//! Stop 7 of the walk: bytes between workers. A transport does not know what bytes mean.

mod checksum;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod connect;
mod frame;
mod handshake;
mod inbox;
mod link;
mod listener;
mod lock;
#[cfg(test)]
mod network_tests;
mod security;
mod socket;
mod ticket;
mod tls;
mod token;
pub mod transports;
mod turn;
mod watch;

pub use connect::{connect, connect_unless};
pub use frame::{
    Envelope, Expected, Frame, HEADER_BYTES, Header, Lane, PAYLOAD_BYTES_MAX, decode,
    decode_header, encode_header,
};
pub use handshake::{
    HELLO_BYTES, Hello, PROTOCOL_VERSION, Purpose, Verdict, decode_answer, decode_hello,
    encode_hello,
};
pub use link::{Landed, Link, LinkError, Nowhere, Places, Polled, Pulsed};
pub use listener::{Gatekeeper, Limits, Listener, Refusal};
pub use security::{JobAuthority, Security, TlsIdentity, check_bind};
pub use ticket::Ticket;
pub use token::Token;
pub use transports::memory::{MemoryLink, pair};
#[cfg(feature = "mpi")]
pub use transports::mpi;
pub use transports::shared;
pub use transports::tcp::TcpLink;
pub use transports::{TRANSPORTS, TransportKind};
pub use watch::Watch;
