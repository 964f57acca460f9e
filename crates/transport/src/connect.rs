//! Calls a listener: connect, TLS, hello. A listener that is not there yet is called again until the deadline.

use crate::handshake::greet;
use crate::security::SERVER_NAME;
use crate::socket::{Socket, prepare};
use crate::tls::TlsStream;
use crate::transports::tcp::Stream;
use crate::{Hello, LinkError, Security, TcpLink};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::{Domain, Protocol, Type};
use starlings_core::{Deadline, Fault, Result};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Connects to a listener, whose gatekeeper has accepted when this returns.
///
/// # Errors
/// The caller's fault when the other side refused, or is not of this job; the peer's when nobody
/// answered before the deadline.
pub fn connect(
    address: SocketAddr,
    hello: &Hello,
    security: &Security,
    by: Deadline,
) -> Result<TcpLink> {
    connect_unless(address, hello, security, by, &|| false)
}

/// As [`connect`], and calls no more as soon as `is_over` says so.
///
/// # Errors
/// As `connect`.
pub fn connect_unless(
    address: SocketAddr,
    hello: &Hello,
    security: &Security,
    by: Deadline,
    is_over: &dyn Fn() -> bool,
) -> Result<TcpLink> {
    let tls = match security {
        Security::Plain => None,
        Security::Tls(identity) => Some(identity.client()?),
    };
    let mut pause = PAUSE_FIRST;
    loop {
        let why = match call(address, hello, tls.as_ref(), by) {
            Ok(link) => return Ok(link),
            Err(Failure::Final(fault)) => return Err(fault),
            Err(Failure::Passing(why)) => why,
        };
        match by.left() {
            // The other side may be starting, or turning callers away for a moment.
            Some(left) if left > pause && !is_over() => std::thread::sleep(pause),
            _ => return Err(unreachable(address, hello, &why)),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Why one call failed.
enum Failure {
    Final(Fault),
    /// Worth another call.
    Passing(String),
}

fn call(
    address: SocketAddr,
    hello: &Hello,
    tls: Option<&Arc<ClientConfig>>,
    by: Deadline,
) -> Result<TcpLink, Failure> {
    let socket = dial(address, by).map_err(|error| Failure::Passing(error.to_string()))?;
    let talk = || -> Result<_, LinkError> {
        let stream = match tls {
            None => Stream::Plain(socket),
            Some(config) => {
                Stream::Tls(Box::new(TlsStream::establish(socket, client(config), by)?))
            }
        };
        let answer = greet(&stream, hello, by)?;
        Ok((stream, answer))
    };
    let server = hello.purpose.server();
    let (stream, answer) = talk().map_err(|error| match error {
        LinkError::Lost(_) | LinkError::Deadline => Failure::Passing(error.to_string()),
        LinkError::Broken(why) => Failure::Final(
            Fault::caller(format!("no {server} of this job answers at {address}"))
                .caused_by(why)
                .hint("check the address, use the ticket file of this very job, and set TLS on both sides or on none"),
        ),
    })?;
    if let Some(fault) = answer.refusal(hello) {
        return Err(Failure::Final(fault.during(format!("connecting to {address}"))));
    }
    if let Stream::Tls(stream) = &stream {
        stream.admit();
    }
    Ok(TcpLink::new(stream, hello.job, hello.epoch))
}

fn dial(address: SocketAddr, by: Deadline) -> io::Result<Socket> {
    let left = by.left().ok_or(io::ErrorKind::TimedOut)?;
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    prepare(&socket, address.ip())?;
    socket.connect_timeout(&address.into(), left)?;
    Socket::new(Arc::new(TcpStream::from(socket)))
}

fn client(config: &Arc<ClientConfig>) -> rustls::Connection {
    let name = ServerName::try_from(SERVER_NAME).expect("the name is a valid one");
    let connection = ClientConnection::new(Arc::clone(config), name);
    connection.expect("it fails only for settings that are fixed here").into()
}

fn unreachable(address: SocketAddr, hello: &Hello, why: &str) -> Fault {
    let server = hello.purpose.server();
    Fault::peer(None, format!("no {server} answered at {address}"))
        .caused_by(why)
        .hint(format!("check that the {server} runs there, that no firewall is between, and that TLS is on at both sides or at none"))
}
