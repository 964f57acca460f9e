//! Mergers over real memory nets: what meeting means, and sums that leave their contributions as they are.

use super::*;
use crate::bridge::adder::{PATIENCE, Perch, perches, perches_that, run_all};
use crate::choices::summing;
use starlings_core::Rng;
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
fn sums_of_kept_contributions_have_the_bits_of_others() {
    for (topology, world) in [("ring", 2), ("ring", 3), ("tree", 4), ("star", 3)] {
        let seats = perches(world);
        run_all(&seats, |perch| {
            let (mut plain, mut keeping) =
                (merger(&perch, 1, topology), merger(&perch, 2, topology));
            for round in 0..3 {
                let wanted = plain.merge(large(perch.seat(), round)).unwrap();
                let sum = keeping.merge_kept(large(perch.seat(), round)).unwrap();
                assert!(sum == wanted, "{topology}, {world} seats, round {round}");
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

#[test]
fn what_links_carry_is_measured_once_and_known_to_all_alike() {
    // Seat 1 takes 40 ms for a probe of 64 KiB: some 1.6 MB a second, of which 2^21 is the nearest power of two at most.
    for world in [2, 3, 4] {
        let seats = perches_that(world, |from, header| {
            if from == 1 && header.kind == 11 {
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
            assert_eq!(perch.sent(Lane::Exchange, 11), 1, "one probe");
            known
        });
        assert!(known.iter().all(|&it| it == known[0]), "{known:?}");
        assert!(known[0].is_some_and(|it| it > 0.0 && it <= 2f64.powi(21)), "{known:?}");
    }
}
