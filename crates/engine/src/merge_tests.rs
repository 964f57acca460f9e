//! Mergers over real memory nets: what meeting means, sums that leave their contributions as they are, codecs whose bits
//! depend neither on the transport nor on when a merger was built, and bytes that are what they are said to be.

use super::*;
use crate::bridge::adder::{PATIENCE, Perch, perches, perches_that, run_all};
use crate::choices::{codec, summing};
use crate::neighbours::Neighbours;
use crate::net::kinds::PROBE;
use starlings_codec::CODECS;
use starlings_core::{Rng, Rows, tracked};
use starlings_topology::TOPOLOGIES;
use starlings_transport::HEADER_BYTES;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

fn merger(perch: &Perch, kind: u8, topology: &str) -> Merger {
    let topology = summing(topology, "").unwrap();
    Merger::new(perch.net.clone(), MergeOptions::exact(kind, &perch.net, topology, PATIENCE))
}

#[test]
fn nobody_leaves_a_meeting_before_all_have_come() {
    for world in 1..=9 {
        let seats = perches(world);
        let came = AtomicU32::new(0);
        run_all(&seats, |perch| {
            let mut merger = merger(&perch, 1, "ring");
            for meeting in 1..=20 {
                came.fetch_add(1, Ordering::SeqCst);
                merger.meet().unwrap();
                let here = came.load(Ordering::SeqCst);
                assert!(here >= meeting * world, "{here} of {world} at meeting {meeting}");
            }
        });
    }
}

#[test]
fn a_meeting_between_sums_mixes_with_neither() {
    let seats = perches(3);
    run_all(&seats, |perch| {
        let mut merger = merger(&perch, 1, "ring");
        for round in 0..10 {
            let mine = vec![round + perch.seat() as i64];
            let sum = merger.merge(Update { blocks: vec![Block::counts("n", mine)] }).unwrap();
            assert_eq!(sum.i64("n"), [3 * round + 3]);
            merger.meet().unwrap();
        }
    });
}

#[test]
fn the_largest_of_each_number_is_known_to_all() {
    for world in 1..=9 {
        run_all(&perches(world), |perch| {
            let mut merger = merger(&perch, 1, "tree");
            for round in 0..5 {
                // Each seat has the largest of one number, and all are below zero in the second block.
                let seat = perch.seat() as i64;
                let mine = (0..9).map(|at| if at == seat { 100 + round } else { seat }).collect();
                let below = Block::counts("below", vec![i64::MIN, -1 - seat]);
                let update = Update { blocks: vec![Block::counts("n", mine), below] };
                let all = merger.largest(update).unwrap();
                let top =
                    |at| if at < i64::from(world) { 100 + round } else { i64::from(world) - 1 };
                assert_eq!(all.i64("n"), (0..9).map(top).collect::<Vec<i64>>());
                assert_eq!(all.i64("below"), [i64::MIN, -1]);
            }
        });
    }
}

#[test]
fn a_seat_that_speaks_of_other_numbers_is_named() {
    run_all(&perches(2), |perch| {
        let mut merger = merger(&perch, 1, "tree");
        let mine = vec![1; 1 + perch.seat()];
        let fault = merger.largest(Update { blocks: vec![Block::counts("n", mine)] }).unwrap_err();
        assert!(fault.to_string().contains("spoke of something else"), "{fault}");
    });
}

/// Numbers of three kinds, some megabytes of them, none of which lies at the edge of a chunk.
fn large(seat: usize, round: u64) -> Update {
    let mut rng = Rng::named(5, "large", &[seat as u64, round]);
    let mut numbers = |count: usize| -> Vec<f64> {
        (0..count).map(|_| rng.below(1 << 40) as f64 / 1024.0).collect()
    };
    let singles = numbers(900_001).into_iter().map(|number| number as f32).collect();
    let counts = numbers(3).into_iter().map(|number| number as i64).collect();
    Update {
        blocks: vec![
            Block::counts("counts", counts),
            Block { name: "singles".to_string(), body: Body::Dense(Values::F32(singles)) },
            Block::dense("doubles", numbers(150_000)),
        ],
    }
}

