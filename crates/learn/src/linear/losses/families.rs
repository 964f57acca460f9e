//! Exponential families (Nelder and Wedderburn, 1972; Tweedie, 1984; Jørgensen, 1987): how much a label's variance
//! grows with its mean, and half the unit deviance that follows from it: d(y, μ)/2 = ∫ (y − t)/V(t) dt from μ to y.

/// A family of distributions of labels.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Family {
    /// V = 1: any number.
    Gaussian,
    /// V = μ: counts.
    Poisson,
    /// V = μ²: positive numbers.
    Gamma,
    /// V = μᵖ.
    Tweedie(f64),
    /// V = μ(1 − μ): shares of successes, 0 to 1.
    Binomial,
}

impl Family {
    /// The variance of a label with this mean, but for a constant.
    pub(crate) fn variance(self, mean: f64) -> f64 {
        match self {
            Family::Gaussian => 1.0,
            Family::Poisson => mean,
            Family::Gamma => mean * mean,
            Family::Tweedie(power) => mean.powf(power),
            Family::Binomial => mean * (1.0 - mean),
        }
    }

    /// Half the unit deviance: zero where the mean is the label. Infinite where the mean is not possible.
    pub(crate) fn half_deviance(self, label: f64, mean: f64) -> f64 {
        if !self.allows_mean(mean) {
            return f64::INFINITY;
        }
        match self {
            Family::Gaussian => 0.5 * (label - mean) * (label - mean),
            Family::Poisson => times_ln(label, label / mean) - label + mean,
            Family::Gamma => label / mean - (label / mean).ln() - 1.0,
            Family::Tweedie(power) => tweedie(power, label, mean),
            Family::Binomial => {
                times_ln(label, label / mean) + times_ln(1.0 - label, (1.0 - label) / (1.0 - mean))
            }
        }
    }

    /// Whether a label can come from the family.
    pub(crate) fn allows_label(self, label: f64) -> bool {
        match self {
            Family::Gaussian => label.is_finite(),
            Family::Poisson => label >= 0.0 && label.is_finite(),
            Family::Gamma => label > 0.0 && label.is_finite(),
            Family::Tweedie(power) if power <= 0.0 => label.is_finite(),
            Family::Tweedie(power) if power < 2.0 => label >= 0.0 && label.is_finite(),
            Family::Tweedie(_) => label > 0.0 && label.is_finite(),
            Family::Binomial => (0.0..=1.0).contains(&label),
        }
    }

    /// What labels the family has, for messages.
    pub(crate) fn labels(self) -> &'static str {
        match self {
            Family::Gaussian => "finite numbers",
            Family::Poisson => "numbers from 0",
            Family::Gamma => "numbers above 0",
            Family::Tweedie(power) if power <= 0.0 => "finite numbers",
            Family::Tweedie(power) if power < 2.0 => "numbers from 0",
            Family::Tweedie(_) => "numbers above 0",
            Family::Binomial => "shares from 0 to 1",
        }
    }

    /// Whether a mean can belong to the family.
    pub(crate) fn allows_mean(self, mean: f64) -> bool {
        match self {
            Family::Gaussian | Family::Tweedie(0.0) => mean.is_finite(),
            Family::Binomial => mean > 0.0 && mean < 1.0,
            Family::Poisson | Family::Gamma | Family::Tweedie(_) => mean > 0.0 && mean.is_finite(),
        }
    }
}

fn tweedie(power: f64, label: f64, mean: f64) -> f64 {
    if power == 0.0 {
        return Family::Gaussian.half_deviance(label, mean);
    }
    if power == 1.0 {
        return Family::Poisson.half_deviance(label, mean);
    }
    if power == 2.0 {
        return Family::Gamma.half_deviance(label, mean);
    }
    let (one, two) = (1.0 - power, 2.0 - power);
    // Below zero a label's own term is that of a mean which cannot be: it is left out, as scikit-learn does.
    let own = if label > 0.0 || power > 0.0 { label.max(0.0).powf(two) / (one * two) } else { 0.0 };
    own - label * mean.powf(one) / one + mean.powf(two) / two
}

/// x·ln y, which is 0 for x = 0.
fn times_ln(x: f64, y: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x * y.ln() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with scikit-learn 1.9.1: `mean_tweedie_deviance([y], [mu], power=p) / 2`.
    #[test]
    fn deviances_are_those_of_scikit_learn() {
        for (power, label, mean, expected) in SKLEARN {
            let found = Family::Tweedie(power).half_deviance(label, mean);
            assert!((found - expected).abs() < 1e-12, "{power} {label} {mean}: {found} {expected}");
        }
    }

    #[test]
    fn a_perfect_mean_has_no_deviance() {
        for family in [
            Family::Gaussian,
            Family::Poisson,
            Family::Gamma,
            Family::Tweedie(1.5),
            Family::Binomial,
        ] {
            assert!(family.half_deviance(0.3, 0.3).abs() < 1e-15, "{family:?}");
            assert!(family.half_deviance(0.3, 0.4) > 0.0, "{family:?}");
        }
        assert_eq!(Family::Poisson.half_deviance(1.0, -1.0), f64::INFINITY);
    }

    const SKLEARN: [(f64, f64, f64, f64); 7] = [
        (0.0, 1.5, 2.0, 0.125),
        (1.0, 0.0, 2.0, 2.0),
        (1.0, 3.0, 2.0, 0.21639532432449315),
        (1.5, 0.0, 0.7, 1.6733200530681511),
        (1.5, 2.0, 0.7, 0.7973802409133448),
        (2.0, 1.5, 0.4, 1.4282441600176803),
        (3.0, 1.5, 0.4, 2.520833333333332),
    ];
}
