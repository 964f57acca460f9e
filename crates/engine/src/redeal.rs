//! Unequal workers: shards are dealt by measured speed, so that all finish a step together. From time to time the
//! workers tell each other how long their rows took; all compute the same new deal, and shards move to
//! whoever is faster, with what is remembered of their rows.
//!
//! With speeds sᵢ a step takes at least n/Σsᵢ for n rows; with whole shards the slowest worker takes at most one
//! shard's time more.

use crate::bridge::Exchange;
use crate::net::{Arrival, Net};
use crate::walk::Walk;
use starlings_core::{Deadline, Fault, Result, Seat, Shard, Step};
use starlings_data::{Dealer, Holding};
use starlings_learn::{Appetite, Cells, Memory};
use starlings_transport::{Header, Lane};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The kind of a message with what is remembered of shards that move.
const MOVING: u8 = 12;

/// A new deal must shorten the step by this share, or nothing moves.
const GAIN: f64 = 0.1;

/// Shards move at most this often: every move reads rows anew, and speeds that keep changing are noise.
const MOVES_MAX: u32 = 3;

/// Reads the rows of some shards.
pub type Loader = Arc<dyn Fn(&[Shard]) -> Result<Holding> + Send + Sync>;

/// Deals shards by speed.
pub struct Redeal {
    loader: Loader,
    net: Arc<Net>,
    /// Who has each shard.
    holders: Vec<Seat>,
    appetite: Appetite,
    patience: Duration,
    seconds: f64,
    rows: u64,
    moves_left: u32,
}

impl Redeal {
    /// From the first deal.
    #[must_use]
    pub fn new(
        loader: Loader,
        net: Arc<Net>,
        holders: Vec<Seat>,
        (appetite, patience): (Appetite, Duration),
    ) -> Redeal {
        let (seconds, rows, moves_left) = (0.0, 0, MOVES_MAX);
        Redeal { loader, net, holders, appetite, patience, seconds, rows, moves_left }
    }

    /// This worker has computed a contribution from so many rows.
    pub fn computed(&mut self, rows: u64, seconds: f64) {
        self.rows += rows;
        self.seconds += seconds;
    }

    /// Whether speeds are compared now: early for a first guess, then more and more seldom.
    fn due(&self, walk: &Walk) -> bool {
        let done = walk.steps();
        match self.appetite {
            Appetite::Passes => done.is_power_of_two(),
            Appetite::Batches => done >= 16 && done.is_power_of_two(),
        }
    }

    /// Deals anew where that is due and worth it. All workers are at the same step.
    ///
    /// # Errors
    /// A lost peer, or rows that can no longer be read.
    pub fn after_step(
        &mut self,
        walk: &Walk,
        dealer: &mut Dealer,
        memory: &mut Memory,
        exchange: &mut dyn Exchange,
    ) -> Result<()> {
        if self.moves_left == 0 || !self.due(walk) {
            return Ok(());
        }
        let (me, world) = (self.net.seat(), self.net.world() as usize);
        let mut mine = vec![0.0; 2 * world];
        mine[2 * me.index()] = self.rows as f64;
        mine[2 * me.index() + 1] = self.seconds;
        let all = exchange.sum(mine)?;
        (self.rows, self.seconds) = (0, 0.0);
        let speeds: Vec<f64> = all.chunks_exact(2).map(|pair| pair[0] / pair[1]).collect();
        let holders = dealt(&speeds, &self.holders);
        if holders == self.holders {
            return Ok(());
        }
        self.moves_left -= 1;
        let before = std::mem::replace(&mut self.holders, holders);
        self.move_memory(&before, memory, Step(walk.steps()))?;
        let shards: Vec<Shard> = held(&self.holders, me);
        *dealer = dealer.with(taken_up(dealer.holding(), &shards, &self.loader)?);
        Ok(())
    }

    /// What is remembered of shards that move goes with them.
    fn move_memory(&self, before: &[Seat], memory: &mut Memory, step: Step) -> Result<()> {
        let (me, by) = (self.net.seat(), Deadline::after(self.patience));
        let mut leaving: BTreeMap<Seat, Vec<(u32, Cells)>> = BTreeMap::new();
        let mut coming = 0;
        for (shard, (&from, &to)) in before.iter().zip(&self.holders).enumerate() {
            if from == me && to != me {
                let cells = memory.remove(Shard(shard as u32)).unwrap_or_default();
                leaving.entry(to).or_default().push((shard as u32, cells));
            }
            coming += u32::from(from != me && to == me);
        }
        for (to, cells) in leaving {
            let bytes = postcard::to_stdvec(&cells).expect("plain data serialises");
            let header = Header { lane: Lane::Control, kind: MOVING, step, tag: 0 };
            self.net.send(to, header, &bytes, by)?;
        }
        while coming > 0 {
            let mine =
                |arrival: &Arrival| arrival.header.kind == MOVING && arrival.header.step == step;
            let arrival = self.net.next(Lane::Control, mine, by)?;
            let broken = || {
                let from = arrival.from;
                Fault::peer(Some(from), format!("{from} handed over shards that cannot be read"))
            };
            let cells: Vec<(u32, Cells)> =
                postcard::from_bytes(&arrival.payload).map_err(|_| broken())?;
            coming = coming.checked_sub(cells.len() as u32).ok_or_else(broken)?;
            for (shard, cells) in cells {
                memory.insert(Shard(shard), cells);
            }
        }
        Ok(())
    }
}

