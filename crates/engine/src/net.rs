//! The blocking shell around links: whoever waits for a message reads the links and sorts frames into
//! lanes, for the others too, so that sums, server requests and wires never wait for each other. When nobody
//! waits, a thread stands by, so that no peer is ever held up by ours being busy. Losses and aborts wake
//! every waiting call at once.

pub(crate) mod kinds;
mod parts;
mod pulse;
mod reading;

use crate::neighbours::Neighbours;
use crate::shared_sum::SharedSum;
pub(crate) use parts::PART_BYTES;
pub(crate) use pulse::{Pulse, is_beat};
use reading::{Reading, read_all};
use starlings_core::{Deadline, Fault, Result, Seat, Step};
use starlings_transport::{Header, Lane, Link, LinkError, Watch};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
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
/// How long links may be left alone before the thread that stands by reads them.
const ALONE: Duration = Duration::from_millis(5);
/// How often a thread that waits for long looks up.
const LOOK_UP_MS: u64 = 1_000;

/// A message that has arrived.
#[derive(Debug)]
pub struct Arrival {
    /// From whom.
    pub from: Seat,
    /// What the sender says of it.
    pub header: Header,
    /// Its bytes, without those that lie at its berth.
    pub payload: Vec<u8>,
    /// Bytes before them that lie at its berth, where it had one.
    pub placed: usize,
}

/// Memory of whoever waits for messages, into which links read them.
pub trait Berths {
    /// Where the bytes of such a message shall lie; see [`starlings_transport::Places`].
    fn berth(&mut self, from: Seat, header: &Header, length: usize) -> Option<&mut [u8]>;
}

/// Messages get memory of their own.
pub(crate) struct Anywhere;

impl Berths for Anywhere {
    fn berth(&mut self, _from: Seat, _header: &Header, _length: usize) -> Option<&mut [u8]> {
        None
    }
}

/// The links of one seat.
pub struct Net {
    seat: Seat,
    hosts: Vec<String>,
    links: BTreeMap<Seat, Arc<dyn Link>>,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
    /// Who shares this host, once that is known.
    neighbours: OnceLock<Arc<Neighbours>>,
    /// Bytes given to others through shared memory.
    bytes_shared: AtomicU64,
}

struct Shared {
    state: Mutex<State>,
    watch: Watch,
    arrived: [Condvar; Lane::ALL.len()],
    taken: Condvar,
    /// Where the thread that stands by sleeps.
    left_alone: Condvar,
}

#[derive(Default)]
struct State {
    lanes: [VecDeque<Arrival>; Lane::ALL.len()],
    bytes: [usize; Lane::ALL.len()],
    /// The links, when nobody reads them.
    reading: Option<Box<Reading>>,
    /// Whether somebody reads them.
    is_read: bool,
    /// How often a call has read.
    turns: u64,
    /// Calls that wait for a lane without reading.
    waiting: [usize; Lane::ALL.len()],
    /// What the thread that stands by does.
    standing: Standing,
    /// Whether a lane was full for a message that has been read.
    is_held_up: bool,
    lost: BTreeMap<Seat, String>,
    aborted: Option<Fault>,
    closed: bool,
}

