//! Waits for callers. Each caller's handshake has its own short-lived thread and a deadline, so that a slow
//! one holds up nobody; how many may be under way is limited, in all and for each address.

use crate::handshake::{self, Greeting, Purpose};
use crate::lock::{enter, wait_until};
use crate::security::check_bind;
use crate::socket::{Socket, prepare, timespec};
use crate::tls::TlsStream;
use crate::transports::tcp::Stream;
use crate::turn::Turn;
use crate::{Hello, LinkError, PROTOCOL_VERSION, Security, TcpLink, Verdict};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, Protocol, Type};
use starlings_core::{Deadline, Fault, Result};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, PipeReader, PipeWriter};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Decides about a hello whose protocol is ours. Called from several threads.
pub type Gatekeeper = Arc<dyn Fn(&Hello) -> Verdict + Send + Sync>;

/// Limits on callers that are not admitted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How long a handshake may take.
    pub handshake_ms: u64,
    /// Handshakes under way.
    pub pending_max: usize,
    /// Handshakes under way from one address.
    pub pending_per_address_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { handshake_ms: 5000, pending_max: 64, pending_per_address_max: 16 }
    }
}

/// A caller that was turned away.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Where it called from.
    pub from: SocketAddr,
    /// Why.
    pub why: LinkError,
}

/// Refusals remembered until someone asks; older ones are forgotten.
const REFUSALS_MAX: usize = 64;

/// Connections that the kernel holds until the listener looks.
const BACKLOG: i32 = 128;

/// A listening socket. Dropping it closes the port and ends the handshakes under way.
pub struct Listener {
    address: SocketAddr,
    arrivals: Turn<Option<Receiver<Arrival>>>,
    desk: Arc<Desk>,
    /// Dropped to end the thread below.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads of a listener share.
struct Desk {
    gatekeeper: Gatekeeper,
    tls: Option<Arc<ServerConfig>>,
    limits: Limits,
    pending: Mutex<Pending>,
    left: Condvar,
    refusals: Mutex<VecDeque<Refusal>>,
}

#[derive(Default)]
struct Pending {
    next: u64,
    callers: BTreeMap<u64, (IpAddr, Arc<TcpStream>)>,
}

/// A place among the pending; given back when dropped.
struct Place {
    desk: Arc<Desk>,
    number: u64,
}

/// An admitted caller. It keeps its place until someone takes it, so that the queue never overflows.
struct Arrival {
    link: TcpLink,
    hello: Hello,
    from: SocketAddr,
    _place: Place,
}

impl Listener {
    /// Listens at an address; port 0 takes any free one.
    ///
    /// # Errors
    /// The address is taken or not this machine's, or it can be reached from other hosts without TLS.
    pub fn bind(
        address: SocketAddr,
        security: &Security,
        gatekeeper: Gatekeeper,
    ) -> Result<Listener> {
        Listener::bind_within(Limits::default(), address, security, gatekeeper)
    }

    /// As [`Listener::bind`], with other limits.
    ///
    /// # Errors
    /// See [`Listener::bind`].
    pub fn bind_within(
        limits: Limits,
        address: SocketAddr,
        security: &Security,
        gatekeeper: Gatekeeper,
    ) -> Result<Listener> {
        check_bind(address, security, true)?;
        let tls = match security {
            Security::Plain => None,
            Security::Tls(identity) => Some(identity.server()?),
        };
        let socket = listen(address).map_err(|error| cannot_listen(address, &error))?;
        let address = socket.local_addr()?;
        let desk = Arc::new(Desk {
            gatekeeper,
            tls,
            limits,
            pending: Mutex::default(),
            left: Condvar::new(),
            refusals: Mutex::default(),
        });
        let (stopped, stop) = io::pipe()?;
        let (sender, receiver) = sync_channel(limits.pending_max);
        let thread = std::thread::Builder::new().name("listener".to_string()).spawn({
            let desk = Arc::clone(&desk);
            move || take_calls(&socket, &stopped, &desk, &sender)
        })?;
        let arrivals = Turn::new(Some(receiver));
        Ok(Listener { address, arrivals, desk, stop: Some(stop), thread: Some(thread) })
    }

    /// The address in use, with the port that was chosen.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next admitted caller, with its hello and address; `None` when the deadline passed. The link is
    /// bound to the job and epoch of the hello.
    ///
    /// # Errors
    /// The listener's thread ended, which only a bug can cause.
    pub fn accept(&self, by: Deadline) -> Result<Option<(TcpLink, Hello, SocketAddr)>> {
        let Some(arrivals) = self.arrivals.take(by) else { return Ok(None) };
        let receiver = arrivals.as_ref().expect("taken only when dropped");
        match receiver.recv_timeout(by.left().unwrap_or_default()) {
            Ok(arrival) => Ok(Some((arrival.link, arrival.hello, arrival.from))),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => Ok(None),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                Err(Fault::machine(format!("the listener at {} ended", self.address)))
            }
        }
    }

    /// Callers turned away since the last question, for logs.
    #[must_use]
    pub fn take_refusals(&self) -> Vec<Refusal> {
        enter(&self.desk.refusals).drain(..).collect()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been reported where it happened.
            let _ = thread.join();
        }
        if let Some(mut arrivals) = self.arrivals.take(Deadline::after_ms(0)) {
            *arrivals = None;
        }
        let pending = enter(&self.desk.pending);
        for (_, stream) in pending.callers.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let by = Deadline::after_ms(self.desk.limits.handshake_ms);
        drop(wait_until(pending, &self.desk.left, by, |pending| pending.callers.is_empty()));
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted coordinator need not wait for its old connections to be forgotten.
    socket.set_reuse_address(true)?;
    prepare(&socket, address.ip())?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::AddrInUse => Fault::caller(format!("{address} is taken by another program"))
            .hint("choose another port, or port 0 for any free one"),
        io::ErrorKind::AddrNotAvailable => {
            Fault::caller(format!("{address} is not an address of this machine"))
                .hint("choose one that `ip address` shows, or 127.0.0.1")
        }
        io::ErrorKind::PermissionDenied => {
            Fault::caller(format!("{address} may not be used by this user"))
                .hint("choose a port above 1023")
        }
        _ => Fault::machine(format!("cannot listen at {address}")).caused_by(error),
    }
}

