//! Frames out of a stream of bytes. What has arrived of a frame is kept when a deadline passes, so that a
//! slow peer loses nothing. Small frames are read many at a time; a large payload goes straight to where the
//! receiver wants it, or else into the vector that it gets, which may be one that it gave back: memory that is
//! warm and already ours.

use crate::frame::{Envelope, Expected, decode_header};
use crate::lock::enter;
use crate::{Frame, HEADER_BYTES, Landed, LinkError, Nowhere, Places, checksum};
use starlings_core::{Deadline, Epoch, JobId};
use std::sync::{Arc, Mutex};

/// Bytes read ahead of the frame at hand.
const AHEAD_BYTES: usize = 32 << 10;

/// A payload first gets this much memory, and the rest when so much has really arrived.
const FIRST_STEP_BYTES: usize = 1 << 20;

const PAGE_BYTES: usize = 4 << 10;

/// Reads of one attempt that does not wait: a peer that trickles cannot hold its caller for longer.
const READS_MAX: usize = 64;

/// Bytes of vectors kept for payloads to come: a peer that is ahead sends many before the first can be given back, and fresh
/// pages cost more than what is done with them.
const SPARE_BYTES_MAX: usize = 16 << 20;

/// Payloads that receivers have given back, the warmest last.
#[derive(Clone, Default)]
pub(crate) struct Spare(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    vectors: Vec<Vec<u8>>,
    bytes: usize,
}

/// The receiving end of a stream.
pub(crate) struct Inbox {
    expected: Expected,
    /// Of these bytes, `taken..arrived` have arrived and belong to no frame yet.
    ahead: Box<[u8]>,
    taken: usize,
    arrived: usize,
    /// Bytes to read ahead: after a large frame just a header, since another large payload may follow.
    reach: usize,
    /// The frame at hand, once its header is here.
    envelope: Option<Envelope>,
    /// Of its payload `filled` bytes have arrived. The first `placed` of them lie where the receiver wanted them, the
    /// others here.
    payload: Vec<u8>,
    placed: usize,
    filled: usize,
    checksum: u32,
    spare: Spare,
}

impl Spare {
    /// Keeps a vector if it is worth keeping and there is room.
    pub(crate) fn put(&self, payload: Vec<u8>) {
        let mut kept = enter(&self.0);
        let bytes = payload.capacity();
        if payload.len() >= AHEAD_BYTES && kept.bytes + bytes <= SPARE_BYTES_MAX {
            kept.bytes += bytes;
            kept.vectors.push(payload);
        }
    }

    fn take(&self) -> Vec<u8> {
        let mut kept = enter(&self.0);
        let taken = kept.vectors.pop().unwrap_or_default();
        kept.bytes -= taken.capacity();
        taken
    }
}

impl Inbox {
    pub(crate) fn new(job: JobId, epoch: Epoch, spare: Spare) -> Inbox {
        Inbox {
            expected: Expected { job, epoch, sequence: 0 },
            ahead: vec![0; AHEAD_BYTES].into_boxed_slice(),
            taken: 0,
            arrived: 0,
            reach: AHEAD_BYTES,
            envelope: None,
            payload: Vec::new(),
            placed: 0,
            filled: 0,
            checksum: 0,
            spare,
        }
    }

    /// The next frame. `read` fills some of the bytes, at least one, and says how many.
    pub(crate) fn next(
        &mut self,
        by: Deadline,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, LinkError>,
    ) -> Result<Landed, LinkError> {
        let mut reads = 0;
        loop {
            if let Some(landed) = self.assemble(&mut Nowhere)? {
                return Ok(landed);
            }
            // A peer that trickles always has a byte ready: the deadline holds all the same.
            if reads > 0 && by.passed() {
                return Err(LinkError::Deadline);
            }
            reads += 1;
            self.fill(&mut read, &mut Nowhere)?;
        }
    }

