//! Topologies.

use starlings_core::{Entry, Params, Seat};
use starlings_testkit::conformance::{topology, variants};
use starlings_topology::{Act, Cost, Move, Pattern, TOPOLOGIES, Topology};
use std::collections::BTreeSet;

fn build(name: &str) -> Box<dyn Topology> {
    let entry = Entry::find("topology", TOPOLOGIES, name).expect("in the catalogue");
    (entry.build)(&Params::defaults(entry.params).expect("defaults")).expect("builds")
}

#[test]
fn every_topology_obeys_the_laws() {
    for entry in TOPOLOGIES {
        for (label, params) in variants(entry) {
            let topology = (entry.build)(&params).unwrap();
            topology::check(&*topology).unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

fn peers(moves: &[Move]) -> BTreeSet<Seat> {
    moves.iter().map(|step| step.peer).collect()
}

#[test]
fn a_ring_knows_two_neighbours_and_sends_least() {
    let ring = build("ring");
    for world in 3..=17 {
        let flock = topology::plays(&*ring, world, ring.grain(world)).unwrap();
        assert!(flock.iter().all(|moves| peers(moves).len() == 2), "world {world}");
        let cost = ring.cost(world, 1000, ring.grain(world));
        let least = 2.0 * f64::from(world - 1) / f64::from(world) * 1000.0;
        assert!((cost.bytes_sent_max - least).abs() < 1e-9, "world {world}");
        assert_eq!(cost.rounds, 2 * u64::from(world - 1));
    }
}

#[test]
fn a_tree_is_as_deep_as_its_logarithm_and_its_leaves_talk_to_one() {
    let tree = build("tree");
    for world in 2..=17u32 {
        assert_eq!(tree.cost(world, 8, 4).rounds, 2 * u64::from(world.ilog2()), "world {world}");
        let flock = topology::plays(&*tree, world, 4).unwrap();
        assert_eq!(peers(flock.last().unwrap()).len(), 1, "world {world}");
        assert!(flock.iter().all(|moves| peers(moves).len() <= 3), "world {world}");
    }
}

#[test]
fn in_a_star_only_owners_fold_and_everyone_talks_to_everyone() {
    let star = build("star");
    for world in 2..=17 {
        let Pattern::Owners(owners) = star.pattern(Seat(0), world, 2 * world as usize) else {
            panic!("a star has owners")
        };
        let flock = topology::plays(&*star, world, owners.len()).unwrap();
        for (seat, moves) in flock.iter().enumerate() {
            let folds = moves.iter().filter(|step| step.act == Act::Fold);
            assert!(folds.clone().all(|step| owners[step.chunk].index() == seat));
            assert_eq!(folds.count(), 2 * (world as usize - 1));
            assert_eq!(peers(moves).len(), world as usize - 1);
        }
        assert_eq!(star.cost(world, 8, owners.len()).rounds, 2);
    }
}

/// Two seats that exchange chunks in a way that breaks a law.
struct Broken {
    moves: [Vec<Move>; 2],
    rounds: u64,
}

impl Topology for Broken {
    fn pattern(&self, seat: Seat, _world: u32, _chunks: usize) -> Pattern {
        Pattern::Moves(self.moves[seat.index()].clone())
    }

    fn cost(&self, _world: u32, bytes: u64, _chunks: usize) -> Cost {
        let bytes = bytes as f64;
        Cost { rounds: self.rounds, bytes_sent_max: bytes, bytes_sent_total: 2.0 * bytes }
    }

    fn grain(&self, _world: u32) -> usize {
        1
    }
}

/// Moves of seat 0 and of seat 1, each a chunk, a peer and an act.
type Script<'a> = [&'a [(usize, u32, Act)]; 2];

fn law_broken_by(script: Script<'_>, rounds: u64) -> String {
    let chunks = script.iter().flat_map(|moves| moves.iter()).map(|&(chunk, _, _)| chunk + 1).max();
    let moves = script.map(|moves| {
        moves.iter().map(|&(chunk, peer, act)| Move { chunk, peer: Seat(peer), act }).collect()
    });
    let verdict = topology::check_one(&Broken { moves, rounds }, 2, chunks.expect("moves"));
    verdict.err().unwrap_or_default()
}

#[test]
fn broken_topologies_are_found_out() {
    use Act::{Fold, Replace, SendPartial, SendTotal};
    let root = [(0, 1, Fold), (0, 1, SendTotal)];
    let leaf = [(0, 0, SendPartial), (0, 0, Replace)];
    assert_eq!(law_broken_by([&root, &leaf], 2), "");
    let cases: [(Script<'_>, &str); 8] = [
        ([&root, &leaf[..1]], "a send without its receive"),
        ([&[(0, 1, SendPartial)], &[]], "1 sends, 0 receives"),
        ([&[(0, 0, SendPartial)], &[]], "sends to itself"),
        ([&[(0, 1, SendPartial)], &[(0, 0, Replace)]], "a send without its receive"),
        ([&[(0, 1, SendTotal)], &[(0, 0, Replace)]], "a total is sent that is none"),
        ([&[(0, 1, SendPartial)], &[(0, 0, Fold)]], "without all contributions"),
        (
            [&[(0, 1, Fold), (0, 1, SendPartial)], &[(0, 0, SendPartial), (0, 0, Fold)]],
            "counted twice",
        ),
        ([&[(0, 1, SendPartial), (0, 1, Fold)], &[(0, 0, SendPartial), (0, 0, Fold)]], "deadlock"),
    ];
    for (script, law) in cases {
        let found = law_broken_by(script, 2);
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
    let found = law_broken_by([&root, &leaf], 3);
    assert!(found.contains("cost says 3 rounds, 2 were counted"), "{found}");
}

#[test]
fn a_list_that_waits_for_itself_across_chunks_is_found_out() {
    use Act::{Fold, Replace, SendPartial, SendTotal};
    // Each chunk alone is sound; but both seats receive one before they send the other.
    let zero = [(0, 1, Fold), (0, 1, SendTotal), (1, 1, SendPartial), (1, 1, Replace)];
    let one = [(1, 0, Fold), (1, 0, SendTotal), (0, 0, SendPartial), (0, 0, Replace)];
    let found = law_broken_by([&zero, &one], 2);
    assert!(found.contains("played in order"), "{found}");
}
