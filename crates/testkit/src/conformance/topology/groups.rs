//! The laws of groups around owners: a step is played on paper, message by message, and its cost compared.

use super::{
    BYTES, Order, Verdict, check_sum, cost_is, ensure, plays, rendezvous, sends_in, worlds,
};
use starlings_topology::{Cost, Groups};

/// All laws of groups.
///
/// # Errors
/// The first broken law.
pub fn check_groups(groups: &Groups) -> Verdict {
    ensure!(groups.size > 0, "groups of nobody");
    check_sum(&*groups.inner)?;
    worlds().try_for_each(|world| {
        check_groups_cost(groups, (world, BYTES), groups.cost(world, BYTES))
            .map_err(|law| format!("world {world}: {law}"))
    })
}

/// Whether a step of groups in a world costs for so many bytes what is said.
///
/// # Errors
/// What it costs instead.
pub fn check_groups_cost(groups: &Groups, (world, bytes): (u32, u64), said: Cost) -> Verdict {
    let share = bytes as f64 / f64::from(world);
    let mut sent = vec![0.0; world as usize];
    let mut rounds = vec![0; world as usize];
    sum_inside(groups, bytes, (&mut sent, &mut rounds))?;
    // Every first seat pushes a part to every owner, and every owner answers all of them once it has all parts. What a seat
    // owns itself takes no message.
    let firsts = || (0..world as usize).step_by(groups.size as usize);
    let pairs = || firsts().flat_map(|first| (0..world as usize).map(move |owner| (first, owner)));
    let mut heard = vec![0; world as usize];
    for (first, owner) in pairs() {
        let messages = u32::from(owner != first);
        sent[first] += f64::from(messages) * share;
        heard[owner] = heard[owner].max(rounds[first] + u64::from(messages));
    }
    for (first, owner) in pairs() {
        let messages = u32::from(owner != first);
        sent[owner] += f64::from(messages) * share;
        rounds[first] = rounds[first].max(heard[owner] + u64::from(messages));
    }
    sum_inside(groups, bytes, (&mut sent, &mut rounds))?;
    let counted = Cost {
        rounds: rounds.into_iter().max().unwrap_or(0),
        bytes_sent_max: sent.iter().copied().fold(0.0, f64::max),
        bytes_sent_total: sent.iter().sum(),
    };
    cost_is(said, counted)
}

/// Every group sums `bytes` inside; what its seats send and how many messages one after another they have seen is added.
fn sum_inside(groups: &Groups, bytes: u64, (sent, rounds): (&mut [f64], &mut [u64])) -> Verdict {
    let size = groups.size as usize;
    for (sent, rounds) in sent.chunks_mut(size).zip(rounds.chunks_mut(size)) {
        let seats = sent.len() as u32;
        let chunks = groups.inner.grain(seats);
        let flock = plays(&*groups.inner, seats, chunks)?;
        let played = rendezvous(&flock, chunks, Order::Queue, rounds)?;
        rounds.copy_from_slice(&played.rounds);
        for (sent, moves) in sent.iter_mut().zip(&flock) {
            *sent += sends_in(moves) as f64 * bytes as f64 / chunks as f64;
        }
    }
    Ok(())
}
