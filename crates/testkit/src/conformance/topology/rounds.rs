//! The laws of topologies that are a rule for each round: walks, partial exchange and the shuffle.

use super::{BYTES, Verdict, cost_is, ensure, worlds};
use starlings_core::Seat;
use starlings_topology::{Cost, Pace, Partial, Shuffle, Walk};
use std::collections::BTreeSet;

/// All laws of a walk.
///
/// # Errors
/// The first broken law.
pub fn check_walk(walk: &dyn Walk) -> Verdict {
    ensure!(walk.cache() > 0, "a seat remembers nobody, not even itself");
    worlds()
        .try_for_each(|world| walk_laws(walk, world).map_err(|law| format!("world {world}: {law}")))
}

fn walk_laws(walk: &dyn Walk, world: u32) -> Verdict {
    for round in [0, 1, 7, 1_000_003] {
        let sent = |&seat: &u32| walk.next(Seat(seat), world, round, 1).is_some();
        let sends = (0..world).filter(sent).count() as u64;
        // A seat sends one model, or none.
        let most = sends.min(1);
        let [most_bytes, all_bytes] = [most, sends].map(|models| (models * BYTES) as f64);
        let counted =
            Cost { rounds: most, bytes_sent_max: most_bytes, bytes_sent_total: all_bytes };
        cost_is(walk.cost(world, BYTES), counted).map_err(|law| format!("round {round}: {law}"))?;
    }
    if world == 1 {
        ensure!(walk.next(Seat(0), 1, 3, 5).is_none(), "a model walks in a world of one");
        return Ok(());
    }
    let others = u64::from(world) - 1;
    for (seed, seat) in [(1, 0), (2, world / 2), (3, world - 1)] {
        let mut visits = vec![0u64; world as usize];
        for round in 0..100 * others {
            let Some(peer) = walk.next(Seat(seat), world, round, seed) else {
                return Err(format!("round {round}: rank {seat} sends to nobody"));
            };
            ensure!(peer.0 < world && peer.0 != seat, "round {round}: rank {seat} sends to {peer}");
            ensure!(
                round > 20 || walk.next(Seat(seat), world, round, seed) == Some(peer),
                "round {round}: another choice each time"
            );
            visits[peer.index()] += 1;
        }
        // Pearson's chi-square: its mean is the degrees of freedom, its variance twice that.
        let freedom = (others - 1) as f64;
        let counts = visits.iter().enumerate().filter(|&(peer, _)| peer as u32 != seat);
        let square = |count: u64| (count as f64 - 100.0).powi(2) / 100.0;
        let chi_square: f64 = counts.map(|(_, &count)| square(count)).sum();
        let bound = freedom + 5.0 * (2.0 * freedom).sqrt();
        ensure!(chi_square <= bound, "rank {seat} prefers some: {chi_square} > {bound}");
        ensure!(others < 2 || chi_square > 0.0, "rank {seat} takes turns");
    }
    let path = |seat, seed| -> Vec<_> {
        (0..64).map(|round| walk.next(Seat(seat), world, round, seed)).collect()
    };
    ensure!(world < 3 || path(0, 1) != path(0, 2), "the seed does not matter");
    Ok(())
}

/// All laws of partial exchange.
///
/// # Errors
/// The first broken law.
pub fn check_partial(partial: &dyn Partial) -> Verdict {
    let parts = |world, megabytes: u64, megabytes_per_second: f64, step_seconds| {
        let pace = Pace { bytes_per_second: 1e6 * megabytes_per_second, step_seconds };
        partial.parts(world, 1_000_000 * megabytes, pace)
    };
    let mut cuts = BTreeSet::from([1, 2, 5]);
    for world in worlds() {
        let made = parts(world, 8, 100.0, 0.1);
        ensure!(made > 0, "world {world}: no parts");
        ensure!(world > 1 || made == 1, "a world of one cuts into {made} parts");
        ensure!(parts(world, 16, 100.0, 0.1) >= made, "world {world}: more bytes, fewer parts");
        ensure!(parts(world, 8, 200.0, 0.1) <= made, "world {world}: more bandwidth, more parts");
        ensure!(parts(world, 8, 100.0, 0.2) <= made, "world {world}: longer steps, more parts");
        cuts.insert(made);
    }
    for parts in cuts {
        for world in worlds() {
            part_laws(partial, world, parts)
                .map_err(|law| format!("world {world}, {parts} parts: {law}"))?;
        }
    }
    Ok(())
}

