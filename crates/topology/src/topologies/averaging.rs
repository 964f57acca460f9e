//! Decentralised averaging over a graph (D-PSGD: Lian et al., 2017): after a local step each worker averages
//! its model with those of its neighbours. No seat is busier than another, and none waits for the whole flock.
//!
//! The graphs, each with equal weights over what a seat receives and its own, which is doubly stochastic:
//! - `ring`: the two neighbours. 2 models sent a round; the spread shrinks by about 1 − 13/P² a round.
//! - `torus`: the four neighbours on a grid whose rows are ⌊√P⌋ long, where the end of a row leads on to the
//!   next (so that it exists for every P, and all seats are alike): 1 − O(1/P).
//! - `random-regular`: `degree` neighbours drawn at random, the same in every run: an expander, whose rate
//!   hardly depends on P.
//! - `exponential`: one peer a round, at distance 1, 2, 4, … (Assran et al., 2019; Ying et al., 2021). The
//!   only directed one: a seat sends ahead and receives from behind. After ⌈log₂ P⌉ rounds everyone has
//!   heard of everyone; where P is a power of two, all then have exactly the mean.

use super::BuildTopology;
use crate::random_regular::{self, Neighbours};
use crate::{Cost, Form, Graph, circulant};
use starlings_core::{Ability, Entry, Param, ParamKind, Seat};
use std::sync::{Arc, Mutex};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "averaging",
    summary: "Workers average their models with those of their neighbours in a graph",
    reference: "Lian et al.: Can decentralized algorithms outperform centralized algorithms?, NIPS 2017",
    params: &[
        Param {
            name: "graph",
            kind: ParamKind::Choice(&["ring", "torus", "random-regular", "exponential"]),
            default: Some("ring"),
            help: "who are neighbours",
        },
        Param {
            name: "degree",
            kind: ParamKind::Integer { min: 3, max: 64 },
            default: Some("4"),
            help: "neighbours of each worker in a random-regular graph",
        },
    ],
    gives: &[Ability::Mixing],
    needs: &[Ability::LocalSteps, Ability::Barrier, Ability::Elementwise],
    build: |params| {
        Ok(Form::Graph(match params.text("graph") {
            "ring" => Box::new(Circulant(ring)),
            "torus" => Box::new(Circulant(torus)),
            "exponential" => Box::new(Circulant(exponential)),
            _ => Box::new(RandomRegular {
                degree: params.size("degree") as u32,
                last: Mutex::default(),
            }),
        }))
    },
};

/// A graph in which a seat sends to those at certain distances: a function of the world and the round.
struct Circulant(fn(u32, u64) -> Vec<u32>);

fn ring(world: u32, _round: u64) -> Vec<u32> {
    circulant::tidy(world, [1, world - 1])
}

fn torus(world: u32, _round: u64) -> Vec<u32> {
    let row = world.isqrt();
    circulant::tidy(world, [1, world - 1, row, world - row])
}

fn exponential(world: u32, round: u64) -> Vec<u32> {
    let distances = world.next_power_of_two().ilog2().max(1);
    circulant::tidy(world, [1 << (round % u64::from(distances))])
}

impl Graph for Circulant {
    fn sends_to(&self, seat: Seat, world: u32, round: u64) -> Vec<Seat> {
        circulant::sends_to(&self.0(world, round), seat, world)
    }

    fn weights(&self, seat: Seat, world: u32, round: u64) -> Vec<(Seat, f64)> {
        circulant::weights(&self.0(world, round), seat, world)
    }

    fn rounds_max(&self, world: u32) -> u64 {
        circulant::rounds_max(world, |round| self.0(world, round))
    }

    fn turn(&self, world: u32) -> u64 {
        let first = self.0(world, 0);
        let again = |round: &u64| self.0(world, *round) == first;
        (1..=u64::from(u32::BITS)).find(again).expect("distances double until they are the world's")
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        circulant::cost(world, bytes, self.0(world, 0).len())
    }
}

struct RandomRegular {
    degree: u32,
    /// The graph of the world asked for last: drawing it takes far longer than a round.
    last: Mutex<Option<(u32, Arc<Neighbours>)>>,
}

impl RandomRegular {
    fn neighbours(&self, world: u32) -> Arc<Neighbours> {
        let mut last = self.last.lock().expect("drawing a graph does not panic");
        match &*last {
            Some((known, neighbours)) if *known == world => neighbours.clone(),
            _ => {
                let neighbours = Arc::new(random_regular::neighbours(world, self.degree));
                *last = Some((world, neighbours.clone()));
                neighbours
            }
        }
    }
}

impl Graph for RandomRegular {
    fn sends_to(&self, seat: Seat, world: u32, _round: u64) -> Vec<Seat> {
        self.neighbours(world)[seat.index()].clone()
    }

    fn weights(&self, seat: Seat, world: u32, round: u64) -> Vec<(Seat, f64)> {
        let mut mixed = self.sends_to(seat, world, round);
        mixed.push(seat);
        mixed.sort_unstable();
        let weight = 1.0 / mixed.len() as f64;
        mixed.into_iter().map(|seat| (seat, weight)).collect()
    }

    fn rounds_max(&self, world: u32) -> u64 {
        random_regular::distance_max(&self.neighbours(world))
            .expect("only connected graphs are kept")
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        circulant::cost(world, bytes, self.neighbours(world)[0].len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_of_the_graphs() {
        assert_eq!(ring(6, 0), [1, 5]);
        assert_eq!(torus(16, 0), [1, 4, 12, 15]);
        assert_eq!(torus(11, 0), [1, 3, 8, 10]);
        assert_eq!((ring(2, 0), torus(3, 0)), (vec![1], vec![1, 2]));
        let one_peer: Vec<_> = (0..5).map(|round| exponential(9, round)).collect();
        assert_eq!(one_peer, [[1], [2], [4], [8], [1]]);
        assert_eq!(exponential(2, 7), [1]);
        for graph in [ring, torus, exponential] {
            assert!(graph(1, 3).is_empty());
        }
        let turns = [1, 2, 3, 8, 9, 1024].map(|world| Circulant(exponential).turn(world));
        assert_eq!(turns, [1, 1, 2, 3, 4, 10]);
        assert_eq!(Circulant(ring).turn(8), 1);
    }
}
