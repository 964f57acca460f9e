//! Links over TCP (RFC 9293), plain on this machine and inside TLS 1.3 beyond it.
//! A frame is its header and the payload as it lies in memory, written with one vectored call.

use crate::inbox::{Inbox, Spare};
use crate::socket::{Socket, lost};
use crate::tls::TlsStream;
use crate::turn::Turn;
use crate::{
    Frame, HEADER_BYTES, Header, Landed, Link, LinkError, PAYLOAD_BYTES_MAX, Places, Polled,
    Pulsed, TransportKind, encode_header,
};
use starlings_core::{Deadline, Entry, Epoch, JobId, failpoint};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The catalogue's entry.
pub(super) const ENTRY: Entry<TransportKind> = Entry {
    name: "tcp",
    summary: "Sockets between processes, plain on one machine and inside TLS 1.3 between hosts",
    reference: "RFC 9293 (TCP), RFC 8446 (TLS 1.3)",
    params: &[],
    gives: &[],
    needs: &[],
    build: TransportKind::Tcp,
};

/// How long a beat may take that finds room.
const BEAT_MS: u64 = 2_000;

/// One end of a connection whose handshake succeeded. Dropping it closes it.
pub struct TcpLink {
    stream: Stream,
    job: JobId,
    epoch: Epoch,
    /// The next frame's sequence number.
    outgoing: Turn<u64>,
    incoming: Turn<Inbox>,
    spare: Spare,
    /// Why nothing can be sent any more; frames that the peer sent before may still be received.
    outgoing_ended: OnceLock<LinkError>,
    /// Why nothing works any more.
    ended: OnceLock<LinkError>,
    bytes_sent: AtomicU64,
}

/// Bytes to and from the peer.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<TlsStream>),
}

impl TcpLink {
    /// A link over a stream on which nothing but the handshake was said.
    pub(crate) fn new(stream: Stream, job: JobId, epoch: Epoch) -> TcpLink {
        let spare = Spare::default();
        TcpLink {
            stream,
            job,
            epoch,
            outgoing: Turn::new(0),
            incoming: Turn::new(Inbox::new(job, epoch, spare.clone())),
            spare,
            outgoing_ended: OnceLock::new(),
            ended: OnceLock::new(),
            bytes_sent: AtomicU64::new(0),
        }
    }

    /// Sends a frame by `write`, which gets the header's bytes.
    fn send_by(
        &self,
        header: Header,
        payload: &[u8],
        by: Deadline,
        write: impl FnOnce(&[u8]) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
        let Some(mut sequence) = self.outgoing.take(by) else {
            return Err(self.end_outgoing(LinkError::Deadline));
        };
        if let Some(why) = self.ended.get().or_else(|| self.outgoing_ended.get()) {
            return Err(why.clone());
        }
        let head = encode_header(header, self.job, self.epoch, *sequence, payload);
        failpoint!("frame-before");
        write(&head).map_err(|error| self.end_outgoing(error))?;
        failpoint!("frame-after");
        *sequence += 1;
        self.bytes_sent.fetch_add((HEADER_BYTES + payload.len()) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The socket of a link that is polled.
    fn socket(&self) -> &Socket {
        match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(_) => unreachable!("only plain links are polled"),
        }
    }

    /// Ends everything; the first reason stays.
    fn end(&self, why: LinkError) -> LinkError {
        let _ = self.ended.set(why);
        self.stream.shutdown();
        self.ended.get().expect("set above").clone()
    }

    /// After a failed or late write the peer may hold half a frame: nothing can follow it.
    fn end_outgoing(&self, error: LinkError) -> LinkError {
        let why = match &error {
            LinkError::Deadline => lost("an earlier send passed its deadline"),
            other => other.clone(),
        };
        let _ = self.outgoing_ended.set(why);
        self.stream.shutdown();
        match self.ended.get() {
            Some(ended) => ended.clone(),
            None => error,
        }
    }
}

impl Link for TcpLink {
    fn send(&self, header: Header, payload: &[u8], by: Deadline) -> Result<(), LinkError> {
        self.send_by(header, payload, by, |head| self.stream.write(head, payload, by))
    }

