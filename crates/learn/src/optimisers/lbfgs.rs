//! L-BFGS (Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989): the
//! last m steps and changes of the gradient stand in for the inverse Hessian. Turned inside out: it is told
//! value and gradient at the trial point, and moves the trial point, so that each evaluation can be one
//! exchange of the flock.

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

    /// Stores the step and the change of the gradient, unless the curvature along it is not positive.
    fn remember(&mut self, trial: &[f64], gradient: &[f64]) {
        let size = self.point.len();
        let room = self.steps.len() / size;
        let at = (self.pairs as usize % room) * size;
        let (step, change) = (&mut self.steps[at..at + size], &mut self.changes[at..at + size]);
        difference(trial, &self.point, step);
        difference(gradient, &self.gradient, change);
        if dot(step, change) > f64::EPSILON * dot(change, change) {
            self.pairs += 1;
        }
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

    /// The two loops of Nocedal (1980): the product of the inverse Hessian's estimate with −gradient.
    fn find_direction(&mut self) {
        let size = self.point.len();
        let room = (self.steps.len() / size) as i64;
        let newest_first = (0..self.pairs.min(room)).map(|back| {
            let at = ((self.pairs - 1 - back) % room) as usize * size;
            (&self.steps[at..at + size], &self.changes[at..at + size])
        });
        let pairs: Vec<_> = newest_first.collect();
        let direction = &mut self.direction;
        direction.iter_mut().zip(&self.gradient).for_each(|(d, g)| *d = -g);
        let mut shares = Vec::with_capacity(pairs.len());
        for (step, change) in &pairs {
            let share = dot(step, direction) / dot(step, change);
            add_scaled(-share, change, direction);
            shares.push(share);
        }
        if let Some((step, change)) = pairs.first() {
            let scale = dot(step, change) / dot(change, change);
            direction.iter_mut().for_each(|d| *d *= scale);
        }
        for ((step, change), share) in pairs.iter().zip(&shares).rev() {
            let back = dot(change, direction) / dot(step, change);
            add_scaled(share - back, step, direction);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(by: f64, from: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += by * from);
}

fn difference(a: &[f64], b: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(a.iter().zip(b)).for_each(|(into, (a, b))| *into = a - b);
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, value| largest.max(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts at `point` with room for `room` pairs.
    fn start_at(point: Vec<f64>, room: usize) -> Lbfgs {
        let size = point.len();
        Lbfgs {
            point,
            gradient: vec![0.0; size],
            direction: vec![0.0; size],
            steps: vec![0.0; size * room],
            changes: vec![0.0; size * room],
            value: 0.0,
            search: None,
            pairs: 0,
            iterations: 0,
        }
    }

    fn minimise(f: impl Fn(&[f64]) -> (f64, Vec<f64>), start: &[f64]) -> (Lbfgs, u32) {
        let mut state = start_at(start.to_vec(), 10);
        let mut trial = start.to_vec();
        let limits = Limits { tolerance: 1e-9, iterations: 1000 };
        for evaluations in 1.. {
            let (value, gradient) = f(&trial);
            if state.tell(&mut trial, value, &gradient, limits) == Told::Converged {
                return (state, evaluations);
            }
        }
        unreachable!("the loop is endless")
    }

    #[test]
    fn a_badly_scaled_parabola_is_solved() {
        let scales = [1.0, 10.0, 100.0, 1000.0];
        let (state, evaluations) = minimise(
            |x| {
                let value = x.iter().zip(scales).map(|(x, s)| 0.5 * s * (x - 1.0).powi(2)).sum();
                (value, x.iter().zip(scales).map(|(x, s)| s * (x - 1.0)).collect())
            },
            &[5.0, -3.0, 2.0, 0.0],
        );
        assert!(state.point.iter().all(|x| (x - 1.0).abs() < 1e-8), "{:?}", state.point);
        assert!(evaluations < 40, "{evaluations}");
    }

    /// Rosenbrock's valley (1960) from the customary start; its minimum is at (1, 1).
    #[test]
    fn the_curved_valley_is_followed_to_its_end() {
        let (state, evaluations) = minimise(
            |x| {
                let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
                (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
            },
            &[-1.2, 1.0],
        );
        assert!(state.point.iter().all(|x| (x - 1.0).abs() < 1e-8), "{:?}", state.point);
        assert!(evaluations < 80, "{evaluations}");
    }

    #[test]
    fn a_start_at_the_minimum_needs_one_evaluation() {
        let (state, evaluations) = minimise(|x| (x[0] * x[0], vec![2.0 * x[0]]), &[0.0]);
        assert_eq!((evaluations, state.iterations), (1, 0));
    }
}
