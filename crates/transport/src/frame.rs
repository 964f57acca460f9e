//! Frames: the only thing that crosses a link. A fixed header of 48 bytes, little-endian, then the payload.
//! Lengths are checked before memory is taken; a CRC32C covers header and payload.
//!
//! ```text
//!  0  magic      u32   "SLNG"            24  step      u64
//!  4  length     u32   payload bytes     32  tag       u32
//!  8  job        u64                     36  sequence  u64
//! 16  epoch      u32                     44  checksum  u32   CRC32C of bytes 0..44 and the payload
//! 20  lane       u8,  kind u8, 2 × zero
//! ```

use crate::{LinkError, checksum};
use starlings_core::{Epoch, JobId, Step};

/// Largest payload of any frame.
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;

/// Which conversation a frame belongs to. Each lane has its own queue at the receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Sums under way.
    Exchange,
    /// Requests to a server shard.
    Request,
    /// A server shard's answers.
    Answer,
    /// Wires between stages.
    Wire,
    /// Membership, jobs, events.
    Control,
}

impl Lane {
    /// All lanes in the order of their numbers.
    pub const ALL: [Lane; 5] =
        [Lane::Exchange, Lane::Request, Lane::Answer, Lane::Wire, Lane::Control];
}

/// What the sender says of a frame. Job, epoch and sequence are the link's own business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Which conversation.
    pub lane: Lane,
    /// What kind of message within it.
    pub kind: u8,
    /// The step it belongs to.
    pub step: Step,
    /// What it concerns: a chunk's number, a shard, a part.
    pub tag: u32,
}

/// A frame that arrived whole, in order and undamaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What the sender says of it.
    pub header: Header,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// What a receiver demands of the next frame: any other job, epoch or sequence is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expected {
    /// The link's job.
    pub job: JobId,
    /// The link's epoch.
    pub epoch: Epoch,
    /// How many frames came before.
    pub sequence: u64,
}

/// A header whose fields were checked; the checksum is compared once the payload is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// What the sender says of the frame.
    pub header: Header,
    /// Bytes of the payload, at most [`PAYLOAD_BYTES_MAX`].
    pub length: usize,
    /// The checksum that header and payload must have.
    pub checksum: u32,
    /// The checksum of the header alone, to be continued over the payload.
    pub checksum_header: u32,
}

const MAGIC: [u8; 4] = *b"SLNG";

/// Bytes of the header that the checksum covers.
const CHECKED_BYTES: usize = 44;

/// The 48 bytes that precede a payload.
#[must_use]
pub fn encode_header(
    header: Header,
    job: JobId,
    epoch: Epoch,
    sequence: u64,
    payload: &[u8],
) -> [u8; HEADER_BYTES] {
    assert!(payload.len() <= PAYLOAD_BYTES_MAX, "a payload of {} bytes", payload.len());
    let length = u32::try_from(payload.len()).expect("the largest payload fits 32 bits");
    let mut bytes = [0; HEADER_BYTES];
    bytes[0..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&length.to_le_bytes());
    bytes[8..16].copy_from_slice(&job.0.to_le_bytes());
    bytes[16..20].copy_from_slice(&epoch.0.to_le_bytes());
    bytes[20] = header.lane as u8;
    bytes[21] = header.kind;
    bytes[24..32].copy_from_slice(&header.step.0.to_le_bytes());
    bytes[32..36].copy_from_slice(&header.tag.to_le_bytes());
    bytes[36..44].copy_from_slice(&sequence.to_le_bytes());
    let checksum = checksum::append(checksum::append(0, &bytes[..CHECKED_BYTES]), payload);
    bytes[44..48].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Checks every field of a header. No memory is taken on its word.
///
/// # Errors
/// [`LinkError::Broken`] with the field that no peer of ours would send.
pub fn decode_header(
    bytes: &[u8; HEADER_BYTES],
    expected: &Expected,
) -> Result<Envelope, LinkError> {
    let broken = |what: String| Err(LinkError::Broken(what));
    if bytes[0..4] != MAGIC {
        return broken(format!("not a frame: it starts with {:02x?}", &bytes[0..4]));
    }
    let length = read_u32(bytes, 4) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return broken(format!(
            "a frame of {length} bytes, at most {PAYLOAD_BYTES_MAX} are allowed"
        ));
    }
    let (job, epoch) = (JobId(read_u64(bytes, 8)), Epoch(read_u32(bytes, 16)));
    if job != expected.job {
        return broken("a frame of another job".to_string());
    }
    if epoch != expected.epoch {
        return broken(format!("a frame of {epoch}, this link is of {}", expected.epoch));
    }
    let Some(&lane) = Lane::ALL.get(usize::from(bytes[20])) else {
        return broken(format!("lane {} does not exist", bytes[20]));
    };
    if bytes[22..24] != [0, 0] {
        return broken("reserved bytes are not zero".to_string());
    }
    let sequence = read_u64(bytes, 36);
    if sequence != expected.sequence {
        return broken(format!("frame {sequence} where {} is due", expected.sequence));
    }
    let header =
        Header { lane, kind: bytes[21], step: Step(read_u64(bytes, 24)), tag: read_u32(bytes, 32) };
    let checksum_header = checksum::append(0, &bytes[..CHECKED_BYTES]);
    Ok(Envelope { header, length, checksum: read_u32(bytes, 44), checksum_header })
}