#[test]
fn sums_beside_contributions_have_the_bits_of_others_and_change_nothing() {
    for (topology, world) in [("ring", 2), ("ring", 3), ("tree", 4), ("star", 3)] {
        let seats = perches(world);
        run_all(&seats, |perch| {
            let (mut plain, mut keeping) =
                (merger(&perch, 1, topology), merger(&perch, 2, topology));
            let mut room = Update::default();
            for round in 0..3 {
                let mine = large(perch.seat(), round);
                let wanted = plain.merge(mine.clone()).unwrap();
                room = keeping.merge_beside(mine.clone(), room).unwrap();
                assert!(room == wanted, "{topology}, {world} seats, round {round}");
                assert!(keeping.contribution() == Some(mine), "{topology}, {world} seats");
            }
        });
    }
}

/// Work that shows where it was done, and whether more than once.
struct Marking;

impl Work for Marking {
    fn before(&self, block: usize, range: Range<usize>, values: &mut Values) {
        mark(block, range, values, |number, at| number * 3 + at);
    }

    fn after(&self, block: usize, range: Range<usize>, values: &mut Values) {
        mark(block, range, values, |number, at| number * 7 - at);
    }
}

fn mark(block: usize, range: Range<usize>, values: &mut Values, to: impl Fn(i64, i64) -> i64) {
    if let (1, Values::I64(values)) = (block, values) {
        for at in range {
            values[at] = to(values[at], at as i64);
        }
    }
}

#[test]
fn work_is_done_once_on_every_number_before_and_after_its_sum() {
    for ((topology, world), count) in
        [("ring", 1), ("ring", 2), ("ring", 3), ("tree", 4), ("star", 3), ("halving-doubling", 5)]
            .into_iter()
            .flat_map(|way| [(way, 70_000), (way, 200)])
    {
        run_all(&perches(world), |perch| {
            let mut merger = merger(&perch, 1, topology);
            for round in 0..3i64 {
                let left = Block::counts("left alone", vec![round; count]);
                let mine =
                    (0..4 * count as i64 + 1).map(|at| at % 1000 + perch.seat() as i64 + round);
                let update = Update { blocks: vec![left, Block::counts("worked", mine.collect())] };
                let sum = merger.merge_working(update, Arc::new(Marking)).unwrap();
                let (seats, number) = (i64::from(world), |at: i64, seat| at % 1000 + seat + round);
                let wanted = |at| {
                    let sum: i64 = (0..seats).map(|seat| number(at, seat) * 3 + at).sum();
                    sum * 7 - at
                };
                let wanted: Vec<i64> = (0..4 * count as i64 + 1).map(wanted).collect();
                assert!(sum.i64("worked") == wanted, "{topology}, {world} seats, round {round}");
                assert!(sum.i64("left alone").iter().all(|&number| number == round * seats));
            }
        });
    }
}

/// Two matrices and a statistic.
fn gradient(seat: usize, step: u64) -> Update {
    let mut rng = Rng::named(6, "gradient", &[seat as u64, step]);
    let mut numbers = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f64>>();
    let singles = numbers(60 * 40).into_iter().map(|number| number as f32).collect();
    let singles = Block { name: "singles".to_string(), body: Body::Dense(Values::F32(singles)) };
    Update { blocks: vec![Block::dense("doubles", numbers(90 * 50)), singles, loss(seat)] }
}

fn loss(seat: usize) -> Block {
    Block::dense("loss", vec![seat as f64, 1.0])
}

