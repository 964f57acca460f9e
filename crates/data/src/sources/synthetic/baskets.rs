//! Shopping baskets in the manner of IBM's Quest generator: a basket is a union of patterns (sets of items
//! that are bought together), popular patterns more often, until it is as long as it wants to be.

use super::{Build, Generator, MakeCounts, ROWS_MAX, SEED, size};
use starlings_core::{Entry, Rng};
use std::collections::BTreeMap;

/// Shopping baskets.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "baskets",
    summary: "Shopping baskets that repeat patterns of items",
    reference: "Agrawal and Srikant (1994), Fast algorithms for mining association rules",
    params: &[
        size("baskets", "1000", ROWS_MAX, "number of baskets"),
        size("items", "200", 1 << 24, "number of items"),
        size("patterns", "50", 1 << 20, "number of patterns"),
        size("length", "10", 1 << 12, "mean number of items in a basket"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (seed, items) = (params.size("seed") as u64, params.size("items") as u64);
        let mut rng = Rng::named(seed, "patterns", &[]);
        let (mut patterns, mut popular, mut total) = (Vec::new(), Vec::new(), 0.0);
        for _ in 0..params.size("patterns") {
            let size = 1 + rng.below(2 * PATTERN_MEAN - 1);
            patterns.push((0..size).map(|_| rng.below(items) as u32).collect());
            // Popularity is exponential, as in the paper.
            total -= (1.0 - rng.uniform()).ln();
            popular.push(total);
        }
        let length = params.size("length") as u64;
        Generator::Counts(Box::new(Baskets { seed, items, patterns, popular, length }))
    },
};

const PATTERN_MEAN: u64 = 4;

struct Baskets {
    seed: u64,
    items: u64,
    patterns: Vec<Vec<u32>>,
    /// Sums of popularity up to and with each pattern.
    popular: Vec<f64>,
    length: u64,
}

impl MakeCounts for Baskets {
    fn width(&self) -> usize {
        self.items as usize
    }

    fn make(&self, row: u64, entries: &mut BTreeMap<u32, f32>) {
        let mut rng = Rng::named(self.seed, "basket", &[row]);
        let length = (1 + rng.below(2 * self.length - 1)) as usize;
        let total = self.popular.last().copied().unwrap_or(0.0);
        // Patterns overlap, so that a basket of all items may never fill: try as often as it is long.
        for _ in 0..length {
            let drawn = rng.uniform() * total;
            let chosen = self.popular.partition_point(|sum| *sum <= drawn);
            for item in &self.patterns[chosen.min(self.patterns.len() - 1)] {
                if entries.len() < length {
                    entries.insert(*item, 1.0);
                }
            }
            if entries.len() >= length {
                break;
            }
        }
    }
}
