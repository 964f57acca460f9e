//! Ratings of a matrix of low rank: user u rates item i with 3 + p(u)·q(i) + noise, where the factors are
//! normal and p·q has variance 1. Users are uniform; items are skewed (item = ⌊items · t²⌋, t uniform), as
//! some are always more popular.

use super::{Build, Generator, MakeColumns, ROWS_MAX, SEED, scale, size};
use starlings_core::{Entry, Rng};

/// Ratings of users for items.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "ratings",
    summary: "Ratings of users for items from a matrix of low rank, with noise",
    reference: "Koren, Bell and Volinsky (2009), Matrix factorization techniques for recommender systems",
    params: &[
        size("rows", "100000", ROWS_MAX, "number of ratings"),
        size("users", "1000", 1 << 24, "number of users"),
        size("items", "500", 1 << 24, "number of items"),
        size("rank", "8", 1 << 10, "rank of the matrix"),
        scale("noise", "0.1", "standard deviation of the noise"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Generator::Columns(Box::new(Ratings {
            seed: params.size("seed") as u64,
            users: params.size("users") as u64,
            items: params.size("items") as u64,
            rank: params.size("rank"),
            noise: params.f64("noise"),
        }))
    },
};

struct Ratings {
    seed: u64,
    users: u64,
    items: u64,
    rank: usize,
    noise: f64,
}

impl MakeColumns for Ratings {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        vec![("user".to_string(), Some(self.users)), ("item".to_string(), Some(self.items))]
    }

    fn label(&self) -> &'static str {
        "rating"
    }

    fn classes(&self) -> Option<u64> {
        None
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "rating", &[row]);
        let user = rng.below(self.users);
        let skewed = rng.uniform().powi(2) * self.items as f64;
        let item = (skewed as u64).min(self.items - 1);
        (values[0], values[1]) = (user as f32, item as f32);
        // Factors are drawn anew for each rating: a table of them could be larger than the ratings.
        let mut of_user = Rng::named(self.seed, "user factors", &[user]);
        let mut of_item = Rng::named(self.seed, "item factors", &[item]);
        let product: f64 = (0..self.rank).map(|_| of_user.normal() * of_item.normal()).sum();
        (3.0 + product / (self.rank as f64).sqrt() + self.noise * rng.normal()) as f32
    }
}
