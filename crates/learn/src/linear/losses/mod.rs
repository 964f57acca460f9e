//! Losses of rows: what a score costs, given the row's label. A linear learner is a loss and a penalty; all that
//! solvers ask of a loss is its value, its derivative by the scores, and how the derivative changes with them.

mod deviance;
mod families;
mod links;
mod logistic;
mod softmax;
mod squared;

pub(crate) use deviance::Deviance;
pub(crate) use families::Family;
pub(crate) use links::Link;
pub(crate) use logistic::Logistic;
pub(crate) use softmax::Softmax;
pub(crate) use squared::Squared;

/// What is known of N rows beside their scores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<const N: usize> {
    /// Class codes or numbers.
    pub(crate) labels: [f64; N],
    /// How much each row counts.
    pub(crate) weights: [f64; N],
}

/// The loss of a row. Scores of N rows stand together: the first score of all rows, then the second of all …
///
/// Law: `residuals` gives the derivative of the loss it returns, and `bend` the derivative of the residuals (or
/// their expected derivative, which is never negative) along a change of the scores.
pub(crate) trait RowLoss: Copy + Send + Sync {
    /// Whether no derivative is above one (times the row's weight): then sums can travel on a fixed grid.
    const BOUNDED: bool;

    /// Gives the weighted loss of N rows and turns their scores into its derivatives.
    fn residuals<const N: usize>(self, scores: &mut [f64], rows: Told<N>) -> f64;

    /// Turns a change of the scores into the change of the derivatives.
    fn bend<const N: usize>(self, scores: &[f64], along: &mut [f64], rows: Told<N>);
}

/// Any of the losses.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Criterion {
    Logistic(Logistic),
    Softmax(Softmax),
    Squared(Squared),
    Deviance(Deviance),
}

/// Runs one expression for whichever loss it is: kernels are compiled for each.
macro_rules! with_loss {
    ($criterion:expr, $loss:ident => $body:expr) => {
        match $criterion {
            $crate::linear::losses::Criterion::Logistic($loss) => $body,
            $crate::linear::losses::Criterion::Softmax($loss) => $body,
            $crate::linear::losses::Criterion::Squared($loss) => $body,
            $crate::linear::losses::Criterion::Deviance($loss) => $body,
        }
    };
}
pub(crate) use with_loss;

impl Criterion {
    /// See [`RowLoss::BOUNDED`].
    pub(crate) fn is_bounded(self) -> bool {
        fn bounded<L: RowLoss>(_: L) -> bool {
            L::BOUNDED
        }
        with_loss!(self, loss => bounded(loss))
    }

    /// The curvature of one score at a score, for a label: a guess of scale for solvers.
    pub(crate) fn curvature(self, score: f64, label: f64) -> f64 {
        if let Criterion::Softmax(_) = self {
            return 0.25;
        }
        let mut along = [1.0];
        let rows = Told { labels: [label], weights: [1.0] };
        with_loss!(self, loss => loss.bend::<1>(&[score], &mut along, rows));
        along[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value, derivative and curvature against differences, for every loss at several scores and labels.
    #[test]
    fn derivatives_are_those_of_the_value() {
        let deviances = [
            (Family::Gaussian, Link::Identity),
            (Family::Gaussian, Link::Log),
            (Family::Poisson, Link::Log),
            (Family::Poisson, Link::Identity),
            (Family::Gamma, Link::Log),
            (Family::Gamma, Link::Inverse),
            (Family::Tweedie(1.5), Link::Log),
            (Family::Tweedie(2.7), Link::Log),
            (Family::Binomial, Link::Logit),
            (Family::Binomial, Link::Probit),
            (Family::Binomial, Link::ComplementaryLogLog),
        ];
        let deviances =
            deviances.map(|(family, link)| Criterion::Deviance(Deviance { family, link }));
        let others = [Criterion::Logistic(Logistic), Criterion::Squared(Squared)];
        for criterion in deviances.into_iter().chain(others) {
            for (score, label) in [(0.3, 1.0), (1.7, 0.0), (0.9, 1.0), (2.2, 1.0)] {
                if label == 0.0
                    && matches!(criterion, Criterion::Deviance(d) if d.family == Family::Gamma || d.family == Family::Tweedie(2.7))
                {
                    continue;
                }
                let rows = Told { labels: [label], weights: [2.0] };
                let at = |score: f64| {
                    let mut scores = [score];
                    let value =
                        with_loss!(criterion, loss => loss.residuals::<1>(&mut scores, rows));
                    (value, scores[0])
                };
                let h = 1e-5;
                let slope = (at(score + h).0 - at(score - h).0) / (2.0 * h);
                let found = at(score).1;
                assert!(
                    (slope - found).abs() < 1e-6 * slope.abs().max(1.0),
                    "{criterion:?} {score} {label}: {slope} {found}"
                );
                let mut along = [0.5];
                with_loss!(criterion, loss => loss.bend::<1>(&[score], &mut along, rows));
                assert!(along[0] >= 0.0, "{criterion:?}");
                let canonical = !matches!(criterion, Criterion::Deviance(d) if !d.is_canonical());
                if canonical {
                    let bend = 0.5 * (at(score + h).1 - at(score - h).1) / (2.0 * h);
                    assert!(
                        (bend - along[0]).abs() < 1e-6,
                        "{criterion:?} {score} {label}: {bend} {}",
                        along[0]
                    );
                }
            }
        }
    }

    #[test]
    fn softmax_derivatives_are_those_of_the_value() {
        let rows = Told { labels: [2.0], weights: [1.5] };
        let at = |scores: [f64; 3]| {
            let mut residuals = scores;
            let value = Softmax.residuals::<1>(&mut residuals, rows);
            (value, residuals)
        };
        let (start, along, h) = ([0.2, -1.0, 0.7], [0.3, 0.9, -0.4], 1e-5);
        let step = |by: f64| std::array::from_fn(|at| start[at] + by * along[at]);
        let slope: f64 = at(start).1.iter().zip(along).map(|(r, a)| r * a).sum();
        assert!(((at(step(h)).0 - at(step(-h)).0) / (2.0 * h) - slope).abs() < 1e-8);
        let mut bent = along;
        Softmax.bend::<1>(&start, &mut bent, rows);
        for (class, bent) in bent.into_iter().enumerate() {
            let change = (at(step(h)).1[class] - at(step(-h)).1[class]) / (2.0 * h);
            assert!((change - bent).abs() < 1e-8, "{change} {bent}");
        }
    }
}
