//! Tests of the collected sum and of the packets it is made of: what a lossy codec keeps, what never changes,
//! and bytes that nobody should have sent.

use super::*;
use crate::choices::{Carriage, codec};
use crate::exchange::packet::{Address, Losses};
use starlings_codec::Shapes;
use starlings_core::{Block, Factors, Rng};
use std::sync::Arc;

/// Codecs whose losses are kept: every contribution arrives in the end.
const FEEDBACK: [(&str, &str); 3] =
    [("one-bit", "bucket = 16"), ("top-k", "ratio = 0.1"), ("threshold", "threshold = 0.5")];

/// All codecs that a packer carries.
const CARRIED: [(&str, &str); 9] = [
    ("raw", ""),
    ("half", ""),
    ("half", "format = \"bf16\""),
    ("int8", "bucket = 16"),
    ("ternary", ""),
    ("one-bit", "bucket = 16"),
    ("top-k", "ratio = 0.1"),
    ("threshold", "threshold = 0.5"),
    ("auto", ""),
];

/// Tensors of the model that contributions are of.
fn shapes() -> Arc<Shapes> {
    let names = [("matrix", (40, 3)), ("single", (7, 1)), ("table", (30, 2)), ("product", (4, 3))];
    Arc::new(names.into_iter().map(|(name, shape)| (name.to_string(), shape)).collect())
}

/// A contribution whose lossy blocks are followed by what must come through exactly.
fn contribution(seed: u64, seat: u32, count: u64) -> Update {
    let mut rng = Rng::named(seed, "contribution", &[u64::from(seat), count]);
    let index: Vec<u32> = (0..30).filter(|_| rng.below(2) == 0).collect();
    let table: Vec<f64> = (0..index.len() * 2).map(|_| rng.normal()).collect();
    let seen: Vec<i64> = index.iter().map(|&row| i64::from(row) + 1).collect();
    let counted = Rows { total: 30, width: 1, index: index.clone(), values: Values::I64(seen) };
    let rows = Rows { total: 30, width: 2, index, values: Values::F64(table) };
    let single = (0..7).map(|_| rng.normal() as f32).collect();
    // Sums of sixteenths are exact in whatever order.
    let exact = |rng: &mut Rng| rng.below(1 << 20) as f64 / 16.0;
    Update {
        blocks: vec![
            Block::dense("matrix", (0..120).map(|_| rng.normal()).collect()),
            Block { name: "single".into(), body: Body::Dense(Values::F32(single)) },
            Block::rows("table", rows),
            Block::dense("loss", vec![exact(&mut rng), exact(&mut rng)]),
            Block::counts("counts", vec![1 << seat, count as i64]),
            Block::rows("seen", counted),
        ],
    }
}

struct Flock {
    world: u32,
    everyone: bool,
    packers: Vec<Packer>,
    count: u64,
    rng: Rng,
}

impl Flock {
    fn new(world: u32, everyone: bool, carriage: &Carriage, seed: u64) -> Flock {
        let packer = |seat| {
            let address = Address { seed, seat, world, everyone };
            Packer::new(carriage.clone(), shapes(), &address)
        };
        let packers = (0..world).map(packer).collect();
        Flock { world, everyone, packers, count: 0, rng: Rng::named(seed, "order", &[]) }
    }

    fn machine(&self, seat: u32, own: Update) -> Collected {
        let (world, everyone) = (self.world, self.everyone);
        let sitting = Sitting { count: self.count, me: Seat(seat), world };
        Collected::new(own, sitting, world as usize, |chunks| {
            let owner = |chunk| Seat(chunk as u32 % world);
            (!everyone).then(|| (0..chunks).map(owner).collect())
        })
    }

