//! Reading links on the thread that waits for them. Handing every frame from a reader thread to the thread
//! that wants it costs two context switches and a cold cache; so whoever waits reads, for all the others
//! too (leader and followers: Schmidt et al., Pattern-Oriented Software Architecture 2, 2000). A frame that
//! is awaited usually comes soon: the reader polls for a while before it sleeps, and gives its core away
//! between two looks, since there may be more workers than cores.

use super::{Arrival, BYE, Berths, MESSAGE_BYTES_MAX, MORE, Shared, is_beat};
use starlings_core::{Deadline, Seat};
use starlings_transport::{Frame, Header, Landed, Lane, Link, LinkError, Places, Polled};
use std::sync::Arc;
use std::time::Duration;

/// Longest time to poll before sleeping.
const POLLING_MAX: Duration = Duration::from_micros(100);

/// Shorter than this, polling is not worth trying.
const POLLING_MIN: Duration = Duration::from_micros(2);

/// Puts the frames of one link together into messages. Several threads of the peer may each be in the middle of a
/// message on the same lane (a worker pushes while its server mirrors), so what is not complete is told apart by header.
#[derive(Default)]
pub(super) struct Assembly {
    partial: Vec<(Header, Vec<u8>)>,
}

/// Messages of one link that may be incomplete at a time; a peer has fewer threads that send.
const PARTIAL_MAX: usize = 16;

/// What a frame completes.
pub(super) enum Completed {
    /// More fragments must come.
    Nothing,
    Message(Arrival),
    /// The peer has said goodbye.
    Bye,
    /// The peer broke the protocol.
    Broken(&'static str),
}

/// The links that can be watched together. Whoever holds this reads them.
pub(super) struct Reading {
    streams: Vec<Stream>,
    ready: Vec<usize>,
    /// How long polling is worth it, as experience shows.
    polling: Duration,
}

struct Stream {
    from: Seat,
    link: Arc<dyn Link>,
    assembly: Assembly,
    /// A message whose lane was full. Nothing is read after it until it is gone.
    held: Option<Arrival>,
    /// Whether more may already be here.
    is_eager: bool,
    is_over: bool,
}

/// What a look at the links showed.
struct Seen {
    /// A link has something.
    is_ready: bool,
    /// Somebody has called.
    is_called: bool,
}

/// The berths for frames of one link.
struct Beside<'a> {
    from: Seat,
    assembly: &'a Assembly,
    berths: &'a mut dyn Berths,
}

impl Places for Beside<'_> {
    fn room(&mut self, header: &Header, length: usize) -> Option<&mut [u8]> {
        // Only what is a message by itself has a berth.
        let is_alone = header.kind & MORE == 0 && !self.assembly.has_begun(header);
        if is_alone { self.berths.berth(self.from, header, length) } else { None }
    }
}

impl Assembly {
    /// Whether fragments of such a message are here.
    fn has_begun(&self, header: &Header) -> bool {
        self.partial.iter().any(|(of, _)| of == header)
    }

    /// As [`Assembly::add`], for a frame of which some may lie at its berth.
    fn add_landed(&mut self, from: Seat, Landed { frame, placed }: Landed) -> Completed {
        if placed == 0 {
            return self.add(from, frame);
        }
        Completed::Message(Arrival { from, header: frame.header, payload: frame.payload, placed })
    }

    pub(super) fn add(&mut self, from: Seat, frame: Frame) -> Completed {
        if frame.header.lane == Lane::Control && frame.header.kind == BYE {
            return Completed::Bye;
        }
        if is_beat(&frame.header) {
            return Completed::Nothing;
        }
        let header = Header { kind: frame.header.kind & !MORE, ..frame.header };
        let begun = self.partial.iter().position(|(of, _)| *of == header);
        let mut payload = begun.map_or_else(Vec::new, |at| self.partial.swap_remove(at).1);
        let waiting: usize = self.partial.iter().map(|(_, bytes)| bytes.len()).sum();
        if waiting + payload.len() + frame.payload.len() > MESSAGE_BYTES_MAX {
            return Completed::Broken("a message is larger than allowed");
        }
        if payload.is_empty() {
            payload = frame.payload;
        } else {
            payload.extend_from_slice(&frame.payload);
        }
        if frame.header.kind & MORE != 0 {
            if self.partial.len() >= PARTIAL_MAX {
                return Completed::Broken("too many messages are begun and not ended");
            }
            self.partial.push((header, payload));
            return Completed::Nothing;
        }
        Completed::Message(Arrival { from, header: frame.header, payload, placed: 0 })
    }
}

