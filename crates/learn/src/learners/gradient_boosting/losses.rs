//! The losses of gradient boosting: value, first and second derivative for a row's raw score, and what the scores
//! begin with (Friedman, 2001; LightGBM's conventions where a choice is open).

/// A loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Loss {
    /// Half the squared error.
    Squared,
    /// The absolute error.
    Absolute,
    /// Squared near zero, absolute beyond `alpha` (Huber, 1964).
    Huber { alpha: f64 },
    /// The pinball loss of the quantile `alpha` (Koenker and Bassett, 1978).
    Quantile { alpha: f64 },
    /// Counts: the score is the logarithm of the mean.
    Poisson,
    /// Two classes: the score is the log-odds of class 1.
    Logistic,
    /// Several classes: one score each.
    Softmax,
    /// Order within groups (Burges, 2010); derivatives come from `ranking.rs`.
    LambdaRank,
}

/// How the second derivative of Poisson's loss is kept from running away, as LightGBM's `poisson_max_delta_step`.
const POISSON_GUARD: f64 = 0.7;
/// Chances are kept this far from 0 and 1 when scores begin.
const CHANCE_MIN: f64 = 1e-15;

impl Loss {
    /// Whether leaves take a quantile of the residuals in place of a Newton step, and which.
    pub(super) fn quantile(self) -> Option<f64> {
        match self {
            Loss::Absolute => Some(0.5),
            Loss::Quantile { alpha } => Some(alpha),
            _ => None,
        }
    }

    /// Whether labels are classes.
    pub(super) fn is_classification(self) -> bool {
        matches!(self, Loss::Logistic | Loss::Softmax)
    }

    /// What the scores begin with, from the weighted mean of the labels.
    pub(super) fn start(self, mean: f64) -> f64 {
        match self {
            Loss::Logistic => {
                let chance = mean.clamp(CHANCE_MIN, 1.0 - CHANCE_MIN);
                (chance / (1.0 - chance)).ln()
            }
            Loss::Softmax => mean.max(CHANCE_MIN).ln(),
            Loss::Poisson => mean.max(1e-12).ln(),
            Loss::LambdaRank => 0.0,
            _ => mean,
        }
    }

    /// First and second derivative at a score. Of several classes see [`softmax`].
    pub(super) fn derivatives(self, score: f64, label: f64) -> [f64; 2] {
        let error = score - label;
        match self {
            Loss::Squared | Loss::Softmax | Loss::LambdaRank => [error, 1.0],
            Loss::Absolute => [sign(error), 1.0],
            Loss::Huber { alpha } => [error.clamp(-alpha, alpha), 1.0],
            Loss::Quantile { alpha } => [if error >= 0.0 { 1.0 - alpha } else { -alpha }, 1.0],
            Loss::Poisson => [score.exp() - label, (score + POISSON_GUARD).exp()],
            Loss::Logistic => {
                let chance = logistic(score);
                [chance - label, chance * (1.0 - chance)]
            }
        }
    }

    /// The loss of one score.
    pub(super) fn value(self, score: f64, label: f64) -> f64 {
        let error = score - label;
        match self {
            Loss::Squared | Loss::Softmax | Loss::LambdaRank => 0.5 * error * error,
            Loss::Absolute => error.abs(),
            Loss::Huber { alpha } if error.abs() <= alpha => 0.5 * error * error,
            Loss::Huber { alpha } => alpha * (error.abs() - 0.5 * alpha),
            Loss::Quantile { alpha } => (error * (1.0 - alpha)).max(-error * alpha),
            Loss::Poisson => score.exp() - label * score,
            Loss::Logistic => score.max(0.0) - label * score + (-score.abs()).exp().ln_1p(),
        }
    }

    /// What `predict` says for a score.
    pub(super) fn answer(self, score: f64) -> f64 {
        match self {
            Loss::Poisson => score.exp(),
            _ => score,
        }
    }
}

fn sign(error: f64) -> f64 {
    if error > 0.0 {
        1.0
    } else if error < 0.0 {
        -1.0
    } else {
        0.0
    }
}

/// The chance of class 1.
pub(super) fn logistic(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

/// Scores to chances, in place.
pub(super) fn softmax(scores: &mut [f64]) {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - largest).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|score| *score /= sum);
}

/// Derivatives of one of `classes` scores whose chance is known. The second is widened as Friedman (2001) does.
pub(super) fn softmax_derivatives(chance: f64, is_class: bool, classes: usize) -> [f64; 2] {
    let widened = classes as f64 / (classes as f64 - 1.0);
    [chance - f64::from(u8::from(is_class)), widened * chance * (1.0 - chance)]
}

/// The negative logarithm of a class's chance.
pub(super) fn softmax_loss(scores: &[f64], class: usize) -> f64 {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
    sum.ln() + largest - scores[class]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_those_of_the_values() {
        let losses = [
            Loss::Squared,
            Loss::Absolute,
            Loss::Huber { alpha: 0.9 },
            Loss::Quantile { alpha: 0.3 },
            Loss::Poisson,
            Loss::Logistic,
        ];
        for loss in losses {
            for (score, label) in [(0.3, 1.0), (-1.7, 0.0), (2.5, 1.0)] {
                let by = 1e-6;
                let slope =
                    (loss.value(score + by, label) - loss.value(score - by, label)) / (2.0 * by);
                let found = loss.derivatives(score, label)[0];
                assert!((slope - found).abs() < 1e-6, "{loss:?}: {found} {slope}");
            }
        }
        let scores = [0.2, -1.0, 0.7];
        let mut chances = scores;
        softmax(&mut chances);
        for class in 0..3 {
            let mut more = scores;
            more[class] += 1e-6;
            let slope = (softmax_loss(&more, 1) - softmax_loss(&scores, 1)) / 1e-6;
            assert!((softmax_derivatives(chances[class], class == 1, 3)[0] - slope).abs() < 1e-5);
        }
    }

    #[test]
    fn scores_begin_where_the_mean_loss_is_least() {
        assert!((Loss::Logistic.start(0.25) - (1.0f64 / 3.0).ln()).abs() < 1e-12);
        assert!((Loss::Poisson.start(2.0) - 2.0f64.ln()).abs() < 1e-12);
        assert!(Loss::Logistic.start(0.0).is_finite() && Loss::Poisson.start(0.0).is_finite());
    }
}