    /// Sums over the flock, frames in a random order.
    fn sum(&mut self, contributions: &[Update]) -> Vec<Update> {
        let mut machines: Vec<Collected> = contributions
            .iter()
            .enumerate()
            .map(|(seat, own)| self.machine(seat as u32, own.clone()))
            .collect();
        let mut flying: Vec<(Seat, Event)> = Vec::new();
        let mut done = vec![false; machines.len()];
        let begin = (0..self.world).map(|seat| (Seat(seat), Event::Begin));
        let mut next: Vec<(Seat, Event)> = begin.collect();
        loop {
            for (seat, event) in next.drain(..) {
                let (machine, mut commands) = (&mut machines[seat.index()], Vec::new());
                machine.on(event, &mut self.packers[seat.index()], &mut commands);
                for command in commands {
                    match command {
                        Command::Send { to, chunk, total } => {
                            let payload = machine.payload(chunk, total).to_vec();
                            flying.push((to, Event::Frame { from: seat, chunk, total, payload }));
                        }
                        Command::Done => done[seat.index()] = true,
                        Command::Fail { seat, phase, why } => panic!("{seat} while {phase}: {why}"),
                    }
                }
            }
            if flying.is_empty() {
                break;
            }
            next.push(flying.swap_remove(self.rng.below(flying.len() as u64) as usize));
        }
        assert!(done.iter().all(|done| *done), "somebody still waits");
        self.count += 1;
        machines.into_iter().map(Collected::take).collect()
    }

    fn losses(&self) -> Vec<Losses> {
        self.packers.iter().map(Packer::save).collect()
    }
}

fn contributions(seed: u64, world: u32, count: u64) -> Vec<Update> {
    (0..world).map(|seat| contribution(seed, seat, count)).collect()
}

fn folded(updates: &[Update]) -> Update {
    let mut sum = updates[0].clone();
    updates[1..].iter().for_each(|update| sum.fold(update).unwrap());
    sum
}

/// The numbers of a lossy block of all rows, absent ones zero.
fn spread(update: &Update, name: &str) -> Vec<f64> {
    match &update.get(name).unwrap().body {
        Body::Dense(Values::F64(values)) => values.clone(),
        Body::Dense(Values::F32(values)) => values.iter().map(|&value| value.into()).collect(),
        Body::Rows(Rows { total, width, index, values: Values::F64(values) }) => {
            let width = *width as usize;
            let mut all = vec![0.0; *total as usize * width];
            for (at, &row) in index.iter().enumerate() {
                all[row as usize * width..][..width]
                    .copy_from_slice(&values[at * width..][..width]);
            }
            all
        }
        other => panic!("{name} is {other:?}"),
    }
}

/// What packers still hold of a block, added up by the places that saved names tell.
fn held(losses: &[Losses], name: &str, len: usize) -> Vec<f64> {
    let mut held = vec![0.0; len];
    for losses in losses {
        for (key, values) in losses {
            let words: Vec<&str> = key.split('/').collect();
            match words[..] {
                [_, "residual", from, block] if block == name => {
                    let from: usize = from.parse().unwrap();
                    let body = Block { name: name.into(), body: Body::Dense(values.clone()) };
                    let values = spread(&Update { blocks: vec![body] }, name);
                    values.iter().enumerate().for_each(|(at, value)| held[from + at] += value);
                }
                [kind, "row-residual", block] if block == name => {
                    let index = losses[&format!("{kind}/row-index/{name}")].as_i64().unwrap();
                    let width = index[1] as usize;
                    for (at, &row) in index[2..].iter().enumerate() {
                        let from = &values.as_f64().unwrap()[at * width..][..width];
                        let into = &mut held[row as usize * width..][..width];
                        into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
                    }
                }
                _ => {}
            }
        }
    }
    held
}

#[test]
fn a_world_of_one_sums_to_its_own_contribution_whatever_the_codec() {
    for (name, parameters) in CARRIED {
        for everyone in [false, true] {
            let mut flock = Flock::new(1, everyone, &codec(name, parameters).unwrap(), 1);
            let own = contribution(1, 0, 0);
            assert_eq!(flock.sum(std::slice::from_ref(&own)), [own], "{name}");
            assert!(flock.losses()[0].is_empty());
        }
    }
}