/// A merger with a codec; through memory, it can share that with all others.
fn lossy(perch: &Perch, (name, topology): (&str, &str), memory: Option<&Neighbours>) -> Merger {
    let exact = MergeOptions::exact(1, &perch.net, summing(topology, "").unwrap(), PATIENCE);
    let shapes = [("doubles", (90, 50)), ("singles", (60, 40))];
    let shapes = shapes.map(|(name, shape)| (name.to_string(), shape)).into();
    let carriage = codec(name, "").unwrap();
    let options = MergeOptions { carriage, shapes: Arc::new(shapes), seed: 3, ..exact };
    let group = options.group.clone();
    let sum = |group: &[Seat]| memory.and_then(|memory| memory.sum(1, group));
    let seats = near(&*options.topology, &group, perch.net.seat());
    let merger = Merger::new(perch.net.clone(), options);
    match seats {
        Some(seats) => merger.nearby(sum(&seats)),
        None => merger.through(sum(&group)),
    }
}

/// A gradient and statistics, neither of which has short binary fractions.
fn with_statistics(seat: usize) -> Update {
    let mut rng = Rng::named(8, "statistics", &[seat as u64]);
    let mut numbers = |len: usize| (0..len).map(|_| rng.normal()).collect::<Vec<f64>>();
    let means = numbers(40_000).into_iter().map(|number| number as f32).collect();
    let means = Block { name: tracked("means"), body: Body::Dense(Values::F32(means)) };
    let rows =
        Rows { total: 9, width: 2, index: vec![seat as u32, 7], values: Values::F64(numbers(4)) };
    let (loss, rows) = (Block::dense("loss", numbers(2)), Block::rows("rows", rows));
    Update { blocks: vec![means, Block::dense("doubles", numbers(90 * 50)), rows, loss] }
}

#[test]
fn statistics_travel_as_they_are_under_every_codec_over_every_topology_that_sums() {
    let topologies = TOPOLOGIES.iter().map(|entry| entry.name);
    let topologies: Vec<&str> = topologies.filter(|name| summing(name, "").is_ok()).collect();
    assert!(topologies.len() >= 6 && topologies.contains(&"ring"), "{topologies:?}");
    for (topology, world) in topologies.into_iter().flat_map(|name| [2, 3, 4].map(|n| (name, n))) {
        let sums = |codec: &str| {
            run_all(&perches(world), |perch| {
                let mut merger = lossy(&perch, (codec, topology), None);
                let sum = merger.merge(with_statistics(perch.seat())).unwrap();
                let mine = with_statistics(perch.seat());
                assert_eq!(merger.merge_beside(mine.clone(), Update::default()).unwrap(), sum);
                assert_eq!(merger.contribution(), Some(mine));
                sum
            })
        };
        let exact = sums("raw").swap_remove(0);
        for sum in sums("half") {
            let is_same = |name: &str| sum.get(name).unwrap() == exact.get(name).unwrap();
            assert!(!is_same("doubles"), "{topology}: a gradient is rounded");
            for name in [&tracked("means"), "rows", "loss"] {
                assert!(is_same(name), "{topology}, {world} seats: {name} is rounded");
            }
        }
    }
}

/// The sums of some steps, as the first seat has them, and what each seat had lost after them.
fn sums_of(
    world: u32,
    way: (&str, &str),
    shared: bool,
    steps: Range<u64>,
    lost: &[Losses],
) -> Sums {
    let neighbours = Neighbours::of_threads(world);
    let mut found = run_all(&perches(world), |perch| {
        let memory = shared.then(|| &*neighbours[perch.seat()]);
        let mut merger = lossy(&perch, way, memory);
        lost.get(perch.seat()).into_iter().for_each(|lost| merger.restore(lost.clone(), true));
        let sums = steps.clone().map(|step| {
            merger.begin(Step(step));
            merger.merge(gradient(perch.seat(), step)).unwrap()
        });
        let sums: Vec<Update> = sums.collect();
        (sums, merger.losses())
    });
    assert!(found.iter().all(|(sums, _)| *sums == found[0].0), "{way:?}: other bits elsewhere");
    let lost = found.iter().map(|(_, lost)| lost.clone()).collect();
    (found.swap_remove(0).0, lost)
}

