//! The blocking shell around links: one reader thread a peer sorts frames into lanes, so that sums, server
//! requests and wires never wait for each other. Losses and aborts wake every waiting call at once.

use starlings_core::{Deadline, Fault, Result, Seat, Step};
use starlings_transport::{Header, Lane, Link, LinkError};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// A payload above this travels as several frames.
const FRAGMENT_BYTES: usize = 1 << 20;
/// Largest payload that fragments may add up to.
const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// Bytes that may wait in one lane before its readers stop reading.
const LANE_BYTES_MAX: usize = 1 << 30;
/// Set in a frame's kind when more fragments follow.
const MORE: u8 = 0x80;
/// The kind of a goodbye on the control lane.
const BYE: u8 = 0x7f;

/// A message that has arrived.
#[derive(Debug)]
pub struct Arrival {
    /// From whom.
    pub from: Seat,
    /// What the sender says of it.
    pub header: Header,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// The links of one seat.
pub struct Net {
    seat: Seat,
    hosts: Vec<String>,
    links: BTreeMap<Seat, Arc<dyn Link>>,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    arrived: [Condvar; Lane::ALL.len()],
    taken: Condvar,
}

#[derive(Default)]
struct State {
    lanes: [VecDeque<Arrival>; Lane::ALL.len()],
    bytes: [usize; Lane::ALL.len()],
    lost: BTreeMap<Seat, String>,
    aborted: Option<Fault>,
    closed: bool,
}

impl Net {
    /// Takes over the links to all other seats and starts reading. `hosts[s]` names the host of seat s.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(
        seat: Seat,
        hosts: Vec<String>,
        links: BTreeMap<Seat, Arc<dyn Link>>,
    ) -> Result<Net> {
        let shared = Arc::new(Shared::default());
        let mut readers = Vec::new();
        for (&from, link) in &links {
            let (link, shared) = (link.clone(), shared.clone());
            let name = format!("read {from}");
            let reader = std::thread::Builder::new().name(name);
            readers.push(reader.spawn(move || read_all(from, &*link, &shared))?);
        }
        Ok(Net { seat, hosts, links, shared, readers })
    }

    /// This seat.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// Seats in the flock.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The host of a seat.
    #[must_use]
    pub fn host(&self, seat: Seat) -> &str {
        self.hosts.get(seat.index()).map_or("unknown host", String::as_str)
    }

    /// Sends a message to a seat (also to itself).
    ///
    /// # Errors
    /// A fault that names the seat.
    pub fn send(&self, to: Seat, header: Header, payload: &[u8], by: Deadline) -> Result<()> {
        assert!(header.kind & MORE == 0, "the highest bit of the kind is the shell's own");
        if to == self.seat {
            let arrival = Arrival { from: to, header, payload: payload.to_vec() };
            return self.shared.deliver(arrival);
        }
        let link = self.links.get(&to).unwrap_or_else(|| panic!("there is no link to {to}"));
        let mut rest = payload;
        while rest.len() > FRAGMENT_BYTES {
            let (piece, after) = rest.split_at(FRAGMENT_BYTES);
            let more = Header { kind: header.kind | MORE, ..header };
            link.send(more, piece, by).map_err(|error| self.lost(to, &error))?;
            rest = after;
        }
        link.send(header, rest, by).map_err(|error| self.lost(to, &error))
    }

    /// The next message of a lane that `wanted` accepts; others wait for whoever wants them. Messages that
    /// have arrived come before news of losses.
    ///
    /// # Errors
    /// A lost peer (named), an abort, or the deadline.
    pub fn next(
        &self,
        lane: Lane,
        wanted: impl Fn(&Arrival) -> bool,
        by: Deadline,
    ) -> Result<Arrival> {
        let mut state = self.shared.lock();
        loop {
            if let Some(fault) = &state.aborted {
                return Err(fault.clone());
            }
            let queue = &mut state.lanes[lane as usize];
            let found = queue.iter().position(&wanted);
            if let Some(arrival) = found.and_then(|at| queue.remove(at)) {
                state.bytes[lane as usize] -= arrival.payload.len();
                self.shared.taken.notify_all();
                return Ok(arrival);
            }
            if let Some((&seat, why)) = state.lost.iter().next() {
                return Err(self.lost_fault(seat, why));
            }
            if state.closed {
                return Err(Fault::peer(None, "the flock is closed"));
            }
            let Some(left) = by.left() else {
                return Err(Fault::peer(None, "nothing arrived before the deadline"));
            };
            let waited = self.shared.arrived[lane as usize].wait_timeout(state, left);
            state = waited.expect("no reader panics with the lock held").0;
        }
    }