#[test]
fn all_seats_hold_the_same_bits_and_what_is_no_gradient_comes_through_exactly() {
    for (name, parameters) in CARRIED {
        for (world, everyone) in [(2, false), (2, true), (5, false), (5, true)] {
            let mut flock = Flock::new(world, everyone, &codec(name, parameters).unwrap(), 3);
            for count in 0..4 {
                let given = contributions(3, world, count);
                let (sums, truth) = (flock.sum(&given), folded(&given));
                let place = format!("{name} {parameters} in a world of {world}, sum {count}");
                assert!(sums.iter().all(|sum| *sum == sums[0]), "{place}: seats differ");
                for block in ["loss", "counts", "seen"] {
                    assert_eq!(sums[0].get(block), truth.get(block), "{place}");
                }
                if matches!(name, "raw" | "auto") {
                    // Another order of additions than that of seats would show in the last bits.
                    assert_eq!(sums[0], truth, "{place}");
                } else {
                    assert_ne!(sums[0].get("matrix"), truth.get("matrix"), "{place} loses nothing");
                }
            }
        }
    }
}

#[test]
fn what_was_decoded_and_what_is_held_is_all_that_was_given() {
    for (name, parameters) in FEEDBACK {
        for (world, everyone) in [(2, false), (4, false), (2, true), (4, true)] {
            let mut flock = Flock::new(world, everyone, &codec(name, parameters).unwrap(), 5);
            let blocks = [("matrix", 120), ("single", 7), ("table", 60)];
            let mut differs: Vec<Vec<f64>> =
                blocks.iter().map(|(_, len)| vec![0.0; *len]).collect();
            for count in 0..40 {
                let given = contributions(5, world, count);
                let sum = flock.sum(&given).swap_remove(0);
                for ((block, _), differs) in blocks.iter().zip(&mut differs) {
                    for update in &given {
                        let values = spread(update, block);
                        differs.iter_mut().zip(values).for_each(|(to, value)| *to += value);
                    }
                    let arrived = spread(&sum, block);
                    differs.iter_mut().zip(arrived).for_each(|(to, value)| *to -= value);
                }
            }
            let losses = flock.losses();
            let totals =
                losses.iter().any(|losses| losses.keys().any(|key| key.starts_with("totals/")));
            assert_eq!(totals, !everyone, "owners alone lose something of totals");
            for ((block, len), differs) in blocks.iter().zip(differs) {
                let held = held(&losses, block, *len);
                assert!(
                    held.iter().any(|value| value.abs() > 1e-3),
                    "{name} holds nothing of {block}"
                );
                // Single precision rounds while it adds.
                let allowed = if *block == "single" { 1e-3 } else { 1e-6 };
                for (at, (held, missing)) in held.iter().zip(differs).enumerate() {
                    assert!(
                        (held - missing).abs() < allowed,
                        "{name} world {world} everyone {everyone}: {block}[{at}] lacks {missing}, held {held}"
                    );
                }
            }
        }
    }
}

#[test]
fn packers_that_are_saved_and_restored_midway_give_the_same_bits() {
    for (name, parameters) in CARRIED {
        for everyone in [false, true] {
            let carriage = codec(name, parameters).unwrap();
            let mut flock = Flock::new(3, everyone, &carriage, 7);
            (0..5).for_each(|count| drop(flock.sum(&contributions(7, 3, count))));
            let mut resumed = Flock::new(3, everyone, &carriage, 7);
            resumed.count = 5;
            for (packer, losses) in resumed.packers.iter_mut().zip(flock.losses()) {
                packer.restore(losses, true);
            }
            for count in 5..10 {
                let given = contributions(7, 3, count);
                assert_eq!(resumed.sum(&given), flock.sum(&given), "{name}, sum {count}");
            }
            assert_eq!(resumed.losses(), flock.losses(), "{name}");
        }
    }
}

