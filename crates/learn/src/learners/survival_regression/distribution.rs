//! The distributions of the noise in accelerated failure time: ln T = b + β·x + σ·ε. What training needs of each is
//! −ln f and −ln S with their slopes, what prediction needs is the quantile and the mean of T.
//!
//! - Weibull: ε has the density e^(ε − e^ε), T is Weibull with shape 1/σ.
//! - log-normal: ε is standard normal.
//! - log-logistic: ε has the distribution function 1/(1 + e⁻ᵋ).

use super::normal;

/// A distribution of times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Distribution {
    Weibull,
    LogNormal,
    LogLogistic,
}

/// A loss and its slope.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Loss {
    pub(super) value: f64,
    pub(super) slope: f64,
}

impl Distribution {
    /// −ln f(ε): the loss of a row whose event happened.
    #[inline]
    pub(super) fn happened(self, noise: f64) -> Loss {
        match self {
            Distribution::Weibull => {
                let power = noise.exp();
                Loss { value: power - noise, slope: power - 1.0 }
            }
            Distribution::LogNormal => {
                Loss { value: 0.5 * noise * noise + normal::HALF_LN_TAU, slope: noise }
            }
            Distribution::LogLogistic => {
                let (soft, share) = softplus(noise);
                Loss { value: 2.0 * soft - noise, slope: 2.0 * share - 1.0 }
            }
        }
    }

    /// −ln S(ε): the loss of a row that was censored, whose event would have come later.
    #[inline]
    pub(super) fn censored(self, noise: f64) -> Loss {
        match self {
            Distribution::Weibull => {
                let power = noise.exp();
                Loss { value: power, slope: power }
            }
            Distribution::LogNormal => {
                let tail = normal::tail(noise);
                Loss { value: -tail.ln_survival, slope: tail.hazard }
            }
            Distribution::LogLogistic => {
                let (soft, share) = softplus(noise);
                Loss { value: soft, slope: share }
            }
        }
    }

    /// The noise below which a share of rows lies.
    pub(super) fn quantile(self, share: f64) -> f64 {
        match self {
            Distribution::Weibull => (-(-share).ln_1p()).ln(),
            Distribution::LogNormal => normal::quantile(share),
            Distribution::LogLogistic => share.ln() - (-share).ln_1p(),
        }
    }

    /// ln E[e^(σε)]: what the logarithm of the mean time adds to b + β·x. None where times have no mean.
    pub(super) fn ln_mean(self, scale: f64) -> Option<f64> {
        match self {
            Distribution::Weibull => Some(ln_gamma(1.0 + scale)),
            Distribution::LogNormal => Some(0.5 * scale * scale),
            Distribution::LogLogistic if scale < 1.0 => {
                let angle = std::f64::consts::PI * scale;
                Some((angle / angle.sin()).ln())
            }
            Distribution::LogLogistic => None,
        }
    }
}

/// ln(1 + eˣ) and its slope 1/(1 + e⁻ˣ).
fn softplus(x: f64) -> (f64, f64) {
    let small = (-x.abs()).exp();
    let share = if x > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) };
    (x.max(0.0) + small.ln_1p(), share)
}

/// ln Γ(x) for x ≥ 1, by Stirling's series after shifting x up.
fn ln_gamma(mut x: f64) -> f64 {
    let mut product = 1.0;
    while x < 15.0 {
        product *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0
        - inverse
            * (1.0 / 360.0
                - inverse * (1.0 / 1260.0 - inverse * (1.0 / 1680.0 - inverse / 1188.0))))
        / x;
    (x - 0.5) * x.ln() - x + normal::HALF_LN_TAU + series - product.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Distribution; 3] =
        [Distribution::Weibull, Distribution::LogNormal, Distribution::LogLogistic];

    #[test]
    fn slopes_are_those_of_finite_differences() {
        for distribution in ALL {
            for at in [-30.0, -5.0, -1.0, 0.0, 0.3, 2.0, 2.999, 3.001, 4.5] {
                for loss in [Distribution::happened, Distribution::censored] {
                    let step = 1e-5;
                    let (above, below) =
                        (loss(distribution, at + step), loss(distribution, at - step));
                    let numeric = (above.value - below.value) / (2.0 * step);
                    let exact = loss(distribution, at).slope;
                    let off = (numeric - exact).abs() / exact.abs().max(1.0);
                    assert!(off < 1e-7, "{distribution:?} at {at}: {numeric} {exact}");
                }
            }
        }
    }

    #[test]
    fn quantiles_invert_the_survival_function() {
        for distribution in ALL {
            for share in [1e-9, 0.01, 0.25, 0.5, 0.9, 0.999] {
                let survival = (-distribution.censored(distribution.quantile(share)).value).exp();
                assert!((1.0 - survival - share).abs() < 1e-12, "{distribution:?} {share}");
            }
        }
    }

    /// Γ(1.5) = √π/2, Γ(3) = 2, and Euler's reflection for the log-logistic mean at σ = ½: π/2.
    #[test]
    fn means_have_their_closed_forms() {
        let root = std::f64::consts::PI.sqrt();
        assert!((ln_gamma(1.5) - (0.5 * root).ln()).abs() < 1e-14);
        assert!((ln_gamma(3.0) - 2f64.ln()).abs() < 1e-14);
        assert!((ln_gamma(30.0) - 71.257_038_967_168).abs() < 1e-11);
        let half = Distribution::LogLogistic.ln_mean(0.5).unwrap();
        assert!((half - std::f64::consts::FRAC_PI_2.ln()).abs() < 1e-14);
        assert_eq!(Distribution::LogLogistic.ln_mean(1.0), None);
    }
}
