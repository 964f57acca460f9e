//! For each block whichever way is cheapest: all numbers, those that are not zero, or factors (HybComm, a part of
//! Poseidon, Zhang et al., 2017). All three are exact, so what is learnt does not depend on the choice.
//!
//! The rule: a contribution of b bytes is sent c times, where c is the number of peers if everyone gets it, and 1 if
//! it goes to one owner (whose answer is the same whatever the way). Of P contributions whoever folds them takes in
//! P − 1 from others. So a way costs
//!
//! ```text
//! c · b / bandwidth + encode + (P − 1) · fold    seconds, with
//!
//!            b                                          encode          fold
//! dense      len · width                                nothing         0.5 ns · len
//! sparse     nonzero · width + places                   0.5 ns · len    2 ns · nonzero
//! factors    8 · terms · (rows + columns)               nothing         0.25 ns · terms · rows · columns
//! ```
//!
//! The learner has the factors before it has the matrix, and multiplies its own out in any case. The engine measures the
//! bandwidth where blocks are large enough; without it bytes alone decide. Among equals the simpler way wins: dense, then sparse.

use super::BuildCodec;
use crate::{Cheapest, Facts, Scheme, Way, sparse};
use starlings_core::{Ability, Entry};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "auto",
    summary: "Each block travels dense, sparse or as factors, whichever is cheapest over the measured bandwidth; exactly in any case",
    reference: "Zhang et al.: Poseidon: an efficient communication architecture for distributed deep learning on GPU clusters, USENIX ATC 2017",
    params: &[],
    gives: &[Ability::Lossless],
    needs: &[Ability::Contributions],
    build: |_| Ok(Scheme::Auto(Box::new(HybComm))),
};

// Orders of magnitude on one core of today's machines: they decide between ways that differ by as much.
const SECONDS_PER_ADDITION: f64 = 0.5e-9;
const SECONDS_PER_LOOK: f64 = 0.5e-9;
const SECONDS_PER_SCATTER: f64 = 2e-9;
const SECONDS_PER_MULTIPLICATION: f64 = 0.25e-9;

/// Bytes of a number in factors.
const FACTOR_WIDTH: usize = 8;

struct HybComm;

impl Cheapest for HybComm {
    fn choose(&self, block: &Facts) -> Way {
        let mut best = (Way::Dense, dense(block));
        let others =
            [Some((Way::Sparse, sparse(block))), factors(block).map(|cost| (Way::Factors, cost))];
        for (way, cost) in others.into_iter().flatten() {
            if cost < best.1 {
                best = (way, cost);
            }
        }
        best.0
    }
}

fn dense(block: &Facts) -> f64 {
    let fold = block.len as f64 * SECONDS_PER_ADDITION;
    cost(block, block.len as f64 * block.width as f64, 0.0, fold)
}

fn sparse(block: &Facts) -> f64 {
    let bytes = sparse::typical_len(block.nonzero, block.len, block.width) as f64;
    let look = block.len as f64 * SECONDS_PER_LOOK;
    cost(block, bytes, look, block.nonzero as f64 * SECONDS_PER_SCATTER)
}

fn factors(block: &Facts) -> Option<f64> {
    let (rows, columns, terms) = block.factors?;
    let (rows, columns, terms) = (rows as f64, columns as f64, terms as f64);
    let bytes = terms * (rows + columns) * FACTOR_WIDTH as f64;
    Some(cost(block, bytes, 0.0, terms * rows * columns * SECONDS_PER_MULTIPLICATION))
}

/// Seconds, or bytes where the bandwidth is not known.
fn cost(block: &Facts, bytes: f64, encode: f64, fold: f64) -> f64 {
    let peers = f64::from(block.world.saturating_sub(1));
    let copies = if block.everyone { peers } else { 1.0 };
    match block.bytes_per_second {
        Some(bandwidth) => copies * bytes / bandwidth + encode + peers * fold,
        None => copies * bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(nonzero: usize, terms: Option<usize>) -> Facts {
        Facts {
            len: 1_000_000,
            nonzero,
            factors: terms.map(|terms| (1000, 1000, terms)),
            width: 8,
            world: 4,
            bytes_per_second: None,
            everyone: true,
        }
    }

    #[test]
    fn without_a_bandwidth_bytes_decide() {
        // A gap of one byte for each of up to an eighth, a bitmap above: 8 · nonzero + len / 8 = 8 · len.
        assert_eq!(HybComm.choose(&facts(984_000, None)), Way::Sparse);
        assert_eq!(HybComm.choose(&facts(985_000, None)), Way::Dense);
        // 16 · 1000 · terms = 8 · 1,000,000.
        assert_eq!(HybComm.choose(&facts(1_000_000, Some(499))), Way::Factors);
        assert_eq!(HybComm.choose(&facts(1_000_000, Some(500))), Way::Dense);
        // 20 terms are 320,000 bytes, as are 32,000 numbers of two bytes' gap… one byte's: 9 · nonzero.
        assert_eq!(HybComm.choose(&facts(35_000, Some(20))), Way::Sparse);
        assert_eq!(HybComm.choose(&facts(36_000, Some(20))), Way::Factors);
    }

    #[test]
    fn on_a_fast_link_computation_decides() {
        let at = |bandwidth, nonzero, terms| {
            HybComm.choose(&Facts { bytes_per_second: Some(bandwidth), ..facts(nonzero, terms) })
        };
        // Dense: 3 · 8 MB / bandwidth + 3 · 0.5 ms. Factors of 100 terms: 3 · 1.6 MB / bandwidth + 3 · 25 ms.
        // Equal at 6.4 MB / 24.5 ms = 261 MB/s.
        assert_eq!(at(255e6, 1_000_000, Some(100)), Way::Factors);
        assert_eq!(at(267e6, 1_000_000, Some(100)), Way::Dense);
        // A tenth not zero. Sparse: 3 · 0.9 MB / bandwidth + 0.5 ms + 3 · 0.2 ms. Equal at 21.3 MB / −0.4 ms: always
        // cheaper than dense; with half of them: 3 · 4.125 MB + 0.5 ms + 3 ms against 3 · 8 MB + 1.5 ms: 5.8 GB/s.
        assert_eq!(at(1e12, 100_000, None), Way::Sparse);
        assert_eq!(at(5.7e9, 500_000, None), Way::Sparse);
        assert_eq!(at(5.9e9, 500_000, None), Way::Dense);
    }

    #[test]
    fn an_owner_gets_one_copy_but_multiplies_for_all() {
        let to_owner =
            Facts { everyone: false, bytes_per_second: Some(125e6), ..facts(1_000_000, Some(100)) };
        // 1.6 MB and 75 ms against 8 MB and 1.5 ms: 87.8 ms against 65.5 ms.
        assert_eq!(HybComm.choose(&to_owner), Way::Dense);
        assert_eq!(HybComm.choose(&Facts { everyone: true, ..to_owner }), Way::Factors);
    }

    #[test]
    fn alone_or_empty_everything_is_dense() {
        assert_eq!(HybComm.choose(&Facts { world: 1, ..facts(5, Some(1)) }), Way::Dense);
        assert_eq!(HybComm.choose(&Facts { len: 0, ..facts(0, None) }), Way::Dense);
    }
}