#[test]
fn a_smaller_flock_takes_over_what_the_others_have_lost() {
    let carriage = codec("top-k", "ratio = 0.1").unwrap();
    let mut flock = Flock::new(3, false, &carriage, 9);
    (0..5).for_each(|count| drop(flock.sum(&contributions(9, 3, count))));
    let before = held(&flock.losses(), "matrix", 120);
    let mut smaller = Flock::new(2, false, &carriage, 9);
    for (seat, losses) in flock.losses().into_iter().enumerate() {
        smaller.packers[seat % 2].restore(losses, false);
    }
    let after = held(&smaller.losses(), "matrix", 120);
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-9;
    assert!(before.iter().zip(&after).all(near));
}

#[test]
fn factors_add_up_to_their_matrix() {
    let factors = |seat: u32| {
        let mut rng = Rng::named(11, "factors", &[u64::from(seat)]);
        // Seats have different numbers of terms, and one has none.
        let terms = seat as usize;
        let numbers = |rng: &mut Rng, len| (0..len).map(|_| rng.below(64) as f64).collect();
        let left = numbers(&mut rng, terms * 4);
        let right = numbers(&mut rng, terms * 3);
        Update {
            blocks: vec![
                Block {
                    name: "product".into(),
                    body: Body::Factors(Factors { rows: 4, width: 3, left, right }),
                },
                Block::counts("counts", vec![1]),
            ],
        }
    };
    for (name, everyone) in [("factors", true), ("factors", false), ("auto", true), ("auto", false)]
    {
        for world in [1, 2, 4] {
            let mut flock = Flock::new(world, everyone, &codec(name, "").unwrap(), 11);
            let given: Vec<Update> = (0..world).map(factors).collect();
            let mut truth = vec![0.0; 12];
            for update in &given {
                let Body::Factors(factors) = &update.blocks[0].body else { unreachable!() };
                factors.add_to(&mut truth);
            }
            for sum in flock.sum(&given) {
                assert_eq!(
                    (sum.f64("product"), sum.i64("counts")),
                    (&truth[..], &[i64::from(world)][..])
                );
            }
        }
    }
}

/// What a machine says to a frame after it has begun: whom it blames, if anyone.
fn blamed(machine: &mut Collected, packer: &mut Packer, frames: Vec<Event>) -> Option<Seat> {
    let mut commands = Vec::new();
    machine.on(Event::Begin, packer, &mut commands);
    frames.into_iter().for_each(|frame| machine.on(frame, packer, &mut commands));
    commands.into_iter().find_map(|command| match command {
        Command::Fail { seat, .. } => Some(seat),
        _ => None,
    })
}

fn frame(from: u32, chunk: usize, total: bool, payload: &[u8]) -> Event {
    Event::Frame { from: Seat(from), chunk, total, payload: payload.to_vec() }
}

/// The packets that the seats of a flock would send for a chunk.
fn packets(flock: &mut Flock, chunk: usize) -> Vec<Vec<u8>> {
    let world = flock.world;
    let packet = |seat: u32| {
        let mut machine = flock.machine(seat, contribution(13, seat, 0));
        machine.on(Event::Begin, &mut flock.packers[seat as usize], &mut Vec::new());
        machine.payload(chunk, false).to_vec()
    };
    (0..world).map(packet).collect()
}

