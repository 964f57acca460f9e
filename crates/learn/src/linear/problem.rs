//! What a linear learner minimises, apart from its data: the loss of a row, the shape of the weights, and what labels
//! are.

use super::layout::Layout;
use super::losses::Criterion;
use super::moments::{Labels, Moments};

/// A loss with the shape of its weights.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Problem {
    pub(crate) layout: Layout,
    pub(crate) criterion: Criterion,
    pub(crate) labels: Labels,
}

/// Shares and means are kept this far from where a link has no score for them.
const EDGE: f64 = 1e-6;

impl Problem {
    /// The intercepts that suit the labels best while all other weights are zero: where solvers start.
    pub(crate) fn start(&self, moments: &Moments) -> Vec<f64> {
        if !self.layout.intercept {
            return Vec::new();
        }
        let weight = moments.weight.max(f64::MIN_POSITIVE);
        let share = |class: usize| (moments.labels[class] / weight).clamp(EDGE, 1.0 - EDGE);
        let mean = moments.labels[0] / weight;
        match self.criterion {
            Criterion::Logistic(_) => vec![(share(1) / share(0)).ln()],
            Criterion::Softmax(_) => {
                let scores: Vec<f64> = (0..self.layout.scores).map(|c| share(c).ln()).collect();
                let middle = scores.iter().sum::<f64>() / scores.len() as f64;
                scores.into_iter().map(|score| score - middle).collect()
            }
            Criterion::Squared(_) => vec![mean],
            Criterion::Deviance(deviance) => {
                let possible = [mean, mean.max(EDGE), mean.clamp(EDGE, 1.0 - EDGE)];
                let mean = possible.into_iter().find(|&mean| deviance.family.allows_mean(mean));
                let score = deviance.link.score(mean.unwrap_or(1.0));
                vec![if score.is_finite() { score } else { 0.0 }]
            }
        }
    }

    /// How much of a feature's variance is curvature at the start: all classes as likely, or labels at their mean.
    pub(crate) fn curvature(&self, moments: &Moments) -> f64 {
        let classes = self.layout.scores as f64;
        let found = match self.criterion {
            Criterion::Logistic(_) => 0.25,
            Criterion::Softmax(_) => (classes - 1.0) / (classes * classes),
            Criterion::Squared(_) => 1.0,
            Criterion::Deviance(_) => {
                let label = moments.labels[0] / moments.weight.max(f64::MIN_POSITIVE);
                let score = self.start(moments).first().copied().unwrap_or(0.0);
                self.criterion.curvature(score, label)
            }
        };
        if found.is_finite() && found > 0.0 { found } else { 1.0 }
    }
}
