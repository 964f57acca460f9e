//! How far from their mean models can be, told from how far a turn of mixing has moved them (Kong et al., 2021, bound the
//! distance so): nobody knows the mean, but everyone knows what mixing has done to its own model.
//!
//! With M the product of the weights of a turn, models that deviate from their mean by v have moved by (M − I)v and
//! deviate by Mv afterwards. So they are no farther from it than the largest ‖Mv‖ / ‖(M − I)v‖ allows. The mean itself
//! does not move, for M is doubly stochastic.
//!
//! Where all seats are alike (a circulant matrix) the vectors of Fourier's transform are M's own, and the ratio is
//! |μ| / |1 − μ| for the worst of its eigenvalues μ, exactly. Elsewhere σ / (1 − σ) bounds it, with σ the largest singular
//! value beside the mean, found by power iteration.

use crate::Graph;
use starlings_core::{Rng, Seat};
use std::f64::consts::TAU;

/// Iterations of the power method.
const ITERATIONS: u32 = 1_000;

/// The part of the gap 1 − σ that is taken off, for the power method comes to σ from below.
const MARGIN: f64 = 0.01;

/// What one round gives each seat: shares of seats.
type Round = Vec<Vec<(Seat, f64)>>;

/// By how much farther from their mean models can be after a turn of mixing than that turn has moved them, as root mean
/// squares over all seats. Infinite for a graph that does not mix, 0 where a turn gives everyone the mean.
///
/// ```
/// use starlings_topology::{Form, TOPOLOGIES, lag};
/// let entry = TOPOLOGIES.iter().find(|entry| entry.name == "averaging").unwrap();
/// let params = entry.check("topology", &"graph = 'ring'".parse().unwrap()).unwrap();
/// let Form::Graph(ring) = (entry.build)(&params).unwrap() else { panic!("averaging is a graph") };
/// // The second eigenvalue of a ring of eight is (1 + √2) / 3.
/// let second = (1.0 + 2f64.sqrt()) / 3.0;
/// assert!((lag(&*ring, 8) - second / (1.0 - second)).abs() < 1e-12);
/// ```
#[must_use]
pub fn lag(graph: &dyn Graph, world: u32) -> f64 {
    if world < 2 {
        return 0.0;
    }
    let seats = || (0..world).map(Seat);
    let round =
        |round| -> Round { seats().map(|seat| graph.weights(seat, world, round)).collect() };
    let turn: Vec<Round> = (0..graph.turn(world)).map(round).collect();
    if turn.iter().all(is_circulant) {
        return (1..world).map(|wave| ratio(&turn, wave)).fold(0.0, f64::max);
    }
    let second = second_singular(&turn);
    let second = second + MARGIN * (1.0 - second);
    if second < 1.0 { second / (1.0 - second) } else { f64::INFINITY }
}

/// Whether each seat weighs those at the same distances alike.
fn is_circulant(round: &Round) -> bool {
    let distances = |seat: usize| {
        let distance = |peer: Seat| (peer.index() + round.len() - seat) % round.len();
        let mut shares: Vec<(usize, f64)> =
            round[seat].iter().map(|&(peer, share)| (distance(peer), share)).collect();
        shares.sort_by_key(|&(distance, _)| distance);
        shares
    };
    let first = distances(0);
    (1..round.len()).all(|seat| distances(seat) == first)
}

/// |μ| / |1 − μ| for the eigenvalue of one wave around the circle.
fn ratio(turn: &[Round], wave: u32) -> f64 {
    let (mut real, mut imaginary) = (1.0, 0.0);
    for round in turn {
        let world = round.len() as u64;
        let (mut across, mut along) = (0.0, 0.0);
        for &(peer, share) in &round[0] {
            // The product may be large, and only its remainder turns.
            let angle = TAU * (u64::from(wave) * u64::from(peer.0) % world) as f64 / world as f64;
            across += share * angle.cos();
            along += share * angle.sin();
        }
        (real, imaginary) = (real * across - imaginary * along, real * along + imaginary * across);
    }
    real.hypot(imaginary) / (1.0 - real).hypot(imaginary)
}

/// The largest singular value of a turn's weights on vectors without a mean, by power iteration.
fn second_singular(turn: &[Round]) -> f64 {
    let mut rng = Rng::named(0, "spectrum", &[]);
    let mut vector: Vec<f64> = turn[0].iter().map(|_| rng.normal()).collect();
    let mut value = 0.0;
    for _ in 0..ITERATIONS {
        let mean = vector.iter().sum::<f64>() / vector.len() as f64;
        vector.iter_mut().for_each(|number| *number -= mean);
        let length = norm(&vector);
        if length == 0.0 {
            return 0.0;
        }
        vector.iter_mut().for_each(|number| *number /= length);
        vector = turn.iter().fold(vector, |vector, round| mixed(round, &vector));
        value = norm(&vector);
        vector = turn.iter().rev().fold(vector, |vector, round| mixed_back(round, &vector));
    }
    value
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|number| number * number).sum::<f64>().sqrt()
}