/// Exactly these shards: what is not there is read, what is no longer wanted is let go.
///
/// # Errors
/// Rows that can no longer be read.
pub(crate) fn taken_up(holding: &Holding, shards: &[Shard], loader: &Loader) -> Result<Holding> {
    let lacking: Vec<Shard> =
        shards.iter().copied().filter(|shard| !holding.starts.contains_key(shard)).collect();
    if lacking.is_empty() {
        return Ok(holding.only(shards));
    }
    let more = loader(&lacking)?;
    // Rows of shards that went elsewhere are still in the table: they must not pile up.
    let crowded = holding.table.rows() as u64 > 2 * holding.rows_held() + more.rows_held();
    // Rows in a file stay in one: joined they would have to come into memory.
    let in_file = holding.table.is_mapped() || more.table.is_mapped();
    let holding = if crowded || in_file { loader(shards)? } else { holding.joined(&more) };
    Ok(holding.only(shards))
}

fn held(holders: &[Seat], seat: Seat) -> Vec<Shard> {
    let mine = holders.iter().enumerate().filter(|(_, holder)| **holder == seat);
    mine.map(|(shard, _)| Shard(shard as u32)).collect()
}

/// Who should have each shard, given rows a second of each seat. The old deal stays where the speeds are not known or
/// the gain is small; otherwise as few shards move as the new numbers need.
#[must_use]
pub fn dealt(speeds: &[f64], holders: &[Seat]) -> Vec<Seat> {
    if speeds.iter().any(|speed| !(speed.is_finite() && *speed > 0.0)) {
        return holders.to_vec();
    }
    let mut counts = vec![0usize; speeds.len()];
    for _ in holders {
        // The next shard goes where it would be finished first.
        let time = |seat: &usize| (counts[*seat] + 1) as f64 / speeds[*seat];
        let first = (0..speeds.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
        counts[first.expect("there are seats")] += 1;
    }
    let longest = |counts: &[usize]| {
        counts.iter().zip(speeds).map(|(&count, speed)| count as f64 / speed).fold(0.0, f64::max)
    };
    let now: Vec<usize> = (0..speeds.len())
        .map(|seat| holders.iter().filter(|holder| holder.index() == seat).count())
        .collect();
    if longest(&counts) > (1.0 - GAIN) * longest(&now) {
        return holders.to_vec();
    }
    let mut dealt = holders.to_vec();
    let mut room: Vec<usize> = counts.clone();
    let mut homeless = Vec::new();
    for (shard, holder) in dealt.iter().enumerate() {
        match room[holder.index()].checked_sub(1) {
            Some(left) => room[holder.index()] = left,
            None => homeless.push(shard),
        }
    }
    for shard in homeless {
        let free = room.iter().position(|&room| room > 0).expect("counts add up to all shards");
        room[free] -= 1;
        dealt[shard] = Seat(free as u32);
    }
    dealt
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(world: u32, shards: u32) -> Vec<Seat> {
        (0..shards).map(|shard| Seat(shard * world / shards)).collect()
    }

    fn counts(holders: &[Seat], world: usize) -> Vec<usize> {
        let count = |seat| holders.iter().filter(|holder| holder.index() == seat).count();
        (0..world).map(count).collect()
    }

    #[test]
    fn a_worker_three_times_slower_gets_a_third() {
        let dealt = dealt(&[3.0, 1.0], &even(2, 16));
        assert_eq!(counts(&dealt, 2), [12, 4]);
        // Only four shards have moved.
        assert_eq!(dealt.iter().zip(even(2, 16)).filter(|(a, b)| **a != *b).count(), 4);
    }

    #[test]
    fn the_step_takes_less_than_a_tenth_over_the_ideal_with_enough_shards() {
        for speeds in [vec![1.0, 3.0, 3.0, 3.0], vec![1.0, 1.0, 3.0], vec![1.0, 2.0, 4.0, 8.0]] {
            let world = speeds.len();
            let shards = 40 * world as u32;
            let dealt = dealt(&speeds, &even(world as u32, shards));
            let ideal = f64::from(shards) / speeds.iter().sum::<f64>();
            for (count, speed) in counts(&dealt, world).iter().zip(&speeds) {
                assert!(*count as f64 / speed <= 1.1 * ideal, "{speeds:?}");
            }
        }
    }

    #[test]
    fn equals_and_unknown_speeds_move_nothing() {
        for speeds in [[1.0, 1.0], [1.0, 1.05], [f64::NAN, 1.0], [0.0, 1.0]] {
            assert_eq!(dealt(&speeds, &even(2, 16)), even(2, 16));
        }
    }
}
