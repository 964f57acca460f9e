//! A link over MPI. The sender may be [`WINDOW_BYTES`] ahead of the reader, so that a process holds no more than
//! that for each peer and the thread that owns MPI never has to refuse a message.
//!
//! A message is the payload and then the header, so that the receiver cuts the header off and hands the rest
//! on without a copy. Beside frames there are two notices: bytes that were read, and the end.

use super::{Address, Shared};
use crate::frame::{Expected, decode_header};
use crate::lock::{enter, wait_until};
use crate::turn::Turn;
use crate::{Frame, HEADER_BYTES, Header, Link, LinkError, PAYLOAD_BYTES_MAX, encode_header};
use starlings_core::{Deadline, Epoch, JobId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// Bytes that may be on their way or unread.
const WINDOW_BYTES: u64 = 16 << 20;
/// The reader tells what it has read whenever it is this much; a largest frame fits into the rest.
const NOTICE_BYTES: u64 = 4 << 20;

const CLOSED: &str = "the link is closed";
const PEER_CLOSED: &str = "the peer closed the link";
const LATE: &str = "an earlier send passed its deadline";

/// What a message is; told by its MPI tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// A frame.
    Frame,
    /// So many bytes were read, as a `u64`; none says that nothing more comes.
    Notice,
}

/// One message to another process.
pub(super) struct Post {
    pub(super) to: Address,
    pub(super) sort: Sort,
    pub(super) bytes: Vec<u8>,
}

/// Where frames wait for their reader, and the account of what the peer has not read yet.
#[derive(Default)]
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    changed: Condvar,
}

#[derive(Default)]
struct Mail {
    opened: bool,
    frames: VecDeque<Vec<u8>>,
    /// Bytes sent that the peer has not told to have read.
    unread: u64,
    /// Bytes read here that the peer has not been told of.
    untold: u64,
    ended: Option<LinkError>,
}

/// One end of a link between two processes. Dropping it closes it.
pub struct MpiLink {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    to: Address,
    job: JobId,
    epoch: Epoch,
    /// The next frame's sequence number.
    outgoing: Turn<u64>,
    incoming: Turn<Expected>,
    bytes_sent: AtomicU64,
}

impl MpiLink {
    pub(super) fn open(shared: Arc<Shared>, to: Address, job: JobId, epoch: Epoch) -> MpiLink {
        let mailbox = shared.mailbox(to);
        let before = std::mem::replace(&mut enter(&mailbox.mail).opened, true);
        assert!(!before, "channel {} to rank {} was opened before", to.channel, to.rank);
        MpiLink {
            shared,
            mailbox,
            to,
            job,
            epoch,
            outgoing: Turn::new(0),
            incoming: Turn::new(Expected { job, epoch, sequence: 0 }),
            bytes_sent: AtomicU64::new(0),
        }
    }

    /// Ends both directions, and tells the peer. The first reason stays.
    fn end(&self, why: LinkError) -> LinkError {
        let mut mail = enter(&self.mailbox.mail);
        let already = mail.ended.is_some();
        let ended = mail.ended.get_or_insert(why).clone();
        drop(mail);
        self.mailbox.changed.notify_all();
        if !already {
            self.post(Sort::Notice, Vec::new());
        }
        ended
    }

    fn post(&self, sort: Sort, bytes: Vec<u8>) {
        self.shared.outbox.post(Post { to: self.to, sort, bytes });
    }

    /// The next message and, when it is time for that, what to tell the peer of.
    fn take(&self, by: Deadline) -> Result<(Vec<u8>, Option<u64>), LinkError> {
        let Mailbox { mail, changed } = &*self.mailbox;
        let mut mail = wait_until(enter(mail), changed, by, |mail| {
            !mail.frames.is_empty() || mail.ended.is_some()
        });
        match (mail.frames.pop_front(), &mail.ended) {
            (Some(message), _) => {
                mail.untold += message.len() as u64;
                let due = mail.untold >= NOTICE_BYTES && mail.ended.is_none();
                let told = due.then(|| std::mem::take(&mut mail.untold));
                Ok((message, told))
            }
            (None, Some(why)) => Err(why.clone()),
            (None, None) => Err(LinkError::Deadline),
        }
    }
}

