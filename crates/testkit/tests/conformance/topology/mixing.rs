//! What tells apart the topologies that do not sum: graphs, walks, partial exchange and the shuffle; and what
//! breaks their laws.

use super::form;
use starlings_core::Seat;
use starlings_testkit::conformance::topology;
use starlings_topology::{
    Cost, Form, Graph, Groups, Pace, Partial, Pattern, Shuffle, Topology, Walk,
};
use std::collections::BTreeSet;
use std::f64::consts::TAU;

fn graph(name: &str, given: &str) -> Box<dyn Graph> {
    let Form::Graph(graph) = form(name, given) else { panic!("{name} is a graph") };
    graph
}

fn averaging(shape: &str) -> Box<dyn Graph> {
    graph("averaging", &format!("graph = '{shape}'"))
}

fn walk() -> Box<dyn Walk> {
    let Form::Walk(walk) = form("gossip", "") else { panic!("gossip walks") };
    walk
}

fn partial() -> Box<dyn Partial> {
    let Form::Partial(partial) = form("ako", "") else { panic!("ako is partial") };
    partial
}

/// How far ahead a seat's peers are.
fn distances(graph: &dyn Graph, seat: u32, world: u32, round: u64) -> Vec<u32> {
    let peers = graph.sends_to(Seat(seat), world, round);
    let ahead: BTreeSet<u32> = peers.iter().map(|peer| (peer.0 + world - seat) % world).collect();
    ahead.into_iter().collect()
}

fn is_symmetric(graph: &dyn Graph, world: u32) -> bool {
    (0..world).map(Seat).all(|seat| {
        let peers = graph.sends_to(seat, world, 0);
        peers.iter().all(|&peer| graph.sends_to(peer, world, 0).contains(&seat))
    })
}

#[test]
fn a_ring_of_averages_shrinks_the_spread_at_the_rate_of_its_spectrum() {
    let ring = averaging("ring");
    for world in 4..=17 {
        assert_eq!(distances(&*ring, 2, world, 5), [1, world - 1]);
        let rate = topology::shrinkage(&*ring, world, 1);
        // The eigenvalues of the circulant matrix, (1 + 2 cos(2πk/P)) / 3; the first is the largest.
        let expected = (1.0 + 2.0 * (TAU / f64::from(world)).cos()) / 3.0;
        assert!((rate - expected.abs()).abs() < 1e-6, "world {world}: {rate}, not {expected}");
        let four = topology::shrinkage(&*ring, world, 4);
        assert!((four - expected.powi(4)).abs() < 1e-6, "world {world}: {four} in four rounds");
    }
}

#[test]
fn a_torus_has_four_neighbours_and_mixes_faster_than_a_ring() {
    let (ring, torus) = (averaging("ring"), averaging("torus"));
    for world in (5..=17u32).chain([1024]) {
        let row = world.isqrt();
        let expected = BTreeSet::from([1, row, world - row, world - 1]);
        let made = distances(&*torus, 1, world, 0);
        assert_eq!(made, expected.into_iter().collect::<Vec<_>>(), "world {world}");
        assert_eq!(made.len(), 4, "world {world}");
        assert!(is_symmetric(&*torus, world));
    }
    let rates = [&ring, &torus].map(|graph| topology::shrinkage(&**graph, 64, 1));
    assert!(rates[0] > 0.996 && rates[1] < 0.95, "{rates:?}");
    assert_eq!([&ring, &torus].map(|graph| graph.rounds_max(1024)), [512, 31]);
}