impl Reading {
    pub(super) fn new(links: impl Iterator<Item = (Seat, Arc<dyn Link>)>) -> Reading {
        let stream = |(from, link)| Stream {
            from,
            link,
            assembly: Assembly::default(),
            held: None,
            is_eager: true,
            is_over: false,
        };
        let streams: Vec<Stream> = links.map(stream).collect();
        Reading { streams, ready: Vec::new(), polling: POLLING_MAX }
    }

    /// Delivers what is here, without waiting. True if there was something.
    pub(super) fn sweep(&mut self, shared: &Shared, berths: &mut dyn Berths) -> bool {
        self.look(shared, None, Duration::ZERO).is_ready && self.take(shared, berths)
    }

    /// Delivers what comes: polls as long as that is worth it, then sleeps until something happens.
    pub(super) fn attend(&mut self, shared: &Shared, berths: &mut dyn Berths, by: Deadline) {
        if self.take_eager(shared, berths) {
            return;
        }
        let end = Deadline::after(self.polling);
        while self.polling >= POLLING_MIN && !end.passed() {
            let Seen { is_ready, is_called } = self.look(shared, None, Duration::ZERO);
            if is_ready && self.take(shared, berths) {
                self.polling = (self.polling * 2).min(POLLING_MAX);
                return;
            }
            // A call is heard once: what it was about lies in a lane, and must be looked for there.
            if is_called {
                return;
            }
            std::thread::yield_now();
        }
        let soon = Deadline::after(POLLING_MAX);
        self.sleep(shared, (None, berths), by);
        // Had it been polled for a little longer, the sleep would have been saved.
        self.polling = if soon.passed() {
            self.polling / 2
        } else {
            (self.polling * 2).clamp(POLLING_MIN, POLLING_MAX)
        };
    }

    /// Delivers what comes, asleep until then or until `room` has room to send.
    pub(super) fn sleep(
        &mut self,
        shared: &Shared,
        (room, berths): (Option<&dyn Polled>, &mut dyn Berths),
        by: Deadline,
    ) {
        if self.take_eager(shared, berths) {
            return;
        }
        let Some(left) = by.left() else { return };
        if self.look(shared, room, left).is_ready {
            self.take(shared, berths);
        }
    }

    /// Finds out which links have something.
    fn look(&mut self, shared: &Shared, room: Option<&dyn Polled>, time: Duration) -> Seen {
        // One link alone is asked directly.
        if time.is_zero() && self.streams.len() == 1 {
            self.streams[0].is_eager = true;
            return Seen { is_ready: true, is_called: false };
        }
        let open = |stream: &&Stream| !stream.is_over && stream.held.is_none();
        let links = self.streams.iter().filter(open).map(Stream::polled);
        // Where the system cannot wait, links are asked one by one, and tell what is wrong with them.
        let Ok(is_called) = shared.watch.wait(links, room, &mut self.ready, time) else {
            self.streams.iter_mut().for_each(|stream| stream.is_eager = true);
            return Seen { is_ready: true, is_called: false };
        };
        let mut open = self.streams.iter_mut().filter(|s| !s.is_over && s.held.is_none());
        let mut passed = 0;
        for &at in &self.ready {
            if let Some(stream) = open.nth(at - passed) {
                stream.is_eager = true;
            }
            passed = at + 1;
        }
        Seen { is_ready: !self.ready.is_empty(), is_called }
    }

    fn take_eager(&mut self, shared: &Shared, berths: &mut dyn Berths) -> bool {
        self.streams.iter().any(|stream| stream.is_eager || stream.held.is_some())
            && self.take(shared, berths)
    }

    /// Takes at most one frame from each link that may have one.
    fn take(&mut self, shared: &Shared, berths: &mut dyn Berths) -> bool {
        let mut any = false;
        for stream in &mut self.streams {
            any |= stream.take(shared, berths);
        }
        any
    }
}

impl Stream {
    fn polled(&self) -> &dyn Polled {
        self.link.polled().expect("only links that can be polled are read here")
    }

