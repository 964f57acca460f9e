//! Sums of two tiers whose groups share a host: a group sums inside through shared memory, in the order of the topology; the seats
//! that hold its chunks play the moves between groups over links; and the totals come back through shared memory. Groups
//! that share no host play all their moves over links in the same sum, and all get the same bits.

use super::Merger;
use crate::exchange::cut::{Part, cut};
use crate::exchange::scheduled::Scheduled;
use crate::shared_sum::SharedSum;
use starlings_codec::Codec;
use starlings_core::{Body, Deadline, Result, Seat, Update, Values};
use starlings_topology::Topology;
use starlings_transport::Lane;
use starlings_transport::shared::Turn;
use std::sync::Arc;

/// The seats among `group` with which a seat sums first, if they can do so through memory.
pub(crate) fn near(topology: &dyn Topology, group: &[Seat], seat: Seat) -> Option<Vec<Seat>> {
    let (me, world) = (group.iter().position(|it| *it == seat)?, group.len() as u32);
    let me = Seat(me as u32);
    topology.tier(me, world, 1)?;
    let mine = topology.group(me, world)?;
    Some(group[mine.start as usize..mine.end as usize].to_vec())
}

impl Merger {
    /// Sums of the group that this seat sums with first go through this memory.
    #[must_use]
    pub(crate) fn nearby(mut self, near: Option<SharedSum>) -> Merger {
        self.near = near;
        self
    }

    pub(super) fn play_in_tiers(
        &mut self,
        mut near: SharedSum,
        update: Update,
        codec: Arc<dyn Codec>,
    ) -> Result<Update> {
        let sum = self.climb_and_descend(&mut near, update, codec);
        self.near = Some(near);
        sum
    }

    fn climb_and_descend(
        &mut self,
        near: &mut SharedSum,
        update: Update,
        codec: Arc<dyn Codec>,
    ) -> Result<Update> {
        let (topology, world) = (self.topology.clone(), self.group.len() as u32);
        let chunks = cut(&update, topology.grain(world));
        let tier =
            topology.tier(self.me, world, chunks.len()).expect("asked for when it was built");
        let turns = turns(&update, &chunks, &tier.orders);
        let partial = self.sum_near(near, update, &turns)?;
        let count = self.next_count();
        let between = tier.between;
        let mut machine = Scheduled::new(partial, codec, topology.grain(world), |_| between);
        self.drive(&mut machine, count)?;
        let mut sum = machine.take();
        for (parts, _) in chunks.iter().zip(&tier.holds).filter(|(_, holds)| !**holds) {
            parts.iter().for_each(|part| clear(&mut sum, part));
        }
        self.sum_near(near, sum, &[])
    }

    fn sum_near(
        &mut self,
        near: &mut SharedSum,
        update: Update,
        turns: &[Vec<Turn>],
    ) -> Result<Update> {
        let (net, by) = (self.net.clone(), Deadline::after(self.patience));
        let interrupted = || net.try_next(Lane::Control, |_| false).err();
        self.bytes_raw += update.bytes() as u64;
        net.shared(update.bytes() as u64);
        near.sum(update, turns, by, &interrupted)
    }
}

fn turns(update: &Update, chunks: &[Vec<Part>], orders: &[Vec<usize>]) -> Vec<Vec<Turn>> {
    let mut turns = vec![Vec::new(); update.blocks.len()];
    for (parts, order) in chunks.iter().zip(orders) {
        for part in parts {
            turns[part.block].push(Turn { end: part.to, order: order.clone() });
        }
    }
    turns
}

/// Makes a part nothing, to which the total of another seat is added: only a negative zero leaves every float as it is.
fn clear(sum: &mut Update, part: &Part) {
    let range = part.from..part.to;
    match &mut sum.blocks[part.block].body {
        Body::Dense(Values::F32(values)) => values[range].fill(-0.0),
        Body::Dense(Values::F64(values)) => values[range].fill(-0.0),
        Body::Dense(Values::I64(values)) => values[range].fill(0),
        _ => unreachable!("only dense blocks are summed in shared memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, perches, run_all};
    use crate::choices::summing;
    use crate::merge::MergeOptions;
    use crate::neighbours::Neighbours;
    use starlings_core::{Block, Rng};

    fn contribution(seat: usize) -> Update {
        let mut rng = Rng::named(seat as u64, "contribution", &[]);
        let mut wide: Vec<f64> = (0..200_000).map(|_| rng.normal()).collect();
        wide[7] = -0.0;
        let narrow = Values::F32((0..5000).map(|_| rng.normal() as f32).collect());
        Update {
            blocks: vec![
                Block::dense("a", wide),
                Block { name: "b".to_string(), body: Body::Dense(narrow) },
                Block::counts("c", vec![seat as i64, 1]),
            ],
        }
    }

    fn bits(update: &Update) -> Vec<u8> {
        let mut bytes = Vec::new();
        for block in &update.blocks {
            let Body::Dense(values) = &block.body else { panic!("dense blocks alone") };
            crate::choices::raw().encode(values, 0, values.len(), &mut bytes);
        }
        bytes
    }

    /// Sums twice; the groups in `remote` share no memory.
    fn sums(world: u32, params: &str, remote: &[u32]) -> (Vec<Vec<u8>>, usize) {
        let neighbours = Neighbours::of_threads(world);
        let perches = perches(world);
        let found = run_all(&perches, |perch| {
            let topology = summing("hierarchical", params).unwrap();
            let options = MergeOptions::exact(1, &perch.net, topology.clone(), PATIENCE);
            let seat = perch.net.seat();
            let near = near(&*topology, &options.group, seat)
                .filter(|group| !remote.contains(&group[0].0))
                .and_then(|group| neighbours[seat.index()].sum(1, &group));
            let mut merger = Merger::new(perch.net.clone(), options).nearby(near);
            merger.merge(contribution(perch.seat() + 1)).unwrap();
            bits(&merger.merge(contribution(perch.seat())).unwrap())
        });
        let frames = perches.iter().map(|perch| perch.sent(Lane::Exchange, 1)).sum();
        (found, frames)
    }

    #[test]
    fn groups_that_share_a_host_sum_through_its_memory_to_the_same_bits() {
        for (world, params) in [
            (4, ""),
            (5, ""),
            (6, "group = 3"),
            (7, "group = 3\ninner = \"star\""),
            (6, "inner = \"tree\"\nouter = \"tree\""),
        ] {
            let all: Vec<u32> = (0..world).collect();
            let (wanted, over_links) = sums(world, params, &all);
            assert!(wanted.iter().all(|sum| *sum == wanted[0]), "{world} {params}");
            let (through_memory, fewer) = sums(world, params, &[]);
            assert!(through_memory == wanted, "{world} {params}");
            assert!(fewer < over_links, "{world} {params}: {fewer} of {over_links} frames");
            let (some, between) = sums(world, params, &[0]);
            assert!(some == wanted && between < over_links && between > fewer, "{world} {params}");
        }
    }
}