    fn receive(&self, by: Deadline) -> Result<Frame, LinkError> {
        let Some(mut inbox) = self.incoming.take(by) else { return Err(LinkError::Deadline) };
        if let Some(why) = self.ended.get() {
            return Err(why.clone());
        }
        match inbox.next(by, |into| self.stream.read_some(into, by)) {
            Err(why) if why != LinkError::Deadline => Err(self.end(why)),
            received => received.and_then(Landed::whole),
        }
    }

    fn close(&self) {
        let _ = self.ended.set(lost("the link is closed"));
        self.stream.shutdown();
    }

    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }

    fn recycle(&self, payload: Vec<u8>) {
        self.spare.put(payload);
    }

    fn pulsed(&self) -> Option<&dyn Pulsed> {
        Some(self)
    }

    fn polled(&self) -> Option<&dyn Polled> {
        // Inside TLS what has arrived may wait in the connection, where no descriptor shows it.
        matches!(self.stream, Stream::Plain(_)).then_some(self)
    }
}

impl Pulsed for TcpLink {
    fn bytes_received(&self) -> u64 {
        self.stream.socket().bytes_received()
    }

    fn has_unread(&self) -> bool {
        self.stream.socket().has_unread()
    }

    fn beat(&self, header: Header) -> Result<(), LinkError> {
        let Some(mut sequence) = self.outgoing.take_now() else { return Ok(()) };
        if let Some(why) = self.ended.get().or_else(|| self.outgoing_ended.get()) {
            return Err(why.clone());
        }
        if !self.stream.socket().has_room() {
            return Ok(());
        }
        let head = encode_header(header, self.job, self.epoch, *sequence, &[]);
        // A socket that has room has room for a header.
        let written = self.stream.write(&head, &[], Deadline::after_ms(BEAT_MS));
        written.map_err(|error| self.end_outgoing(error))?;
        *sequence += 1;
        Ok(())
    }
}

impl Polled for TcpLink {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket().descriptor()
    }

    fn receive_now_into(&self, places: &mut dyn Places) -> Result<Option<Landed>, LinkError> {
        let Some(mut inbox) = self.incoming.take_now() else { return Ok(None) };
        if let Some(why) = self.ended.get() {
            return Err(why.clone());
        }
        inbox.next_now(|into| self.socket().read_now(into), places).map_err(|why| self.end(why))
    }

    fn send_meanwhile(
        &self,
        header: Header,
        payload: &[u8],
        by: Deadline,
        wait: &mut dyn FnMut(),
    ) -> Result<(), LinkError> {
        self.send_by(header, payload, by, |head| {
            self.socket().write_meanwhile(head, payload, &mut || {
                if by.passed() {
                    return Err(LinkError::Deadline);
                }
                wait();
                Ok(())
            })
        })
    }

    fn await_room(&self, time: Duration) {
        self.socket().await_room(Deadline::after(time));
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for TcpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpLink")
            .field("job", &self.job)
            .field("epoch", &self.epoch)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Appends at least one byte and at most the buffer's spare capacity.
    pub(crate) fn read(&self, into: &mut Vec<u8>, by: Deadline) -> Result<(), LinkError> {
        match self {
            Stream::Plain(socket) => socket.read(into, by),
            Stream::Tls(stream) => {
                let before = into.len();
                into.resize(into.capacity(), 0);
                let read = stream.read_some(&mut into[before..], by);
                into.truncate(before + *read.as_ref().unwrap_or(&0));
                read.map(drop)
            }
        }
    }

    /// Fills some of the bytes, at least one, and says how many.
    fn read_some(&self, into: &mut [u8], by: Deadline) -> Result<usize, LinkError> {
        match self {
            Stream::Plain(socket) => socket.read_some(into, by),
            Stream::Tls(stream) => stream.read_some(into, by),
        }
    }

    /// Writes two slices, one after the other.
    pub(crate) fn write(&self, head: &[u8], body: &[u8], by: Deadline) -> Result<(), LinkError> {
        match self {
            Stream::Plain(socket) => socket.write(head, body, by),
            Stream::Tls(stream) => stream.write(head, body, by),
        }
    }

    fn socket(&self) -> &Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => stream.socket(),
        }
    }

    fn shutdown(&self) {
        match self {
            Stream::Plain(socket) => socket.shutdown(),
            Stream::Tls(stream) => stream.shutdown(),
        }
    }
}
