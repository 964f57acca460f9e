//! Bytes inside TLS 1.3 (RFC 8446), in both directions at once. The connection's state is locked only while
//! bytes are sealed or opened, never while the socket is waited for, so that a reader that waits does not
//! hold up writers.

use crate::LinkError;
use crate::lock::enter;
use crate::socket::{Socket, lost};
use rustls::Connection;
use starlings_core::Deadline;
use std::io::{BufRead, IoSlice, Write};
use std::sync::Mutex;

/// Bytes that a client may send before it is authenticated, TLS included.
pub(crate) const BYTES_BEFORE_ADMISSION_MAX: usize = 4 << 10;

/// Plaintext sealed at a time.
const PIECE_BYTES: usize = 64 << 10;

/// Sealed bytes read at a time: some records of at most 16 KiB.
const RAW_BYTES: usize = 128 << 10;

/// A socket inside TLS.
pub(crate) struct TlsStream {
    socket: Socket,
    connection: Mutex<Connection>,
    /// Used by the one thread that receives.
    raw: Mutex<Raw>,
    /// Used by the one thread that has the turn to send.
    sealed: Mutex<Vec<u8>>,
}

/// Sealed bytes that arrived, from `taken` on not yet opened.
struct Raw {
    bytes: Vec<u8>,
    taken: usize,
    admitted: bool,
}

impl TlsStream {
    /// Shakes hands. Until [`TlsStream::admit`] only a few KiB are accepted from the other side.
    pub(crate) fn establish(
        socket: Socket,
        connection: Connection,
        by: Deadline,
    ) -> Result<TlsStream, LinkError> {
        let raw = Raw {
            bytes: Vec::with_capacity(BYTES_BEFORE_ADMISSION_MAX),
            taken: 0,
            admitted: false,
        };
        let stream = TlsStream {
            socket,
            connection: Mutex::new(connection),
            raw: Mutex::new(raw),
            sealed: Mutex::new(Vec::new()),
        };
        while stream.flush(by)? {
            let mut raw = enter(&stream.raw);
            if raw.taken == raw.bytes.len() {
                raw.fill(&stream.socket, by)?;
            }
            let opened = raw.open(&mut enter(&stream.connection));
            drop(raw);
            if let Err(error) = opened {
                // The alert tells the other side why; whether it arrives does not matter to us.
                let _ = stream.flush(by);
                return Err(error);
            }
        }
        Ok(stream)
    }

    /// Whether the other side showed a certificate of our authority (others never get this far).
    pub(crate) fn has_certificate(&self) -> bool {
        enter(&self.connection).peer_certificates().is_some()
    }

    /// The other side is authenticated: the limit on what it may send is lifted.
    pub(crate) fn admit(&self) {
        let mut raw = enter(&self.raw);
        let mut bytes = Vec::with_capacity(RAW_BYTES);
        bytes.extend_from_slice(&raw.bytes[raw.taken..]);
        *raw = Raw { bytes, taken: 0, admitted: true };
    }

    /// Fills some of the bytes, at least one, and says how many.
    pub(crate) fn read_some(&self, into: &mut [u8], by: Deadline) -> Result<usize, LinkError> {
        let mut raw = enter(&self.raw);
        loop {
            let mut filled = 0;
            {
                let mut connection = enter(&self.connection);
                filled += drain(&mut connection, into)?;
                while raw.taken < raw.bytes.len() && filled < into.len() {
                    raw.open(&mut connection)?;
                    filled += drain(&mut connection, &mut into[filled..])?;
                }
            }
            if filled > 0 {
                return Ok(filled);
            }
            raw.fill(&self.socket, by)?;
        }
    }

    /// Seals and writes two slices, one after the other.
    pub(crate) fn write(
        &self,
        mut head: &[u8],
        mut body: &[u8],
        by: Deadline,
    ) -> Result<(), LinkError> {
        let mut sealed = enter(&self.sealed);
        while !head.is_empty() || !body.is_empty() {
            sealed.clear();
            let mut connection = enter(&self.connection);
            let piece = &body[..body.len().min(PIECE_BYTES - head.len())];
            let count = connection
                .writer()
                .write_vectored(&[IoSlice::new(head), IoSlice::new(piece)])
                .map_err(lost)?;
            while connection.wants_write() {
                connection.write_tls(&mut *sealed).map_err(lost)?;
            }
            drop(connection);
            self.socket.write(&sealed, &[], by)?;
            let from_head = count.min(head.len());
            head = &head[from_head..];
            body = &body[count - from_head..];
        }
        Ok(())
    }

    /// What carries the sealed bytes.
    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn shutdown(&self) {
        self.socket.shutdown();
    }

    /// Writes what the connection has to say by itself. True while it still shakes hands.
    fn flush(&self, by: Deadline) -> Result<bool, LinkError> {
        let mut sealed = enter(&self.sealed);
        sealed.clear();
        let mut connection = enter(&self.connection);
        while connection.wants_write() {
            connection.write_tls(&mut *sealed).map_err(lost)?;
        }
        let handshaking = connection.is_handshaking();
        drop(connection);
        self.socket.write(&sealed, &[], by)?;
        Ok(handshaking)
    }
}

impl Raw {
    /// Reads sealed bytes when all earlier ones are opened.
    fn fill(&mut self, socket: &Socket, by: Deadline) -> Result<(), LinkError> {
        if self.admitted {
            self.bytes.clear();
            self.taken = 0;
        }
        if self.bytes.len() >= self.bytes.capacity() {
            return Err(LinkError::Broken(format!(
                "more than {BYTES_BEFORE_ADMISSION_MAX} bytes before authentication"
            )));
        }
        socket.read(&mut self.bytes, by)
    }

    /// Opens some of the bytes.
    fn open(&mut self, connection: &mut Connection) -> Result<(), LinkError> {
        let mut rest = &self.bytes[self.taken..];
        let broken = |error: &dyn ToString| LinkError::Broken(error.to_string());
        let count = connection.read_tls(&mut rest).map_err(|error| broken(&error))?;
        self.taken += count;
        let state = connection.process_new_packets().map_err(|error| broken(&error))?;
        if state.peer_has_closed() {
            return Err(lost("the peer closed the connection"));
        }
        Ok(())
    }
}

/// Moves opened bytes out, as far as there is room, and says how many.
fn drain(connection: &mut Connection, into: &mut [u8]) -> Result<usize, LinkError> {
    let mut reader = connection.reader();
    let mut filled = 0;
    while filled < into.len() {
        let count = match reader.fill_buf() {
            Ok([]) => return Err(lost("the peer closed the connection")),
            Ok(bytes) => {
                let count = bytes.len().min(into.len() - filled);
                into[filled..filled + count].copy_from_slice(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(lost(error)),
        };
        reader.consume(count);
        filled += count;
    }
    Ok(filled)
}