fn mixed(round: &Round, vector: &[f64]) -> Vec<f64> {
    let share = |&(peer, share): &(Seat, f64)| share * vector[peer.index()];
    round.iter().map(|shares| shares.iter().map(share).sum()).collect()
}

/// As [`mixed`], by the transposed weights.
fn mixed_back(round: &Round, vector: &[f64]) -> Vec<f64> {
    let mut back = vec![0.0; vector.len()];
    for (shares, number) in round.iter().zip(vector) {
        shares.iter().for_each(|&(peer, share)| back[peer.index()] += share * number);
    }
    back
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, TOPOLOGIES};
    use starlings_core::Entry;

    fn graph(name: &str, parameters: &str) -> Box<dyn Graph> {
        let entry = Entry::find("topology", TOPOLOGIES, name).unwrap();
        let params = entry.check("topology", &parameters.parse().unwrap()).unwrap();
        match (entry.build)(&params).unwrap() {
            Form::Graph(graph) => graph,
            _ => panic!("{name} is no graph"),
        }
    }

    fn all() -> Vec<Box<dyn Graph>> {
        let averaging = ["ring", "torus", "random-regular", "exponential"];
        let averaging = averaging.map(|name| graph("averaging", &format!("graph = \"{name}\"")));
        averaging.into_iter().chain([graph("halton", "")]).collect()
    }

    /// The turn of a graph that begins at a round.
    fn turn(graph: &dyn Graph, world: u32, first: u64) -> Vec<Round> {
        let rounds = first..first + graph.turn(world);
        let seats = |round| (0..world).map(move |seat| graph.weights(Seat(seat), world, round));
        rounds.map(|round| seats(round).collect()).collect()
    }

    #[test]
    fn no_models_are_farther_from_their_mean_than_a_turn_says() {
        for (place, graph) in all().iter().enumerate() {
            for world in [2, 3, 5, 6, 8, 12, 16, 31] {
                let lag = lag(&**graph, world);
                assert!(lag.is_finite(), "graph {place} of {world} mixes");
                let mut rng = Rng::named(4, "models", &[u64::from(world)]);
                let mut vector: Vec<f64> = (0..world).map(|_| rng.normal()).collect();
                let mean = vector.iter().sum::<f64>() / f64::from(world);
                vector.iter_mut().for_each(|number| *number -= mean);
                // Turn after turn what mixes worst is left over.
                for first in 0..40 {
                    let turn = turn(&**graph, world, first);
                    let after =
                        turn.iter().fold(vector.clone(), |vector, round| mixed(round, &vector));
                    let moves: Vec<f64> = after.iter().zip(&vector).map(|(a, b)| a - b).collect();
                    let (far, told) = (norm(&after), lag * norm(&moves));
                    assert!(far <= told + 1e-12, "graph {place} of {world}: {far} for {told}");
                    vector = after;
                }
            }
        }
    }

    #[test]
    fn the_bound_of_circles_is_reached_and_that_of_others_nearly() {
        for (graph, reached) in all().iter().zip([0.999, 0.999, 0.8, 0.0, 0.0]) {
            let (world, lag) = (16, lag(&**graph, 16));
            let turn = turn(&**graph, world, 0);
            let mut vector: Vec<f64> = (0..world).map(|seat| f64::from(seat) - 7.5).collect();
            let mut last = 0.0;
            for _ in 0..300 {
                let after = turn.iter().fold(vector.clone(), |vector, round| mixed(round, &vector));
                let moves: Vec<f64> = after.iter().zip(&vector).map(|(a, b)| a - b).collect();
                last = norm(&after) / norm(&moves).max(1e-300);
                let length = norm(&after);
                vector = after.iter().map(|number| number / length.max(1e-300)).collect();
            }
            assert!(last >= reached * lag, "{last} where {lag} is possible");
        }
        assert!(
            lag(&*graph("averaging", "graph = \"exponential\""), 8) < 1e-12,
            "one turn is the mean"
        );
    }

    #[test]
    fn a_graph_in_parts_never_tells() {
        struct Parts;
        impl Graph for Parts {
            fn sends_to(&self, seat: Seat, _: u32, _: u64) -> Vec<Seat> {
                vec![Seat(seat.0 ^ 1)]
            }
            fn weights(&self, seat: Seat, _: u32, _: u64) -> Vec<(Seat, f64)> {
                let first = Seat(seat.0 & !1);
                vec![(first, 0.5), (Seat(first.0 + 1), 0.5)]
            }
            fn rounds_max(&self, _: u32) -> u64 {
                1
            }
            fn cost(&self, _: u32, _: u64) -> crate::Cost {
                crate::Cost { rounds: 1, bytes_sent_max: 1.0, bytes_sent_total: 4.0 }
            }
        }
        assert!(lag(&Parts, 4) > 1e9);
    }
}
