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

/// How a sum is played.
#[derive(Clone, Copy, Debug)]
struct How {
    keeps: bool,
    around: Around,
    /// Whether frames are read to where they belong, as far as memory is lent for them.
    lands: bool,
}

/// Gives a frame to a machine, some of it where the machine lends memory; whether it did.
fn give(machine: &mut Scheduled, event: Event, lands: bool, commands: &mut Vec<Command>) -> bool {
    let Event::Frame { from, chunk, total, payload } = event else {
        machine.on(event, commands);
        return false;
    };
    let mut placed = 0;
    if lands && let Some(place) = machine.lend().room(from, (chunk, total), payload.len()) {
        // Most of them whole; of others the rest comes when somebody else reads.
        placed = payload.len() - if chunk % 3 == 0 { payload.len() / 7 } else { 0 };
        place[..placed].copy_from_slice(&payload[..placed]);
    }
    match placed {
        0 => machine.on(Event::Frame { from, chunk, total, payload }, commands),
        _ => {
            let rest = payload[placed..].to_vec();
            machine.land(Landing { from, chunk, total, placed, rest }, commands);
        }
    }
    placed > 0
}

/// Plays the sum; every seat's total, and its contribution where that is kept.
fn play(name: &str, world: u32, how: How) -> Vec<(Update, Option<Update>)> {
    let How { keeps, around, lands } = how;
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
    let mut landed = 0;
    while let Some((seat, event)) = events.pop_front() {
        landed += u32::from(give(&mut machines[seat], event, lands, &mut commands));
        for command in commands.drain(..) {
            match command {
                Command::Send { to, chunk, total } => {
                    let plain = machines[seat].payload(chunk, &mut scratch).to_vec();
                    let (payload, lent) = machines[seat].payload_and_lend(chunk, &mut scratch);
                    let payload = payload.to_vec();
                    drop(lent);
                    assert!(payload == plain, "{name}, {world} seats, seat {seat}, chunk {chunk}");
                    machines[seat].sent(chunk);
                    let from = Seat(seat as u32);
                    events.push_back((to.index(), Event::Frame { from, chunk, total, payload }));
                }
                Command::Done => done += 1,
                Command::Fail { why, .. } => panic!("{why}"),
            }
        }
    }
    assert_eq!(done, world, "{name}, {world} seats");
    assert_eq!(landed > 0, lands, "{name}, {world} seats");
    machines.into_iter().map(Scheduled::take_both).collect()
}

#[test]
fn what_is_written_around_the_caches_has_the_same_bits() {
    for (name, world) in [("ring", 2), ("ring", 3), ("tree", 4), ("star", 3)] {
        let plain = How { keeps: false, around: NOTHING, lands: false };
        let wanted = play(name, world, plain);
        for (keeps, around) in [(true, NOTHING), (true, EVERYTHING), (false, EVERYTHING)] {
            let played = play(name, world, How { keeps, around, ..plain });
            for (seat, ((sum, kept), (truth, _))) in played.into_iter().zip(&wanted).enumerate() {
                assert!(sum == *truth, "{name}, {world} seats, seat {seat}, {around:?}");
                let mine = keeps.then(|| contribution(seat as u32));
                assert!(kept == mine, "{name}, {world} seats, seat {seat}: contribution");
            }
        }
    }
}

#[test]
fn what_is_read_to_where_it_belongs_has_the_same_bits() {
    for (name, world) in [("ring", 2), ("ring", 3), ("tree", 4), ("star", 3)] {
        let plain = How { keeps: false, around: NOTHING, lands: false };
        let wanted = play(name, world, plain);
        for keeps in [false, true] {
            let played = play(name, world, How { keeps, lands: true, ..plain });
            for (seat, ((sum, kept), (truth, _))) in played.into_iter().zip(&wanted).enumerate() {
                assert!(sum == *truth, "{name}, {world} seats, seat {seat}, kept: {keeps}");
                let mine = keeps.then(|| contribution(seat as u32));
                assert!(kept == mine, "{name}, {world} seats, seat {seat}: contribution");
            }
        }
    }
}

/// The machine of seat 0 of a ring of two, which has begun, and what it wants to send.
fn begun(keeps: bool) -> (Scheduled, Vec<Command>) {
    let topology = summing("ring", "").unwrap();
    let pattern = |chunks| moves(&topology.pattern(Seat(0), 2, chunks), Seat(0), 2);
    let machine = Scheduled::new(contribution(0), raw(), topology.grain(2), pattern);
    let mut machine = if keeps { machine.keeping(contribution(2)) } else { machine };
    let mut commands = Vec::new();
    machine.on(Event::Begin, &mut commands);
    (machine, commands)
}

