//! Links that fall silent: without a network, and over real sockets.

use super::*;
use starlings_core::{Deadline, Epoch, JobId};
use starlings_transport::{
    Frame, Hello, LinkError, Listener as Door, PROTOCOL_VERSION, Purpose, Security, Token, Verdict,
    connect,
};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A link whose peer says as much as a test lets it.
#[derive(Default)]
struct Wire {
    beats: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    unread: AtomicBool,
}

impl Link for Wire {
    fn send(&self, _: Header, payload: &[u8], _: Deadline) -> Result<(), LinkError> {
        self.sent.fetch_add(payload.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn receive(&self, _: Deadline) -> Result<Frame, LinkError> {
        Err(LinkError::Deadline)
    }

    fn close(&self) {}

    fn bytes_sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn pulsed(&self) -> Option<&dyn Pulsed> {
        Some(self)
    }
}

impl Pulsed for Wire {
    fn bytes_received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    fn beat(&self, header: Header) -> Result<(), LinkError> {
        assert!(is_beat(&header));
        self.beats.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct Bench {
    wires: [Arc<Wire>; 2],
    links: Vec<(Seat, Arc<dyn Link>)>,
    listener: Listener,
    now: u64,
}

impl Bench {
    fn new() -> Bench {
        let wires = [Arc::<Wire>::default(), Arc::default()];
        let seat = |at: usize| Seat(at as u32 + 1);
        let links = wires.iter().enumerate();
        let links: Vec<(Seat, Arc<dyn Link>)> =
            links.map(|(at, wire)| (seat(at), wire.clone() as Arc<dyn Link>)).collect();
        let listener = Listener::new(&links, EVERY_MS);
        Bench { wires, links, listener, now: 0 }
    }

    /// Time passes; `life` is what the links carry at each look. Gives who was silent at the end.
    fn pass(&mut self, ms: u64, life: impl Fn(&[Arc<Wire>; 2])) -> Vec<Seat> {
        let mut silent = Vec::new();
        for _ in 0..ms / EVERY_MS {
            self.now += EVERY_MS;
            life(&self.wires);
            silent = self.listener.listen(self.now, &self.links);
        }
        silent
    }
}

fn hear(wire: &Wire) {
    wire.received.fetch_add(48, Ordering::Relaxed);
}

#[test]
fn a_link_that_carries_nothing_for_a_second_is_silent_and_one_that_does_is_not() {
    let mut bench = Bench::new();
    assert!(bench.pass(2_000, |wires| wires.iter().for_each(|wire| hear(wire))).is_empty());
    assert!(bench.pass(1_000, |wires| hear(&wires[0])).is_empty());
    assert_eq!(bench.pass(400, |wires| hear(&wires[0])), [Seat(2)]);
    // Heard again it is as good as ever.
    assert!(bench.pass(200, |wires| wires.iter().for_each(|wire| hear(wire))).is_empty());
}

#[test]
fn bytes_that_nobody_has_read_are_no_silence() {
    let mut bench = Bench::new();
    let silent = bench.pass(20_000, |wires| {
        wires[1].unread.store(true, Ordering::Relaxed);
    });
    assert_eq!(silent, [Seat(1)], "its own side is slow to read the other one");
}

#[test]
fn a_link_that_is_used_needs_no_beats() {
    let mut bench = Bench::new();
    let header = Header { lane: Lane::Exchange, kind: 1, step: Step(3), tag: 0 };
    bench.pass(2_000, |wires| wires[0].send(header, b"numbers", Deadline::after_ms(0)).unwrap());
    let beats = bench.wires.each_ref().map(|wire| wire.beats.load(Ordering::Relaxed));
    assert_eq!(beats, [0, 10]);
}

#[test]
fn a_pause_of_ones_own_is_held_against_no_one() {
    let mut bench = Bench::new();
    bench.pass(1_000, |wires| wires.iter().for_each(|wire| hear(wire)));
    bench.now += 60_000;
    assert!(bench.pass(200, |_| ()).is_empty());
}

/// Two ends of a connection over sockets of this machine.
fn linked() -> (Arc<dyn Link>, Arc<dyn Link>) {
    let token = Token::from_bytes([7; 32]);
    let gatekeeper = Arc::new(|_: &Hello| Verdict::Accept);
    let home = "127.0.0.1:0".parse().unwrap();
    let door = Door::bind(home, &Security::Plain, gatekeeper).unwrap();
    let (purpose, version) = (Purpose::Peer, PROTOCOL_VERSION);
    let hello = Hello { purpose, job: JobId(1), epoch: Epoch(0), seat: Seat(1), token, version };
    let by = Deadline::after_ms(10_000);
    let there = connect(door.local_addr(), &hello, &Security::Plain, by).unwrap();
    let (here, _, _) = door.accept(by).unwrap().unwrap();
    (Arc::new(here), Arc::new(there))
}

#[test]
fn a_beat_is_heard_at_the_other_end_and_is_no_message() {
    let (here, there) = linked();
    let pulsed = there.pulsed().unwrap();
    assert!(!pulsed.has_unread());
    let sent = here.bytes_sent();
    here.pulsed().unwrap().beat(HEADER).unwrap();
    assert_eq!(here.bytes_sent(), sent, "beats are not what the job has sent");
    let header = Header { lane: Lane::Exchange, kind: 1, step: Step(3), tag: 0 };
    let by = Deadline::after_ms(10_000);
    here.send(header, b"numbers", by).unwrap();
    let before = pulsed.bytes_received();
    assert!(is_beat(&there.receive(by).unwrap().header));
    let frame = there.receive(by).unwrap();
    assert_eq!((frame.header, frame.payload.as_slice()), (header, &b"numbers"[..]));
    assert!(pulsed.bytes_received() >= before + 2 * 48);
    here.close();
    let end = there.receive(by).unwrap_err();
    assert!(matches!(end, LinkError::Lost(_)), "{end}");
    assert!(pulsed.has_unread(), "the end of a link is not silence");
    assert!(here.pulsed().unwrap().beat(HEADER).is_err());
}

#[test]
fn whoever_beats_is_heard_and_whoever_does_not_is_told() {
    let (here, there) = linked();
    let ears = Pulse::start(&BTreeMap::from([(Seat(1), here)])).unwrap();
    // The other end reads, but says nothing at all.
    let by = Deadline::after_ms(30_000);
    while ears.unheard().is_empty() && !by.passed() {
        let _ = there.receive(Deadline::after_ms(50));
    }
    assert_eq!(ears.unheard(), [Seat(1)]);
    let other = Pulse::start(&BTreeMap::from([(Seat(0), there)])).unwrap();
    while !ears.unheard().is_empty() && !by.passed() {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ears.unheard().is_empty(), "it is heard again");
    drop((ears, other));
}
