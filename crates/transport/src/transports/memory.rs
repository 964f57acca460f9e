//! Links between threads of one process: a bounded queue each way. The reference that other transports are
//! compared with, and what workers that are threads use.

use crate::lock::{enter, wait_until};
use crate::{Frame, HEADER_BYTES, Header, Link, LinkError, PAYLOAD_BYTES_MAX, TransportKind};
use starlings_core::{Deadline, Entry};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// The catalogue's entry.
pub(super) const ENTRY: Entry<TransportKind> = Entry {
    name: "memory",
    summary: "Queues between workers that are threads of one process",
    reference: "Hoare, Communicating Sequential Processes, CACM 1978",
    params: &[],
    gives: &[],
    needs: &[],
    build: TransportKind::Memory,
};

/// Frames that may wait in one direction; a sender beyond that waits for the receiver.
const FRAMES_MAX: usize = 1024;

const LATE: &str = "an earlier send passed its deadline";

/// Two connected ends.
#[must_use]
pub fn pair() -> (MemoryLink, MemoryLink) {
    let (there, back) = (Arc::new(Queue::default()), Arc::new(Queue::default()));
    let left = MemoryLink::new(Arc::clone(&there), Arc::clone(&back));
    (left, MemoryLink::new(back, there))
}

/// One end of a link between threads. Dropping it closes it.
#[derive(Debug)]
pub struct MemoryLink {
    outgoing: Arc<Queue>,
    incoming: Arc<Queue>,
    bytes_sent: AtomicU64,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Frame>,
    /// Why no more frames enter; those inside can still be taken.
    ended: Option<&'static str>,
}

impl MemoryLink {
    fn new(outgoing: Arc<Queue>, incoming: Arc<Queue>) -> MemoryLink {
        MemoryLink { outgoing, incoming, bytes_sent: AtomicU64::new(0) }
    }
}

impl Queue {
    fn end(&self, why: &'static str) {
        enter(&self.state).ended.get_or_insert(why);
        self.changed.notify_all();
    }
}

impl Link for MemoryLink {
    fn send(&self, header: Header, payload: &[u8], by: Deadline) -> Result<(), LinkError> {
        assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
        // The copy is made before the lock is entered: a receiver never waits for a memcpy.
        let frame = Frame { header, payload: payload.to_vec() };
        let mut state =
            wait_until(enter(&self.outgoing.state), &self.outgoing.changed, by, |state| {
                state.frames.len() < FRAMES_MAX || state.ended.is_some()
            });
        if let Some(why) = state.ended {
            return Err(LinkError::Lost(why.to_string()));
        }
        if state.frames.len() >= FRAMES_MAX {
            drop(state);
            self.outgoing.end(LATE);
            self.incoming.end(LATE);
            return Err(LinkError::Deadline);
        }
        state.frames.push_back(frame);
        // Counted before the lock is left: what a receiver holds has been counted.
        self.bytes_sent.fetch_add((HEADER_BYTES + payload.len()) as u64, Ordering::Relaxed);
        drop(state);
        self.outgoing.changed.notify_all();
        Ok(())
    }

    fn receive(&self, by: Deadline) -> Result<Frame, LinkError> {
        let mut state =
            wait_until(enter(&self.incoming.state), &self.incoming.changed, by, |state| {
                !state.frames.is_empty() || state.ended.is_some()
            });
        let frame = state.frames.pop_front();
        let ended = state.ended;
        drop(state);
        match (frame, ended) {
            (Some(frame), _) => {
                self.incoming.changed.notify_all();
                Ok(frame)
            }
            (None, Some(why)) => Err(LinkError::Lost(why.to_string())),
            (None, None) => Err(LinkError::Deadline),
        }
    }

    fn close(&self) {
        self.outgoing.end("the link is closed");
        // Frames that wait for an end that closed are nobody's any more.
        enter(&self.incoming.state).frames.clear();
        self.incoming.end("the link is closed");
    }

    fn bytes_sent(&self) -> u64 {
        self.bytes_sent.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lane, conformance};
    use starlings_core::Step;

    const HEADER: Header = Header { lane: Lane::Exchange, kind: 0, step: Step(0), tag: 0 };

    #[test]
    fn memory_links_keep_the_laws_of_links() {
        conformance::check(&|| {
            let (left, right) = pair();
            (Box::new(left), Box::new(right))
        });
    }

    #[test]
    fn a_full_queue_makes_the_sender_wait_and_then_breaks_the_link() {
        let (left, right) = pair();
        for _ in 0..FRAMES_MAX {
            left.send(HEADER, b"x", Deadline::after_ms(0)).unwrap();
        }
        assert_eq!(left.send(HEADER, b"x", Deadline::after_ms(10)), Err(LinkError::Deadline));
        assert!(matches!(left.send(HEADER, b"x", Deadline::after_ms(10)), Err(LinkError::Lost(_))));
        for _ in 0..FRAMES_MAX {
            right.receive(Deadline::after_ms(0)).unwrap();
        }
        assert!(matches!(right.receive(Deadline::after_ms(100)), Err(LinkError::Lost(_))));
    }
}
