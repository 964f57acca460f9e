//! Two levels, for flocks whose groups have fast links inside and slow ones between (as in Goyal et al., 2017,
//! and Jia et al., 2018): a group's sum of each chunk is completed at one of its seats, those seats sum among
//! themselves, one a group, and the total comes back the same way.
//!
//! It is put together from any two patterns that sum each chunk at one seat: the moves of the inner one with
//! partial sums come first, then the outer one's between the seats that hold the groups' sums, then the
//! inner one's moves with totals.
//!
//! Fold order: the inner one's within each group, then the outer one's over the groups.
//!
//! Cost: the inner sum's within a group; between groups only the outer one's, which a group pays once instead
//! of each seat: a ring of G groups sends `2(G−1)/G · n` bytes out of a group, whatever its size. What it all
//! comes to depends on both patterns, and is counted.

use super::{BuildTopology, PARTS, sum_named};
use crate::{Act, Cost, Form, Move, Pattern, Tier, Topology, count, moves};
use starlings_core::{Ability, Entry, Param, ParamKind, Seat};
use std::ops::Range;

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "hierarchical",
    summary: "Groups sum inside, one seat of each sums between groups, and the total comes back",
    reference: "Goyal et al.: Accurate, large minibatch SGD: training ImageNet in 1 hour, 2017 (section 4)",
    params: &[
        Param {
            name: "inner",
            kind: ParamKind::Choice(PARTS),
            default: Some("ring"),
            help: "how a group sums",
        },
        Param {
            name: "outer",
            kind: ParamKind::Choice(PARTS),
            default: Some("ring"),
            help: "how the groups' sums are summed",
        },
        Param {
            name: "group",
            kind: ParamKind::Integer { min: 1, max: 64 },
            default: Some("2"),
            help: "neighbouring workers in a group, such as those of one host; the last may have fewer",
        },
    ],
    gives: &[Ability::Sum],
    needs: &[Ability::Barrier, Ability::Summable],
    build: |params| {
        Ok(Form::Sum(Box::new(Hierarchical {
            inner: sum_named(params.text("inner"))?,
            outer: sum_named(params.text("outer"))?,
            size: params.size("group") as u32,
        })))
    },
};

struct Hierarchical {
    inner: Box<dyn Topology>,
    outer: Box<dyn Topology>,
    size: u32,
}

impl Topology for Hierarchical {
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern {
        let group = Group::of(seat.0 / self.size, self.size, world);
        let place = Seat(seat.0 - group.first);
        let inner = self.inner.pattern(place, group.size, chunks);
        let inner = moves(&inner, place, group.size).into_iter();
        let inner = inner.map(|step| Move { peer: Seat(group.first + step.peer.0), ..step });
        let (climbs, descends): (Vec<Move>, Vec<Move>) =
            inner.partition(|step| matches!(step.act, Act::SendPartial | Act::Fold));
        let mut all = climbs;
        all.extend(self.between(seat, world, chunks));
        all.extend(descends);
        Pattern::Moves(all)
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        count::counted(self, world, bytes, chunks)
    }

    fn group(&self, seat: Seat, world: u32) -> Option<Range<u32>> {
        let group = Group::of(seat.0 / self.size, self.size, world);
        let is_one_of_some = group.size > 1 && world > self.size;
        is_one_of_some.then(|| group.first..group.first + group.size)
    }

    fn tier(&self, seat: Seat, world: u32, chunks: usize) -> Option<Tier> {
        let group = self.group(seat, world)?;
        let (size, place) = (group.end - group.start, Seat(seat.0 - group.start));
        let order = |chunk| match size {
            // Of two, either may be the first.
            2 => Some(vec![0, 1]),
            _ => Some(self.inner.order(size, chunk)?.into_iter().map(Seat::index).collect()),
        };
        let orders = (0..chunks).map(order).collect::<Option<Vec<Vec<usize>>>>()?;
        let holds = self.holders(size, chunks).into_iter().map(|holder| holder == place).collect();
        Some(Tier { orders, holds, between: self.between(seat, world, chunks) })
    }

    fn grain(&self, world: u32) -> usize {
        self.inner.grain(self.size.min(world)) * self.outer.grain(world.div_ceil(self.size))
    }
}

impl Hierarchical {
    /// The moves between groups of a seat, for the chunks whose group's sum it holds.
    ///
    /// The chunks that one seat of a full group holds are numbered by themselves for the outer pattern: it
    /// would deal their owners out unevenly by the chunks' own numbers, of which a seat may have every second.
    fn between(&self, seat: Seat, world: u32, chunks: usize) -> Vec<Move> {
        let groups = world.div_ceil(self.size);
        if groups < 2 {
            return Vec::new();
        }
        let full = self.holders(self.size, chunks);
        let last = Group::of(groups - 1, self.size, world);
        let rest =
            if last.size == self.size { full.clone() } else { self.holders(last.size, chunks) };
        let holder = |group: u32, chunk: usize| {
            let held = if group + 1 == groups { &rest } else { &full };
            Seat(group * self.size + held[chunk].0)
        };
        let mine = seat.0 / self.size;
        let mut all = Vec::new();
        for lane in (0..self.size).map(Seat) {
            let lane: Vec<usize> = (0..chunks).filter(|&chunk| full[chunk] == lane).collect();
            if !lane.iter().any(|&chunk| holder(mine, chunk) == seat) {
                continue;
            }
            let outer = self.outer.pattern(Seat(mine), groups, lane.len());
            for step in moves(&outer, Seat(mine), groups) {
                let chunk = lane[step.chunk];
                if holder(mine, chunk) == seat {
                    all.push(Move { chunk, peer: holder(step.peer.0, chunk), act: step.act });
                }
            }
        }
        all
    }