type Sums = (Vec<Update>, Vec<Losses>);

fn sums(way: (&str, &str), shared: bool, steps: Range<u64>, lost: &[Losses]) -> Sums {
    sums_of(3, way, shared, steps, lost)
}

fn ways() -> impl Iterator<Item = (&'static str, &'static str)> {
    let topologies = ["ring", "hierarchical", "star", "mesh"];
    CODECS.iter().flat_map(move |entry| topologies.map(|topology| (entry.name, topology)))
}

#[test]
fn every_codec_gives_the_same_bits_through_memory_and_over_links() {
    for way in ways() {
        let over_links = sums(way, false, 0..3, &[]);
        assert!(sums(way, true, 0..3, &[]) == over_links, "{way:?}");
    }
}

#[test]
fn a_merger_that_is_built_anew_goes_on_with_the_same_bits() {
    for (way, shared) in ways().flat_map(|way| [(way, false), (way, true)]) {
        let (whole, lost) = sums(way, shared, 0..5, &[]);
        let (mut sums_then, lost_then) = sums(way, shared, 0..2, &[]);
        let (sums_later, lost_later) = sums(way, shared, 2..5, &lost_then);
        sums_then.extend(sums_later);
        assert!(sums_then == whole && lost_later == lost, "{way:?}");
    }
}

#[test]
fn random_places_are_others_at_every_step_however_bytes_travel() {
    for shared in [false, true] {
        let (sums, _) = sums(("random-k", "ring"), shared, 0..6, &[]);
        let places = |sum: &Update| -> Vec<usize> {
            let values = sum.f64("doubles").iter().enumerate();
            values.filter(|(_, value)| **value != 0.0).map(|(place, _)| place).collect()
        };
        let drawn: std::collections::BTreeSet<Vec<usize>> = sums.iter().map(places).collect();
        assert_eq!(drawn.len(), sums.len(), "through memory: {shared}");
    }
}

/// All that was ever contributed has arrived or waits at a seat, though one of them came later, with a merger that had
/// made none of the earlier sums.
#[test]
fn a_newcomer_takes_part_in_the_same_random_places() {
    let way = ("random-k", "ring");
    for shared in [false, true] {
        let (before, lost) = sums_of(2, way, shared, 0..3, &[]);
        let (after, lost) = sums_of(3, way, shared, 3..30, &lost);
        let mut owed = vec![0.0; 90 * 50];
        let mut add = |numbers: &[f64], sign: f64| {
            owed.iter_mut().zip(numbers).for_each(|(owed, number)| *owed += sign * number);
        };
        for (step, seat) in (0..30).flat_map(|step| (0..3).map(move |seat| (step, seat))) {
            let is_there = seat < 2 || step >= 3;
            add(gradient(seat, step).f64("doubles"), if is_there { 1.0 } else { 0.0 });
        }
        before.iter().chain(&after).for_each(|sum| add(sum.f64("doubles"), -1.0));
        for lost in &lost {
            let Values::F64(held) = &lost["residual/0/doubles"] else { panic!("as it was given") };
            add(held, -1.0);
        }
        assert!(owed.iter().all(|owed| owed.abs() < 1e-10), "through memory: {shared}");
    }
}

#[test]
fn raw_bytes_of_codecs_of_several_sums_are_those_of_plain_sums() {
    for shared in [false, true] {
        for topology in ["ring", "tree", "halving-doubling", "star", "hierarchical", "mesh"] {
            let bytes = |name: &str| {
                let neighbours = Neighbours::of_threads(4);
                run_all(&perches(4), |perch| {
                    let memory = shared.then(|| &*neighbours[perch.seat()]);
                    let mut merger = lossy(&perch, (name, topology), memory);
                    for step in 0..3 {
                        merger.merge(gradient(perch.seat(), step)).unwrap();
                    }
                    (merger.bytes_raw(), perch.net.bytes_sent())
                })
            };
            let plain = bytes("raw");
            for name in ["random-k", "low-rank"] {
                for (thin, plain) in bytes(name).into_iter().zip(&plain) {
                    assert_eq!(thin.0, plain.0, "{name} {topology}, through memory: {shared}");
                    assert!(thin.1 < plain.1, "{name} {topology} sends {} bytes", thin.1);
                }
            }
        }
    }
}

