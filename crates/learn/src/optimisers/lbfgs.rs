//! L-BFGS (Liu and Nocedal, "On the limited memory BFGS method for large scale optimization", 1989): the last m steps
//! and changes of the gradient stand in for the inverse Hessian.

/// Steps and changes of the gradient. The long vectors are moved in and out of the model's tensors, not copied.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct History {
    /// Accepted steps: `room` vectors, pair i at place i mod `room`.
    pub(crate) steps: Vec<f64>,
    /// Changes of the gradient over those steps.
    pub(crate) changes: Vec<f64>,
    /// Pairs stored so far since the memory was last cleared.
    pub(crate) pairs: i64,
}

/// A point with its gradient.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) point: &'a [f64],
    pub(crate) gradient: &'a [f64],
}

impl History {
    /// Stores a step and the change of the gradient, unless the curvature along it is not positive.
    pub(crate) fn remember(&mut self, from: At<'_>, to: At<'_>) {
        let size = from.point.len();
        let room = self.steps.len() / size;
        let at = (self.pairs as usize % room) * size;
        let (step, change) = (&mut self.steps[at..at + size], &mut self.changes[at..at + size]);
        difference(to.point, from.point, step);
        difference(to.gradient, from.gradient, change);
        if is_curved(dot(step, change), dot(change, change)) {
            self.pairs += 1;
        }
    }

    /// The two loops of Nocedal (1980): the product of the inverse Hessian's estimate with −gradient.
    pub(crate) fn direction(&self, gradient: &[f64], direction: &mut [f64]) {
        let size = gradient.len();
        let room = (self.steps.len() / size) as i64;
        let newest_first = (0..self.pairs.min(room)).map(|back| {
            let at = ((self.pairs - 1 - back) % room) as usize * size;
            (&self.steps[at..at + size], &self.changes[at..at + size])
        });
        let pairs: Vec<_> = newest_first.collect();
        direction.iter_mut().zip(gradient).for_each(|(d, g)| *d = -g);
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
        for ((step, change), share) in pairs.iter().zip(shares).rev() {
            let back = dot(change, direction) / dot(step, change);
            add_scaled(share - back, step, direction);
        }
    }
}

/// Whether a pair's curvature can be told from rounding.
pub(crate) fn is_curved(step_change: f64, change_change: f64) -> bool {
    step_change > f64::EPSILON * change_change
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add_scaled(by: f64, from: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into += by * from);
}

fn difference(a: &[f64], b: &[f64], into: &mut [f64]) {
    into.iter_mut().zip(a.iter().zip(b)).for_each(|(into, (a, b))| *into = a - b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimisers::line_search::{Search, Verdict};

    /// The whole method: gives the minimum and the number of evaluations.
    fn minimise(f: impl Fn(&[f64]) -> (f64, Vec<f64>), start: &[f64]) -> (Vec<f64>, u32) {
        let size = start.len();
        let room = vec![0.0; 10 * size];
        let mut history = History { steps: room.clone(), changes: room, pairs: 0 };
        let (mut point, mut direction) = (start.to_vec(), vec![0.0; size]);
        let (mut value, mut gradient) = f(&point);
        let mut evaluations = 1;
        while gradient.iter().any(|slope| slope.abs() > 1e-9) {
            history.direction(&gradient, &mut direction);
            let slope = dot(&gradient, &direction);
            let first = if history.pairs == 0 { 1.0 / (-slope).sqrt() } else { 1.0 };
            let mut search = Search::new(value, slope, first);
            loop {
                let mut trial = point.clone();
                add_scaled(search.length(), &direction, &mut trial);
                let (there, slopes) = f(&trial);
                evaluations += 1;
                assert!(evaluations < 1000, "endless");
                match search.tell(there, dot(&slopes, &direction)) {
                    Verdict::Probe => {}
                    Verdict::Accept => {
                        let from = At { point: &point, gradient: &gradient };
                        history.remember(from, At { point: &trial, gradient: &slopes });
                        (point, value, gradient) = (trial, there, slopes);
                        break;
                    }
                    Verdict::Stuck => return (point, evaluations),
                }
            }
        }
        (point, evaluations)
    }

    #[test]
    fn a_badly_scaled_parabola_is_solved() {
        let scales = [1.0, 10.0, 100.0, 1000.0];
        let (point, evaluations) = minimise(
            |x| {
                let value = x.iter().zip(scales).map(|(x, s)| 0.5 * s * (x - 1.0).powi(2)).sum();
                (value, x.iter().zip(scales).map(|(x, s)| s * (x - 1.0)).collect())
            },
            &[5.0, -3.0, 2.0, 0.0],
        );
        assert!(point.iter().all(|x| (x - 1.0).abs() < 1e-8), "{point:?}");
        assert!(evaluations < 40, "{evaluations}");
    }

    /// Rosenbrock's valley (1960) from the customary start; its minimum is at (1, 1).
    #[test]
    fn the_curved_valley_is_followed_to_its_end() {
        let (point, evaluations) = minimise(
            |x| {
                let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
                (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
            },
            &[-1.2, 1.0],
        );
        assert!(point.iter().all(|x| (x - 1.0).abs() < 1e-8), "{point:?}");
        assert!(evaluations < 80, "{evaluations}");
    }

    #[test]
    fn a_start_at_the_minimum_needs_one_evaluation() {
        let (_, evaluations) = minimise(|x| (x[0] * x[0], vec![2.0 * x[0]]), &[0.0]);
        assert_eq!(evaluations, 1);
    }
}