    /// A message of a lane that `wanted` accepts, if one has arrived already.
    ///
    /// # Errors
    /// An abort, or a lost peer (named) when nothing is left to take.
    pub fn try_next(&self, lane: Lane, wanted: impl Fn(&Arrival) -> bool) -> Result<Option<Arrival>> {
        let mut state = self.shared.lock();
        if let Some(fault) = &state.aborted {
            return Err(fault.clone());
        }
        let queue = &mut state.lanes[lane as usize];
        let found = queue.iter().position(&wanted);
        if let Some(arrival) = found.and_then(|at| queue.remove(at)) {
            state.bytes[lane as usize] -= arrival.payload.len();
            self.shared.taken.notify_all();
            return Ok(Some(arrival));
        }
        match state.lost.iter().next() {
            Some((&seat, why)) => Err(self.lost_fault(seat, why)),
            None => Ok(None),
        }
    }

    /// Wakes every waiting call with this fault.
    pub fn abort(&self, fault: Fault) {
        self.shared.lock().aborted.get_or_insert(fault);
        self.shared.wake();
    }

    /// Says goodbye and closes all links: the others do not take this for a loss.
    pub fn leave(&self) {
        let header = Header { lane: Lane::Control, kind: BYE, step: Step(0), tag: 0 };
        for link in self.links.values() {
            // A peer that is already gone needs no goodbye.
            let _ = link.send(header, &[], Deadline::after_ms(1_000));
        }
        self.close();
    }

    /// Closes all links. Waiting calls return.
    pub fn close(&self) {
        self.shared.lock().closed = true;
        for link in self.links.values() {
            link.close();
        }
        self.shared.wake();
    }

    /// Bytes sent on all links.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.links.values().map(|link| link.bytes_sent()).sum()
    }

    fn lost(&self, seat: Seat, error: &LinkError) -> Fault {
        self.shared.lose(seat, error.to_string());
        // An abort knows the reason better than the broken link does.
        if let Some(fault) = &self.shared.lock().aborted {
            return fault.clone();
        }
        self.lost_fault(seat, &error.to_string())
    }

    fn lost_fault(&self, seat: Seat, why: &str) -> Fault {
        Fault::peer(Some(seat), format!("lost {seat} on {}: {why}", self.host(seat)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.close();
        for reader in self.readers.drain(..) {
            // A reader that panicked has already reported its peer as lost.
            let _ = reader.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no reader panics with the lock held")
    }

    fn wake(&self) {
        self.arrived.iter().for_each(Condvar::notify_all);
        self.taken.notify_all();
    }

    fn lose(&self, seat: Seat, why: String) {
        let mut state = self.lock();
        if !state.closed {
            state.lost.entry(seat).or_insert(why);
        }
        drop(state);
        self.wake();
    }

    fn deliver(&self, arrival: Arrival) -> Result<()> {
        let lane = arrival.header.lane as usize;
        let mut state = self.lock();
        while state.bytes[lane] > LANE_BYTES_MAX && !state.closed && state.aborted.is_none() {
            // A full lane holds the sender back; it looks up now and then whether anyone still reads.
            let waited = self.taken.wait_timeout(state, Duration::from_secs(1));
            state = waited.expect("no reader panics with the lock held").0;
        }
        state.bytes[lane] += arrival.payload.len();
        state.lanes[lane].push_back(arrival);
        drop(state);
        self.arrived[lane].notify_all();
        Ok(())
    }
}

/// Reads a link until it ends, putting fragments together.
fn read_all(from: Seat, link: &dyn Link, shared: &Shared) {
    let mut partial: [Vec<u8>; Lane::ALL.len()] = Default::default();
    loop {
        let frame = match link.receive(Deadline::after_ms(1_000)) {
            Ok(frame) => frame,
            Err(LinkError::Deadline) => {
                if shared.lock().closed {
                    return;
                }
                continue;
            }
            Err(error) => return shared.lose(from, error.to_string()),
        };
        if frame.header.lane == Lane::Control && frame.header.kind == BYE {
            return;
        }
        let lane = frame.header.lane as usize;
        let mut payload = std::mem::take(&mut partial[lane]);
        if payload.is_empty() {
            payload = frame.payload;
        } else if payload.len() + frame.payload.len() <= MESSAGE_BYTES_MAX {
            payload.extend_from_slice(&frame.payload);
        } else {
            return shared.lose(from, "a message is larger than allowed".to_string());
        }
        if frame.header.kind & MORE != 0 {
            partial[lane] = payload;
            continue;
        }
        if shared.deliver(Arrival { from, header: frame.header, payload }).is_err() {
            return;
        }
    }
}