/// Decodes one whole frame that lies in memory. Links decode piece by piece instead; this is the same check
/// in one call, for fuzzers and recorded frames.
///
/// # Errors
/// [`LinkError::Broken`], also when bytes are missing or left over.
pub fn decode(bytes: &[u8], expected: &Expected) -> Result<Frame, LinkError> {
    let Some((header, payload)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(LinkError::Broken(format!("a header of {} bytes", bytes.len())));
    };
    let envelope = decode_header(header, expected)?;
    if payload.len() != envelope.length {
        return Err(LinkError::Broken(format!(
            "{} bytes where {} were announced",
            payload.len(),
            envelope.length
        )));
    }
    envelope.compare(checksum::append(envelope.checksum_header, payload))?;
    Ok(Frame { header: envelope.header, payload: payload.to_vec() })
}

impl Envelope {
    /// Compares the checksum of what arrived with what the sender announced.
    pub(crate) fn compare(&self, arrived: u32) -> Result<(), LinkError> {
        if arrived == self.checksum {
            return Ok(());
        }
        Err(LinkError::Broken(format!("checksum {arrived:08x} where {:08x} is due", self.checksum)))
    }
}

fn read_u32(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn read_u64(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    const EXPECTED: Expected = Expected { job: JobId(7), epoch: Epoch(3), sequence: 11 };
    const HEADER: Header = Header { lane: Lane::Wire, kind: 200, step: Step(1 << 40), tag: 9 };

    fn frame(payload: &[u8]) -> Vec<u8> {
        let header =
            encode_header(HEADER, EXPECTED.job, EXPECTED.epoch, EXPECTED.sequence, payload);
        [&header[..], payload].concat()
    }

    #[test]
    fn a_frame_survives_the_round_trip() {
        let decoded = decode(&frame(b"starlings"), &EXPECTED).unwrap();
        assert_eq!(decoded, Frame { header: HEADER, payload: b"starlings".to_vec() });
        assert_eq!(decode(&frame(b""), &EXPECTED).unwrap().payload, b"");
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let bytes = frame(&[1, 2, 3]);
        assert_eq!(&bytes[0..8], b"SLNG\x03\0\0\0");
        assert_eq!(&bytes[8..24], &[7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 3, 200, 0, 0]);
        assert_eq!(&bytes[24..44], &[0, 0, 0, 0, 0, 1, 0, 0, 9, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0]);
        // CRC32C of the 44 bytes above and 01 02 03, by a bitwise implementation of the polynomial 0x82F63B78.
        assert_eq!(&bytes[44..48], &bitwise_crc32c(&[&bytes[..44], &[1, 2, 3]].concat()));
    }

    fn bitwise_crc32c(bytes: &[u8]) -> [u8; 4] {
        let mut crc = !0_u32;
        for &byte in bytes {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0x82F6_3B78 & (crc & 1).wrapping_neg());
            }
        }
        (!crc).to_le_bytes()
    }

    #[test]
    fn any_flipped_bit_is_refused() {
        let good = frame(b"a small frame");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&bad, &EXPECTED), Err(LinkError::Broken(_))), "bit {bit}");
        }
    }

    #[test]
    fn random_damage_is_refused() {
        let mut rng = Rng::named(1, "frame damage", &[]);
        let payload: Vec<u8> = (0..4096).map(|_| rng.below(256) as u8).collect();
        let good = frame(&payload);
        let mut bad = good.clone();
        for round in 0..1_000_000 {
            let flips: Vec<usize> =
                (0..=rng.below(8)).map(|_| rng.below(good.len() as u64 * 8) as usize).collect();
            flips.iter().for_each(|bit| bad[bit / 8] ^= 1 << (bit % 8));
            if bad != good {
                assert!(decode(&bad, &EXPECTED).is_err(), "round {round}");
            }
            flips.iter().for_each(|bit| bad[bit / 8] ^= 1 << (bit % 8));
        }
        assert!(decode(&good, &EXPECTED).is_ok());
    }

    #[test]
    fn frames_of_another_link_are_refused_though_undamaged() {
        let good = frame(b"x");
        for (expected, what) in [
            (Expected { job: JobId(8), ..EXPECTED }, "job"),
            (Expected { epoch: Epoch(4), ..EXPECTED }, "epoch"),
            (Expected { sequence: 12, ..EXPECTED }, "where 12 is due"),
        ] {
            let error = decode(&good, &expected).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_anything_else_is_read() {
        let mut header = encode_header(HEADER, EXPECTED.job, EXPECTED.epoch, 11, b"");
        header[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let error = decode_header(&header, &EXPECTED).unwrap_err().to_string();
        assert!(error.contains("4294967295 bytes"), "{error}");
    }
}
