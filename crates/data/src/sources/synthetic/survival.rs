//! Times until an event, some censored: ln t = w·x + scale·ln e with e exponential, so that t is Weibull with shape
//! 1/scale. A row is seen until a time of its own, also random; where the event comes later, that time is its label
//! and its column `event` is 0.

use super::{Build, Generator, MakeColumns, ROWS_MAX, SEED, scale, size};
use starlings_core::{Entry, Rng};

/// Times of a Weibull model.
pub(super) const ENTRY: Entry<Build> = Entry {
    name: "survival",
    summary: "Normal features, Weibull times until an event, rows seen for a while only; the column event says which",
    reference: "Weibull (1951), A statistical distribution function of wide applicability",
    params: &[
        size("rows", "10000", ROWS_MAX, "number of rows"),
        size("features", "5", 1 << 16, "number of features, besides the column event"),
        scale(
            "scale",
            "0.5",
            "how widely times spread: one over the shape of the Weibull distribution",
        ),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (seed, features) = (params.size("seed") as u64, params.size("features"));
        let mut rng = Rng::named(seed, "survival weights", &[]);
        let weights = (0..features).map(|_| rng.normal() / (features as f64).sqrt()).collect();
        Generator::Columns(Box::new(Survival { seed, weights, scale: params.f64("scale") }))
    },
};

struct Survival {
    seed: u64,
    weights: Vec<f64>,
    scale: f64,
}

impl MakeColumns for Survival {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        let features = (0..self.weights.len()).map(|feature| (format!("x{feature}"), None));
        features.chain([("event".to_string(), None)]).collect()
    }

    fn label(&self) -> &'static str {
        "time"
    }

    fn classes(&self) -> Option<u64> {
        None
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "survival row", &[row]);
        let (features, event) = values.split_at_mut(self.weights.len());
        features.iter_mut().for_each(|value| *value = rng.normal() as f32);
        let fitted: f64 = self.weights.iter().zip(&*features).map(|(w, x)| w * f64::from(*x)).sum();
        let mut exponential = || -(1.0 - rng.uniform()).ln();
        let time = (fitted + self.scale * exponential().ln()).exp();
        let seen = 2.0 * exponential();
        event[0] = f32::from(u8::from(time <= seen));
        // The smallest float above zero stands for times that would round to zero.
        (time.min(seen) as f32).max(f32::MIN_POSITIVE)
    }
}
