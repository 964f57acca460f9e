//! Frames out of a stream of bytes. What has arrived of a frame is kept when a deadline passes, so that a
//! slow peer loses nothing. Small frames are read many at a time; a large payload goes straight into the
//! vector that the receiver gets.

use crate::frame::{Envelope, Expected, decode_header};
use crate::{Frame, HEADER_BYTES, LinkError};
use starlings_core::{Deadline, Epoch, JobId};

/// Bytes read ahead of the frame at hand.
const AHEAD_BYTES: usize = 32 << 10;

/// A payload first gets this much memory, and the rest when so much has really arrived.
const FIRST_STEP_BYTES: usize = 1 << 20;

/// The receiving end of a stream.
pub(crate) struct Inbox {
    expected: Expected,
    /// Bytes that arrived and belong to no frame yet, from `taken` on.
    ahead: Vec<u8>,
    taken: usize,
    /// The frame at hand, once its header is here.
    envelope: Option<Envelope>,
    payload: Vec<u8>,
    checksum: u32,
}

impl Inbox {
    pub(crate) fn new(job: JobId, epoch: Epoch) -> Inbox {
        Inbox {
            expected: Expected { job, epoch, sequence: 0 },
            ahead: Vec::with_capacity(AHEAD_BYTES),
            taken: 0,
            envelope: None,
            payload: Vec::new(),
            checksum: 0,
        }
    }

    /// The next frame. `read` appends at least one byte to the vector, within its capacity.
    pub(crate) fn next(
        &mut self,
        by: Deadline,
        mut read: impl FnMut(&mut Vec<u8>) -> Result<(), LinkError>,
    ) -> Result<Frame, LinkError> {
        let mut reads = 0;
        loop {
            if let Some(frame) = self.assemble()? {
                return Ok(frame);
            }
            // A peer that trickles always has a byte ready: the deadline holds all the same.
            if reads > 0 && by.passed() {
                return Err(LinkError::Deadline);
            }
            reads += 1;
            self.fill(&mut read)?;
        }
    }

    /// Moves what was read ahead into the frame at hand, which is returned when it is whole.
    fn assemble(&mut self) -> Result<Option<Frame>, LinkError> {
        let envelope = match self.envelope {
            Some(envelope) => envelope,
            None => match self.ahead[self.taken..].first_chunk::<HEADER_BYTES>() {
                None => return Ok(None),
                Some(bytes) => {
                    let envelope = decode_header(bytes, &self.expected)?;
                    self.taken += HEADER_BYTES;
                    self.checksum = envelope.checksum_header;
                    self.envelope = Some(envelope);
                    envelope
                }
            },
        };
        let missing = envelope.length - self.payload.len();
        if missing > 0 && self.taken < self.ahead.len() {
            let count = missing.min(self.ahead.len() - self.taken);
            self.reserve(missing);
            let piece = &self.ahead[self.taken..self.taken + count];
            self.payload.extend_from_slice(piece);
            self.checksum = crc32c::crc32c_append(self.checksum, piece);
            self.taken += count;
        }
        if self.payload.len() < envelope.length {
            return Ok(None);
        }
        envelope.compare(self.checksum)?;
        self.envelope = None;
        self.expected.sequence += 1;
        Ok(Some(Frame { header: envelope.header, payload: std::mem::take(&mut self.payload) }))
    }

    fn fill(
        &mut self,
        read: &mut impl FnMut(&mut Vec<u8>) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let missing = self.envelope.map_or(0, |envelope| envelope.length - self.payload.len());
        if missing >= AHEAD_BYTES {
            return self.fill_payload(missing, read);
        }
        // What is left is less than a header or a small payload's rest: moving it to the front is cheap.
        self.ahead.drain(..self.taken);
        self.taken = 0;
        if self.ahead.len() == self.ahead.capacity() {
            self.ahead.reserve(AHEAD_BYTES);
        }
        read(&mut self.ahead)
    }

    /// Reads straight into the payload. Everything read ahead has been used by now.
    fn fill_payload(
        &mut self,
        missing: usize,
        read: &mut impl FnMut(&mut Vec<u8>) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        self.reserve(missing);
        let before = self.payload.len();
        let result = read(&mut self.payload);
        let length = before + missing;
        if self.payload.len() > length {
            // The allocator may give more room than was asked for; what landed there is the next frame's.
            self.ahead.clear();
            self.taken = 0;
            self.ahead.extend_from_slice(&self.payload[length..]);
            self.payload.truncate(length);
        }
        self.checksum = crc32c::crc32c_append(self.checksum, &self.payload[before..]);
        result
    }

    /// Makes room in steps: a peer that only announces a large frame costs one step.
    fn reserve(&mut self, missing: usize) {
        if self.payload.len() == self.payload.capacity() {
            let step = if self.payload.is_empty() { FIRST_STEP_BYTES } else { missing };
            self.payload.reserve_exact(missing.min(step));
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
        let mut inbox = Inbox::new(JOB, EPOCH);
        let mut at = 0;
        let mut frames = Vec::new();
        while frames.len() < count {
            let received = inbox.next(Deadline::after_ms(10_000), |into| {
                if rng.below(4) == 0 {
                    return Err(LinkError::Deadline);
                }
                let room = into.capacity() - into.len();
                assert!(room > 0);
                let piece = (1 + rng.below(piece_max) as usize).min(room).min(bytes.len() - at);
                into.extend_from_slice(&bytes[at..at + piece]);
                at += piece;
                Ok(())
            });
            match received {
                Ok(frame) => frames.push(frame),
                Err(error) => assert_eq!(error, LinkError::Deadline),
            }
        }
        frames
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
    fn an_announced_length_costs_one_step_of_memory() {
        let (bytes, _) = stream(&[crate::PAYLOAD_BYTES_MAX]);
        let mut inbox = Inbox::new(JOB, EPOCH);
        let mut pieces = bytes[..HEADER_BYTES + 10].chunks(10);
        let mut largest = 0;
        let ended = inbox.next(Deadline::after_ms(10_000), |into| match pieces.next() {
            None => {
                largest = largest.max(into.capacity());
                Err(LinkError::Deadline)
            }
            Some(piece) => {
                into.extend_from_slice(piece);
                Ok(())
            }
        });
        assert_eq!(ended, Err(LinkError::Deadline));
        assert!((1..2 * FIRST_STEP_BYTES).contains(&largest), "{largest}");
    }

    #[test]
    fn a_trickling_peer_does_not_stretch_the_deadline() {
        let (bytes, _) = stream(&[100]);
        let mut inbox = Inbox::new(JOB, EPOCH);
        let mut reads = 0;
        let ended = inbox.next(Deadline::after_ms(0), |into| {
            into.push(bytes[reads]);
            reads += 1;
            Ok(())
        });
        assert_eq!((ended, reads), (Err(LinkError::Deadline), 1));
    }
}