/// What the thread that stands by does.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    /// It looks every now and then whether the links are left alone.
    #[default]
    Watchful,
    /// Somebody reads, and will wake it afterwards.
    Asleep,
    /// It reads itself.
    Reading,
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
        let (polled, others): (Vec<_>, Vec<_>) = links
            .iter()
            .map(|(&from, link)| (from, link.clone()))
            .partition(|(_, link)| link.polled().is_some());
        let shared = Arc::new(Shared::new()?);
        let mut readers = Vec::new();
        for (from, link) in others {
            let shared = shared.clone();
            let reader = std::thread::Builder::new().name(format!("read {from}"));
            readers.push(reader.spawn(move || read_all(from, &*link, &shared))?);
        }
        if !polled.is_empty() {
            shared.lock().reading = Some(Box::new(Reading::new(polled.into_iter())));
            let shared = shared.clone();
            let reader = std::thread::Builder::new().name("stand by".to_string());
            readers.push(reader.spawn(move || shared.stand_by())?);
        }
        let (neighbours, bytes_shared) = (OnceLock::new(), AtomicU64::new(0));
        Ok(Net { seat, hosts, links, shared, readers, neighbours, bytes_shared })
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

    /// Whether all links are within this machine.
    #[must_use]
    pub fn is_near(&self) -> bool {
        // Beyond it links are inside TLS, which cannot be polled.
        self.links.values().all(|link| link.polled().is_some())
    }

    /// The host of a seat.
    #[must_use]
    pub fn host(&self, seat: Seat) -> &str {
        self.hosts.get(seat.index()).map_or("unknown host", String::as_str)
    }

    /// Sends a message to a seat (also to itself).
    ///
    /// # Errors
    /// A fault that names the seat; or a message above the limit, of which nothing is sent.
    pub fn send(&self, to: Seat, header: Header, payload: &[u8], by: Deadline) -> Result<()> {
        self.send_beside(to, (header, payload), by, &mut Anywhere)
    }

    /// As [`Net::send`]; what arrives meanwhile may go to berths.
    ///
    /// # Errors
    /// As [`Net::send`].
    pub fn send_beside(
        &self,
        to: Seat,
        (header, payload): (Header, &[u8]),
        by: Deadline,
        berths: &mut dyn Berths,
    ) -> Result<()> {
        assert!(header.kind & MORE == 0, "the highest bit of the kind is the shell's own");
        // The other side would take it for an attack, and the flock would go on without one of the two.
        if payload.len() > MESSAGE_BYTES_MAX {
            let (bytes, most) = (payload.len(), MESSAGE_BYTES_MAX);
            let what = format!("a message of {bytes} bytes for {to} is above the limit of {most}");
            return Err(Fault::caller(what).hint("cut the model by another plan or topology"));
        }
        if to == self.seat {
            let arrival = Arrival { from: to, header, payload: payload.to_vec(), placed: 0 };
            self.shared.deliver(arrival);
            return Ok(());
        }
        let link = self.links.get(&to).unwrap_or_else(|| panic!("there is no link to {to}"));
        let mut rest = payload;
        while rest.len() > FRAGMENT_BYTES {
            let (piece, after) = rest.split_at(FRAGMENT_BYTES);
            let more = Header { kind: header.kind | MORE, ..header };
            let sent = self.send_frame(&**link, (more, piece), by, berths);
            sent.map_err(|error| self.lost(to, &error))?;
            rest = after;
        }
        let sent = self.send_frame(&**link, (header, rest), by, berths);
        sent.map_err(|error| self.lost(to, &error))
    }

    /// Sends a frame, and reads while there is no room for it: the peer may be sending, too.
    fn send_frame(
        &self,
        link: &dyn Link,
        (header, payload): (Header, &[u8]),
        by: Deadline,
        berths: &mut dyn Berths,
    ) -> std::result::Result<(), LinkError> {
        let Some(polled) = link.polled() else { return link.send(header, payload, by) };
        polled.send_meanwhile(header, payload, by, &mut || {
            let mut state = self.shared.lock();
            if let Some(reading) = state.reading.take() {
                state = self.shared.read(state, reading, |reading, shared| {
                    reading.sleep(shared, (Some(polled), berths), by);
                });
                self.shared.pass_on(&state);
            } else {
                drop(state);
                polled.await_room(ALONE);
            }
        })
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
        self.next_into(lane, wanted, by, &mut Anywhere)
    }

    /// As [`Net::next`]; what arrives may go to berths.
    ///
    /// # Errors
    /// As [`Net::next`].
    pub fn next_into(
        &self,
        lane: Lane,
        wanted: impl Fn(&Arrival) -> bool,
        by: Deadline,
        berths: &mut dyn Berths,
    ) -> Result<Arrival> {
        let mut state = self.shared.lock();
        loop {
            let found = self.look(&mut state, lane, &wanted);
            let found = match (found, by.left()) {
                (Ok(None), _) if state.closed => Err(Fault::peer(None, "the flock is closed")),
                (Ok(None), Some(left)) => {
                    state = match state.reading.take() {
                        Some(reading) => self.shared.read(state, reading, |reading, shared| {
                            reading.attend(shared, berths, by);
                        }),
                        None => self.shared.wait(state, lane, left),
                    };
                    continue;
                }
                (Ok(None), None) => Err(Fault::peer(None, "nothing arrived before the deadline")),
                (Ok(Some(arrival)), _) => Ok(arrival),
                (Err(fault), _) => Err(fault),
            };
            self.shared.pass_on(&state);
            return found;
        }
    }

    /// As [`Net::next`], but only a message that is here already.
    ///
    /// # Errors
    /// A lost peer (named) or an abort.
    pub fn try_next(
        &self,
        lane: Lane,
        wanted: impl Fn(&Arrival) -> bool,
    ) -> Result<Option<Arrival>> {
        self.try_next_into(lane, wanted, &mut Anywhere)
    }

    /// As [`Net::try_next`]; what arrives may go to berths.
    ///
    /// # Errors
    /// As [`Net::try_next`].
    pub fn try_next_into(
        &self,
        lane: Lane,
        wanted: impl Fn(&Arrival) -> bool,
        berths: &mut dyn Berths,
    ) -> Result<Option<Arrival>> {
        let mut state = self.shared.lock();
        let mut found = self.look(&mut state, lane, &wanted)?;
        if found.is_none()
            && let Some(reading) = state.reading.take()
        {
            state = self.shared.read(state, reading, |reading, shared| {
                reading.sweep(shared, berths);
            });
            let looked = self.look(&mut state, lane, &wanted);
            self.shared.pass_on(&state);
            found = looked?;
        }
        Ok(found)
    }

    /// Gives back the memory of a message's payload, for messages to come from the same seat.
    pub fn recycle(&self, from: Seat, payload: Vec<u8>) {
        if let Some(link) = self.links.get(&from) {
            link.recycle(payload);
        }
    }

    /// A message that waits, or why none will come.
    fn look(
        &self,
        state: &mut State,
        lane: Lane,
        wanted: impl Fn(&Arrival) -> bool,
    ) -> Result<Option<Arrival>> {
        if let Some(fault) = &state.aborted {
            return Err(fault.clone());
        }
        let queue = &mut state.lanes[lane as usize];
        let found = queue.iter().position(wanted);
        if let Some(arrival) = found.and_then(|at| queue.remove(at)) {
            state.bytes[lane as usize] -= arrival.payload.len();
            if std::mem::take(&mut state.is_held_up) {
                self.shared.taken.notify_all();
                self.shared.watch.wake();
            }
            return Ok(Some(arrival));
        }
        match state.lost.iter().next() {
            Some((&seat, why)) => Err(self.lost_fault(seat, why)),
            None => Ok(None),
        }
    }

    /// Whether everything is still as it was: a worker that waits for nobody asks now and then.
    ///
    /// # Errors
    /// The abort.
    pub fn check(&self) -> Result<()> {
        self.shared.lock().aborted.clone().map_or(Ok(()), Err)
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

    /// Bytes sent on all links, and given to others through shared memory.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        let linked: u64 = self.links.values().map(|link| link.bytes_sent()).sum();
        linked + self.bytes_shared.load(Ordering::Relaxed)
    }

    /// So many bytes are given to others through shared memory.
    pub fn shared(&self, bytes: u64) {
        self.bytes_shared.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From now on groups that share this host may sum through its memory.
    pub fn settle(&self, neighbours: Arc<Neighbours>) {
        // Whoever settles first stays.
        let _ = self.neighbours.set(neighbours);
    }

    /// Sums of a group through shared memory, where all its members share this host.
    #[must_use]
    pub fn shared_sum(&self, kind: u8, group: &[Seat]) -> Option<SharedSum> {
        self.neighbours.get()?.sum(kind, group)
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
    fn new() -> Result<Shared> {
        Ok(Shared {
            state: Mutex::default(),
            watch: Watch::new()?,
            arrived: Default::default(),
            taken: Condvar::new(),
            left_alone: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no reader panics with the lock held")
    }

    fn wake(&self) {
        self.arrived.iter().for_each(Condvar::notify_all);
        self.taken.notify_all();
        self.left_alone.notify_all();
        self.watch.wake();
    }

    fn lose(&self, seat: Seat, why: String) {
        let mut state = self.lock();
        if !state.closed {
            state.lost.entry(seat).or_insert(why);
        }
        drop(state);
        self.wake();
    }

    /// Reads without the lock.
    fn read<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut reading: Box<Reading>,
        how: impl FnOnce(&mut Reading, &Shared),
    ) -> MutexGuard<'a, State> {
        state.turns += 1;
        state.is_read = true;
        drop(state);
        how(&mut reading, self);
        let mut state = self.lock();
        state.reading = Some(reading);
        state.is_read = false;
        state
    }

    /// Waits while somebody else reads.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        lane: Lane,
        left: Duration,
    ) -> MutexGuard<'a, State> {
        state.waiting[lane as usize] += 1;
        if state.standing == Standing::Reading {
            // It reads only for want of anyone else: it makes way.
            self.watch.wake();
        }
        let waited = self.arrived[lane as usize].wait_timeout(state, left);
        let mut state = waited.expect("no reader panics with the lock held").0;
        state.waiting[lane as usize] -= 1;
        state
    }

    /// A call that has read goes its way: others that wait read on.
    fn pass_on(&self, state: &State) {
        if state.reading.is_none() {
            return;
        }
        let mut is_awaited = false;
        for (arrived, &waiting) in self.arrived.iter().zip(&state.waiting) {
            if waiting > 0 {
                is_awaited = true;
                arrived.notify_all();
            }
        }
        if !is_awaited && state.standing == Standing::Asleep {
            self.left_alone.notify_one();
        }
    }

    /// Reads whenever the links have been left alone.
    fn stand_by(&self) {
        let mut state = self.lock();
        let mut seen = state.turns;
        while !state.closed {
            let is_quiet = seen == state.turns && state.waiting.iter().all(|&count| count == 0);
            seen = state.turns;
            if let Some(mut reading) = state.reading.take_if(|_| is_quiet) {
                state.standing = Standing::Reading;
                state.is_read = true;
                drop(state);
                reading.sleep(self, (None, &mut Anywhere), Deadline::after_ms(LOOK_UP_MS));
                state = self.lock();
                state.reading = Some(reading);
                state.is_read = false;
                self.pass_on(&state);
            } else {
                // A call that reads for long wakes this thread when it is done; while calls come and go, a
                // look every now and then costs less.
                let is_long = is_quiet && state.is_read;
                state.standing = if is_long { Standing::Asleep } else { Standing::Watchful };
                let time = if is_long { Duration::from_millis(LOOK_UP_MS) } else { ALONE };
                let waited = self.left_alone.wait_timeout(state, time);
                state = waited.expect("no reader panics with the lock held").0;
            }
            state.standing = Standing::Watchful;
        }
    }

    /// Puts a message into its lane; waits while the lane is full.
    fn deliver(&self, arrival: Arrival) {
        let mut state = self.lock();
        while state.is_full(arrival.header.lane) {
            // A full lane holds the sender back; it looks up now and then whether anyone still reads.
            state.is_held_up = true;
            let waited = self.taken.wait_timeout(state, Duration::from_millis(LOOK_UP_MS));
            state = waited.expect("no reader panics with the lock held").0;
        }
        self.put(&mut state, arrival);
        if state.is_read {
            // Whoever reads may be the one who wants it, and asleep among the links.
            self.watch.wake();
        }
    }

    /// Puts a message into its lane, or gives it back when the lane is full.
    fn offer(&self, arrival: Arrival) -> Option<Arrival> {
        let mut state = self.lock();
        if state.is_full(arrival.header.lane) {
            state.is_held_up = true;
            return Some(arrival);
        }
        self.put(&mut state, arrival);
        None
    }

    fn put(&self, state: &mut State, arrival: Arrival) {
        let lane = arrival.header.lane as usize;
        state.bytes[lane] += arrival.payload.len();
        state.lanes[lane].push_back(arrival);
        if state.waiting[lane] > 0 {
            self.arrived[lane].notify_all();
        }
    }
}

impl State {
    fn is_full(&self, lane: Lane) -> bool {
        self.bytes[lane as usize] > LANE_BYTES_MAX && !self.closed && self.aborted.is_none()
    }
}
