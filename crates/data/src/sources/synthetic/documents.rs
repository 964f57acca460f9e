//! Bags of words from the model of latent Dirichlet allocation. A document mixes topics by Dirichlet(0.1);
//! each topic orders the vocabulary its own way and takes its words by Zipf's law in that order.

use super::{Build, Generator, MakeCounts, ROWS_MAX, SEED, size};
use starlings_core::{Entry, Rng};
use std::collections::BTreeMap;

/// Bags of words.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "documents",
    summary: "Bags of words from a topic model",
    reference: "Blei, Ng and Jordan (2003), Latent Dirichlet allocation",
    params: &[
        size("documents", "1000", ROWS_MAX, "number of documents"),
        size("words", "1000", 1 << 24, "size of the vocabulary"),
        size("topics", "10", 1 << 12, "number of topics"),
        size("length", "100", 1 << 16, "mean number of words in a document"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (seed, words) = (params.size("seed") as u64, params.size("words") as u64);
        let mut rng = Rng::named(seed, "topic orders", &[]);
        let orders = (0..params.size("topics")).map(|_| Order::draw(&mut rng, words)).collect();
        let length = params.size("length") as u64;
        Generator::Counts(Box::new(Documents { seed, words, orders, length }))
    },
};

const CONCENTRATION: f64 = 0.1;

struct Documents {
    seed: u64,
    words: u64,
    orders: Vec<Order>,
    length: u64,
}

/// Place k of the order is word (step · k + start) mod words; the step shares no factor with `words`.
struct Order {
    step: u64,
    start: u64,
}

impl Order {
    fn draw(rng: &mut Rng, words: u64) -> Order {
        let mut step = 1 + rng.below(words);
        while divisor(step, words) != 1 {
            step += 1;
        }
        Order { step, start: rng.below(words) }
    }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl MakeCounts for Documents {
    fn width(&self) -> usize {
        self.words as usize
    }

    fn make(&self, row: u64, entries: &mut BTreeMap<u32, f32>) {
        let mut rng = Rng::named(self.seed, "document", &[row]);
        let weights: Vec<f64> =
            self.orders.iter().map(|_| gamma(&mut rng, CONCENTRATION)).collect();
        let total: f64 = weights.iter().sum();
        let length = self.length / 2 + rng.below(self.length + 1);
        for _ in 0..length.max(1) {
            let mut left = rng.uniform() * total;
            let topic = weights.iter().position(|weight| {
                left -= weight;
                left < 0.0
            });
            let order = &self.orders[topic.unwrap_or(0)];
            // Ranks whose logarithm is uniform follow Zipf's law.
            let rank = ((self.words + 1) as f64).powf(rng.uniform()) as u64 - 1;
            let word = (order.step * rank.min(self.words - 1) + order.start) % self.words;
            *entries.entry(word as u32).or_insert(0.0) += 1.0;
        }
    }
}

/// A gamma variate of shape below 1 (Marsaglia and Tsang, 2000, with their boost for small shapes).
fn gamma(rng: &mut Rng, shape: f64) -> f64 {
    let d = shape + 1.0 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (x, u) = (rng.normal(), 1.0 - rng.uniform());
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v * (1.0 - rng.uniform()).powf(1.0 / shape);
        }
    }
}