#[test]
fn frames_that_nobody_waits_for_are_blamed_on_their_sender() {
    for everyone in [false, true] {
        let flock = || Flock::new(3, everyone, &codec("raw", "").unwrap(), 13);
        let packet = packets(&mut flock(), 0);
        // Seat 0 owns chunk 0, and seat 1 chunk 1.
        let mut wrong = vec![
            (1, vec![frame(1, 99, false, &packet[1])]),
            (1, vec![frame(1, 0, false, &packet[1]), frame(1, 0, false, &packet[1])]),
            (1, vec![frame(1, 0, true, &packet[1])]),
            (2, vec![frame(2, 1, true, &packet[2])]),
            (7, vec![frame(7, 0, false, &packet[1])]),
            (0, vec![frame(0, 0, false, &packet[0])]),
        ];
        if !everyone {
            wrong.push((2, vec![frame(2, 1, false, &packet[2])]));
        }
        for (culprit, frames) in wrong {
            let mut flock = flock();
            let mut machine = flock.machine(0, contribution(13, 0, 0));
            let text = format!("{frames:?}");
            assert_eq!(
                blamed(&mut machine, &mut flock.packers[0], frames),
                Some(Seat(culprit)),
                "{text}"
            );
            assert!(blamed(&mut machine, &mut flock.packers[0], vec![]).is_none(), "it is over");
        }
    }
}

#[test]
fn whoever_sent_broken_bytes_is_blamed_and_not_whoever_came_last() {
    for everyone in [false, true] {
        let mut flock = Flock::new(4, everyone, &codec("raw", "").unwrap(), 13);
        let packet = packets(&mut flock, 0);
        let broken = &packet[2][..packet[2].len() - 1];
        let frames = vec![
            frame(2, 0, false, broken),
            frame(3, 0, false, &packet[3]),
            frame(1, 0, false, &packet[1]),
        ];
        let mut machine = flock.machine(0, contribution(13, 0, 0));
        assert_eq!(blamed(&mut machine, &mut flock.packers[0], frames), Some(Seat(2)));
    }
}

#[test]
fn any_bytes_give_a_sum_or_a_fault_and_never_a_panic() {
    for (name, parameters) in CARRIED.into_iter().chain([("factors", "")]) {
        let carriage = codec(name, parameters).unwrap();
        for seed in 0..300 {
            let mut rng = Rng::named(seed, "hostile", &[]);
            let everyone = rng.below(2) == 0;
            let mut flock = Flock::new(2, everyone, &carriage, seed);
            let total = !everyone && rng.below(2) == 0;
            let chunk = usize::from(total);
            let mut bytes = packets(&mut flock, 0).swap_remove(1);
            damage(&mut bytes, &mut rng);
            let mut machine = flock.machine(0, contribution(13, 0, 0));
            let blamed =
                blamed(&mut machine, &mut flock.packers[0], vec![frame(1, chunk, total, &bytes)]);
            assert!(blamed.is_none_or(|seat| seat == Seat(1)), "{name}, seed {seed}");
        }
    }
}

/// Cuts, lengthens or changes bytes, or makes up new ones.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = |rng: &mut Rng, len: usize| rng.below(len.max(1) as u64) as usize;
    match rng.below(5) {
        0 => bytes.truncate(at(rng, bytes.len())),
        1 => bytes.extend((0..=rng.below(20)).map(|at| at as u8)),
        2 => *bytes = (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(),
        // The first bytes say how the others are read.
        3 => {
            let place = at(rng, bytes.len().min(12));
            bytes[place] = rng.next_u64() as u8;
        }
        _ => {
            for _ in 0..=rng.below(8) {
                let place = at(rng, bytes.len());
                bytes[place] = rng.next_u64() as u8;
            }
        }
    }
}

/// A flock of fewer seats goes on with what those who stay had lost.
fn without(flock: Flock, gone: usize, carriage: &Carriage, seed: u64) -> Flock {
    let mut losses = flock.losses();
    losses.remove(gone);
    let mut next = Flock::new(flock.world - 1, flock.everyone, carriage, seed);
    for (packer, losses) in next.packers.iter_mut().zip(losses) {
        packer.restore(losses, false);
    }
    next.count = flock.count;
    next
}