/// The first chunk that is lent for such a frame of its own length, and that length.
fn lent_chunk(machine: &mut Scheduled, from: Seat, total: bool) -> Option<(usize, usize)> {
    (0..machine.chunks.len()).find_map(|chunk| {
        let length = machine.bytes_raw(chunk) as usize;
        let is_lent = machine.lend().room(from, (chunk, total), length).is_some();
        is_lent.then_some((chunk, length))
    })
}

#[test]
fn a_chunk_is_lent_to_the_one_it_waits_for_and_not_before_it_has_left() {
    let (mut machine, commands) = begun(false);
    assert_eq!(lent_chunk(&mut machine, Seat(1), true), None, "nothing has left");
    for command in commands {
        let Command::Send { chunk, .. } = command else { panic!("a sum begins with sends") };
        machine.sent(chunk);
    }
    let (chunk, length) = lent_chunk(&mut machine, Seat(1), true).expect("all has left");
    let mut lent = machine.lend();
    assert!(lent.room(Seat(0), (chunk, true), length).is_none(), "another seat");
    assert!(lent.room(Seat(1), (chunk, false), length).is_none(), "no partial sum is awaited");
    assert!(lent.room(Seat(1), (chunk, true), length - 4).is_none(), "another length");
    assert!(lent.room(Seat(1), (usize::MAX, true), length).is_none(), "no such chunk");
    drop(lent);
    // Onto a contribution that is not kept partial sums are added from elsewhere.
    assert_eq!(lent_chunk(&mut machine, Seat(1), false), None);
}

#[test]
fn what_arrived_in_part_leaves_a_contribution_as_it_was() {
    let (mut machine, mut commands) = begun(true);
    let (chunk, length) = lent_chunk(&mut machine, Seat(1), false).expect("it waits for a partial");
    let mut lent = machine.lend();
    lent.room(Seat(1), (chunk, false), length).unwrap()[..length / 2].fill(0xff);
    drop(lent);
    machine.on(Event::Lost { seat: Seat(1), why: "gone".to_string() }, &mut commands);
    assert!(machine.take_both().1 == Some(contribution(0)));
}

#[test]
fn a_frame_that_lies_where_nobody_waits_for_it_is_refused() {
    let (mut machine, mut commands) = begun(false);
    let landing = Landing { from: Seat(1), chunk: 0, total: true, placed: 4, rest: Vec::new() };
    commands.clear();
    machine.land(landing, &mut commands);
    assert!(matches!(commands[..], [Command::Fail { seat: Seat(1), .. }]), "{commands:?}");
}

/// Plays a sum in which every seat holds its first sends back while it waits for the totals of `abroad_max` of them; how
/// many seats are done.
fn play_held_back(name: &str, world: u32, abroad_max: usize) -> u32 {
    let topology = summing(name, "").unwrap();
    let machine = |seat: u32| {
        let pattern =
            |chunks| moves(&topology.pattern(Seat(seat), world, chunks), Seat(seat), world);
        Scheduled::new(contribution(seat), raw(), topology.grain(world), pattern)
    };
    let mut machines: Vec<Scheduled> = (0..world).map(machine).collect();
    let mut first: Vec<VecDeque<Command>> = Vec::new();
    for machine in &mut machines {
        let mut commands = Vec::new();
        machine.on(Event::Begin, &mut commands);
        first.push(commands.into());
    }
    let (mut events, mut scratch, mut done) = (VecDeque::new(), Vec::new(), 0);
    let mut is_going = true;
    while is_going {
        is_going = false;
        for seat in 0..world as usize {
            let mut commands = Vec::new();
            if machines[seat].abroad() < abroad_max {
                commands.extend(first[seat].pop_front());
            }
            while let Some(at) = events.iter().position(|(to, _)| *to == seat) {
                let (_, event) = events.remove(at).expect("just found");
                machines[seat].on(event, &mut commands);
                // A total may only make room for what is held back.
                is_going = true;
            }
            is_going |= !commands.is_empty();
            for command in commands {
                match command {
                    Command::Send { to, chunk, total } => {
                        let payload = machines[seat].payload(chunk, &mut scratch).to_vec();
                        machines[seat].sent(chunk);
                        let from = Seat(seat as u32);
                        let frame = Event::Frame { from, chunk, total, payload };
                        events.push_back((to.index(), frame));
                    }
                    Command::Done => done += 1,
                    Command::Fail { why, .. } => panic!("{why}"),
                }
            }
        }
        is_going |= !events.is_empty();
    }
    assert!(machines.iter().all(|machine| machine.abroad() == 0), "{name}, {world} seats");
    done
}

#[test]
fn seats_that_hold_back_what_they_send_first_all_come_to_an_end() {
    for name in ["ring", "tree", "star", "halving-doubling", "hierarchical"] {
        for world in 2..=5 {
            for abroad_max in [1, 3] {
                let done = play_held_back(name, world, abroad_max);
                assert_eq!(done, world, "{name}, {world} seats, {abroad_max} abroad");
            }
        }
    }
}
