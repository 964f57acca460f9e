//! The joint log-likelihood of a row and each class, which is all that prediction needs: a linear function of the
//! features (of whether they are there, for Bernoulli), or for Gaussian of their squared distances to the means.

use super::Kind;
use crate::kernels::widest;
use starlings_core::{FEATURES, Graph, Model, Op};
use starlings_data::{Batch, Row};

/// e to the power of less than this is nothing beside one.
const BELOW_MIN: f64 = -40.0;

/// Calls `visit` with each row's number in the table and the scores of all classes.
pub(super) fn each(
    kind: Kind,
    model: &Model,
    batch: &Batch<'_>,
    mut visit: impl FnMut(usize, &[f64]),
) {
    let scorer = Scorer::new(kind, model);
    let mut scores = vec![0.0; scorer.constants.len()];
    let mut room = vec![0.0; scorer.width];
    widest(
        #[inline(always)]
        || {
            for row in batch.rows() {
                match batch.table.row(row) {
                    Row::Dense(values) => scorer.dense(values, &mut room, &mut scores),
                    Row::Sparse(columns, values) => {
                        scorer.sparse(columns, values, &mut scores);
                    }
                }
                visit(row, &scores);
            }
        },
    );
}

/// The most likely class (the first of equals) and the logarithm of the sum over classes.
pub(super) fn evidence(scores: &[f64]) -> (usize, f64) {
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    let mut sum = 0.0;
    for score in scores {
        let below = score - scores[best];
        // What is smaller than rounding is left out: exponentials are most of what a row costs.
        if below > BELOW_MIN {
            sum += below.exp();
        }
    }
    (best, scores[best] + sum.ln())
}

/// What prediction reads, in the order in which it is read.
struct Scorer {
    kind: Kind,
    width: usize,
    /// The prior, and what else does not depend on the row.
    constants: Vec<f64>,
    /// Bernoulli: the score of a row of zeros.
    at_zero: Vec<f64>,
    /// Linear kinds: what each feature adds, classes × features.
    slopes: Vec<f64>,
    /// The same, features × classes.
    by_feature: Vec<f64>,
    /// Gaussian: means, and halves of inverse variances.
    means: Vec<f64>,
    halves: Vec<f64>,
    /// Gaussian: the distances of a row of zeros to each class, with what rounding lost of them.
    zeros: Vec<(f64, f64)>,
}

impl Scorer {
    fn new(kind: Kind, model: &Model) -> Scorer {
        let priors = model.f64("log_prior");
        if kind == Kind::Gaussian {
            return Scorer::gaussian(model);
        }
        let logs = model.f64("feature_log_probability");
        let width = logs.len() / priors.len();
        let (mut constants, mut slopes) = (priors.to_vec(), logs.to_vec());
        if let Kind::Bernoulli { .. } = kind {
            for (row, constant) in slopes.chunks_exact_mut(width).zip(&mut constants) {
                for slope in row {
                    // ln(1 − p) from ln p.
                    let absent = (-slope.exp()).ln_1p();
                    *constant += absent;
                    *slope -= absent;
                }
            }
        }
        let classes = priors.len();
        let mut by_feature = vec![0.0; slopes.len()];
        for (at, slope) in slopes.iter().enumerate() {
            by_feature[(at % width) * classes + at / width] = *slope;
        }
        let mut at_zero = constants.clone();
        if matches!(kind, Kind::Bernoulli { above } if 0.0 > above) {
            let sums = slopes.chunks_exact(width).map(|row| row.iter().sum::<f64>());
            at_zero.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum);
        }
        let (means, halves, zeros) = (Vec::new(), Vec::new(), Vec::new());
        Scorer { kind, width, constants, at_zero, slopes, by_feature, means, halves, zeros }
    }

    fn gaussian(model: &Model) -> Scorer {
        let (priors, variances) = (model.f64("log_prior"), model.f64("variances"));
        let width = variances.len() / priors.len();
        let constants = priors.iter().zip(variances.chunks_exact(width)).map(|(prior, row)| {
            let logs: f64 = row.iter().map(|v| (std::f64::consts::TAU * v).ln()).sum();
            prior - 0.5 * logs
        });
        let means = model.f64("means").to_vec();
        let halves: Vec<f64> = variances.iter().map(|variance| 0.5 / variance).collect();
        let zeros =
            means.chunks_exact(width).zip(halves.chunks_exact(width)).map(|(means, halves)| {
                means.iter().zip(halves).fold((0.0, 0.0), |(sum, lost), (mean, half)| {
                    let (sum, error) = two_sum(sum, mean * mean * half);
                    (sum, lost + error)
                })
            });
        Scorer {
            kind: Kind::Gaussian,
            width,
            constants: constants.collect(),
            at_zero: Vec::new(),
            slopes: Vec::new(),
            by_feature: Vec::new(),
            zeros: zeros.collect(),
            means,
            halves,
        }
    }

    /// Scores of a dense row. `room` holds it as f64, so that it is converted once for all classes.
    #[inline(always)]
    fn dense(&self, values: &[f32], room: &mut [f64], scores: &mut [f64]) {
        scores.copy_from_slice(&self.constants);
        match self.kind {
            Kind::Bernoulli { above } => {
                let there = |x: f32| if x > above { 1.0 } else { 0.0 };
                room.iter_mut().zip(values).for_each(|(to, &x)| *to = there(x));
            }
            _ => room.iter_mut().zip(values).for_each(|(to, &x)| *to = f64::from(x)),
        }
        if self.kind == Kind::Gaussian {
            return self.distances(room, scores);
        }
        for (score, slopes) in scores.iter_mut().zip(self.slopes.chunks_exact(self.width)) {
            *score += lanes(room, slopes, slopes, |x, slope, _| x * slope);
        }
    }

    #[inline(always)]
    fn sparse(&self, columns: &[u32], values: &[f32], scores: &mut [f64]) {
        if self.kind == Kind::Gaussian {
            return self.sparse_distances(columns, values, scores);
        }
        let (constants, above) = match self.kind {
            Kind::Bernoulli { above } => (&self.at_zero, Some(above)),
            _ => (&self.constants, None),
        };
        scores.copy_from_slice(constants);
        let classes = scores.len();
        for (&column, &x) in columns.iter().zip(values) {
            let by = match above {
                Some(above) => f64::from(u8::from(x > above)) - f64::from(u8::from(0.0 > above)),
                None => f64::from(x),
            };
            let slopes = &self.by_feature[column as usize * classes..][..classes];
            scores.iter_mut().zip(slopes).for_each(|(score, slope)| *score += by * slope);
        }
    }

    /// The distances of a row of zeros, less what the stored numbers' zeros are in them, and their own. A zero's part is
    /// taken out by the very number that was put in, and what rounding loses on the way is kept beside the sum.
    #[inline(always)]
    fn sparse_distances(&self, columns: &[u32], values: &[f32], scores: &mut [f64]) {
        for (class, score) in scores.iter_mut().enumerate() {
            let at = class * self.width;
            let (mut zeros, mut lost) = self.zeros[class];
            let mut own = 0.0;
            for (&column, &x) in columns.iter().zip(values) {
                let at = at + column as usize;
                let (x, mean, half) = (f64::from(x), self.means[at], self.halves[at]);
                let (sum, error) = two_sum(zeros, -(mean * mean * half));
                (zeros, lost) = (sum, lost + error);
                own += (x - mean) * (x - mean) * half;
            }
            *score = self.constants[class] - (zeros + lost) - own;
        }
    }

    #[inline(always)]
    fn distances(&self, values: &[f64], scores: &mut [f64]) {
        let cells = self.means.chunks_exact(self.width).zip(self.halves.chunks_exact(self.width));
        for (score, (means, halves)) in scores.iter_mut().zip(cells) {
            *score -= lanes(values, means, halves, |x, mean, half| (x - mean) * (x - mean) * half);
        }
    }
}

