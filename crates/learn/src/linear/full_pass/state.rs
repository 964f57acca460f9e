//! What a full-pass solver remembers between steps, as tensors of the model.

use crate::linear::layout::Layout;
use crate::linear::moments::Moments;
use crate::optimisers::line_search::{NUMBERS, Search};
use starlings_core::{Kind, Model, Role, Tensor};

/// The last accepted point, the gradient there, where the search goes and where it looks now: in the solver's units.
pub(super) const VECTORS: [&str; 4] =
    ["descent.point", "descent.gradient", "descent.direction", "descent.trial"];
/// The value at the point, whether a search is on, the length at which scores are remembered, and the search.
const SEARCH: &str = "descent.search";
const COUNTERS: &str = "descent.counters";
/// The mean and the variance of each feature, one after the other.
const MOMENTS: &str = "descent.moments";
/// The weight of all rows and the sums of labels.
const TOTALS: &str = "descent.totals";
/// The factor of the features' correlations, packed.
pub(super) const FACTOR: &str = "descent.factor";
/// The deviation of each feature, where the penalty counts in it.
pub(crate) const SCALE: &str = "scale";
/// How much each class counts, where they do not count alike.
pub(crate) const CLASS_WEIGHTS: &str = "class_weights";
/// Where loss and gradient are wanted, in the data's units.
pub(crate) const TRIAL: &str = "trial";

/// What the next step is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Sums of features, weights and labels.
    Moments,
    /// Products of features.
    Products,
    /// Loss and gradient at the trial point.
    Evaluate,
    /// Loss and slope elsewhere on the line, from remembered scores: no feature is read.
    Probe,
    /// The product of the curvature with a direction.
    Curve,
    /// Dot products of the history's parts.
    Dots,
    /// The direction's parts.
    Parts,
}

const PHASES: [Phase; 7] = [
    Phase::Moments,
    Phase::Products,
    Phase::Evaluate,
    Phase::Probe,
    Phase::Curve,
    Phase::Dots,
    Phase::Parts,
];

/// Whole numbers that a run goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counters {
    /// What the next step is for.
    pub(crate) phase: Phase,
    /// Points accepted.
    pub(crate) iterations: i64,
    /// Iterations allowed.
    pub(crate) iterations_max: i64,
    /// Pairs in the history.
    pub(crate) pairs: i64,
    /// Virtual shards.
    pub(crate) shards: u32,
    /// Whether the scores remembered of the trial are by now those of the point.
    pub(crate) arrived: bool,
    /// Steps that read all features.
    pub(crate) passes: i64,
    /// Steps that read none.
    pub(crate) probes: i64,
    /// Products with the curvature since the point was accepted.
    pub(crate) products: i64,
}

impl Counters {
    pub(crate) fn read(model: &Model) -> Counters {
        let numbers = model.i64(COUNTERS);
        Counters {
            phase: PHASES[numbers[0] as usize],
            iterations: numbers[1],
            iterations_max: numbers[2],
            pairs: numbers[3],
            shards: numbers[4] as u32,
            arrived: numbers[5] != 0,
            passes: numbers[6],
            probes: numbers[7],
            products: numbers[8],
        }
    }

    pub(crate) fn write(self, model: &mut Model) {
        let phase = PHASES.iter().position(|phase| *phase == self.phase).unwrap_or(0);
        model.i64_mut(COUNTERS).copy_from_slice(&[
            phase as i64,
            self.iterations,
            self.iterations_max,
            self.pairs,
            self.shards.into(),
            self.arrived.into(),
            self.passes,
            self.probes,
            self.products,
        ]);
    }
}

/// Adds the tensors of all full-pass solvers to a model.
pub(super) fn init(model: &mut Model, layout: Layout, labels: usize, counters: Counters) {
    let zeros = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::State);
    let shape = [layout.rows(), layout.scores];
    model.set(TRIAL, zeros(&shape));
    for name in VECTORS {
        model.set(name, zeros(&shape));
    }
    model.set(SEARCH, zeros(&[3 + NUMBERS]));
    model.set(MOMENTS, zeros(&[2, layout.features]));
    model.set(TOTALS, zeros(&[1 + labels]));
    model.set(COUNTERS, Tensor::zeros(Kind::I64, &[9], Role::State));
    counters.write(model);
}

/// A search with the value it starts from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Line {
    pub(super) value: f64,
    /// The length at which scores were remembered.
    pub(super) first: f64,
    /// The search along the direction; none before the first evaluation.
    pub(super) search: Option<Search>,
}

impl Line {
    pub(super) fn read(model: &Model) -> Line {
        let numbers = model.f64(SEARCH);
        let search = (numbers[1] != 0.0).then(|| Search::from_numbers(&numbers[3..]));
        Line { value: numbers[0], first: numbers[2], search }
    }

    pub(super) fn write(self, model: &mut Model) {
        let numbers = model.f64_mut(SEARCH);
        numbers[0] = self.value;
        numbers[1] = f64::from(u8::from(self.search.is_some()));
        numbers[2] = self.first;
        numbers[3..].copy_from_slice(&self.search.unwrap_or_default().to_numbers());
    }
}

pub(super) fn read_moments(model: &Model) -> Moments {
    let (moments, totals) = (model.f64(MOMENTS), model.f64(TOTALS));
    let (means, variances) = moments.split_at(moments.len() / 2);
    let (means, variances) = (means.to_vec(), variances.to_vec());
    Moments { weight: totals[0], labels: totals[1..].to_vec(), means, variances }
}

pub(super) fn write_moments(model: &mut Model, moments: &Moments) {
    let numbers = model.f64_mut(MOMENTS);
    numbers.clear();
    numbers.extend(moments.means.iter().chain(&moments.variances));
    let totals = model.f64_mut(TOTALS);
    totals.clear();
    totals.push(moments.weight);
    totals.extend(&moments.labels);
}
