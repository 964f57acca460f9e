//! Machines that play a sum among themselves: what is written around the caches, and sent on from the payload that it
//! arrived in, has the bits of what is not.

use super::*;
use crate::choices::{raw, summing};
use starlings_core::{Block, Rng};
use starlings_topology::moves;
use std::collections::VecDeque;

const EVERYTHING: Around = Around { sums_from: 0, totals_from: 0 };
const NOTHING: Around = Around { sums_from: usize::MAX, totals_from: usize::MAX };

/// Numbers of three kinds, enough for several chunks, whose sum depends on its order.
fn contribution(seat: u32) -> Update {
    let mut rng = Rng::named(7, "scheduled", &[u64::from(seat)]);
    let mut numbers =
        |count: usize| -> Vec<f64> { (0..count).map(|_| rng.normal() * 1e3).collect() };
    let singles = numbers(500_003).into_iter().map(|number| number as f32).collect();
    Update {
        blocks: vec![
            Block::counts("counts", vec![i64::from(seat), i64::MAX]),
            Block { name: "singles".to_string(), body: Body::Dense(Values::F32(singles)) },
            Block::dense("doubles", numbers(70_001)),
        ],
    }
}

/// Plays the sum; every seat's total, and its contribution where that is kept.
fn play(name: &str, world: u32, keeps: bool, around: Around) -> Vec<(Update, Option<Update>)> {
    let topology = summing(name, "").unwrap();
    let machine = |seat: u32| {
        let pattern =
            |chunks| moves(&topology.pattern(Seat(seat), world, chunks), Seat(seat), world);
        let machine = Scheduled::new(contribution(seat), raw(), topology.grain(world), pattern);
        let machine = if keeps { machine.keeping(contribution(world + seat)) } else { machine };
        machine.around(around)
    };
    let mut machines: Vec<Scheduled> = (0..world).map(machine).collect();
    let mut events: VecDeque<(usize, Event)> =
        (0..world as usize).map(|seat| (seat, Event::Begin)).collect();
    let (mut commands, mut scratch, mut done) = (Vec::new(), Vec::new(), 0);
    while let Some((seat, event)) = events.pop_front() {
        machines[seat].on(event, &mut commands);
        for command in commands.drain(..) {
            match command {
                Command::Send { to, chunk, total } => {
                    let payload = machines[seat].payload(chunk, &mut scratch).to_vec();
                    let from = Seat(seat as u32);
                    events.push_back((to.index(), Event::Frame { from, chunk, total, payload }));
                }
                Command::Done => done += 1,
                Command::Fail { why, .. } => panic!("{why}"),
            }
        }
    }
    assert_eq!(done, world, "{name}, {world} seats");
    machines.into_iter().map(Scheduled::take_both).collect()
}

#[test]
fn what_is_written_around_the_caches_has_the_same_bits() {
    for (name, world) in [("ring", 2), ("ring", 3), ("tree", 4), ("star", 3)] {
        let wanted = play(name, world, false, NOTHING);
        for (keeps, around) in [(true, NOTHING), (true, EVERYTHING), (false, EVERYTHING)] {
            let played = play(name, world, keeps, around);
            for (seat, ((sum, kept), (truth, _))) in played.into_iter().zip(&wanted).enumerate() {
                assert!(sum == *truth, "{name}, {world} seats, seat {seat}, {around:?}");
                let mine = keeps.then(|| contribution(seat as u32));
                assert!(kept == mine, "{name}, {world} seats, seat {seat}: contribution");
            }
        }
    }
}
