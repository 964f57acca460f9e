//! Topologies: the laws for every entry, what tells the sums apart, and what breaks a law.

mod mixing;

use starlings_core::{Ability, Entry, Params, Seat};
use starlings_testkit::conformance::{topology, variants};
use starlings_topology::{Act, Cost, Form, Move, Pattern, TOPOLOGIES, Topology};
use std::collections::BTreeSet;

fn form(name: &str, given: &str) -> Form {
    let entry = Entry::find("topology", TOPOLOGIES, name).expect("in the catalogue");
    let params: Params =
        entry.check("topology", &given.parse().expect("a table")).expect("allowed");
    (entry.build)(&params).expect("builds")
}

fn sum(name: &str, given: &str) -> Box<dyn Topology> {
    form(name, given).sum().expect("it sums")
}

fn build(name: &str) -> Box<dyn Topology> {
    sum(name, "")
}

#[test]
fn every_topology_obeys_the_laws() {
    for entry in TOPOLOGIES {
        for (label, params) in variants(entry) {
            let form = (entry.build)(&params).unwrap();
            topology::check(&form).unwrap_or_else(|law| panic!("{label}: {law}"));
        }
    }
}

#[test]
fn hierarchies_of_any_two_sums_obey_the_laws() {
    let parts = ["ring", "tree", "halving-doubling", "star"];
    for (inner, outer) in parts.iter().flat_map(|inner| parts.map(|outer| (inner, outer))) {
        let both = sum("hierarchical", &format!("inner = '{inner}'\nouter = '{outer}'\ngroup = 3"));
        for world in [2, 3, 4, 7, 9, 11, 16] {
            for chunks in [1, 5, both.grain(world)] {
                topology::check_one(&*both, world, chunks)
                    .unwrap_or_else(|law| panic!("{outer} of {inner}s: {law}"));
            }
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

#[test]
fn halving_and_doubling_has_the_rounds_of_a_tree_and_the_bytes_of_a_ring() {
    let halving = build("halving-doubling");
    for world in [2u32, 4, 8, 16] {
        let chunks = halving.grain(world);
        let cost = halving.cost(world, 1000, chunks);
        let least = 2.0 * f64::from(world - 1) / f64::from(world) * 1000.0;
        assert_eq!(cost.rounds, 2 * u64::from(world.ilog2()), "world {world}");
        assert!((cost.bytes_sent_max - least).abs() < 1e-9, "world {world}");
        let flock = topology::plays(&*halving, world, chunks).unwrap();
        let logarithm = world.ilog2() as usize;
        assert!(flock.iter().all(|moves| peers(moves).len() == logarithm), "world {world}");
    }
    for world in [3, 5, 6, 7, 9, 17] {
        let cost = halving.cost(world, 1000, halving.grain(world));
        assert!(cost.rounds <= 2 * u64::from(world.ilog2()) + 2, "world {world}");
        assert!(cost.bytes_sent_max < 3000.0, "world {world}");
        // The first seat sits out: it talks to the one that stands in for it, and to nobody else.
        let flock = topology::plays(&*halving, world, 4).unwrap();
        assert_eq!(peers(&flock[0]), BTreeSet::from([Seat(1)]), "world {world}");
    }
}

#[test]
fn a_hierarchy_crosses_between_groups_once_a_group_and_not_once_a_seat() {
    for (world, group) in [(8, 4), (16, 4), (12, 3)] {
        let groups = f64::from(world / group);
        let both = sum("hierarchical", &format!("group = {group}"));
        let chunks = both.grain(world);
        let between = |topology: &dyn Topology| {
            topology::bytes_between_groups(topology, (world, group), (1000, chunks)).unwrap()
        };
        let expected = 2.0 * (groups - 1.0) * 1000.0;
        let crossed = between(&*both);
        assert!((crossed - expected).abs() < 1e-6, "{crossed} bytes, expected {expected}");
        let star = between(&*build("star"));
        assert!((star - f64::from(group) * crossed).abs() < 1e-6, "a star crosses for each seat");
        // A flat ring crosses as little, but its partial sums stand in line behind every seat.
        let rounds = both.cost(world, 1000, chunks).rounds;
        assert_eq!(rounds, u64::from(2 * (group - 1) + 2 * (world / group - 1)));
        assert!(rounds < build("ring").cost(world, 1000, chunks).rounds);
    }
}

#[test]
fn the_parts_of_a_hierarchy_are_what_they_are_called() {
    let parts = |inner, outer| {
        sum("hierarchical", &format!("inner = '{inner}'\nouter = '{outer}'\ngroup = 8"))
    };
    let rounds = |inner, outer| parts(inner, outer).cost(64, 1000, 64).rounds;
    assert_eq!(rounds("ring", "ring"), 14 + 14);
    assert_eq!(rounds("ring", "halving-doubling"), 14 + 6);
    assert_eq!(rounds("tree", "star"), 6 + 2);
    assert_eq!(rounds("star", "tree"), 2 + 6);
    let inside = parts("tree", "ring");
    let flock = topology::plays(&*inside, 64, 64).unwrap();
    let leaders = (0..8).map(|group| 8 * group);
    let crossing =
        |seat: usize| peers(&flock[seat]).iter().any(|peer| peer.index() / 8 != seat / 8);
    assert!((0..64).filter(|&seat| crossing(seat)).eq(leaders), "only the roots of trees cross");
}

#[test]
fn a_mesh_takes_one_round_and_carries_contributions_whole() {
    let mesh = build("mesh");
    for world in 2..=17 {
        assert_eq!(mesh.pattern(Seat(1), world, 3), Pattern::Everyone);
        let cost = mesh.cost(world, 1000, 3);
        assert_eq!((cost.rounds, cost.bytes_sent_max), (1, f64::from(1000 * (world - 1))));
    }
    for entry in TOPOLOGIES {
        let carries = entry.gives.contains(&Ability::Contributions);
        assert_eq!(carries, ["mesh", "star"].contains(&entry.name), "{}", entry.name);
    }
}

#[test]
fn groups_are_built_where_contributions_are_merged_before_they_are_served() {
    assert!(matches!(form("star", ""), Form::Sum(_)));
    let Form::Groups(merged) = form("star", "merge = 4") else { panic!("two tiers") };
    assert_eq!(merged.size, 4);
    assert!(matches!(merged.inner.pattern(Seat(0), 4, 4), Pattern::Owners(_)));
    let Form::Groups(grouped) = form("grouped", "inner = 'tree'\ngroup = 3") else {
        panic!("groups")
    };
    assert_eq!(grouped.size, 3);
    assert_eq!(grouped.inner.pattern(Seat(1), 3, 2), build("tree").pattern(Seat(1), 3, 2));
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

/// Everyone sends to everyone, or so it says, at a cost that is not the truth.
struct Boastful {
    rounds: u64,
    /// From this seat on there are no moves.
    silent: u32,
}

impl Topology for Boastful {
    fn pattern(&self, seat: Seat, _world: u32, _chunks: usize) -> Pattern {
        if seat.0 < self.silent { Pattern::Everyone } else { Pattern::Moves(Vec::new()) }
    }

    fn cost(&self, world: u32, bytes: u64, _chunks: usize) -> Cost {
        let sent = f64::from(world - 1) * bytes as f64;
        let bytes_sent_total = f64::from(world) * sent;
        Cost { rounds: self.rounds, bytes_sent_max: sent, bytes_sent_total }
    }

    fn grain(&self, _world: u32) -> usize {
        1
    }
}

#[test]
fn a_mesh_that_is_none_is_found_out() {
    let law = |rounds, silent| topology::check_one(&Boastful { rounds, silent }, 3, 2).err();
    assert_eq!(law(1, 3), None);
    assert!(law(1, 2).is_some_and(|law| law.contains("rank 2 sums in another way")));
    assert!(law(2, 3).is_some_and(|law| law.contains("cost says 2 rounds, 1 were counted")));
}