#[test]
fn a_random_regular_graph_is_an_expander_of_the_degree_asked_for() {
    for degree in [3, 4, 7] {
        let graph = graph("averaging", &format!("graph = 'random-regular'\ndegree = {degree}"));
        for world in [8, 16, 1024] {
            let degrees = (0..world).map(|seat| graph.sends_to(Seat(seat), world, 0).len());
            assert!(degrees.into_iter().all(|count| count == degree), "world {world}");
            assert!(is_symmetric(&*graph, world));
        }
    }
    let graph = averaging("random-regular");
    let first = distances(&*graph, 0, 64, 0);
    let same = (0..64).filter(|&seat| distances(&*graph, seat, 64, 0) == first).count();
    assert!(same < 8, "seats differ");
    // Alon and Boppana: (1 + 2√3) / 5 = 0.893 is the best that four neighbours can do in large worlds.
    let rates = [64, 256].map(|world| topology::shrinkage(&*graph, world, 1));
    assert!(rates.iter().all(|rate| (0.75..0.94).contains(rate)), "{rates:?}");
    assert!(topology::shrinkage(&*averaging("torus"), 256, 1) > 0.96, "a torus falls behind");
}

#[test]
fn an_exponential_graph_has_one_peer_a_round_and_averages_exactly_over_powers_of_two() {
    let graph = averaging("exponential");
    for world in (2..=17u32).chain([1024]) {
        let logarithm = world.next_power_of_two().ilog2();
        let all: Vec<Vec<u32>> =
            (0..logarithm.into()).map(|round| distances(&*graph, 1, world, round)).collect();
        let expected: Vec<Vec<u32>> = (0..logarithm).map(|bit| vec![1 << bit]).collect();
        assert_eq!(all, expected, "world {world}");
        assert_eq!(graph.rounds_max(world), u64::from(logarithm));
        assert!((graph.cost(world, 1000).bytes_sent_max - 1000.0).abs() < 1e-9);
        let left = topology::shrinkage(&*graph, world, logarithm.into());
        assert_eq!(left < 1e-12, world.is_power_of_two(), "world {world}: {left} of the spread");
        assert!(left < 0.5, "world {world}: {left} of the spread");
    }
}

#[test]
fn a_halton_mesh_is_directed_and_as_wide_as_its_logarithm() {
    let halton = graph("halton", "");
    assert_eq!(distances(&*halton, 4, 6, 0), [1, 3, 4], "1/4, 1/2 and 3/4 of the flock");
    assert_eq!(distances(&*halton, 4, 17, 0), [2, 4, 8, 10, 12]);
    for world in (4..=17).chain([1024]) {
        let made = distances(&*halton, 1, world, 0);
        assert_eq!(made.len() as u32, world.next_power_of_two().ilog2(), "world {world}");
        assert_eq!(made, distances(&*halton, 1, world, 1), "the same in every round");
        assert!(!is_symmetric(&*halton, world), "world {world}");
    }
    assert!(halton.rounds_max(17) <= 4 && halton.rounds_max(1024) < 80);
    for shape in ["ring", "torus", "random-regular"] {
        assert!(is_symmetric(&*averaging(shape), 13), "{shape}");
    }
}

#[test]
fn gossip_is_chance_and_so_some_seats_get_many_visitors_and_some_none() {
    let gossip = walk();
    assert_eq!(gossip.cache(), 10);
    let Form::Walk(other) = form("gossip", "cache = 3") else { panic!("gossip walks") };
    assert_eq!(other.cache(), 3);
    let mut visitors = [0; 4];
    for round in 0..1000 {
        let mut arrived = [0; 16];
        let peers = (0..16).filter_map(|seat| gossip.next(Seat(seat), 16, round, 7));
        peers.for_each(|peer| arrived[peer.index()] += 1);
        arrived.iter().for_each(|&count: &usize| visitors[count.min(3)] += 1);
    }
    // Binomial with 15 draws of 1/15: 35.5 %, 38.1 %, 19.0 % and 7.4 % have none, one, two and more.
    let expected = [5684.0, 6090.0, 3045.0, 1181.0];
    for (count, expected) in visitors.into_iter().zip(expected) {
        assert!((f64::from(count) - expected).abs() < 0.1 * expected, "{visitors:?}");
    }
}

