//! A partial mesh after Halton's sequence (Li, Kadav, Kruus and Ungureanu: MALT, 2015): each worker sends its
//! model to ⌈log₂ P⌉ others that are spread evenly over the flock, and averages what it has received with its
//! own. A directed graph, the same in all rounds, for far fewer bytes than the full mesh; nobody has to wait.
//!
//! Seat i sends to i + ⌊P·h⌋ for the sequence h = 1/2, 1/4, 3/4, 1/8, 5/8, … (base 2), where numbers that lead
//! to a peer already chosen, or nowhere, are passed over. Where all distances so chosen share a divisor with
//! P (as they do for 8, 16, 32 …: all are even) the flock would fall into parts that never hear of each
//! other; there the last distance gives way to 1, the neighbour.
//!
//! Cost of a round for a model of `n` bytes: `⌈log₂ P⌉ · n` bytes sent by each seat. News reaches all in 3
//! rounds among 17 and in 65 among 1,024, for no distance is short but one: it is made for dozens of workers.

use super::BuildTopology;
use crate::{Cost, Form, Graph, circulant};
use starlings_core::{Ability, Entry, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "halton",
    summary: "Each worker sends its model to a logarithmic number of others, spread evenly over the flock",
    reference: "Li, Kadav, Kruus and Ungureanu: MALT: distributed data-parallelism for existing ML applications, EuroSys 2015",
    params: &[],
    gives: &[Ability::Mixing, Ability::Anytime],
    needs: &[Ability::LocalSteps, Ability::Elementwise],
    build: |_| Ok(Form::Graph(Box::new(Halton))),
};

struct Halton;

impl Graph for Halton {
    fn sends_to(&self, seat: Seat, world: u32, _round: u64) -> Vec<Seat> {
        circulant::sends_to(&distances(world), seat, world)
    }

    fn weights(&self, seat: Seat, world: u32, _round: u64) -> Vec<(Seat, f64)> {
        circulant::weights(&distances(world), seat, world)
    }

    fn rounds_max(&self, world: u32) -> u64 {
        circulant::rounds_max(world, |_| distances(world))
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        circulant::cost(world, bytes, distances(world).len())
    }
}

/// The ⌈log₂ P⌉ distances at which a seat's peers are, in the order of the sequence.
fn distances(world: u32) -> Vec<u32> {
    let count = world.next_power_of_two().ilog2() as usize;
    let mut chosen: Vec<u32> = Vec::with_capacity(count);
    let sequence = (1..).map(|index| (f64::from(world) * halton(index)) as u32);
    for distance in sequence.take_while(|_| world > 1) {
        if distance > 0 && !chosen.contains(&distance) {
            chosen.push(distance);
        }
        if chosen.len() == count {
            break;
        }
    }
    let shared = chosen.iter().fold(world, |a, &b| divisor(a, b));
    if let Some(last) = chosen.last_mut().filter(|_| shared > 1) {
        *last = 1;
    }
    chosen
}

/// Halton's sequence in base 2 (van der Corput's): the binary digits of the index mirrored at the point.
fn halton(index: u32) -> f64 {
    f64::from(index.reverse_bits()) / (f64::from(u32::MAX) + 1.0)
}

/// The greatest common divisor (Euclid).
fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_halves_the_gaps() {
        let first: Vec<f64> = (1..=7).map(halton).collect();
        assert_eq!(first, [0.5, 0.25, 0.75, 0.125, 0.625, 0.375, 0.875]);
    }

    #[test]
    fn distances_follow_the_sequence() {
        assert_eq!(distances(6), [3, 1, 4]);
        assert_eq!(distances(17), [8, 4, 12, 2, 10]);
        assert_eq!(distances(2), [1]);
        assert_eq!(distances(3), [1, 2], "⌊3/4⌋ leads nowhere");
        assert!(distances(1).is_empty());
    }

    #[test]
    fn where_they_share_a_divisor_the_last_gives_way() {
        assert_eq!(distances(8), [4, 2, 1]);
        assert_eq!(distances(16), [8, 4, 12, 1]);
        for world in 2..=1024 {
            let made = distances(world);
            assert_eq!(made.len(), world.next_power_of_two().ilog2() as usize, "world {world}");
            assert_eq!(made.iter().fold(world, |a, &b| divisor(a, b)), 1, "world {world}");
        }
    }
}