#[test]
fn topologies_send_as_many_bytes_as_they_say() {
    // Both can be cut evenly for every topology here; the second into several chunks a seat.
    for (world, len) in [4, 5].into_iter().flat_map(|world| [(world, 27_720), (world, 443_520)]) {
        for name in ["ring", "tree", "halving-doubling", "star", "hierarchical", "mesh"] {
            let topology = summing(name, "").unwrap();
            let update = || Update { blocks: vec![Block::dense("x", vec![1.0; len])] };
            let chunks = cut(&update(), topology.grain(world)).len();
            let seats = perches(world);
            run_all(&seats, |perch| {
                let sum = merger(&perch, 1, name).merge(update()).unwrap();
                assert_eq!(sum.f64("x")[len - 1], f64::from(world));
            });
            // Where contributions travel whole, each says in five bytes how it is to be read.
            let everyone = topology.pattern(Seat(0), world, 1) == Pattern::Everyone;
            let head = HEADER_BYTES + if everyone { 5 } else { 0 };
            let sent = seats.iter().map(|perch| {
                let heads = perch.sent(Lane::Exchange, 1) * head;
                (perch.net.bytes_sent() - heads as u64) as f64
            });
            let sent: Vec<f64> = sent.collect();
            let cost = topology.cost(world, (len * 8) as u64, chunks);
            let most = sent.iter().copied().fold(0.0, f64::max);
            let near = |said: f64, sent: f64| (said - sent).abs() <= 1e-9 * sent;
            assert!(near(cost.bytes_sent_max, most), "{name} {world}: {cost:?}, not {sent:?}");
            let total = sent.iter().sum();
            assert!(near(cost.bytes_sent_total, total), "{name} {world}: {cost:?}, not {sent:?}");
        }
    }
}

#[test]
fn what_links_carry_is_measured_once_and_known_to_all_alike() {
    // Seat 1 takes 40 ms for a probe of 64 KiB: some 1.6 MB a second, of which 2^21 is the nearest power of two at most.
    for world in [2, 3, 4] {
        let seats = perches_that(world, |from, header| {
            if from == 1 && header.kind == PROBE {
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        let known = run_all(&seats, |perch| {
            let topology = summing("mesh", "").unwrap();
            let options = MergeOptions::exact(1, &perch.net, topology, PATIENCE);
            let carriage = crate::choices::codec("auto", "").unwrap();
            let shapes: Shapes = [("w".to_string(), (100, 100)), ("v".to_string(), (10, 1))].into();
            let options = MergeOptions { carriage, shapes: Arc::new(shapes), ..options };
            let mut merger = Merger::new(perch.net.clone(), options);
            let mut after = |name: &str, len: usize| {
                let update = Update { blocks: vec![Block::dense(name, vec![1.0; len])] };
                let sum = merger.merge(update).unwrap();
                assert_eq!(sum.f64(name), vec![f64::from(world); len]);
                match &merger.way {
                    Way::Collected(packer) => packer.bandwidth(),
                    _ => panic!("what is weighed is collected"),
                }
            };
            assert_eq!(after("v", 10), None, "what is small is not worth a probe");
            let known = after("w", 10_000);
            assert_eq!(after("w", 10_000), known);
            assert_eq!(perch.sent(Lane::Exchange, PROBE), 1, "one probe");
            known
        });
        assert!(known.iter().all(|&it| it == known[0]), "{known:?}");
        assert!(known[0].is_some_and(|it| it > 0.0 && it <= 2f64.powi(21)), "{known:?}");
    }
}
