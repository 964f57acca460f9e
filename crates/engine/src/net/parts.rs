//! Bytes of any number between two seats, as several messages: a model with its optimiser's state may be larger than a message
//! can be, and whoever takes it over must not wait for a link that was broken as if by an attack. The tag of each
//! message says how many follow, so that memory grows with what has arrived and nothing is announced.

use super::{Arrival, Net};
use starlings_core::{Deadline, Fault, Result, Seat};
use starlings_transport::Header;

/// Bytes in one message.
pub(crate) const PART_BYTES: usize = 64 << 20;

impl Net {
    /// Sends bytes in messages of at most `most`.
    ///
    /// # Errors
    /// A fault that names the seat.
    pub(crate) fn send_parts(
        &self,
        to: Seat,
        header: Header,
        (bytes, most): (&[u8], usize),
        by: Deadline,
    ) -> Result<()> {
        let count = bytes.len().div_ceil(most).max(1);
        for part in 0..count {
            let rest = (count - 1 - part) as u32;
            let piece = &bytes[part * most..bytes.len().min((part + 1) * most)];
            self.send(to, Header { tag: rest, ..header }, piece, by)?;
        }
        Ok(())
    }

    /// What [`send_parts`](Net::send_parts) sent from a seat under this header, whatever its tag.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline; or parts that do not follow each other.
    pub(crate) fn next_parts(&self, from: Seat, header: Header, by: Deadline) -> Result<Vec<u8>> {
        let mine = |arrival: &Arrival| {
            let Header { kind, step, .. } = arrival.header;
            arrival.from == from && (kind, step) == (header.kind, header.step)
        };
        let first = self.next(header.lane, mine, by)?;
        let (mut bytes, mut rest) = (first.payload, first.header.tag);
        while rest > 0 {
            let next = self.next(header.lane, mine, by)?;
            if next.header.tag != rest - 1 {
                let what = format!("{from} sent parts that do not follow each other");
                return Err(Fault::peer(Some(from), what));
            }
            rest -= 1;
            bytes.extend_from_slice(&next.payload);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, flock};
    use starlings_core::Step;
    use starlings_transport::Lane;

    const HEADER: Header = Header { lane: Lane::Control, kind: 14, step: Step(3), tag: 0 };

    #[test]
    fn bytes_come_back_whole_however_they_were_cut() {
        for most in [1, 7, 20, 64] {
            let sent: Vec<u8> = (0..20).collect();
            let came = flock(3, |perch| {
                let by = Deadline::after(PATIENCE);
                if perch.seat() == 0 {
                    for to in [Seat(1), Seat(2)] {
                        perch.net.send_parts(to, HEADER, (&sent, most), by).unwrap();
                        perch.net.send_parts(to, HEADER, (&[], most), by).unwrap();
                    }
                    return sent.clone();
                }
                let whole = perch.net.next_parts(Seat(0), HEADER, by).unwrap();
                assert!(perch.net.next_parts(Seat(0), HEADER, by).unwrap().is_empty());
                whole
            });
            assert!(came.iter().all(|came| *came == sent), "in messages of {most} bytes");
        }
    }

    #[test]
    fn a_part_that_is_missing_is_noticed() {
        let refused = flock(2, |perch| {
            let by = Deadline::after(PATIENCE);
            if perch.seat() == 0 {
                for tag in [2, 0] {
                    perch.net.send(Seat(1), Header { tag, ..HEADER }, b"x", by).unwrap();
                }
                return true;
            }
            perch.net.next_parts(Seat(0), HEADER, by).is_err()
        });
        assert_eq!(refused, [true, true]);
    }

    #[test]
    fn a_message_above_the_limit_is_refused_before_anything_is_sent() {
        // Memory that is never touched takes none.
        let large = vec![0u8; super::super::MESSAGE_BYTES_MAX + 1];
        let seats = crate::bridge::adder::perches(2);
        let by = Deadline::after(PATIENCE);
        let fault = seats[0].net.send(Seat(1), HEADER, &large, by).unwrap_err();
        assert!(fault.message().contains("above the limit"), "{fault}");
        assert_eq!(seats[0].net.bytes_sent(), 0);
        seats[0].net.send(Seat(1), HEADER, b"small", by).unwrap();
        let came = seats[1].net.next(Lane::Control, |_| true, by).unwrap();
        assert_eq!(came.payload, b"small", "the link is as good as ever");
    }
}
