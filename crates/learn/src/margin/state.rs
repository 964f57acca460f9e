//! What margin learners keep in the model, and the one problem that all their solvers look at: its weights in the
//! units of the data, its penalty, and how rows and classes count.

use starlings_core::{Kind, Model, Role, Tensor};

/// One row a feature, then perhaps the intercept; one column a score.
pub(crate) const WEIGHTS: &str = "weights";
/// λ: the strength of the penalty.
pub(crate) const PENALTY: &str = "penalty";
/// Objective minus its lower bound, as the last check knew it.
pub(crate) const GAP: &str = "duality_gap";
/// What each class counts.
pub(crate) const CLASSES: &str = "class_weights";
/// Deviation and mean of each feature, where rows are standardised.
pub(crate) const SCALE: &str = "scale";
/// Phase, iterations, iterations allowed, shards with rows.
pub(crate) const COUNTERS: &str = "svm.counters";
/// The sum of weights, then means, variances and mean squares of all features.
pub(crate) const MOMENTS: &str = "svm.moments";

/// The shape of the weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) features: usize,
    pub(crate) scores: usize,
    pub(crate) intercept: bool,
}

impl Layout {
    pub(crate) fn rows(self) -> usize {
        self.features + usize::from(self.intercept)
    }

    pub(crate) fn classes(self) -> usize {
        self.scores.max(2)
    }

    /// One score's weights as a vector, from a matrix with one column a score.
    pub(crate) fn column(self, weights: &[f64], score: usize) -> Vec<f64> {
        weights.iter().skip(score).step_by(self.scores).copied().collect()
    }

    /// Whether a class is the positive one of a score.
    #[inline(always)]
    pub(crate) fn sign(self, class: usize, score: usize) -> f64 {
        let positive = if self.scores == 1 { class == 1 } else { class == score };
        if positive { 1.0 } else { -1.0 }
    }

    /// What a class counts in the problem of a score: as in LIBLINEAR, one against the rest weighs the one alone.
    #[inline(always)]
    pub(crate) fn class_weight(self, weights: &[f64], class: usize, score: usize) -> f64 {
        if self.scores == 1 || class == score { weights[class] } else { 1.0 }
    }
}

/// The problem as its solvers see it.
pub(crate) struct Problem<'a> {
    pub(crate) layout: Layout,
    /// λ.
    pub(crate) penalty: f64,
    /// The sum of the rows' weights.
    pub(crate) mass: f64,
    pub(crate) classes: &'a [f64],
    /// The number that stands for the intercept's feature.
    pub(crate) constant: f64,
    /// Deviations and means that rows are standardised by; none: rows are as they are.
    pub(crate) scale: Option<(&'a [f64], &'a [f64])>,
}

impl<'a> Problem<'a> {
    pub(crate) fn of(model: &'a Model, layout: Layout, constant: f64) -> Problem<'a> {
        let scale = model.get(SCALE).map(|_| model.f64(SCALE).split_at(layout.features));
        Problem {
            layout,
            penalty: model.f64(PENALTY)[0],
            mass: model.get(MOMENTS).map_or(1.0, |_| model.f64(MOMENTS)[0]),
            classes: model.f64(CLASSES),
            constant,
            scale,
        }
    }

    /// ‖v‖² of one score's weights (features, then the intercept) as the penalty sees them: those of standardised rows.
    pub(crate) fn square(&self, weights: &[f64]) -> f64 {
        let (features, intercept) = weights.split_at(self.layout.features);
        let (mut squares, mut shift) = (0.0, 0.0);
        for (column, weight) in features.iter().enumerate() {
            let (deviation, mean) = self.unit(column);
            squares += (weight * deviation).powi(2);
            shift += weight * mean;
        }
        let intercept = intercept.first().map_or(0.0, |own| (own + shift) / self.constant);
        squares + intercept * intercept
    }

    /// Deviation and mean by which a column is standardised.
    #[inline(always)]
    pub(crate) fn unit(&self, column: usize) -> (f64, f64) {
        self.scale.map_or((1.0, 0.0), |(deviations, means)| (deviations[column], means[column]))
    }
}

/// Adds what all margin learners keep.
pub(crate) fn init(model: &mut Model, layout: Layout, (limit, shards): (u64, u64)) {
    let weights = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::Weight);
    model.set(WEIGHTS, weights(&[layout.rows(), layout.scores]));
    model.set(PENALTY, weights(&[1]));
    model.set(GAP, weights(&[1]));
    model.set(CLASSES, Tensor::of(&[layout.classes()], vec![1.0; layout.classes()], Role::Weight));
    model.set(MOMENTS, Tensor::zeros(Kind::F64, &[1 + 3 * layout.features], Role::State));
    model.set(COUNTERS, Tensor::zeros(Kind::I64, &[4], Role::State));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    model.i64_mut(COUNTERS).copy_from_slice(&[0, 0, limit, shards as i64]);
}
