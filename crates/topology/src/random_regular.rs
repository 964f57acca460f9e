//! Random regular graphs: every seat has as many neighbours, chosen at random but the same for all who ask.
//! Such graphs are expanders with high probability (Friedman, 2003): few links, yet news spreads fast.
//!
//! They are made from a circulant graph by random exchanges of edge ends (Rao, Jana and Bandyopadhyay, 1996),
//! which keep every degree, and made again from other numbers while they are not connected.

use starlings_core::{Rng, Seat};

/// The neighbours of every seat, in the order of seats.
pub(crate) type Neighbours = Vec<Vec<Seat>>;

/// Exchanges tried for each edge: enough to forget the circulant graph.
const TRIES_PER_EDGE: usize = 10;

/// The graph of a world with `degree` neighbours for each seat: fewer where the world is smaller, one more
/// where both are odd, because no such graph exists.
pub(crate) fn neighbours(world: u32, degree: u32) -> Neighbours {
    let degree = degree.min(world.saturating_sub(1));
    let degree = degree + world % 2 * (degree % 2);
    let graphs = (0..).map(|attempt| shuffled(world, degree, attempt));
    graphs.into_iter().find(|graph| distance_max(graph).is_some()).expect("attempts never end")
}

/// The longest of all shortest paths, or `None` when some seats are not connected.
pub(crate) fn distance_max(neighbours: &Neighbours) -> Option<u64> {
    (0..neighbours.len())
        .map(|from| distance_from(neighbours, from))
        .try_fold(0, |most, distance| distance.map(|distance| most.max(distance)))
}

fn distance_from(neighbours: &Neighbours, from: usize) -> Option<u64> {
    let mut reached = vec![false; neighbours.len()];
    reached[from] = true;
    let (mut edge, mut distance, mut count) = (vec![from], 0, 1);
    while count < neighbours.len() {
        let mut next = Vec::new();
        for peer in edge.iter().flat_map(|&seat| &neighbours[seat]) {
            if !std::mem::replace(&mut reached[peer.index()], true) {
                next.push(peer.index());
            }
        }
        if next.is_empty() {
            return None;
        }
        count += next.len();
        (edge, distance) = (next, distance + 1);
    }
    Some(distance)
}

fn shuffled(world: u32, degree: u32, attempt: u64) -> Neighbours {
    let mut rng = Rng::named(0, "random regular graph", &[world.into(), degree.into(), attempt]);
    let mut edges = circulant_edges(world, degree);
    let mut graph: Neighbours = vec![Vec::new(); world as usize];
    for &[a, b] in &edges {
        graph[a.index()].push(b);
        graph[b.index()].push(a);
    }
    for _ in 0..TRIES_PER_EDGE * edges.len() {
        let [first, second] = [0; 2].map(|_: u8| rng.below(edges.len() as u64) as usize);
        if rng.below(2) == 1 {
            edges[second].reverse();
        }
        let ([a, b], [c, d]) = (edges[first], edges[second]);
        let ends = [a, b, c, d];
        let four = ends.iter().all(|end| ends.iter().filter(|other| *other == end).count() == 1);
        if four && !graph[a.index()].contains(&d) && !graph[c.index()].contains(&b) {
            for (seat, old, new) in [(a, b, d), (b, a, c), (c, d, b), (d, c, a)] {
                let place = graph[seat.index()].iter().position(|&peer| peer == old);
                graph[seat.index()][place.expect("an edge has two ends")] = new;
            }
            (edges[first], edges[second]) = ([a, d], [c, b]);
        }
    }
    graph.iter_mut().for_each(|peers| peers.sort_unstable());
    graph
}

/// Each seat linked with the next ⌊degree / 2⌋, and with the one opposite when the degree is odd.
fn circulant_edges(world: u32, degree: u32) -> Vec<[Seat; 2]> {
    let near = (0..world).flat_map(|seat| (1..=degree / 2).map(move |offset| (seat, offset)));
    let opposite = (0..degree % 2 * (world / 2)).map(|seat| (seat, world / 2));
    near.chain(opposite).map(|(seat, offset)| [Seat(seat), Seat((seat + offset) % world)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seat_has_its_degree_and_no_neighbour_twice() {
        for world in 1..=17 {
            for degree in 3..=8 {
                let graph = neighbours(world, degree);
                let count = graph[0].len();
                assert!(count as u32 == degree.min(world - 1) || count as u32 == degree + 1);
                for (seat, peers) in graph.iter().enumerate() {
                    assert_eq!(peers.len(), count, "world {world}, degree {degree}");
                    assert!(peers.windows(2).all(|pair| pair[0] < pair[1]));
                    let mutual = |peer: &Seat| graph[peer.index()].contains(&Seat(seat as u32));
                    assert!(peers.iter().all(|peer| peer.index() != seat && mutual(peer)));
                }
            }
        }
    }

    #[test]
    fn it_is_random_and_far_smaller_than_the_ring_it_began_as() {
        let graph = neighbours(256, 4);
        assert!(distance_max(&graph).unwrap() <= 8, "an expander");
        let kept = (0..256).filter(|&seat| graph[seat as usize].contains(&Seat((seat + 1) % 256)));
        assert!(kept.count() < 20, "the circulant graph is forgotten");
        assert_eq!(graph, neighbours(256, 4));
    }

    #[test]
    fn two_islands_are_seen() {
        let islands = vec![vec![Seat(1)], vec![Seat(0)], vec![Seat(3)], vec![Seat(2)]];
        assert_eq!(distance_max(&islands), None);
    }
}