#[test]
fn ako_cuts_as_finely_as_the_links_need() {
    let ako = partial();
    let parts = |megabits: f64| {
        let pace = Pace { bytes_per_second: megabits * 1e6 / 8.0, step_seconds: 0.5 };
        ako.parts(5, 10_000_000, pace)
    };
    assert_eq!([10_000.0, 640.0, 320.0, 100.0, 1.0].map(parts), [1, 1, 2, 7, 64]);
    let Form::Partial(fixed) = form("ako", "partitions = 6") else { panic!("ako is partial") };
    assert_eq!(fixed.parts(5, 10, Pace { bytes_per_second: 1e9, step_seconds: 1.0 }), 6);
    assert_eq!((0..4).map(|seat| ako.part(Seat(seat), 2, 3)).collect::<Vec<_>>(), [2, 0, 1, 2]);
}

#[test]
fn a_shuffle_over_a_power_of_two_uses_both_directions_of_a_link() {
    let Form::Shuffle(shuffle) = form("all-to-all", "") else { panic!("it shuffles") };
    for world in 2..=17u32 {
        let pairs =
            (0..shuffle.rounds(world)).filter_map(|round| shuffle.pair(Seat(1), world, round));
        let pairs: Vec<_> = pairs.collect();
        let mutual = pairs.iter().all(|(to, from)| to == from);
        assert_eq!(mutual, world.is_power_of_two(), "world {world}");
        // Of as many equal parts as there are seats, each keeps its own and sends the others.
        let (cost, part) = (shuffle.cost(world, 1000), 1000.0 / f64::from(world));
        let sent = pairs.len() as f64 * part;
        assert!(
            (cost.bytes_sent_max - sent).abs() < 1e-9,
            "{} instead of {sent}",
            cost.bytes_sent_max
        );
        assert!((cost.bytes_sent_total - sent * f64::from(world)).abs() < 1e-9);
        assert_eq!(cost.rounds, u64::from(shuffle.rounds(world)));
    }
}

/// A graph of which one thing is not as it should be.
#[derive(Clone, Copy)]
struct Faulty {
    /// How far ahead a seat sends.
    ahead: u32,
    /// How much weight a seat keeps; seat 0 another.
    own: [f64; 2],
    /// What is claimed.
    rounds: u64,
    degree: u32,
}

impl Graph for Faulty {
    fn sends_to(&self, seat: Seat, world: u32, _round: u64) -> Vec<Seat> {
        if world == 1 { Vec::new() } else { vec![Seat((seat.0 + self.ahead) % world)] }
    }

    fn weights(&self, seat: Seat, world: u32, _round: u64) -> Vec<(Seat, f64)> {
        if world == 1 {
            return vec![(seat, 1.0)];
        }
        let own = self.own[usize::from(seat.0 > 0)];
        let mut weights = [(seat, own), (Seat((seat.0 + world - 1) % world), 1.0 - own)];
        weights.sort_by_key(|&(seat, _)| seat);
        weights.to_vec()
    }

    fn rounds_max(&self, world: u32) -> u64 {
        if world == 1 { 0 } else { self.rounds + u64::from(world) - 1 }
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        let degree = if world == 1 { 0 } else { self.degree };
        let sent = f64::from(degree) * bytes as f64;
        let bytes_sent_total = f64::from(world) * sent;
        Cost { rounds: degree.min(1).into(), bytes_sent_max: sent, bytes_sent_total }
    }
}

#[test]
fn broken_graphs_are_found_out() {
    let sound = Faulty { ahead: 1, own: [0.5; 2], rounds: 0, degree: 1 };
    assert_eq!(topology::check_graph(&sound), Ok(()));
    let cases = [
        (Faulty { ahead: 2, ..sound }, "peers"),
        (Faulty { own: [0.3, 0.5], ..sound }, "columns sum to"),
        (Faulty { own: [1.0, 1.0], ..sound }, "[("),
        (Faulty { rounds: 1, ..sound }, "have heard of all after"),
        (Faulty { degree: 2, ..sound }, "cost says a seat sends"),
    ];
    for (graph, law) in cases {
        let found = topology::check_graph(&graph).expect_err(law);
        assert!(found.contains(law), "expected '{law}', found '{found}'");
    }
}