    /// The next frame if it is here. `read` fails with [`LinkError::Deadline`] where it would wait.
    pub(crate) fn next_now(
        &mut self,
        mut read: impl FnMut(&mut [u8]) -> Result<usize, LinkError>,
        places: &mut dyn Places,
    ) -> Result<Option<Landed>, LinkError> {
        for _ in 0..READS_MAX {
            if let Some(landed) = self.assemble(places)? {
                return Ok(Some(landed));
            }
            match self.fill(&mut read, places) {
                Ok(()) => {}
                Err(LinkError::Deadline) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        self.assemble(places)
    }

    /// Moves what was read ahead into the frame at hand, which is returned when it is whole.
    fn assemble(&mut self, places: &mut dyn Places) -> Result<Option<Landed>, LinkError> {
        let envelope = match self.envelope {
            Some(envelope) => envelope,
            None => match self.ahead[self.taken..self.arrived].first_chunk::<HEADER_BYTES>() {
                None => return Ok(None),
                Some(bytes) => {
                    let envelope = decode_header(bytes, &self.expected)?;
                    self.taken += HEADER_BYTES;
                    self.begin(envelope);
                    envelope
                }
            },
        };
        let count = (envelope.length - self.filled).min(self.arrived - self.taken);
        if count > 0 {
            let ahead = self.taken..self.taken + count;
            if let Some(place) = self.place(places, &envelope) {
                place[..count].copy_from_slice(&self.ahead[ahead.clone()]);
                self.placed += count;
            } else {
                let at = self.filled - self.placed;
                self.make_room(envelope.length - self.placed, at + count);
                self.payload[at..at + count].copy_from_slice(&self.ahead[ahead.clone()]);
            }
            self.checksum = checksum::append(self.checksum, &self.ahead[ahead]);
            self.filled += count;
            self.taken += count;
        }
        if self.filled < envelope.length {
            return Ok(None);
        }
        envelope.compare(self.checksum)?;
        self.envelope = None;
        self.filled = 0;
        self.expected.sequence += 1;
        let (placed, mut payload) =
            (std::mem::take(&mut self.placed), std::mem::take(&mut self.payload));
        if placed > 0 && placed == envelope.length {
            self.spare.put(std::mem::take(&mut payload));
        }
        payload.truncate(envelope.length - placed);
        Ok(Some(Landed { frame: Frame { header: envelope.header, payload }, placed }))
    }

    fn begin(&mut self, envelope: Envelope) {
        self.checksum = envelope.checksum_header;
        self.envelope = Some(envelope);
        let is_large = envelope.length >= AHEAD_BYTES;
        self.reach = if is_large { HEADER_BYTES } else { AHEAD_BYTES };
        self.payload = if is_large { Vec::new() } else { vec![0; envelope.length] };
    }

    /// Where what is missing of the frame at hand shall lie, unless a part of it is in memory of the inbox already.
    fn place<'a>(&self, places: &'a mut dyn Places, envelope: &Envelope) -> Option<&'a mut [u8]> {
        if envelope.length < AHEAD_BYTES || self.placed < self.filled {
            return None;
        }
        let room = places.room(&envelope.header, envelope.length)?;
        assert_eq!(room.len(), envelope.length, "a place is as long as its payload");
        Some(&mut room[self.placed..])
    }

    fn fill(
        &mut self,
        read: &mut impl FnMut(&mut [u8]) -> Result<usize, LinkError>,
        places: &mut dyn Places,
    ) -> Result<(), LinkError> {
        if let Some(envelope) = self.envelope
            && envelope.length - self.filled >= AHEAD_BYTES
        {
            // Everything read ahead has been used by now: the payload is read to where it stays.
            if let Some(place) = self.place(places, &envelope) {
                let count = read(place)?;
                self.checksum = checksum::append(self.checksum, &place[..count]);
                self.placed += count;
                self.filled += count;
                return Ok(());
            }
            let (at, length) = (self.filled - self.placed, envelope.length - self.placed);
            self.make_room(length, at + 1);
            let room = self.payload.len().min(length);
            let count = read(&mut self.payload[at..room])?;
            self.checksum = checksum::append(self.checksum, &self.payload[at..at + count]);
            self.filled += count;
            return Ok(());
        }
        // What is left is less than a header: moving it to the front is cheap.
        self.ahead.copy_within(self.taken..self.arrived, 0);
        self.arrived -= self.taken;
        self.taken = 0;
        let missing = self.envelope.map_or(0, |envelope| envelope.length - self.filled);
        let reach = (missing + self.reach).min(AHEAD_BYTES);
        self.arrived += read(&mut self.ahead[self.arrived..reach])?;
        Ok(())
    }

