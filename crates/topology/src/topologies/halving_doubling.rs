//! Recursive halving and doubling (Rabenseifner's all-reduce, in Thakur, Rabenseifner and Gropp, 2005; known
//! from Gloo and Caffe2): a reduce-scatter in which pairs at half the distance each time exchange halves of
//! what is left, then an all-gather that runs it backwards. As few bytes as a ring in as few rounds as a tree.
//!
//! Let Q be the largest power of two within P and r = P − Q. Of the first 2r seats each even one hands its
//! contribution to the odd one beside it, sits out and gets the total at the end; the others are numbered 0 to
//! Q − 1. Chunk `c` belongs to segment `s = c mod Q`, whose sum is complete at number `s`.
//!
//! Fold order of segment `s`: number v (who first folded the contribution of the seat that sits out beside it,
//! if any) folds those of `v ^ Q/2`, `v ^ Q/4`, … as long as v agrees with s in that bit. Each segment is
//! summed once, so all seats get the same bits.
//!
//! Cost for `n` bytes in a multiple of Q chunks: `2 log₂ Q` rounds and `2(Q−1)/Q · n` bytes sent by a seat;
//! where r > 0 two rounds and n bytes (by who stands in for another) more; `2(P−1) · n` bytes by all.

use super::BuildTopology;
use crate::{Act, Cost, Form, Move, Pattern, Topology};
use starlings_core::{Ability, Entry, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "halving-doubling",
    summary: "Pairs exchange halves of what is left, then double it back: few rounds and few bytes",
    reference: "Thakur, Rabenseifner and Gropp: Optimization of collective communication operations in MPICH, 2005",
    params: &[],
    gives: &[Ability::Sum],
    needs: &[Ability::Barrier, Ability::Summable],
    build: |_| Ok(Form::Sum(Box::new(HalvingDoubling))),
};

struct HalvingDoubling;

impl Topology for HalvingDoubling {
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern {
        let cube = Cube::of(world);
        let all =
            |peer: u32, act| (0..chunks).map(move |chunk| Move { chunk, peer: Seat(peer), act });
        let mut moves = Vec::new();
        let Some(number) = cube.number(seat) else {
            moves.extend(all(seat.0 + 1, Act::SendPartial));
            moves.extend(all(seat.0 + 1, Act::Replace));
            return Pattern::Moves(moves);
        };
        let stands_in = number < cube.rest;
        if stands_in {
            moves.extend(all(seat.0 - 1, Act::Fold));
        }
        for bit in cube.bits().rev() {
            cube.exchange(&mut moves, (number, bit, chunks), [Act::SendPartial, Act::Fold]);
        }
        for bit in cube.bits() {
            cube.exchange(&mut moves, (number, bit, chunks), [Act::Replace, Act::SendTotal]);
        }
        if stands_in {
            moves.extend(all(seat.0 - 1, Act::SendTotal));
        }
        Pattern::Moves(moves)
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        if world < 2 || chunks == 0 {
            return Cost::NOTHING;
        }
        let cube = Cube::of(world);
        // The longest path of segment s leads through all bits, from the number that differs from s in each:
        // it is two longer where that number stands in for another seat.
        let segments = (cube.size as usize).min(chunks);
        let detour = segments > (cube.size - cube.rest) as usize;
        let most = (0..cube.size).map(|number| cube.sends(number, chunks)).max().unwrap_or(0);
        Cost {
            rounds: 2 * (u64::from(cube.size.ilog2()) + u64::from(detour)),
            bytes_sent_max: most as f64 * bytes as f64 / chunks as f64,
            bytes_sent_total: 2.0 * f64::from(world - 1) * bytes as f64,
        }
    }

    fn grain(&self, world: u32) -> usize {
        Cube::of(world).size as usize
    }
}

/// The seats that halve and double, numbered as the corners of a cube.
#[derive(Clone, Copy)]
struct Cube {
    /// The largest power of two within the world.
    size: u32,
    /// How many seats sit out, each with one that stands in for it.
    rest: u32,
}

