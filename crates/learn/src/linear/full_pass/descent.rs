//! The line on which a full-pass solver walks: from a point along a direction to where the line search likes it.
//! How the direction is found is the solver's own affair.

use super::state::{Line, VECTORS};
use crate::optimisers::line_search::{Search, Verdict};
use starlings_core::Model;

/// A smaller relative decrease than this is rounding (SciPy's `ftol` as scikit-learn sets it).
const DECREASE_MIN: f64 = 64.0 * f64::EPSILON;

/// The line between two evaluations. The long vectors are moved in and out of the model's tensors, not copied.
pub(super) struct Descent {
    /// The last accepted point.
    pub(super) point: Vec<f64>,
    /// The gradient there.
    pub(super) gradient: Vec<f64>,
    /// Where the search goes.
    pub(super) direction: Vec<f64>,
    /// Where it looks now.
    pub(super) trial: Vec<f64>,
    pub(super) line: Line,
}

/// What came of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// The search wants another length.
    Searching,
    /// The trial point will do.
    Arrived,
    /// No length gives a decrease that can be told from rounding.
    Stuck,
    /// The first value is not finite: there is nowhere to go from.
    Diverged,
}

impl Descent {
    pub(super) fn take(model: &mut Model) -> Descent {
        let line = Line::read(model);
        let [point, gradient, direction, trial] =
            VECTORS.map(|name| std::mem::take(model.f64_mut(name)));
        Descent { point, gradient, direction, trial, line }
    }

    pub(super) fn put_back(self, model: &mut Model) {
        let vectors = [self.point, self.gradient, self.direction, self.trial];
        for (name, vector) in VECTORS.into_iter().zip(vectors) {
            *model.f64_mut(name) = vector;
        }
        self.line.write(model);
    }

    /// Takes value and gradient at the trial point.
    pub(super) fn evaluated(&mut self, value: f64, gradient: &[f64]) -> Told {
        if self.line.search.is_none() {
            let finite = value.is_finite() && gradient.iter().all(|slope| slope.is_finite());
            return if finite { Told::Arrived } else { Told::Diverged };
        }
        let slope = dot(gradient, &self.direction);
        self.probed(value, slope)
    }

    /// Takes value and slope at the length the search asked for.
    pub(super) fn probed(&mut self, value: f64, slope: f64) -> Told {
        let Some(search) = &mut self.line.search else { return Told::Stuck };
        match search.tell(value, slope) {
            Verdict::Probe => Told::Searching,
            Verdict::Accept => Told::Arrived,
            Verdict::Stuck => Told::Stuck,
        }
    }

    /// Makes the trial point the point. Says whether the decrease was more than rounding.
    pub(super) fn arrive(&mut self, value: f64, gradient: Vec<f64>) -> bool {
        let first = self.line.search.is_none();
        let decrease = (self.line.value - value) / self.line.value.abs().max(value.abs()).max(1.0);
        self.point.copy_from_slice(&self.trial);
        self.gradient = gradient;
        self.line.value = value;
        first || decrease > DECREASE_MIN
    }

    /// Sets out along the direction. Its slope must be negative.
    pub(super) fn launch(&mut self, slope: f64, length: f64) {
        self.line.search = Some(Search::new(self.line.value, slope, length));
        self.line.first = length;
        self.move_to(length);
    }

    /// Goes back to a length that was found by probes, to take it as it is.
    pub(super) fn settle(&mut self) {
        if let Some(search) = &mut self.line.search {
            search.settle_here();
            let length = search.length();
            self.move_to(length);
        }
    }

    /// Moves the trial point along the line.
    pub(super) fn move_to(&mut self, length: f64) {
        let along = self.point.iter().zip(&self.direction);
        for (trial, (point, direction)) in self.trial.iter_mut().zip(along) {
            *trial = point + length * direction;
        }
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}
