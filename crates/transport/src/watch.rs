//! Waiting for several links at once (`poll`, POSIX), until one has something, or somebody calls.

use crate::socket::{lost, timespec};
use crate::{LinkError, Polled};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A place where one thread waits for links and others may wake it.
#[derive(Debug)]
pub struct Watch {
    bell: OwnedFd,
}

impl Watch {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new() -> io::Result<Watch> {
        Ok(Watch { bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// Ends the wait that is under way, or else the next one.
    pub fn wake(&self) {
        // It fails only when it has been rung 2^64 times without being heard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Waits until a link has something, `room` has room to send, somebody calls or the time is over; lists the
    /// links that have something. True when somebody has called: a call is heard once, so whoever hears it must
    /// look up.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait<'a>(
        &self,
        links: impl Iterator<Item = &'a dyn Polled>,
        room: Option<&dyn Polled>,
        ready: &mut Vec<usize>,
        time: Duration,
    ) -> Result<bool, LinkError> {
        ready.clear();
        let mut watched: Vec<PollFd<'_>> =
            links.map(|link| PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)).collect();
        let count = watched.len();
        watched.push(PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN));
        if let Some(link) = room {
            watched.push(PollFd::from_borrowed_fd(link.descriptor(), PollFlags::OUT));
        }
        match poll(&mut watched, Some(&timespec(time))) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(lost(io::Error::from(errno))),
        }
        let called = !watched[count].revents().is_empty();
        if called {
            // Heard: the bell is silent again. Another thread may have been faster.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        ready.extend((0..count).filter(|&at| !watched[at].revents().is_empty()));
        Ok(called)
    }
}
