//! What a pattern costs, by counting: for topologies that are put together from others, where a formula would
//! repeat the parts' own.

use crate::{Act, Cost, Move, Topology, moves};
use starlings_core::Seat;
use std::collections::{BTreeMap, VecDeque};

/// The cost of summing `bytes` in `chunks` equal chunks.
pub(crate) fn counted(topology: &dyn Topology, world: u32, bytes: u64, chunks: usize) -> Cost {
    if world < 2 || chunks == 0 {
        return Cost::NOTHING;
    }
    let Tally { sends, rounds } = tally(topology, chunks, &vec![0; world as usize]);
    let bytes = bytes as f64 / chunks as f64;
    Cost {
        rounds: rounds.into_iter().max().unwrap_or(0),
        bytes_sent_max: sends.iter().copied().max().unwrap_or(0) as f64 * bytes,
        bytes_sent_total: sends.iter().sum::<usize>() as f64 * bytes,
    }
}

/// What a sum has taken of each seat.
pub(crate) struct Tally {
    /// Chunks that it has sent.
    pub(crate) sends: Vec<usize>,
    /// Messages one after another that led to what it holds.
    pub(crate) rounds: Vec<u64>,
}

/// Plays all seats' moves with sends that never block. The seats begin after so many messages one after another.
pub(crate) fn tally(topology: &dyn Topology, chunks: usize, begun: &[u64]) -> Tally {
    let world = begun.len() as u32;
    let mut lists = vec![vec![Vec::new(); begun.len()]; chunks];
    let mut sends = Vec::with_capacity(begun.len());
    for seat in (0..world).map(Seat) {
        let list = moves(&topology.pattern(seat, world, chunks), seat, world);
        sends.push(list.iter().filter(|step| step.act.sends()).count());
        list.into_iter().for_each(|step| lists[step.chunk][seat.index()].push(step));
    }
    let mut rounds = begun.to_vec();
    for lists in &lists {
        let chunk = longest(lists, begun);
        rounds.iter_mut().zip(chunk).for_each(|(most, here)| *most = here.max(*most));
    }
    Tally { sends, rounds }
}

/// Messages one after another on the longest path of one chunk to each seat.
fn longest(lists: &[Vec<Move>], begun: &[u64]) -> Vec<u64> {
    let mut rounds = begun.to_vec();
    let mut next = vec![0; lists.len()];
    let mut wires: BTreeMap<(usize, usize), VecDeque<u64>> = BTreeMap::new();
    let mut ready: Vec<usize> = (0..lists.len()).collect();
    while let Some(seat) = ready.pop() {
        while let Some(step) = lists[seat].get(next[seat]) {
            let peer = step.peer.index();
            if step.act.sends() {
                wires.entry((seat, peer)).or_default().push_back(rounds[seat] + 1);
                ready.push(peer);
            } else {
                let wire = wires.get_mut(&(peer, seat));
                let Some(message) = wire.and_then(VecDeque::pop_front) else { break };
                rounds[seat] = rounds[seat].max(message);
            }
            next[seat] += 1;
        }
    }
    rounds
}

impl Act {
    fn sends(self) -> bool {
        matches!(self, Act::SendPartial | Act::SendTotal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topologies::sum_named;

    #[test]
    fn counting_agrees_with_the_formulas_of_the_simple_sums() {
        for name in ["ring", "tree", "halving-doubling", "star"] {
            let topology = sum_named(name).expect("sums");
            for world in 1..=17 {
                for chunks in [0, 1, 5, 16, 34] {
                    let counted = counted(&*topology, world, 340_000, chunks);
                    let said = topology.cost(world, 340_000, chunks);
                    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
                    assert!(
                        counted.rounds == said.rounds
                            && close(counted.bytes_sent_max, said.bytes_sent_max)
                            && close(counted.bytes_sent_total, said.bytes_sent_total),
                        "{name}, world {world}, {chunks} chunks: counted {counted:?}, said {said:?}"
                    );
                }
            }
        }
    }
}
