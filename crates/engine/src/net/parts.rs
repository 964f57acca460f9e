//! Bytes of any number between two seats, as several messages: a model with its optimiser's state may be larger than a message
//! can be, and whoever takes it over must not wait for a link that was broken as if by an attack. The tag of each
//! message says how many follow, so that memory grows with what has arrived and nothing is announced; whoever receives
//! says how much it has room for.

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

    /// What [`send_parts`](Net::send_parts) sent from a seat under this header, whatever its tag: `most` bytes at most.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline; parts that do not follow each other, or are too many.
    pub(crate) fn next_parts(
        &self,
        from: Seat,
        (header, most): (Header, u64),
        by: Deadline,
    ) -> Result<Vec<u8>> {
        let mine = |arrival: &Arrival| {
            let Header { kind, step, .. } = arrival.header;
            arrival.from == from && (kind, step) == (header.kind, header.step)
        };
        let first = self.next(header.lane, mine, by)?;
        let (mut bytes, mut rest) = (first.payload, first.header.tag);
        loop {
            if bytes.len() as u64 > most {
                let what = format!("{from} sent more than the {most} bytes that there is room for");
                return Err(Fault::peer(Some(from), what));
            }
            if rest == 0 {
                return Ok(bytes);
            }
            let next = self.next(header.lane, mine, by)?;
            if next.header.tag != rest - 1 {
                let what = format!("{from} sent parts that do not follow each other");
                return Err(Fault::peer(Some(from), what));
            }
            rest -= 1;
            bytes.extend_from_slice(&next.payload);
        }
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
                let whole = perch.net.next_parts(Seat(0), (HEADER, 20), by).unwrap();
                assert!(perch.net.next_parts(Seat(0), (HEADER, 0), by).unwrap().is_empty());
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
            perch.net.next_parts(Seat(0), (HEADER, 9), by).is_err()
        });
        assert_eq!(refused, [true, true]);
    }

    #[test]
    fn a_member_cannot_send_more_than_there_is_room_for() {
        let told = flock(2, |perch| {
            let by = Deadline::after(PATIENCE);
            if perch.seat() == 0 {
                // It says that many more follow; the fourth is one too many, and nobody waits for a fifth.
                for rest in (u32::MAX - 3..=u32::MAX).rev() {
                    let header = Header { tag: rest, ..HEADER };
                    perch.net.send(Seat(1), header, &[7; 100], by).unwrap();
                }
                return String::new();
            }
            perch.net.next_parts(Seat(0), (HEADER, 399), by).unwrap_err().message()
        });
        assert!(told[1].contains("rank 0") && told[1].contains("399 bytes"), "{told:?}");
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
