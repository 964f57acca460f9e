//! L-BFGS turned inside out: it is told value and gradient at the trial point, and moves the trial point, so that each
//! evaluation can be one exchange of the flock. For objectives that are not linear in the scores of rows, where a line
//! search cannot be answered from scores that are kept.

use super::lbfgs::{At, History, dot};
use super::line_search::{Search, Verdict};

/// A smaller relative decrease than this is rounding (SciPy's `ftol` as scikit-learn sets it).
const DECREASE_MIN: f64 = 64.0 * f64::EPSILON;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The largest slope that counts as zero.
    pub(crate) tolerance: f64,
    /// Iterations: accepted points.
    pub(crate) iterations: i64,
}

/// Everything the method remembers between two evaluations. The long vectors are moved in and out of the
/// model's tensors, not copied.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lbfgs {
    /// The last accepted point.
    pub(crate) point: Vec<f64>,
    /// The gradient there.
    pub(crate) gradient: Vec<f64>,
    /// Where the search goes.
    pub(crate) direction: Vec<f64>,
    /// Accepted steps: `room` vectors, pair i at place i mod `room`.
    pub(crate) steps: Vec<f64>,
    /// Changes of the gradient over those steps.
    pub(crate) changes: Vec<f64>,
    /// The value at the last accepted point.
    pub(crate) value: f64,
    /// The search along the direction; none before the first evaluation.
    pub(crate) search: Option<Search>,
    /// Pairs stored so far since the memory was last cleared.
    pub(crate) pairs: i64,
    /// Points accepted.
    pub(crate) iterations: i64,
}

/// What came of an evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    /// A new trial point on the same line.
    Searching,
    /// The trial point was accepted, and there is a new one.
    Moved,
    /// The minimum is found as far as the limits ask. The trial point is the last accepted one.
    Converged,
    /// The first value is not finite: there is nowhere to go from.
    Diverged,
}

impl Lbfgs {
    /// Takes value and gradient at `trial` and moves `trial` to where they are wanted next.
    pub(crate) fn tell(
        &mut self,
        trial: &mut [f64],
        value: f64,
        gradient: &[f64],
        limits: Limits,
    ) -> Told {
        let Some(mut search) = self.search else {
            return self.first(trial, value, gradient, limits);
        };
        let verdict = search.tell(value, dot(gradient, &self.direction));
        match verdict {
            Verdict::Probe => {
                self.search = Some(search);
                self.move_to(trial, search.length());
                Told::Searching
            }
            Verdict::Accept => self.accept(trial, value, gradient, limits),
            Verdict::Stuck if self.pairs > 0 => {
                // The remembered curvature may mislead: once more along the gradient itself.
                self.pairs = 0;
                self.set_out(trial);
                Told::Searching
            }
            Verdict::Stuck => {
                trial.copy_from_slice(&self.point);
                Told::Converged
            }
        }
    }

    fn first(&mut self, trial: &mut [f64], value: f64, gradient: &[f64], limits: Limits) -> Told {
        if !value.is_finite() || gradient.iter().any(|slope| !slope.is_finite()) {
            return Told::Diverged;
        }
        self.value = value;
        self.gradient.copy_from_slice(gradient);
        if largest(gradient) <= limits.tolerance || limits.iterations == 0 {
            return Told::Converged;
        }
        self.set_out(trial);
        Told::Searching
    }

    fn accept(&mut self, trial: &mut [f64], value: f64, gradient: &[f64], limits: Limits) -> Told {
        self.remember(trial, gradient);
        let decrease = (self.value - value) / self.value.abs().max(value.abs()).max(1.0);
        self.point.copy_from_slice(trial);
        self.gradient.copy_from_slice(gradient);
        self.value = value;
        self.iterations += 1;
        let flat = largest(gradient) <= limits.tolerance || decrease <= DECREASE_MIN;
        if flat || self.iterations >= limits.iterations {
            return Told::Converged;
        }
        self.set_out(trial);
        Told::Moved
    }

    fn remember(&mut self, trial: &[f64], gradient: &[f64]) {
        let mut history = self.history();
        let from = At { point: &self.point, gradient: &self.gradient };
        history.remember(from, At { point: trial, gradient });
        self.put_back(history);
    }

    fn history(&mut self) -> History {
        let (steps, changes) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.changes));
        History { steps, changes, pairs: self.pairs }
    }

    fn put_back(&mut self, history: History) {
        (self.steps, self.changes, self.pairs) = (history.steps, history.changes, history.pairs);
    }

    /// Chooses a direction at the point and the first trial along it.
    fn set_out(&mut self, trial: &mut [f64]) {
        self.find_direction();
        let mut slope = dot(&self.gradient, &self.direction);
        if slope >= 0.0 {
            // Rounding has spoilt the memory: the gradient itself always descends.
            self.pairs = 0;
            self.find_direction();
            slope = dot(&self.gradient, &self.direction);
        }
        // Without curvature the scale is unknown: a step of length one, as SciPy's.
        let length = if self.pairs == 0 { 1.0 / (-slope).sqrt() } else { 1.0 };
        self.search = Some(Search::new(self.value, slope, length));
        self.move_to(trial, length);
    }

    fn move_to(&self, trial: &mut [f64], length: f64) {
        for ((trial, point), direction) in trial.iter_mut().zip(&self.point).zip(&self.direction) {
            *trial = point + length * direction;
        }
    }

    fn find_direction(&mut self) {
        let history = self.history();
        history.direction(&self.gradient, &mut self.direction);
        self.put_back(history);
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}