impl Cube {
    fn of(world: u32) -> Cube {
        let size = 1 << world.max(1).ilog2();
        Cube { size, rest: world.saturating_sub(size) }
    }

    /// `None` for a seat that sits out.
    fn number(self, seat: Seat) -> Option<u32> {
        match seat.0 {
            seat if seat >= 2 * self.rest => Some(seat - self.rest),
            seat => (seat % 2 == 1).then_some(seat / 2),
        }
    }

    fn seat(self, number: u32) -> Seat {
        Seat(if number < self.rest { 2 * number + 1 } else { number + self.rest })
    }

    fn bits(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..self.size.ilog2()).map(|bit| 1 << bit)
    }

    /// One exchange with the neighbour across `bit`, about the segments that agree with both in all higher
    /// bits: those on the other's side, and those on the own side. Sends stand before receives.
    fn exchange(
        self,
        moves: &mut Vec<Move>,
        (number, bit, chunks): (u32, u32, usize),
        [theirs, mine]: [Act; 2],
    ) {
        let other = number ^ bit;
        let mut sides = [(other, theirs), (number, mine)];
        if matches!(theirs, Act::Replace) {
            sides.reverse();
        }
        for (side, act) in sides {
            let first = side & !(bit - 1);
            for segment in first..first + bit {
                let chunks = (segment as usize..chunks).step_by(self.size as usize);
                moves.extend(chunks.map(|chunk| Move { chunk, peer: self.seat(other), act }));
            }
        }
    }

    /// Chunks that a number sends.
    fn sends(self, number: u32, chunks: usize) -> usize {
        let within = |first: u32, length: u32| {
            let (share, longer) = (chunks / self.size as usize, chunks % self.size as usize);
            share * length as usize + longer.saturating_sub(first as usize).min(length as usize)
        };
        let partials = chunks - within(number, 1);
        let totals: usize = self.bits().map(|bit| within(number & !(bit - 1), bit)).sum();
        let handed_back = if number < self.rest { chunks } else { 0 };
        partials + totals + handed_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_seats_exchange_halves_and_then_quarters() {
        let Pattern::Moves(moves) = HalvingDoubling.pattern(Seat(1), 4, 4) else {
            panic!("it has moves")
        };
        use Act::{Fold, Replace, SendPartial, SendTotal};
        let expected = [
            (2, 3, SendPartial),
            (3, 3, SendPartial),
            (0, 3, Fold),
            (1, 3, Fold),
            (0, 0, SendPartial),
            (1, 0, Fold),
            (1, 0, SendTotal),
            (0, 0, Replace),
            (0, 3, SendTotal),
            (1, 3, SendTotal),
            (2, 3, Replace),
            (3, 3, Replace),
        ];
        let expected = expected.map(|(chunk, peer, act)| Move { chunk, peer: Seat(peer), act });
        assert_eq!(moves, expected);
    }

    #[test]
    fn the_first_even_seats_sit_out_where_the_world_is_no_power_of_two() {
        let numbers = |world| (0..world).map(|seat| Cube::of(world).number(Seat(seat))).collect();
        let seven: Vec<Option<u32>> = numbers(7);
        assert_eq!(seven, [None, Some(0), None, Some(1), None, Some(2), Some(3)]);
        let back = |number| Cube::of(7).seat(number).0;
        assert_eq!([0, 1, 2, 3].map(back), [1, 3, 5, 6]);
    }

    #[test]
    fn it_costs_as_few_bytes_as_a_ring_and_as_few_rounds_as_a_tree() {
        let cost = HalvingDoubling.cost(8, 8_000, 16);
        assert_eq!((cost.rounds, cost.bytes_sent_max), (6, 14_000.0));
        let cost = HalvingDoubling.cost(9, 8_000, 16);
        assert_eq!((cost.rounds, cost.bytes_sent_max), (8, 22_000.0));
    }
}
