//! Mergers over real memory nets: what meeting means, and sums that leave their contributions as they are.

use super::*;
use crate::bridge::adder::{PATIENCE, Perch, perches, run_all};
use crate::choices::summing;
use starlings_core::Rng;
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
