//! Documents of queries: `documents` consecutive rows belong to one query, and the last column, `query`, says which: the
//! job says `group = "query"`. A document's score is w·x plus noise plus a number of its query, which no feature shows;
//! its relevance is 0 to 4 by where the score lies among the quintiles of a standard normal.

use super::{Build, Generator, MakeColumns, ROWS_MAX, SEED, scale, size};
use starlings_core::{Entry, Rng};

/// Documents of queries.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "ranking",
    summary: "Documents of queries with a relevance of 0 to 4: say group = \"query\"",
    reference: "Burges et al. (2005), Learning to rank using gradient descent",
    params: &[
        size("rows", "10000", ROWS_MAX, "number of documents in all"),
        size("documents", "20", 1 << 20, "documents of a query"),
        size("features", "10", 1 << 16, "number of features"),
        scale("noise", "0.5", "standard deviation of the noise"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (seed, features) = (params.size("seed") as u64, params.size("features"));
        let mut rng = Rng::named(seed, "ranking weights", &[]);
        let mut weights: Vec<f64> = (0..features).map(|_| rng.normal()).collect();
        let norm = weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt();
        weights.iter_mut().for_each(|weight| *weight /= norm);
        let rows = params.size("rows") as u64;
        let documents = params.size("documents") as u64;
        let noise = params.f64("noise");
        Generator::Columns(Box::new(Ranking { seed, weights, rows, documents, noise }))
    },
};

/// Where the quintiles of a standard normal lie.
const QUINTILES: [f64; 4] = [-0.841_621_233_6, -0.253_347_103_1, 0.253_347_103_1, 0.841_621_233_6];

struct Ranking {
    seed: u64,
    weights: Vec<f64>,
    rows: u64,
    documents: u64,
    noise: f64,
}

impl MakeColumns for Ranking {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        let features = (0..self.weights.len()).map(|feature| (format!("x{feature}"), None));
        let queries = self.rows.div_ceil(self.documents);
        features.chain([("query".to_string(), Some(queries))]).collect()
    }

    fn label(&self) -> &'static str {
        "relevance"
    }

    fn classes(&self) -> Option<u64> {
        None
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "ranking row", &[row]);
        let query = row / self.documents;
        let shift = Rng::named(self.seed, "ranking query", &[query]).normal();
        let (features, last) = values.split_at_mut(self.weights.len());
        last[0] = query as f32;
        let mut score = 0.0;
        for (value, weight) in features.iter_mut().zip(&self.weights) {
            let x = rng.normal();
            score += weight * x;
            *value = x as f32;
        }
        let spread = (1.0 + self.noise * self.noise).sqrt();
        let score = (score + self.noise * rng.normal() + 0.3 * shift) / spread;
        QUINTILES.iter().filter(|quintile| score > **quintile).count() as f32
    }
}
