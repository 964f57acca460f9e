//! A sharded parameter server (Li et al., 2014): each chunk has an owner, everyone sends its contribution
//! there and gets the total back. Owners answer at any time, so this is the topology of stale and
//! asynchronous training; with a barrier it is a direct reduce-scatter and all-gather.
//!
//! Chunk `c` belongs to seat `c mod P`: every seat is a worker and a server, and all own alike.
//!
//! Fold order with a barrier: the owner's own contribution first, then the others in the order of their seats
//! (see [`crate::owners_to_moves`]). Without one, the order of arrival.
//!
//! With `merge`, neighbouring workers first sum among themselves, and one pushes for all: the two tiers of
//! MXNet's KVStore (Chen et al., 2015), whose lower one is a machine.
//!
//! Cost for `n` bytes in a multiple of `P` chunks: 2 rounds, `2(P−1)/P · n` bytes sent by each seat, as in a
//! ring, but to `P − 1` peers at once; `2(P−1) · n` bytes by all.

use super::BuildTopology;
use crate::{Cost, Form, Groups, Pattern, Topology};
use starlings_core::{Ability, Entry, Param, ParamKind, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "star",
    summary: "Every part of the model has an owner that takes contributions and answers (parameter server)",
    reference: "Li et al.: Scaling distributed machine learning with the parameter server, OSDI 2014",
    params: &[Param {
        name: "merge",
        kind: ParamKind::Integer { min: 1, max: 64 },
        default: Some("1"),
        help: "neighbouring workers whose contributions are summed before they go to the owners; 1 sums none",
    }],
    gives: &[Ability::Sum, Ability::Served, Ability::Contributions, Ability::Anytime],
    needs: &[],
    build: |params| {
        let inner = Box::new(Star);
        Ok(match params.size("merge") as u32 {
            1 => Form::Sum(inner),
            size => Form::Groups(Groups { inner, size }),
        })
    },
};

struct Star;

impl Topology for Star {
    fn pattern(&self, _seat: Seat, world: u32, chunks: usize) -> Pattern {
        let owner = |chunk| Seat((chunk % world as usize) as u32);
        Pattern::Owners((0..chunks).map(owner).collect())
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        if world < 2 || chunks == 0 {
            return Cost::NOTHING;
        }
        // An owner of k chunks sends those to P − 1 peers, and its part of all others to their owners.
        let owned = chunks.div_ceil(world as usize);
        let sends = chunks - owned + owned * (world as usize - 1);
        Cost {
            rounds: 2,
            bytes_sent_max: sends as f64 * bytes as f64 / chunks as f64,
            bytes_sent_total: 2.0 * f64::from(world - 1) * bytes as f64,
        }
    }

    fn order(&self, world: u32, chunk: usize) -> Option<Vec<Seat>> {
        let owner = Seat((chunk % world as usize) as u32);
        let others = (0..world).map(Seat).filter(|&seat| seat != owner);
        Some(std::iter::once(owner).chain(others).collect())
    }

    fn grain(&self, world: u32) -> usize {
        world as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_dealt_to_owners_in_turn() {
        let expected = [0, 1, 2, 0, 1].map(Seat).to_vec();
        assert_eq!(Star.pattern(Seat(2), 3, 5), Pattern::Owners(expected));
    }

    #[test]
    fn equal_shares_cost_as_much_as_a_ring_in_two_rounds() {
        let cost = Star.cost(4, 4_000, 8);
        assert_eq!(
            (cost.rounds, cost.bytes_sent_max, cost.bytes_sent_total),
            (2, 6_000.0, 24_000.0)
        );
    }
}