fn part_laws(partial: &dyn Partial, world: u32, parts: u32) -> Verdict {
    for seat in (0..world).map(Seat) {
        for first in [0, 3, u64::MAX / 2] {
            let sent: BTreeSet<u32> = (0..u64::from(parts))
                .map(|round| partial.part(seat, first + round, parts))
                .collect();
            ensure!(
                sent.iter().copied().eq(0..parts),
                "{seat} sends {sent:?} in {parts} rounds from {first}"
            );
        }
    }
    for round in [0, 1, 7, 1_000_003] {
        let sent: BTreeSet<u32> =
            (0..world).map(|seat| partial.part(Seat(seat), round, parts)).collect();
        ensure!(sent.len() as u32 == world.min(parts), "round {round}: seats send {sent:?}");
    }
    cost_is(partial.cost(world, BYTES, parts), parts_sent(partial, world, parts))
}

/// What is sent in as many rounds as there are parts, as the mean of a round: each part goes to all others.
fn parts_sent(partial: &dyn Partial, world: u32, parts: u32) -> Cost {
    let edge = |part: u32| BYTES * u64::from(part) / u64::from(parts);
    let sent = |seat: u32| {
        let part = |round: u32| partial.part(Seat(seat), round.into(), parts);
        let bytes = (0..parts).map(part).map(|part| edge(part + 1) - edge(part)).sum::<u64>();
        (bytes * u64::from(world - 1)) as f64 / f64::from(parts)
    };
    let sent: Vec<f64> = (0..world).map(sent).collect();
    Cost {
        rounds: u64::from(world > 1),
        bytes_sent_max: sent.iter().copied().fold(0.0, f64::max),
        bytes_sent_total: sent.iter().sum(),
    }
}

/// All laws of a shuffle.
///
/// # Errors
/// The first broken law.
pub fn check_shuffle(shuffle: &dyn Shuffle) -> Verdict {
    worlds().try_for_each(|world| {
        shuffle_laws(shuffle, world).map_err(|law| format!("world {world}: {law}"))
    })
}

fn shuffle_laws(shuffle: &dyn Shuffle, world: u32) -> Verdict {
    let size = world as usize;
    let mut met = vec![false; size * size];
    let mut sends = vec![0u64; size];
    for round in 0..shuffle.rounds(world) {
        for seat in (0..world).map(Seat) {
            let pair = shuffle.pair(seat, world, round);
            ensure!(pair == shuffle.pair(seat, world, round), "{seat}: another pair each time");
            let Some((to, from)) = pair else { continue };
            ensure!(to.0 < world && from.0 < world, "round {round}: {seat} leaves the flock");
            ensure!(to != seat && from != seat, "round {round}: {seat} meets itself");
            let receives = shuffle.pair(to, world, round).map(|(_, from)| from);
            ensure!(receives == Some(seat), "round {round}: {to} does not receive from {seat}");
            let sent = shuffle.pair(from, world, round).map(|(to, _)| to);
            ensure!(sent == Some(seat), "round {round}: {from} does not send to {seat}");
            let twice = std::mem::replace(&mut met[seat.index() * size + to.index()], true);
            ensure!(!twice, "round {round}: {seat} sends to {to} again");
            sends[seat.index()] += 1;
        }
    }
    let pairs = met.iter().filter(|met| **met).count();
    ensure!(pairs == size * (size - 1), "{pairs} pairs have met");
    let each = BYTES as f64 / f64::from(world);
    let counted = Cost {
        rounds: shuffle.rounds(world).into(),
        bytes_sent_max: sends.iter().copied().max().unwrap_or(0) as f64 * each,
        bytes_sent_total: sends.iter().sum::<u64>() as f64 * each,
    };
    cost_is(shuffle.cost(world, BYTES), counted)
}