/// The listener's thread: starts a handshake for each caller until the pipe is closed.
fn take_calls(
    socket: &TcpListener,
    stopped: &PipeReader,
    desk: &Arc<Desk>,
    sender: &SyncSender<Arrival>,
) {
    while !stop_comes_first(stopped, Some(socket), None) {
        match socket.accept() {
            Ok((stream, from)) => start_handshake(desk, stream, from, sender.clone()),
            Err(error) if passes(error.kind()) => {}
            // Out of descriptors or memory: others may free some soon, and trying at once would spin.
            Err(_) => {
                if stop_comes_first(stopped, None, Some(Duration::from_millis(50))) {
                    return;
                }
            }
        }
    }
}

fn passes(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
    matches!(kind, ConnectionAborted | Interrupted | WouldBlock)
}

/// Waits for a caller, or for so long. True when the listener is dropped.
fn stop_comes_first(
    stopped: &PipeReader,
    socket: Option<&TcpListener>,
    wait: Option<Duration>,
) -> bool {
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    fds.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
    match poll(&mut fds, wait.map(timespec).as_ref()) {
        Ok(_) => !fds[0].revents().is_empty(),
        Err(_) => false,
    }
}

fn start_handshake(
    desk: &Arc<Desk>,
    stream: TcpStream,
    from: SocketAddr,
    sender: SyncSender<Arrival>,
) {
    let stream = Arc::new(stream);
    let Some(place) = desk.enter(from, &stream) else {
        desk.refuse(from, LinkError::Lost("too many callers at once".to_string()));
        return;
    };
    let work = move || {
        let desk = Arc::clone(&place.desk);
        match desk.shake_hands(stream) {
            // The listener may be gone: then the link is closed by being dropped.
            Ok((link, hello)) => {
                drop(sender.try_send(Arrival { link, hello, from, _place: place }))
            }
            Err(why) => {
                // The place keeps the socket open: the refusal is remembered before the caller notices.
                desk.refuse(from, why);
                drop(place);
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("handshake".to_string()).spawn(work) {
        desk.refuse(from, LinkError::Lost(error.to_string()));
    }
}

impl Desk {
    /// A place for a caller, unless there are too many.
    fn enter(self: &Arc<Desk>, from: SocketAddr, stream: &Arc<TcpStream>) -> Option<Place> {
        let mut pending = enter(&self.pending);
        let address = from.ip().to_canonical();
        let same = pending.callers.values().filter(|(other, _)| *other == address).count();
        if pending.callers.len() >= self.limits.pending_max
            || same >= self.limits.pending_per_address_max
        {
            return None;
        }
        let number = pending.next;
        pending.next += 1;
        pending.callers.insert(number, (address, Arc::clone(stream)));
        Some(Place { desk: Arc::clone(self), number })
    }

    fn refuse(&self, from: SocketAddr, why: LinkError) {
        let mut refusals = enter(&self.refusals);
        if refusals.len() == REFUSALS_MAX {
            refusals.pop_front();
        }
        refusals.push_back(Refusal { from, why });
    }

    fn shake_hands(&self, stream: Arc<TcpStream>) -> Result<(TcpLink, Hello), LinkError> {
        let by = Deadline::after_ms(self.limits.handshake_ms);
        let stream = self.open(stream, by)?;
        let hello = self.examine(&stream, by)?;
        if let Stream::Tls(stream) = &stream {
            stream.admit();
        }
        handshake::heard(&stream, by)?;
        Ok((TcpLink::new(stream, hello.job, hello.epoch), hello))
    }

    fn open(&self, stream: Arc<TcpStream>, by: Deadline) -> Result<Stream, LinkError> {
        let socket = Socket::new(stream).map_err(crate::socket::lost)?;
        let Some(config) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let connection = ServerConnection::new(Arc::clone(config)).map_err(crate::socket::lost)?;
        Ok(Stream::Tls(Box::new(TlsStream::establish(socket, connection.into(), by)?)))
    }

    fn examine(&self, stream: &Stream, by: Deadline) -> Result<Hello, LinkError> {
        let hello = match handshake::hear(stream, by)? {
            Greeting::Hello(hello) => hello,
            Greeting::OtherVersion(version) => {
                handshake::answer(stream, Verdict::OtherVersion, by)?;
                return Err(LinkError::Broken(format!(
                    "it speaks protocol {version}, this is protocol {PROTOCOL_VERSION}"
                )));
            }
        };
        // Workers prove themselves to each other by certificate and token; a worker that is about to join
        // has no certificate yet.
        let certified = match stream {
            Stream::Plain(_) => true,
            Stream::Tls(stream) => stream.has_certificate(),
        };
        let verdict = match hello.purpose {
            Purpose::Peer if !certified => Verdict::Uncertified,
            _ => (self.gatekeeper)(&hello),
        };
        handshake::answer(stream, verdict, by)?;
        match verdict {
            Verdict::Accept => Ok(hello),
            _ => Err(LinkError::Broken(format!("refused: {verdict:?}"))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        enter(&self.desk.pending).callers.remove(&self.number);
        self.desk.left.notify_all();
    }
}