/// A sum and what it lost by rounding (Knuth, 1969).
#[inline(always)]
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let back = sum - a;
    (sum, (a - (sum - back)) + (b - back))
}

/// Σ term(a, b, c), in eight lanes that processors can keep in flight together.
#[inline(always)]
fn lanes(a: &[f64], b: &[f64], c: &[f64], term: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let (c, c_rest) = c.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        for lane in 0..8 {
            sums[lane] += term(a[lane], b[lane], c[lane]);
        }
    }
    let rest = a_rest.iter().zip(b_rest).zip(c_rest).map(|((a, b), c)| term(*a, *b, *c));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// The scores and their softmax as operators.
pub(super) fn graph(kind: Kind, model: &Model) -> Graph {
    let scorer = Scorer::new(kind, model);
    let classes = scorer.constants.len();
    let mut graph = Graph::new();
    let constants = graph.constant("constants", &[classes], scorer.constants.clone());
    let scores = match kind {
        Kind::Gaussian => distances_graph(&mut graph, &scorer),
        Kind::Bernoulli { above } => {
            let above = graph.constant("binarize", &[1], vec![f64::from(above)]);
            let slopes = graph.constant("slopes", &[scorer.width, classes], scorer.by_feature);
            let there = graph.node(Op::Less, &[&above, FEATURES]);
            graph.node(Op::MatMul, &[&there, &slopes])
        }
        Kind::Multinomial | Kind::Complement { .. } => {
            let slopes = graph.constant("slopes", &[scorer.width, classes], scorer.by_feature);
            graph.node(Op::MatMul, &[FEATURES, &slopes])
        }
    };
    let scores = graph.node(Op::Add, &[&scores, &constants]);
    graph.node(Op::Softmax, &[&scores]);
    graph
}

/// Distances class by class, so that no square of a large number is subtracted from another.
fn distances_graph(graph: &mut Graph, scorer: &Scorer) -> String {
    let width = scorer.width;
    let mut columns = Vec::new();
    for (class, means) in scorer.means.chunks_exact(width).enumerate() {
        let means = graph.constant(&format!("means_{class}"), &[width], means.to_vec());
        let halves = scorer.halves[class * width..(class + 1) * width].iter().map(|half| -half);
        let halves = graph.constant(&format!("halves_{class}"), &[width, 1], halves.collect());
        let off = graph.node(Op::Sub, &[FEATURES, &means]);
        let squares = graph.node(Op::Mul, &[&off, &off]);
        columns.push(graph.node(Op::MatMul, &[&squares, &halves]));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    graph.node(Op::Concat, &columns)
}