impl Link for MpiLink {
    fn send(&self, header: Header, payload: &[u8], by: Deadline) -> Result<(), LinkError> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
        let late = || {
            self.end(LinkError::Lost(LATE.to_string()));
            LinkError::Deadline
        };
        let Some(mut sequence) = self.outgoing.take(by) else { return Err(late()) };
        let bytes = (HEADER_BYTES + payload.len()) as u64;
        let Mailbox { mail, changed } = &*self.mailbox;
        let fits = |mail: &Mail| mail.unread + bytes <= WINDOW_BYTES;
        let mut mail =
            wait_until(enter(mail), changed, by, |mail| fits(mail) || mail.ended.is_some());
        if let Some(why) = &mail.ended {
            return Err(why.clone());
        }
        if !fits(&mail) {
            drop(mail);
            return Err(late());
        }
        mail.unread += bytes;
        drop(mail);
        let head = encode_header(header, self.job, self.epoch, *sequence, payload);
        let mut message = Vec::with_capacity(bytes as usize);
        message.extend_from_slice(payload);
        message.extend_from_slice(&head);
        self.post(Sort::Frame, message);
        *sequence += 1;
        self.bytes_sent.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn receive(&self, by: Deadline) -> Result<Frame, LinkError> {
        let Some(mut expected) = self.incoming.take(by) else { return Err(LinkError::Deadline) };
        let (message, told) = self.take(by)?;
        if let Some(bytes) = told {
            self.post(Sort::Notice, bytes.to_le_bytes().to_vec());
        }
        let frame = open(message, &expected).map_err(|error| self.end(error))?;
        expected.sequence += 1;
        Ok(frame)
    }

    fn close(&self) {
        self.end(LinkError::Lost(CLOSED.to_string()));
        // Frames that wait for an end that closed are nobody's any more.
        enter(&self.mailbox.mail).frames.clear();
    }

    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }
}

impl Drop for MpiLink {
    fn drop(&mut self) {
        self.close();
    }
}

impl Mailbox {
    /// Takes in what came from the peer.
    pub(super) fn accept(&self, sort: Sort, bytes: Vec<u8>) {
        let mut mail = enter(&self.mail);
        match (sort, <[u8; 8]>::try_from(&bytes[..])) {
            _ if mail.ended.is_some() => return,
            (Sort::Frame, _) => mail.frames.push_back(bytes),
            (Sort::Notice, Ok(read)) => {
                mail.unread = mail.unread.saturating_sub(u64::from_le_bytes(read));
            }
            (Sort::Notice, Err(_)) => mail.ended = Some(LinkError::Lost(PEER_CLOSED.to_string())),
        }
        drop(mail);
        self.changed.notify_all();
    }

    /// MPI has been left: nothing comes or goes any more.
    pub(super) fn end(&self) {
        let why = LinkError::Lost("MPI has ended".to_string());
        enter(&self.mail).ended.get_or_insert(why);
        self.changed.notify_all();
    }
}

/// Opens a message: checks it and cuts the header off.
fn open(mut message: Vec<u8>, expected: &Expected) -> Result<Frame, LinkError> {
    let Some((payload, header)) = message.split_last_chunk::<HEADER_BYTES>() else {
        return Err(LinkError::Broken(format!("a message of {} bytes", message.len())));
    };
    let envelope = decode_header(header, expected)?;
    if payload.len() != envelope.length {
        let what = format!("{} bytes where {} were announced", payload.len(), envelope.length);
        return Err(LinkError::Broken(what));
    }
    envelope.compare(crc32c::crc32c_append(envelope.checksum_header, payload))?;
    message.truncate(envelope.length);
    Ok(Frame { header: envelope.header, payload: message })
}
