//! Whether peers are still heard. A link between two workers may be cut without a word to either, in both directions or in
//! one, while the coordinator hears both: then nothing closes, and whoever waits for bytes would wait for ever. So every
//! link carries small beats when it carries nothing else, sent and noticed by a thread that does nothing but that: a
//! peer that computes for minutes is heard all the while, and only a link that carries nothing falls silent.
//!
//! This thread decides nothing. Who is not heard is told to the coordinator with the next heartbeat; only it knows whether the
//! others hear that peer, and says who goes. A link that is heard again is as good as ever.

use starlings_cluster::detector::{self, Detector};
use starlings_core::{Result, Seat, Step};
use starlings_transport::{Header, Lane, Link, Pulsed};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The kind of a beat on the control lane.
const BEAT: u8 = 0x7c;
const HEADER: Header = Header { lane: Lane::Control, kind: BEAT, step: Step(0), tag: 0 };
/// How often a link that is otherwise silent carries a beat; more seldom where there are very many links.
const EVERY_MS: u64 = 200;
/// Beats within the least time that silence takes to be noticed.
const BEATS_MIN: u64 = 5;

/// Whether a frame says nothing but that its sender is there.
pub(crate) fn is_beat(header: &Header) -> bool {
    header.lane == Lane::Control && header.kind == BEAT
}

/// The thread that beats and listens, for as long as this is kept.
pub(crate) struct Pulse {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    unheard: Vec<Seat>,
    over: bool,
}

impl Pulse {
    /// Beats on all of these links that may fall silent, and listens to them.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(links: &BTreeMap<Seat, Arc<dyn Link>>) -> Result<Pulse> {
        let links: Vec<(Seat, Arc<dyn Link>)> = links
            .iter()
            .filter(|(_, link)| link.pulsed().is_some())
            .map(|(seat, link)| (*seat, link.clone()))
            .collect();
        let shared = Arc::new(Shared::default());
        let mut thread = None;
        if !links.is_empty() {
            let (shared, every_ms) = (shared.clone(), EVERY_MS.max(links.len() as u64));
            let pulse = std::thread::Builder::new().name("pulse".to_string());
            thread = Some(pulse.spawn(move || shared.keep(&links, every_ms))?);
        }
        Ok(Pulse { shared, thread })
    }

    /// Peers of whom nothing has been heard for too long, in order.
    pub(crate) fn unheard(&self) -> Vec<Seat> {
        self.shared.lock().unheard.clone()
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.ended.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with this lock held")
    }

    /// Beats and listens until it is over.
    fn keep(&self, links: &[(Seat, Arc<dyn Link>)], every_ms: u64) {
        let mut listener = Listener::new(links, every_ms);
        let begun = now();
        loop {
            let unheard = listener.listen(begun.elapsed().as_millis() as u64, links);
            let mut state = self.lock();
            state.unheard = unheard;
            let every = Duration::from_millis(every_ms);
            let waited = self.ended.wait_timeout_while(state, every, |state| !state.over);
            if waited.expect("nobody panics with this lock held").0.over {
                return;
            }
        }
    }
}

/// What is known of each link.
struct Listener {
    detector: Detector<Seat>,
    /// Bytes received and sent when last looked at.
    counts: Vec<(u64, u64)>,
}

impl Listener {
    fn new(links: &[(Seat, Arc<dyn Link>)], every_ms: u64) -> Listener {
        let mut options = detector::Options::default();
        options.timeout_ms = options.timeout_ms.max(BEATS_MIN * every_ms);
        let mut detector = Detector::new(options);
        links.iter().for_each(|(seat, _)| detector.watch(0, *seat));
        // Nothing has been sent yet that this thread knows of: the first look beats on every link.
        let counts = links.iter().map(|(_, link)| (0, link.bytes_sent())).collect();
        Listener { detector, counts }
    }

    /// Beats where nothing else was sent, notes who was heard, and gives those who were not for too long.
    fn listen(&mut self, now: u64, links: &[(Seat, Arc<dyn Link>)]) -> Vec<Seat> {
        for ((seat, link), (received, sent)) in links.iter().zip(&mut self.counts) {
            let pulsed = pulsed(&**link);
            if *sent == link.bytes_sent() {
                // A link that has ended is not silent: whoever reads it is told.
                let _ = pulsed.beat(HEADER);
            }
            *sent = link.bytes_sent();
            let count = pulsed.bytes_received();
            if count != *received || pulsed.has_unread() {
                *received = count;
                self.detector.beat(now, *seat);
            }
        }
        self.detector.silent(now)
    }
}

fn pulsed(link: &dyn Link) -> &dyn Pulsed {
    link.pulsed().expect("only links that may fall silent are listened to")
}

#[expect(clippy::disallowed_methods, reason = "silence is measured")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
#[path = "pulse_tests.rs"]
mod tests;