    /// The place in a group where each chunk's sum is completed: the one that passes no partial sum on.
    fn holders(&self, size: u32, chunks: usize) -> Vec<Seat> {
        let mut holders = vec![None; chunks];
        for place in (0..size).map(Seat) {
            let pattern = self.inner.pattern(place, size, chunks);
            if let Pattern::Owners(owners) = pattern {
                return owners;
            }
            let mut holds = vec![true; chunks];
            for step in moves(&pattern, place, size) {
                holds[step.chunk] &= step.act != Act::SendPartial;
            }
            for (holder, _) in holders.iter_mut().zip(holds).filter(|(_, holds)| *holds) {
                assert_eq!(*holder, None, "the inner pattern sums a chunk at two seats");
                *holder = Some(place);
            }
        }
        let found = holders.into_iter().map(|holder| holder.expect("a sum is completed somewhere"));
        found.collect()
    }
}

struct Group {
    first: u32,
    size: u32,
}

impl Group {
    fn of(group: u32, size: u32, world: u32) -> Group {
        let first = group * size;
        Group { first, size: size.min(world - first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inner: &str, outer: &str, size: u32) -> Hierarchical {
        let [inner, outer] = [inner, outer].map(|name| sum_named(name).expect("sums"));
        Hierarchical { inner, outer, size }
    }

    #[test]
    fn a_leaf_talks_inside_its_group_and_its_root_to_the_other_roots() {
        let two_trees = of("tree", "tree", 3);
        use Act::{Fold, Replace, SendPartial, SendTotal};
        let expect = |seat, expected: &[(u32, Act)]| {
            let moves =
                expected.iter().map(|&(peer, act)| Move { chunk: 0, peer: Seat(peer), act });
            let made = two_trees.pattern(Seat(seat), 5, 1);
            assert_eq!(made, Pattern::Moves(moves.collect()), "seat {seat}");
        };
        expect(1, &[(0, SendPartial), (0, Replace)]);
        let root =
            [(1, Fold), (2, Fold), (3, Fold), (3, SendTotal), (1, SendTotal), (2, SendTotal)];
        expect(0, &root);
        expect(3, &[(4, Fold), (0, SendPartial), (0, Replace), (4, SendTotal)]);
    }

    #[test]
    fn rings_of_rings_work_alike_on_all_seats_and_send_as_little_as_one() {
        for (world, size, rounds) in [(4, 2, 4), (12, 3, 10), (16, 4, 12), (64, 8, 28)] {
            let rings = of("ring", "ring", size);
            let cost = rings.cost(world, 64_000, rings.grain(world));
            // (g−1)/g · n twice inside, and (G−1)/G of the lane's n/g twice between: as little as one ring.
            let least = 2.0 * f64::from(world - 1) / f64::from(world) * 64_000.0;
            assert!((cost.bytes_sent_max - least).abs() < 1e-6, "world {world}: {cost:?}");
            assert!((cost.bytes_sent_total - f64::from(world) * least).abs() < 1e-6);
            assert_eq!(cost.rounds, rounds);
        }
    }

    #[test]
    fn a_tier_has_one_holder_of_each_chunk_in_a_group_and_only_moves_between_groups() {
        for (inner, size, world) in [("ring", 3, 8), ("star", 2, 5), ("tree", 2, 6)] {
            let topology = of(inner, "ring", size);
            let mut holders = vec![vec![0; 6]; world as usize];
            for seat in (0..world).map(Seat) {
                let Some(tier) = topology.tier(seat, world, 6) else { continue };
                let group = topology.group(seat, world).unwrap();
                assert!(group.contains(&seat.0));
                for (chunk, holds) in tier.holds.iter().enumerate() {
                    holders[group.start as usize][chunk] += u32::from(*holds);
                }
                assert!(tier.between.iter().all(|step| !group.contains(&step.peer.0)));
                assert_eq!(tier.orders.len(), 6);
            }
            for (first, holders) in holders.iter().enumerate() {
                let begins = topology.group(Seat(first as u32), world);
                let is_first = begins.is_some_and(|group| group.start as usize == first);
                assert!(holders.iter().all(|count| *count == u32::from(is_first)), "{inner}");
            }
        }
        // One group sums as if there were none, and a tree of three adds partial sums to partial sums.
        assert_eq!(of("ring", "ring", 4).group(Seat(0), 4), None);
        assert_eq!(of("tree", "ring", 3).tier(Seat(0), 6, 1), None);
    }

    #[test]
    fn one_group_is_its_inner_pattern() {
        let flat = sum_named("tree").expect("sums");
        let grouped = of("tree", "ring", 64);
        for seat in (0..9).map(Seat) {
            assert_eq!(grouped.pattern(seat, 9, 4), flat.pattern(seat, 9, 4));
        }
    }
}