/// Rules for rounds that each break a law.
struct Rule(u32);

impl Walk for Rule {
    fn next(&self, seat: Seat, world: u32, round: u64, _seed: u64) -> Option<Seat> {
        let step = match self.0 {
            // In turn.
            0 => 1 + (round % u64::from(world.max(2) - 1)) as u32,
            // Always the next.
            1 => 1,
            // Itself.
            _ => 0,
        };
        (world > 1).then(|| Seat((seat.0 + step) % world))
    }

    fn cache(&self) -> usize {
        1
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        walk().cost(world, bytes)
    }
}

impl Partial for Rule {
    fn parts(&self, world: u32, _bytes: u64, pace: Pace) -> u32 {
        match (self.0, world) {
            (_, 1) => 1,
            // Finer over better links.
            (2, _) => (pace.bytes_per_second / 1e7) as u32,
            _ => 4,
        }
    }

    fn part(&self, seat: Seat, round: u64, parts: u32) -> u32 {
        let stride = if self.0 == 1 { 2 } else { 1 };
        let shift = if self.0 == 0 { 0 } else { seat.0 };
        ((u64::from(shift) + stride * (round % u64::from(parts))) % u64::from(parts)) as u32
    }

    fn cost(&self, world: u32, bytes: u64, parts: u32) -> Cost {
        partial().cost(world, bytes, parts)
    }
}

impl Shuffle for Rule {
    fn rounds(&self, world: u32) -> u32 {
        if self.0 == 0 { world } else { world - 1 }
    }

    fn pair(&self, seat: Seat, world: u32, round: u32) -> Option<(Seat, Seat)> {
        let distance = if self.0 == 1 { 1 } else { 1 + round };
        let to = Seat((seat.0 + distance) % world);
        Some((to, if self.0 == 2 { to } else { Seat((seat.0 + world - distance) % world) }))
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        let all = f64::from(world - 1) * bytes as f64;
        let bytes_sent_max = all / f64::from(world);
        Cost { rounds: (world - 1).into(), bytes_sent_max, bytes_sent_total: all }
    }
}

#[test]
fn broken_rules_for_rounds_are_found_out() {
    let walks = ["takes turns", "prefers some", "sends to rank 0"];
    let partials = ["seats send", "in 2 rounds", "more bandwidth, more parts"];
    let shuffles = ["meets itself", "again", "does not receive"];
    for (rule, ((walk, partial), shuffle)) in walks.iter().zip(partials).zip(shuffles).enumerate() {
        let rule = Rule(rule as u32);
        let found = [
            topology::check_walk(&rule).unwrap_err(),
            topology::check_partial(&rule).unwrap_err(),
            topology::check_shuffle(&rule).unwrap_err(),
        ];
        for (found, law) in found.iter().zip([walk, partial, shuffle]) {
            assert!(found.contains(law), "expected '{law}', found '{found}'");
        }
    }
}

type Tilt = fn(Cost) -> Cost;

/// The walk and the partial exchange of the catalogue, at a cost that is not the truth.
struct Tilted(Tilt);

impl Walk for Tilted {
    fn next(&self, seat: Seat, world: u32, round: u64, seed: u64) -> Option<Seat> {
        walk().next(seat, world, round, seed)
    }

    fn cache(&self) -> usize {
        1
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        self.0(walk().cost(world, bytes))
    }
}

impl Partial for Tilted {
    fn parts(&self, world: u32, bytes: u64, pace: Pace) -> u32 {
        partial().parts(world, bytes, pace)
    }

    fn part(&self, seat: Seat, round: u64, parts: u32) -> u32 {
        partial().part(seat, round, parts)
    }

    fn cost(&self, world: u32, bytes: u64, parts: u32) -> Cost {
        self.0(partial().cost(world, bytes, parts))
    }
}