    fn take(&mut self, shared: &Shared, berths: &mut dyn Berths) -> bool {
        if let Some(held) = self.held.take() {
            self.held = shared.offer(held);
            return self.held.is_none();
        }
        if self.is_over || !self.is_eager {
            return false;
        }
        let mut places = Beside { from: self.from, assembly: &self.assembly, berths };
        let landed = match self.polled().receive_now_into(&mut places) {
            Ok(Some(landed)) => landed,
            Ok(None) => {
                self.is_eager = false;
                return false;
            }
            Err(error) => {
                self.end(shared, Some(error.to_string()));
                return true;
            }
        };
        match self.assembly.add_landed(self.from, landed) {
            Completed::Nothing => {}
            Completed::Message(arrival) => self.held = shared.offer(arrival),
            Completed::Bye => self.end(shared, None),
            Completed::Broken(why) => self.end(shared, Some(why.to_string())),
        }
        true
    }

    fn end(&mut self, shared: &Shared, why: Option<String>) {
        self.is_over = true;
        self.is_eager = false;
        if let Some(why) = why {
            shared.lose(self.from, why);
        }
    }
}

/// Reads a link that only its own thread can wait for, until it ends.
pub(super) fn read_all(from: Seat, link: &dyn Link, shared: &Shared) {
    let mut assembly = Assembly::default();
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
        match assembly.add(from, frame) {
            Completed::Nothing => {}
            Completed::Message(arrival) => shared.deliver(arrival),
            Completed::Bye => return,
            Completed::Broken(why) => return shared.lose(from, why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Step;

    fn frame(kind: u8, step: u64, bytes: &[u8]) -> Frame {
        let header = Header { lane: Lane::Request, kind, step: Step(step), tag: 0 };
        Frame { header, payload: bytes.to_vec() }
    }

    #[test]
    fn messages_of_two_threads_on_one_lane_stay_apart() {
        let mut assembly = Assembly::default();
        let mut add = |frame: Frame| match assembly.add(Seat(1), frame) {
            Completed::Nothing => None,
            Completed::Message(arrival) => Some((arrival.header.kind, arrival.payload)),
            Completed::Bye => panic!("nobody said goodbye"),
            Completed::Broken(why) => panic!("{why}"),
        };
        assert_eq!(add(frame(1 | MORE, 7, b"pu")), None);
        assert_eq!(add(frame(6 | MORE, 3, b"mir")), None);
        assert_eq!(add(frame(2, 7, b"small")), Some((2, b"small".to_vec())));
        assert_eq!(add(frame(1, 7, b"sh")), Some((1, b"push".to_vec())));
        assert_eq!(add(frame(6, 3, b"ror")), Some((6, b"mirror".to_vec())));
    }

    /// A berth for whatever comes.
    struct Always(Vec<u8>);

    impl Berths for Always {
        fn berth(&mut self, _from: Seat, _header: &Header, length: usize) -> Option<&mut [u8]> {
            self.0.resize(length, 0);
            Some(&mut self.0)
        }
    }

    #[test]
    fn only_what_is_a_message_by_itself_has_a_berth() {
        let mut assembly = Assembly::default();
        let mut berths = Always(Vec::new());
        let mut has_berth = |assembly: &Assembly, header: Header| {
            let mut beside = Beside { from: Seat(1), assembly, berths: &mut berths };
            beside.room(&header, 9).is_some()
        };
        assert!(has_berth(&assembly, frame(1, 7, b"").header));
        assert!(!has_berth(&assembly, frame(1 | MORE, 7, b"").header), "a fragment");
        assert!(matches!(assembly.add(Seat(1), frame(1 | MORE, 7, b"pu")), Completed::Nothing));
        assert!(!has_berth(&assembly, frame(1, 7, b"").header), "the last fragment");
        assert!(has_berth(&assembly, frame(1, 8, b"").header), "another message");
        let landed = Landed { frame: frame(1, 8, b"rest"), placed: 5 };
        let Completed::Message(arrival) = assembly.add_landed(Seat(1), landed) else {
            panic!("it is whole");
        };
        assert_eq!((arrival.placed, &arrival.payload[..]), (5, &b"rest"[..]));
    }

    #[test]
    fn a_peer_cannot_begin_messages_without_end() {
        let mut assembly = Assembly::default();
        let broken = (0..100).any(|step| {
            let found = assembly.add(Seat(1), frame(1 | MORE, step, b"x"));
            matches!(found, Completed::Broken(_))
        });
        assert!(broken);
    }
}
