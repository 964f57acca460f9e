//! Sums that do not depend on who added them up: one model, to the bit, whatever the number of workers and the
//! topology. Without this a long run on ill-conditioned data turns a difference in the last bit into one that can be
//! seen (Demmel and Nguyen, "Fast reproducible floating-point summation", 2013, for the idea).
//!
//! Where a sum's size is known beforehand, each shard's part is rounded to a grid of 2⁻⁶¹ of it, finer than what f64
//! keeps of the largest, and travels as integers, whose sum is the same in every order. Where it is not, each shard's
//! part travels as a row of its own, and all add the rows in the order of shards.

use starlings_core::{Block, Kind, Rows, Shard, Update, Values};

/// How parts of shards become one sum.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fold {
    /// On a grid: so many numbers in a row stand on the same one.
    Grids {
        /// The grid of each row.
        grids: Vec<f64>,
        /// Numbers in a row.
        width: usize,
    },
    /// As rows, one for each of so many shards.
    Shards(u32),
}

/// Collects the parts of shards.
pub(crate) struct Collector<'a> {
    fold: &'a Fold,
    len: usize,
    counts: Vec<i64>,
    index: Vec<u32>,
    rows: Vec<f64>,
}

impl<'a> Collector<'a> {
    /// Nothing yet of sums with so many numbers.
    pub(crate) fn new(fold: &'a Fold, len: usize) -> Collector<'a> {
        let counts = if let Fold::Grids { .. } = fold { vec![0; len] } else { Vec::new() };
        Collector { fold, len, counts, index: Vec::new(), rows: Vec::new() }
    }

    /// Adds a shard's part. Shards come in order.
    pub(crate) fn add(&mut self, shard: Shard, part: &[f64]) {
        match self.fold {
            Fold::Grids { grids, width } => {
                let rows = part.chunks_exact(*width).zip(grids);
                for (into, (from, grid)) in self.counts.chunks_exact_mut(*width).zip(rows) {
                    // Grids are powers of two: the product with the inverse is exact.
                    let inverse = 1.0 / grid;
                    let pairs = into.iter_mut().zip(from);
                    pairs.for_each(|(into, from)| {
                        *into = into.wrapping_add((from * inverse) as i64);
                    });
                }
            }
            Fold::Shards(_) => {
                self.index.push(shard.0);
                self.rows.extend_from_slice(part);
            }
        }
    }

    /// The block that travels.
    pub(crate) fn block(self, name: &str) -> Block {
        match self.fold {
            Fold::Grids { .. } => Block::counts(name, self.counts),
            Fold::Shards(shards) => {
                let (total, width) = (*shards, self.len as u32);
                let values = Values::F64(self.rows);
                Block::rows(name, Rows { total, width, index: self.index, values })
            }
        }
    }
}

/// The sum that a block stands for.
pub(crate) fn read(fold: &Fold, update: &Update, name: &str) -> Vec<f64> {
    match fold {
        Fold::Grids { grids, width } => {
            let rows = update.i64(name).chunks_exact(*width).zip(grids);
            rows.flat_map(|(row, grid)| row.iter().map(move |&sum| sum as f64 * grid)).collect()
        }
        Fold::Shards(_) => update.rows(name).map(add_up).unwrap_or_default(),
    }
}

/// A grid for sums no larger than this: a power of two, 2⁻⁶¹ of it.
pub(crate) fn grid(bound: f64) -> f64 {
    if !(bound > 0.0 && bound.is_finite()) {
        return 1.0;
    }
    // The next power of two is read off the exponent: logarithms of every feature would be felt in each step.
    let above = (bound.to_bits() >> 52) + 1;
    f64::from_bits(above.saturating_sub(61).max(1) << 52)
}

/// No rows of shards yet.
pub(crate) fn no_rows(shards: u32, width: usize) -> Rows {
    Rows::none(Kind::F64, shards, width as u32)
}

/// The sum of the shards' rows, in their order.
fn add_up(rows: &Rows) -> Vec<f64> {
    let mut sums = vec![0.0; rows.width as usize];
    for row in rows.values.as_f64().unwrap_or(&[]).chunks_exact(sums.len().max(1)) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_leave_room_for_the_largest_sum() {
        for bound in [1000.0, 5000.0, 1e-30, 3e40] {
            let grid = grid(bound);
            assert!(bound / grid < (1u64 << 62) as f64, "{grid}");
            assert!(bound / grid > (1u64 << 59) as f64, "{grid}");
        }
        assert_eq!(grid(0.0), 1.0);
    }

    #[test]
    fn both_folds_give_the_sum_whoever_adds() {
        let parts = [[0.1, 0.2], [0.3, -0.7], [1e-9, 0.11]];
        let grids = Fold::Grids { grids: vec![grid(10.0), grid(10.0)], width: 1 };
        for fold in [grids, Fold::Shards(3)] {
            let sum = |owners: [usize; 3]| {
                let mut blocks = (0..2).map(|worker| {
                    let mut collector = Collector::new(&fold, 2);
                    for shard in (0..3).filter(|&shard| owners[shard] == worker) {
                        collector.add(Shard(shard as u32), &parts[shard]);
                    }
                    Update { blocks: vec![collector.block("sum")] }
                });
                let (mut first, second) = (blocks.next().unwrap(), blocks.next().unwrap());
                first.fold(&second).unwrap();
                read(&fold, &first, "sum")
            };
            let alone = sum([0, 0, 0]);
            for owners in [[0, 1, 0], [1, 0, 1], [1, 1, 0]] {
                assert_eq!(alone, sum(owners), "{fold:?}");
            }
            assert!((alone[0] - 0.400000001).abs() < 1e-15 && (alone[1] + 0.39).abs() < 1e-15);
        }
    }
}