    /// Makes room for `wanted` bytes of `length`, in steps: a peer that only announces a large frame costs one step.
    fn make_room(&mut self, length: usize, wanted: usize) {
        if self.payload.is_empty() {
            self.payload = self.spare.take();
        }
        if self.payload.is_empty() {
            // Whole pages, so that the next payload may be a little longer without moving.
            self.payload = vec![0; length.min(FIRST_STEP_BYTES).next_multiple_of(PAGE_BYTES)];
        } else if self.payload.len() < wanted {
            self.payload.resize(length, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Header, Lane, encode_header};
    use starlings_core::{Rng, Step};

    const JOB: JobId = JobId(1);
    const EPOCH: Epoch = Epoch(2);

    fn stream(lengths: &[usize]) -> (Vec<u8>, Vec<Frame>) {
        let mut bytes = Vec::new();
        let mut frames = Vec::new();
        for (sequence, &length) in lengths.iter().enumerate() {
            let header =
                Header { lane: Lane::Answer, kind: 1, step: Step(5), tag: sequence as u32 };
            let payload: Vec<u8> = (0..length).map(|i| (i * 31 + sequence) as u8).collect();
            bytes.extend(encode_header(header, JOB, EPOCH, sequence as u64, &payload));
            bytes.extend(&payload);
            frames.push(Frame { header, payload });
        }
        (bytes, frames)
    }

    /// Reads pieces of random size and, at random, passes a deadline instead.
    fn receive_all(bytes: &[u8], count: usize, piece_max: u64, rng: &mut Rng) -> Vec<Frame> {
        let spare = Spare::default();
        let mut inbox = Inbox::new(JOB, EPOCH, spare.clone());
        let mut at = 0;
        let mut frames = Vec::new();
        while frames.len() < count {
            let received = inbox.next(Deadline::after_ms(10_000), |into| {
                if rng.below(4) == 0 {
                    return Err(LinkError::Deadline);
                }
                assert!(!into.is_empty());
                let piece =
                    (1 + rng.below(piece_max) as usize).min(into.len()).min(bytes.len() - at);
                into[..piece].copy_from_slice(&bytes[at..at + piece]);
                at += piece;
                Ok(piece)
            });
            match received {
                Ok(Landed { frame, placed }) => {
                    assert_eq!(placed, 0, "nobody had a place for it");
                    spare.put(frame.payload.clone());
                    frames.push(frame);
                }
                Err(error) => assert_eq!(error, LinkError::Deadline),
            }
        }
        frames
    }

    /// A place for every frame with an even tag, while its receiver is there.
    struct Even {
        place: Vec<u8>,
        is_there: bool,
    }

    impl Places for Even {
        fn room(&mut self, header: &Header, length: usize) -> Option<&mut [u8]> {
            if !self.is_there || header.tag % 2 == 1 {
                return None;
            }
            self.place.resize(length, 0);
            Some(&mut self.place)
        }
    }

    /// Reads pieces of random size, of which the receiver's place is there for some.
    fn land_all(bytes: &[u8], count: usize, piece_max: u64, rng: &mut Rng) -> (Vec<Frame>, usize) {
        let spare = Spare::default();
        let mut inbox = Inbox::new(JOB, EPOCH, spare.clone());
        let mut even = Even { place: Vec::new(), is_there: true };
        let (mut at, mut frames, mut placed_whole) = (0, Vec::new(), 0);
        while frames.len() < count {
            even.is_there = rng.below(8) > 0;
            let mut reads = 0;
            let landed = inbox.next_now(
                |into| {
                    reads += 1;
                    if reads > 2 || at == bytes.len() {
                        return Err(LinkError::Deadline);
                    }
                    let most = into.len().min(bytes.len() - at);
                    let piece = (1 + rng.below(piece_max) as usize).min(most);
                    into[..piece].copy_from_slice(&bytes[at..at + piece]);
                    at += piece;
                    Ok(piece)
                },
                &mut even,
            );
            let Some(Landed { mut frame, placed }) = landed.unwrap() else { continue };
            placed_whole += usize::from(placed > 0 && frame.payload.is_empty());
            frame.payload = [&even.place[..placed], &frame.payload[..]].concat();
            spare.put(frame.payload.clone());
            frames.push(frame);
        }
        (frames, placed_whole)
    }

    #[test]
    fn payloads_lie_where_they_are_wanted_whoever_reads_on_in_the_middle() {
        let large = 5 * AHEAD_BYTES + 3;
        let (bytes, frames) =
            stream(&[large, large, 17, AHEAD_BYTES, 2 * FIRST_STEP_BYTES, 0, large, 9, large]);
        for (seed, piece_max) in [(7, 9000), (8, 100_000), (9, 1 << 22)] {
            let mut rng = Rng::named(seed, "places", &[]);
            let (landed, _) = land_all(&bytes, frames.len(), piece_max, &mut rng);
            assert!(landed == frames, "seed {seed}");
        }
        let mut rng = Rng::named(10, "places", &[]);
        let wholes = (0..20).map(|_| land_all(&bytes, frames.len(), 1 << 22, &mut rng).1);
        assert!(wholes.sum::<usize>() > 0, "most of them need no memory of their own");
    }

    #[test]
    fn a_frame_that_lies_with_another_receiver_is_not_given_to_a_second() {
        let (bytes, _) = stream(&[3 * AHEAD_BYTES]);
        let mut inbox = Inbox::new(JOB, EPOCH, Spare::default());
        let mut even = Even { place: Vec::new(), is_there: true };
        let mut pieces = [&bytes[..AHEAD_BYTES], &bytes[AHEAD_BYTES..]].into_iter();
        let mut read = |into: &mut [u8]| -> Result<usize, LinkError> {
            let piece = pieces.next().ok_or(LinkError::Deadline)?;
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        };
        let mut once = false;
        let begun = inbox.next_now(
            |into| match std::mem::replace(&mut once, true) {
                false => read(into),
                true => Err(LinkError::Deadline),
            },
            &mut even,
        );
        assert_eq!(begun, Ok(None));
        let landed = inbox.next(Deadline::after_ms(10_000), &mut read).unwrap();
        assert_eq!(landed.placed, AHEAD_BYTES - HEADER_BYTES);
        assert!(matches!(landed.whole(), Err(LinkError::Broken(_))));
    }

    #[test]
    fn frames_are_whole_however_the_bytes_are_cut_and_whenever_deadlines_pass() {
        let (bytes, frames) =
            stream(&[0, 1, 47, 48, AHEAD_BYTES - 1, AHEAD_BYTES, 3, 2 * FIRST_STEP_BYTES + 1, 9]);
        for (seed, piece_max) in [(0, 7000), (1, 100_000), (2, 1 << 22)] {
            let mut rng = Rng::named(seed, "cuts", &[]);
            assert!(receive_all(&bytes, frames.len(), piece_max, &mut rng) == frames);
        }
        let (bytes, frames) = stream(&[0, 5, 0, 200, 1]);
        let mut rng = Rng::named(3, "cuts", &[]);
        assert!(receive_all(&bytes, frames.len(), 1, &mut rng) == frames);
    }

    #[test]
    fn payloads_of_other_lengths_fit_into_memory_that_was_given_back() {
        let base = 3 * AHEAD_BYTES;
        let (bytes, frames) = stream(&[base, base + 4, base, base + 5000, AHEAD_BYTES, 9, base]);
        for (seed, piece_max) in [(4, 900), (5, 40_000), (6, 1 << 20)] {
            let mut rng = Rng::named(seed, "cuts", &[]);
            assert!(receive_all(&bytes, frames.len(), piece_max, &mut rng) == frames);
        }
    }

    #[test]
    fn memory_that_was_given_back_is_kept_up_to_a_bound_and_the_warmest_serves_first() {
        let spare = Spare::default();
        for number in 0..40 {
            spare.put(vec![number; 512 << 10]);
        }
        let taken: Vec<u8> = std::iter::from_fn(|| spare.take().first().copied()).collect();
        let kept = SPARE_BYTES_MAX / (512 << 10);
        assert_eq!(taken, (0..kept as u8).rev().collect::<Vec<u8>>());
        spare.put(vec![7; 512 << 10]);
        assert_eq!(spare.take().len(), 512 << 10);
    }

    #[test]
    fn an_announced_length_costs_one_step_of_memory() {
        let (bytes, _) = stream(&[crate::PAYLOAD_BYTES_MAX]);
        let mut inbox = Inbox::new(JOB, EPOCH, Spare::default());
        let mut pieces = bytes[..HEADER_BYTES + 10].chunks(10);
        let mut largest = 0;
        let ended = inbox.next(Deadline::after_ms(10_000), |into| match pieces.next() {
            None => {
                largest = largest.max(into.len());
                Err(LinkError::Deadline)
            }
            Some(piece) => {
                into[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            }
        });
        assert_eq!(ended, Err(LinkError::Deadline));
        assert!((1..2 * FIRST_STEP_BYTES).contains(&largest), "{largest}");
    }

    #[test]
    fn a_trickling_peer_does_not_stretch_the_deadline() {
        let (bytes, _) = stream(&[100]);
        let mut inbox = Inbox::new(JOB, EPOCH, Spare::default());
        let mut reads = 0;
        let ended = inbox.next(Deadline::after_ms(0), |into| {
            into[0] = bytes[reads];
            reads += 1;
            Ok(1)
        });
        assert_eq!((ended, reads), (Err(LinkError::Deadline), 1));
    }
}
