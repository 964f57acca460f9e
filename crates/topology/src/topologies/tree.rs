//! A tree all-reduce: partial sums climb to the root, the total comes back down (Thakur, Rabenseifner and
//! Gropp, 2005, compare it with its rivals). Few rounds: best for small sums. Chunks are independent, so a
//! large sum is pipelined: while the root folds one chunk, the leaves send the next.
//!
//! Seats are numbered as in a heap: the root is seat 0, the children of `i` are `a·i + 1 … a·i + a`.
//!
//! Fold order: own first, then the children's partial sums in the order of their seats, each of which was
//! made by the same rule. It is the same for all chunks.
//!
//! Cost for `n` bytes, depth `d` of the last seat (`⌊log₂ P⌋` with two children): `2d` rounds; a seat sends
//! `n` bytes up and `n` to each child, so at most `(a + 1) · n`; all together `2(P−1) · n`.

use super::BuildTopology;
use crate::{Act, Cost, Form, Move, Pattern, Topology};
use starlings_core::{Ability, Entry, Param, ParamKind, Seat};
use std::ops::Range;

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "tree",
    summary: "Partial sums climb a tree to its root and the total comes down: fewest rounds",
    reference: "Thakur, Rabenseifner and Gropp: Optimization of collective communication operations in MPICH, 2005",
    params: &[Param {
        name: "arity",
        kind: ParamKind::Integer { min: 2, max: 16 },
        default: Some("2"),
        help: "children of each worker; more make the tree lower and its inner workers busier",
    }],
    gives: &[Ability::Sum],
    needs: &[Ability::Barrier, Ability::Summable],
    build: |params| Ok(Form::Sum(Box::new(Tree { arity: params.size("arity") }))),
};

struct Tree {
    arity: usize,
}

impl Topology for Tree {
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern {
        let below = self.children(seat.index(), world);
        let above = (seat.0 > 0).then(|| (seat.index() - 1) / self.arity);
        let to = |chunk, peer: usize, act| Move { chunk, peer: Seat(peer as u32), act };
        let mut moves = Vec::new();
        // All chunks climb before the first comes down, so that no seat waits for the root with work to send.
        for chunk in 0..chunks {
            moves.extend(below.clone().map(|child| to(chunk, child, Act::Fold)));
            moves.extend(above.map(|parent| to(chunk, parent, Act::SendPartial)));
        }
        for chunk in 0..chunks {
            moves.extend(above.map(|parent| to(chunk, parent, Act::Replace)));
            moves.extend(below.clone().map(|child| to(chunk, child, Act::SendTotal)));
        }
        Pattern::Moves(moves)
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        if world < 2 || chunks == 0 {
            return Cost::NOTHING;
        }
        // Seat 1 has as many children as any seat but the root, and a parent to send to besides.
        let sends = self.children(0, world).len().max(1 + self.children(1, world).len());
        Cost {
            rounds: 2 * self.depth(world),
            bytes_sent_max: sends as f64 * bytes as f64,
            bytes_sent_total: 2.0 * f64::from(world - 1) * bytes as f64,
        }
    }

    fn grain(&self, _world: u32) -> usize {
        1
    }
}

impl Tree {
    fn children(&self, seat: usize, world: u32) -> Range<usize> {
        let first = (self.arity * seat + 1).min(world as usize);
        first..(first + self.arity).min(world as usize)
    }

    /// Edges between the root and the last seat, which is as far away as any.
    fn depth(&self, world: u32) -> u64 {
        let parents = std::iter::successors(Some(world as usize - 1), |&seat| {
            (seat > 0).then(|| (seat - 1) / self.arity)
        });
        parents.count() as u64 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inner_seat_folds_its_children_in_order_and_then_climbs() {
        let Pattern::Moves(moves) = (Tree { arity: 2 }).pattern(Seat(1), 6, 1) else {
            panic!("a tree has moves")
        };
        let expected = [
            (3, Act::Fold),
            (4, Act::Fold),
            (0, Act::SendPartial),
            (0, Act::Replace),
            (3, Act::SendTotal),
            (4, Act::SendTotal),
        ];
        let expected = expected.map(|(peer, act)| Move { chunk: 0, peer: Seat(peer), act });
        assert_eq!(moves, expected);
    }

    #[test]
    fn depth_is_the_logarithm() {
        let rounds = |arity, world| (Tree { arity }).cost(world, 8, 1).rounds;
        assert_eq!([2, 3, 4, 7, 8, 1024].map(|world| rounds(2, world)), [2, 2, 4, 4, 6, 20]);
        assert_eq!([2, 17, 18, 1024].map(|world| rounds(16, world)), [2, 2, 4, 6]);
    }
}
