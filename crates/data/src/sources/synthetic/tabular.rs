//! Tables of numbers. Features are standard normal, and neighbours are correlated: x₀ = z₀ and
//! xⱼ = ½ xⱼ₋₁ + √¾ zⱼ, so that cov(xᵢ, xⱼ) = 2^−|i−j| and plain gradient descent has something to do (the
//! covariance's condition number tends to 9).
//!
//! - classification: class c has weights of variance 4 / features, and a row's class is drawn from the
//!   multinomial logistic model, softmax(W x). The best possible classifier is W itself.
//! - regression: y = w·x + noise, weights of variance 1.
//! - blobs: isotropic normal clouds of deviation `spread` around centres uniform in [−10, 10].

use super::{Build, Generator, MakeColumns, ROWS_MAX, SEED, scale, size};
use starlings_core::{Entry, Param, Params, Rng};

const FEATURES_MAX: i64 = 1 << 16;
const CLASSES_MAX: i64 = 1 << 12;

/// Classes of a logistic model.
pub(super) const CLASSIFICATION: Entry<Build> = Entry {
    name: "classification",
    summary: "Correlated normal features, classes drawn from a multinomial logistic model",
    reference: "Cox (1958), The regression analysis of binary sequences",
    params: &[
        size("rows", "10000", ROWS_MAX, "number of rows"),
        size("features", "20", FEATURES_MAX, "number of features"),
        Param { kind: TWO_OR_MORE, ..size("classes", "2", CLASSES_MAX, "number of classes") },
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (features, classes) = (params.size("features"), params.size("classes"));
        let deviation = 2.0 / (features as f64).sqrt();
        let weights = weights(params, "classification weights", features * classes, deviation);
        boxed(Classification { seed: seed(params), features, weights })
    },
};

const TWO_OR_MORE: starlings_core::ParamKind =
    starlings_core::ParamKind::Integer { min: 2, max: CLASSES_MAX };

/// A linear model with noise.
pub(super) const REGRESSION: Entry<Build> = Entry {
    name: "regression",
    summary: "Correlated normal features, a linear target with normal noise",
    reference: "Gauss (1809), Theoria motus",
    params: &[
        size("rows", "10000", ROWS_MAX, "number of rows"),
        size("features", "20", FEATURES_MAX, "number of features"),
        scale("noise", "1.0", "standard deviation of the noise"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let features = params.size("features");
        let weights = weights(params, "regression weights", features, 1.0);
        boxed(Regression { seed: seed(params), weights, noise: params.f64("noise") })
    },
};

/// Clouds of points.
pub(super) const BLOBS: Entry<Build> = Entry {
    name: "blobs",
    summary: "Normal clouds around random centres; the label is the cloud",
    reference: "Pearson (1894), Contributions to the mathematical theory of evolution",
    params: &[
        size("rows", "10000", ROWS_MAX, "number of rows"),
        size("features", "2", FEATURES_MAX, "number of features"),
        size("centers", "3", CLASSES_MAX, "number of clouds"),
        scale("spread", "1.0", "standard deviation of a cloud"),
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let (features, centers) = (params.size("features"), params.size("centers"));
        let mut rng = Rng::named(seed(params), "blob centres", &[]);
        let centers = (0..features * centers).map(|_| 20.0 * rng.uniform() - 10.0).collect();
        boxed(Blobs { seed: seed(params), features, centers, spread: params.f64("spread") })
    },
};

fn seed(params: &Params) -> u64 {
    params.size("seed") as u64
}

fn boxed(made: impl MakeColumns + 'static) -> Generator {
    Generator::Columns(Box::new(made))
}

fn weights(params: &Params, purpose: &str, count: usize, deviation: f64) -> Vec<f64> {
    let mut rng = Rng::named(seed(params), purpose, &[]);
    (0..count).map(|_| deviation * rng.normal()).collect()
}

fn numbered(features: usize) -> Vec<(String, Option<u64>)> {
    (0..features).map(|feature| (format!("x{feature}"), None)).collect()
}

/// Fills a row with features whose neighbours are correlated.
fn correlated(rng: &mut Rng, values: &mut [f32]) {
    let mut last = 0.0;
    for (feature, value) in values.iter_mut().enumerate() {
        let fresh = rng.normal();
        last = if feature == 0 { fresh } else { 0.5 * last + 0.75f64.sqrt() * fresh };
        *value = last as f32;
    }
}

fn dot(weights: &[f64], values: &[f32]) -> f64 {
    weights.iter().zip(values).map(|(weight, value)| weight * f64::from(*value)).sum()
}

struct Classification {
    seed: u64,
    features: usize,
    weights: Vec<f64>,
}

impl MakeColumns for Classification {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        numbered(self.features)
    }

    fn label(&self) -> &'static str {
        "class"
    }

    fn classes(&self) -> Option<u64> {
        Some((self.weights.len() / self.features) as u64)
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "classification row", &[row]);
        correlated(&mut rng, values);
        // The class with the largest score plus Gumbel noise is a draw from the softmax of the scores.
        let mut best = (f64::NEG_INFINITY, 0);
        for (class, weights) in self.weights.chunks_exact(self.features).enumerate() {
            let gumbel = -(-(1.0 - rng.uniform()).ln()).ln();
            let score = dot(weights, values) + gumbel;
            if score > best.0 {
                best = (score, class);
            }
        }
        best.1 as f32
    }
}

struct Regression {
    seed: u64,
    weights: Vec<f64>,
    noise: f64,
}

impl MakeColumns for Regression {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        numbered(self.weights.len())
    }

    fn label(&self) -> &'static str {
        "target"
    }

    fn classes(&self) -> Option<u64> {
        None
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "regression row", &[row]);
        correlated(&mut rng, values);
        (dot(&self.weights, values) + self.noise * rng.normal()) as f32
    }
}

struct Blobs {
    seed: u64,
    features: usize,
    centers: Vec<f64>,
    spread: f64,
}

impl MakeColumns for Blobs {
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        numbered(self.features)
    }

    fn label(&self) -> &'static str {
        "cluster"
    }

    fn classes(&self) -> Option<u64> {
        Some((self.centers.len() / self.features) as u64)
    }

    fn make(&self, row: u64, values: &mut [f32]) -> f32 {
        let mut rng = Rng::named(self.seed, "blob row", &[row]);
        let chosen = rng.below((self.centers.len() / self.features) as u64) as usize;
        let center = &self.centers[chosen * self.features..];
        for (value, center) in values.iter_mut().zip(center) {
            *value = (center + self.spread * rng.normal()) as f32;
        }
        chosen as f32
    }
}