#[test]
fn costs_that_are_not_the_truth_are_found_out() {
    let untilted = Tilted(|cost| cost);
    assert_eq!(topology::check_walk(&untilted), Ok(()));
    assert_eq!(topology::check_partial(&untilted), Ok(()));
    let Form::Groups(groups) = form("grouped", "group = 3") else { panic!("groups") };
    let law_of_groups = |groups: &Groups, world, tilt: Tilt| {
        topology::check_groups_cost(groups, (world, 1000), tilt(groups.cost(world, 1000)))
    };
    assert_eq!(law_of_groups(&groups, 7, untilted.0), Ok(()));
    let cases: [(Tilt, &str); 3] = [
        (|cost| Cost { rounds: cost.rounds + 1, ..cost }, "rounds"),
        (|cost| Cost { bytes_sent_max: 1.001 * cost.bytes_sent_max, ..cost }, "a seat sends"),
        (|cost| Cost { bytes_sent_total: 0.999 * cost.bytes_sent_total, ..cost }, "all send"),
    ];
    for (tilt, law) in cases {
        let found = [
            topology::check_walk(&Tilted(tilt)).expect_err(law),
            topology::check_partial(&Tilted(tilt)).expect_err(law),
            law_of_groups(&groups, 7, tilt).expect_err(law),
        ];
        for found in found {
            assert!(found.contains("cost says") && found.contains(law), "{found}");
        }
    }
}

#[test]
fn groups_whose_sum_says_a_wrong_cost_are_found_out() {
    /// A ring that forgets its second walk.
    struct Forgetful(Box<dyn Topology>);

    impl Topology for Forgetful {
        fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern {
            self.0.pattern(seat, world, chunks)
        }

        fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
            let cost = self.0.cost(world, bytes, chunks);
            Cost { rounds: cost.rounds / 2, ..cost }
        }

        fn grain(&self, world: u32) -> usize {
            self.0.grain(world)
        }
    }

    let ring = || form("ring", "").sum().expect("it sums");
    let sound = Form::Groups(Groups { inner: ring(), size: 3 });
    assert_eq!(topology::check(&sound), Ok(()));
    let wrong = Form::Groups(Groups { inner: Box::new(Forgetful(ring())), size: 3 });
    let found = topology::check(&wrong).expect_err("the wrong cost of a part");
    assert!(found.contains("cost says 1 rounds, 2 were counted"), "{found}");
}

#[test]
fn groups_pay_for_two_sums_inside_and_for_their_owners() {
    let groups = |inner: &str, group: u32| {
        let given = format!("inner = '{inner}'\ngroup = {group}");
        let Form::Groups(groups) = form("grouped", &given) else { panic!("groups") };
        groups
    };
    // Two rings of two: each seat sends its half twice in each of two sums; the first of a group pushes three quarters of
    // 1000 bytes, and a quarter goes back to the first of the other group; the second seats answer both groups.
    let cost = groups("ring", 2).cost(4, 1000);
    assert_eq!((cost.rounds, cost.bytes_sent_max), (2 + 2 + 2, 2000.0 + 750.0 + 250.0));
    assert_eq!(cost.bytes_sent_total, 2.0 * 3000.0 + 2.0 * (2000.0 + 500.0));
    // Without groups it is what a star pays.
    let Form::Sum(star) = form("star", "") else { panic!("a star sums") };
    for world in 2..=17 {
        let (alone, star) = (groups("ring", 1).cost(world, 1000), star.cost(world, 1000, 17 * 16));
        let each = 2.0 * f64::from(world - 1) / f64::from(world) * 1000.0;
        assert_eq!(alone.rounds, star.rounds);
        assert!((alone.bytes_sent_max - each).abs() < 1e-9, "world {world}: {alone:?}");
        assert!((alone.bytes_sent_total - star.bytes_sent_total).abs() < 1e-6, "world {world}");
    }
    // A tree's root is with the owners while the total is still on its way down: that trip takes no time of its own.
    assert_eq!(groups("tree", 2).cost(4, 1000).rounds, 4);
    assert_eq!(groups("star", 2).cost(4, 1000).rounds, 6);
}
