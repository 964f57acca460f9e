//! Ring all-reduce (Patarasuk and Yuan, 2009; made popular in deep learning by Baidu, 2017): a reduce-scatter
//! followed by an all-gather, each seat talking to its two neighbours alone. Best for large sums.
//!
//! Chunk `c` belongs to segment `s = c mod P`. Its partial sum starts at seat `s + 1`, walks once around the
//! ring and is complete at seat `s`, which sends the total around once more.
//!
//! Fold order of segment `s`, all indexes mod P: `((x[s+1] + x[s+2]) + x[s+3]) + … + x[s]`. It differs from
//! segment to segment, and is the same on all seats because each segment is summed once.
//!
//! Cost for `n` bytes in `P` equal segments: `2(P−1)` rounds, `2(P−1)/P · n` bytes sent by each seat (no
//! all-reduce sends less), `2(P−1) · n` bytes by all.

use super::BuildTopology;
use crate::{Act, Cost, Form, Move, Pattern, Topology};
use starlings_core::{Ability, Entry, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "ring",
    summary: "Partial sums walk around a ring of neighbours, then the total does: least bytes per worker",
    reference: "Patarasuk and Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
    params: &[],
    gives: &[Ability::Sum],
    needs: &[Ability::Barrier, Ability::Summable],
    build: |_| Ok(Form::Sum(Box::new(Ring))),
};

struct Ring;

impl Topology for Ring {
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern {
        let mut moves = Vec::new();
        if world > 1 {
            walk(&mut moves, Place { seat, world, chunks }, 1, [Act::SendPartial, Act::Fold]);
            walk(&mut moves, Place { seat, world, chunks }, 0, [Act::SendTotal, Act::Replace]);
        }
        Pattern::Moves(moves)
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        if world < 2 || chunks == 0 {
            return Cost::NOTHING;
        }
        // Seat i keeps quiet twice: for segment i when its sum is complete (once), and for segment i + 1,
        // whose total ends its walk at i. Segments are of equal size, or one chunk apart at the start of
        // the ring, so only where a single segment is short is there no pair of short neighbours.
        let size = world as usize;
        let (share, longer) = (chunks / size, chunks % size);
        let quiet = 2 * share + usize::from(longer + 1 == size);
        let bytes = bytes as f64;
        Cost {
            rounds: 2 * u64::from(world - 1),
            bytes_sent_max: (2 * chunks - quiet) as f64 * bytes / chunks as f64,
            bytes_sent_total: 2.0 * f64::from(world - 1) * bytes,
        }
    }

    fn order(&self, world: u32, chunk: usize) -> Option<Vec<Seat>> {
        let segment = (chunk % world as usize) as u32;
        Some((1..=world).map(|step| Seat((segment + step) % world)).collect())
    }

    fn grain(&self, world: u32) -> usize {
        world as usize
    }
}

#[derive(Clone, Copy)]
struct Place {
    seat: Seat,
    world: u32,
    chunks: usize,
}

/// One walk around the ring, where segment `s` starts at seat `s + start`. In round `k` it travels from seat
/// `s + start + k` to the next. Sends stand before the receives of their round, so that all links are busy.
fn walk(moves: &mut Vec<Move>, at: Place, start: usize, [send, receive]: [Act; 2]) {
    let (seat, size) = (at.seat.index(), at.world as usize);
    let (next, previous) = ((seat + 1) % size, (seat + size - 1) % size);
    for round in 0..size - 1 {
        let sent = (seat + 2 * size - start - round) % size;
        let received = (sent + size - 1) % size;
        for (segment, peer, act) in [(sent, next, send), (received, previous, receive)] {
            let chunks = (segment..at.chunks).step_by(size);
            moves.extend(chunks.map(|chunk| Move { chunk, peer: Seat(peer as u32), act }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_seats_three_chunks_as_drawn_in_the_paper() {
        let Pattern::Moves(moves) = Ring.pattern(Seat(0), 3, 3) else { panic!("a ring has moves") };
        let expected = [
            (2, 1, Act::SendPartial),
            (1, 2, Act::Fold),
            (1, 1, Act::SendPartial),
            (0, 2, Act::Fold),
            (0, 1, Act::SendTotal),
            (2, 2, Act::Replace),
            (2, 1, Act::SendTotal),
            (1, 2, Act::Replace),
        ];
        let expected = expected.map(|(chunk, peer, act)| Move { chunk, peer: Seat(peer), act });
        assert_eq!(moves, expected);
    }

    #[test]
    fn equal_segments_cost_the_optimum() {
        let cost = Ring.cost(4, 4_000, 8);
        assert_eq!(
            (cost.rounds, cost.bytes_sent_max, cost.bytes_sent_total),
            (6, 6_000.0, 24_000.0)
        );
    }
}