#[test]
fn a_polite_leaver_takes_nothing_with_it() {
    // Codecs that keep what they lose, and one that loses nothing.
    let codecs = [
        ("one-bit", "bucket = 16"),
        ("top-k", "ratio = 0.1"),
        ("threshold", "threshold = 0.5"),
        ("raw", ""),
    ];
    for ((name, parameters), everyone) in
        codecs.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let (carriage, seed) = (codec(name, parameters).unwrap(), 11);
        let mut flock = Flock::new(3, everyone, &carriage, seed);
        let names = [("matrix", 120), ("single", 7), ("table", 60)];
        let mut given = names.map(|(_, len)| vec![0.0; len]);
        let mut applied = given.clone();
        let add = |into: &mut [Vec<f64>; 3], update: &Update| {
            for (into, (name, _)) in into.iter_mut().zip(names) {
                into.iter_mut().zip(spread(update, name)).for_each(|(into, it)| *into += it);
            }
        };
        for count in 0..12 {
            let leaves = count == 5;
            if leaves {
                flock.packers[1].part();
            }
            let contributions = contributions(seed, flock.world, count);
            contributions.iter().for_each(|it| add(&mut given, it));
            let sums = flock.sum(&contributions);
            assert!(sums.iter().all(|sum| *sum == sums[0]), "{name}: all hold the same bits");
            add(&mut applied, &sums[0]);
            if leaves {
                let left = held(&flock.losses()[1..2], "matrix", 120);
                assert!(left.iter().all(|it| *it == 0.0), "{name}: {left:?} would be lost");
                flock = without(flock, 1, &carriage, seed);
            }
        }
        let losses = flock.losses();
        for ((name_of, len), (given, applied)) in names.iter().zip(given.iter().zip(&applied)) {
            let held = held(&losses, name_of, *len);
            let missing = given.iter().zip(applied).zip(&held);
            let missing = missing.map(|((given, applied), held)| (given - applied - held).abs());
            let worst = missing.fold(0.0, f64::max);
            assert!(worst < 1e-4, "{name}, {name_of}, to everyone: {everyone}: {worst} is lost");
        }
    }
}

#[test]
fn whoever_is_alone_at_last_applies_what_was_held_back() {
    let carriage = codec("top-k", "ratio = 0.1").unwrap();
    let mut flock = Flock::new(2, false, &carriage, 5);
    let given = contributions(5, 2, 0);
    let sum = flock.sum(&given).remove(0);
    let mut alone = contribution(5, 0, 1);
    let mut wanted = spread(&alone, "matrix");
    let held = held(&flock.losses(), "matrix", 120);
    wanted.iter_mut().zip(&held).for_each(|(wanted, held)| *wanted += held);
    let losses = flock.losses().into_iter();
    let address = Address { seed: 5, seat: 0, world: 1, everyone: false };
    let mut packer = Packer::new(carriage, shapes(), &address);
    losses.for_each(|losses| packer.restore(losses, false));
    packer.claim_all(&mut alone);
    let found = spread(&alone, "matrix");
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-12));
    assert!(packer.save().values().all(|values| values.is_empty() || values.as_i64().is_some()));
    assert_ne!(
        spread(&sum, "matrix"),
        spread(&folded(&given), "matrix"),
        "something was held back"
    );
}

#[test]
fn factors_stand_for_a_matrix_of_the_numbers_of_their_tensor() {
    let factors = |name: &str| {
        let (left, right) = (vec![1.0; 4], vec![1.0; 3]);
        let body = Body::Factors(Factors { rows: 4, width: 3, left, right });
        Block { name: name.to_string(), body }
    };
    let sitting = Sitting { count: 0, me: Seat(0), world: 2 };
    let bytes = |name: &str| {
        let own = Update { blocks: vec![factors(name)] };
        let machine = Collected::new(own, sitting, 1, |_| None);
        let kind = |name: &str| if name == "single" { Kind::F32 } else { Kind::F64 };
        (0..machine.chunks.len()).map(|chunk| machine.bytes_raw(chunk, kind)).sum::<u64>()
    };
    assert_eq!([bytes("single"), bytes("double")], [4 * 3 * 4, 4 * 3 * 8]);
}
