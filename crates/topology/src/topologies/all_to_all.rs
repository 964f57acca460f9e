//! All-to-all, the shuffle of MapReduce (Dean and Ghemawat, 2004), by pairwise exchange (Thakur, Rabenseifner
//! and Gropp, 2005): in each round every seat sends to one and receives from one, so that no receiver is
//! fallen upon by all.
//!
//! Where P is a power of two the pairs of round r are those that differ by r + 1 in XOR: both directions of
//! one link are busy. Elsewhere a seat sends r + 1 seats ahead and receives from as far behind.
//!
//! Cost when each seat has `n` bytes, the same for each: `P − 1` rounds, `(P−1)/P · n` bytes sent by each seat,
//! `(P−1) · n` by all.

use super::BuildTopology;
use crate::{Cost, Form, Shuffle};
use starlings_core::{Ability, Entry, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "all-to-all",
    summary: "Everyone has something else for everyone, exchanged in rounds of pairs (the shuffle)",
    reference: "Thakur, Rabenseifner and Gropp: Optimization of collective communication operations in MPICH, 2005",
    params: &[],
    gives: &[],
    needs: &[Ability::Shuffle],
    build: |_| Ok(Form::Shuffle(Box::new(AllToAll))),
};

struct AllToAll;

impl Shuffle for AllToAll {
    fn rounds(&self, world: u32) -> u32 {
        world.saturating_sub(1)
    }

    fn pair(&self, seat: Seat, world: u32, round: u32) -> Option<(Seat, Seat)> {
        let distance = round + 1;
        if distance >= world {
            return None;
        }
        Some(match world.is_power_of_two() {
            true => (Seat(seat.0 ^ distance), Seat(seat.0 ^ distance)),
            false => (Seat((seat.0 + distance) % world), Seat((seat.0 + world - distance) % world)),
        })
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        if world < 2 {
            return Cost::NOTHING;
        }
        let all = f64::from(world - 1) * bytes as f64;
        Cost {
            rounds: u64::from(world - 1),
            bytes_sent_max: all / f64::from(world),
            bytes_sent_total: all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_pair_up_and_others_go_round() {
        let pairs = |seat, world| {
            let rounds = AllToAll.rounds(world);
            let pair =
                |round| AllToAll.pair(Seat(seat), world, round).map(|(to, from)| (to.0, from.0));
            (0..rounds).filter_map(pair).collect::<Vec<_>>()
        };
        assert_eq!(pairs(1, 4), [(0, 0), (3, 3), (2, 2)]);
        assert_eq!(pairs(1, 5), [(2, 0), (3, 4), (4, 3), (0, 2)]);
        assert_eq!(pairs(0, 1), []);
    }
}
