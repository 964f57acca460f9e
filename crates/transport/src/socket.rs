//! A socket whose every call has a deadline. It does not block; where it would, `poll` waits for as long as
//! the deadline allows, so that a call that need not wait costs one system call.

use crate::LinkError;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use starlings_core::Deadline;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What each direction's kernel buffer should hold: one largest frame.
const BUFFER_BYTES: usize = 4 << 20;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    bytes_received: AtomicU64,
}

impl Socket {
    pub(crate) fn new(stream: Arc<TcpStream>) -> io::Result<Socket> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Socket { stream, bytes_received: AtomicU64::new(0) })
    }

    /// Appends at least one byte and at most the buffer's spare capacity.
    pub(crate) fn read(&self, into: &mut Vec<u8>, by: Deadline) -> Result<(), LinkError> {
        assert!(into.len() < into.capacity(), "a read needs room");
        loop {
            match rustix::io::read(&*self.stream, spare_capacity(into)) {
                Ok(0) => return Err(lost("the peer closed the connection")),
                Ok(count) => {
                    self.count(count);
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, by)?,
                Err(errno) => return Err(lost(io::Error::from(errno))),
            }
        }
    }

    /// Fills some of the bytes, at least one, and says how many.
    pub(crate) fn read_some(&self, into: &mut [u8], by: Deadline) -> Result<usize, LinkError> {
        loop {
            match self.read_now(into) {
                Err(LinkError::Deadline) => self.wait(PollFlags::IN, by)?,
                other => return other,
            }
        }
    }

    /// Fills some of the bytes, or fails with [`LinkError::Deadline`] where it would have to wait.
    pub(crate) fn read_now(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        assert!(!into.is_empty(), "a read needs room");
        loop {
            match rustix::io::read(&*self.stream, &mut *into) {
                Ok(0) => return Err(lost("the peer closed the connection")),
                Ok(count) => {
                    self.count(count);
                    return Ok(count);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(LinkError::Deadline),
                Err(errno) => return Err(lost(io::Error::from(errno))),
            }
        }
    }

    /// Writes two slices, one after the other, without joining them in memory.
    pub(crate) fn write(&self, head: &[u8], body: &[u8], by: Deadline) -> Result<(), LinkError> {
        self.write_meanwhile(head, body, &mut || self.wait(PollFlags::OUT, by))
    }

    /// As [`Socket::write`], but leaves waiting for room to the caller.
    pub(crate) fn write_meanwhile(
        &self,
        mut head: &[u8],
        mut body: &[u8],
        wait: &mut dyn FnMut() -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        while !head.is_empty() || !body.is_empty() {
            let written = (&*self.stream).write_vectored(&[IoSlice::new(head), IoSlice::new(body)]);
            match written {
                Ok(count) => {
                    let from_head = count.min(head.len());
                    head = &head[from_head..];
                    body = &body[count - from_head..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait()?,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// Waits until there is room to write, the connection ends or the deadline passes.
    pub(crate) fn await_room(&self, by: Deadline) {
        // What went wrong the next write will tell.
        let _ = self.wait(PollFlags::OUT, by);
    }

    /// Bytes read so far.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.bytes_received.load(Ordering::Relaxed)
    }

    /// Whether bytes, or the end of the connection, wait to be read.
    pub(crate) fn has_unread(&self) -> bool {
        self.is_ready(PollFlags::IN)
    }

    /// Whether there is room to write.
    pub(crate) fn has_room(&self) -> bool {
        self.is_ready(PollFlags::OUT)
    }

    /// Whether that, or the end of the connection, is the case now.
    fn is_ready(&self, event: PollFlags) -> bool {
        let mut fds = [PollFd::new(&*self.stream, event)];
        poll(&mut fds, Some(&timespec(Duration::ZERO))) != Ok(0)
    }

    fn count(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What becomes readable when bytes arrive.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Ends both directions; calls that wait return. What was written before still leaves.
    pub(crate) fn shutdown(&self) {
        // It fails only when the connection is gone already, which is what is wanted.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn wait(&self, event: PollFlags, by: Deadline) -> Result<(), LinkError> {
        let Some(left) = by.left() else { return Err(LinkError::Deadline) };
        let mut fds = [PollFd::new(&*self.stream, event)];
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) => Err(LinkError::Deadline),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(lost(io::Error::from(errno))),
        }
    }
}

/// The congestion control of links within a machine (RFC 5681): the one that every kernel has and every user may choose.
const UNPACED: &[u8] = b"reno";

/// What must be said before connecting to an address, or listening at it.
pub(crate) fn prepare(socket: &socket2::Socket, address: IpAddr) -> io::Result<()> {
    enlarge_buffers(socket)?;
    if address.is_loopback() {
        // Nothing is lost or crowded on the way to oneself: where the system's own choice is one that paces (BBR), its timers
        // are of no use. Where this one cannot be had, the system's serves.
        let _ = socket.set_tcp_congestion(UNPACED);
    }
    Ok(())
}

/// Asks for large kernel buffers before connecting or listening, since the window's scale is agreed then.
/// Where the system's limit is lower, asking would pin a small buffer and end the kernel's own tuning, which
/// goes higher: then nothing is asked.
fn enlarge_buffers(socket: &socket2::Socket) -> io::Result<()> {
    static ALLOWED: OnceLock<(bool, bool)> = OnceLock::new();
    let (receive, send) = *ALLOWED.get_or_init(|| (allowed("rmem_max"), allowed("wmem_max")));
    if receive {
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
    }
    if send {
        socket.set_send_buffer_size(BUFFER_BYTES)?;
    }
    Ok(())
}

fn allowed(limit: &str) -> bool {
    std::fs::read_to_string(format!("/proc/sys/net/core/{limit}"))
        .ok()
        .and_then(|text| text.trim().parse::<usize>().ok())
        .is_some_and(|bytes| bytes >= BUFFER_BYTES)
}

/// A duration as the kernel takes it.
pub(crate) fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}

pub(crate) fn lost(why: impl ToString) -> LinkError {
    LinkError::Lost(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Protocol, Type};
    use std::net::{Ipv4Addr, SocketAddr};

    fn socket() -> socket2::Socket {
        socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap()
    }

    fn congestion(socket: &socket2::Socket) -> String {
        let name = socket.tcp_congestion().unwrap();
        String::from_utf8(name).unwrap().trim_end_matches('\0').to_string()
    }

    #[test]
    fn connections_within_a_machine_are_not_paced_and_others_are_left_to_the_system() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (listener, caller, abroad) = (socket(), socket(), socket());
        prepare(&listener, loopback).unwrap();
        listener.bind(&SocketAddr::new(loopback, 0).into()).unwrap();
        listener.listen(1).unwrap();
        prepare(&caller, loopback).unwrap();
        caller.connect(&listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert_eq!([congestion(&caller), congestion(&accepted)], ["reno", "reno"]);
        prepare(&abroad, Ipv4Addr::new(192, 0, 2, 1).into()).unwrap();
        assert_eq!(congestion(&abroad), congestion(&socket()));
    }
}
