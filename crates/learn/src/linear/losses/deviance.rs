//! Half the unit deviance of a family under a link: the loss of generalised linear models (Nelder and Wedderburn,
//! "Generalized linear models", 1972). Its curvature is the expected one (Fisher's information), which is never
//! negative: Newton's method on it is Fisher scoring, and the true curvature where the link is canonical.

use super::links::log_normal;
use super::{Family, Link, RowLoss, Told};

/// A family and a link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Deviance {
    pub(crate) family: Family,
    pub(crate) link: Link,
}

impl Deviance {
    /// Whether the expected curvature is the true one.
    #[cfg(test)]
    pub(crate) fn is_canonical(self) -> bool {
        matches!(
            (self.family, self.link),
            (Family::Gaussian, Link::Identity)
                | (Family::Poisson, Link::Log)
                | (Family::Gamma, Link::Inverse)
                | (Family::Binomial, Link::Logit)
        )
    }

    /// Loss, derivative and curvature at a score.
    #[inline(always)]
    fn at(self, score: f64, label: f64) -> (f64, f64, f64) {
        match (self.family, self.link) {
            // Pairs that overflow or cancel when they are put together from their parts: shares so near 0 or 1 that only
            // their logarithms can be told apart, and means beyond the largest number.
            (Family::Binomial, Link::Logit) => {
                let small = (-score.abs()).exp();
                let (mean, slope) = Link::Logit.mean(score);
                let log_loss = score.max(0.0) - label * score + small.ln_1p();
                (log_loss - entropy(label), mean - label, slope)
            }
            (Family::Binomial, Link::Probit) => {
                let ((log_yes, yes), (log_no, no)) = (log_normal(score), log_normal(-score));
                let log_loss = -label * log_yes - (1.0 - label) * log_no;
                (log_loss - entropy(label), (1.0 - label) * no - label * yes, yes * no)
            }
            (Family::Binomial, Link::ComplementaryLogLog) => {
                let power = score.exp();
                let odds = power.exp_m1();
                let log_loss = (1.0 - label) * power - label * (-(-power).exp_m1()).ln();
                let hazard = power / odds;
                // e²ᶻ/(e^eᶻ − 1), which has no limit of its own where eᶻ is too large for a number.
                let bend = if odds.is_finite() { power * hazard } else { 0.0 };
                (log_loss - entropy(label), (1.0 - label) * power - label * hazard, bend)
            }
            (Family::Poisson, Link::Log) => {
                let mean = score.exp();
                let own = if label > 0.0 { label * label.ln() - label } else { 0.0 };
                (mean - label * score + own, mean - label, mean)
            }
            (family, link) => {
                let (mean, slope) = link.mean(score);
                let value = family.half_deviance(label, mean);
                let variance = family.variance(mean).max(f64::MIN_POSITIVE);
                (value, (mean - label) / variance * slope, slope * slope / variance)
            }
        }
    }
}

/// The log-loss of a perfect mean: zero unless the label is between 0 and 1.
fn entropy(label: f64) -> f64 {
    let part = |share: f64| if share > 0.0 { -share * share.ln() } else { 0.0 };
    part(label) + part(1.0 - label)
}

impl RowLoss for Deviance {
    const BOUNDED: bool = false;

    #[inline(always)]
    fn residuals<const N: usize>(self, scores: &mut [f64], rows: Told<N>) -> f64 {
        let mut sum = 0.0;
        for ((score, weight), label) in scores.iter_mut().zip(rows.weights).zip(rows.labels) {
            if weight == 0.0 {
                // Nothing times an infinite loss is nothing.
                *score = 0.0;
                continue;
            }
            let (value, slope, _) = self.at(*score, label);
            *score = weight * slope;
            sum += weight * value;
        }
        sum
    }

    #[inline(always)]
    fn bend<const N: usize>(self, scores: &[f64], along: &mut [f64], rows: Told<N>) {
        for n in 0..N {
            along[n] *= rows.weights[n] * self.at(scores[n], rows.labels[n]).2;
        }
    }
}
