//! Links (McCullagh and Nelder, "Generalized linear models", 1989): from a linear score z to the mean μ of labels.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// How a score becomes a mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    /// μ = z.
    Identity,
    /// μ = eᶻ.
    Log,
    /// μ = 1 / (1 + e⁻ᶻ).
    Logit,
    /// μ = 1 / z.
    Inverse,
    /// μ = Φ(z), the normal distribution's function.
    Probit,
    /// μ = 1 − e^(−eᶻ).
    ComplementaryLogLog,
}

impl Link {
    /// The mean and its derivative by the score.
    pub(crate) fn mean(self, score: f64) -> (f64, f64) {
        match self {
            Link::Identity => (score, 1.0),
            Link::Log => {
                let mean = score.exp();
                (mean, mean)
            }
            Link::Logit => {
                let small = (-score.abs()).exp();
                let larger = 1.0 / (1.0 + small);
                let mean = if score > 0.0 { larger } else { small * larger };
                (mean, small * larger * larger)
            }
            Link::Inverse => (1.0 / score, -1.0 / (score * score)),
            Link::Probit => (normal_below(score), (-0.5 * score * score).exp() / (2.0 * PI).sqrt()),
            Link::ComplementaryLogLog => {
                let power = score.exp();
                (-(-power).exp_m1(), (score - power).exp())
            }
        }
    }

    /// The score that has this mean.
    pub(crate) fn score(self, mean: f64) -> f64 {
        match self {
            Link::Identity => mean,
            Link::Log => mean.ln(),
            Link::Logit => (mean / (1.0 - mean)).ln(),
            Link::Inverse => 1.0 / mean,
            Link::Probit => normal_quantile(mean),
            Link::ComplementaryLogLog => (-(-mean).ln_1p()).ln(),
        }
    }
}

/// Φ(z) = erfc(−z/√2)/2.
fn normal_below(score: f64) -> f64 {
    0.5 * complementary_error(-score * FRAC_1_SQRT_2)
}

/// ln Φ(z) and φ(z)/Φ(z), in the far tail by their expansions.
pub(super) fn log_normal(score: f64) -> (f64, f64) {
    let density = -0.5 * score * score - 0.5 * (2.0 * PI).ln();
    if score > -30.0 {
        let below = normal_below(score);
        return (below.ln(), (density - below.ln()).exp());
    }
    let size = -score;
    let square = size * size;
    // Φ(−z) = φ(z)/z·(1 − 1/z² + 3/z⁴ − …).
    let series = 1.0 - 1.0 / square + 3.0 / (square * square);
    (density - size.ln() + series.ln(), size / series)
}

/// Φ⁻¹ by Newton's method from a start that is never far off: a start of training needs no more.
fn normal_quantile(mean: f64) -> f64 {
    let mut score = 0.6 * (mean / (1.0 - mean)).ln();
    for _ in 0..50 {
        let (found, slope) = Link::Probit.mean(score);
        if slope <= f64::MIN_POSITIVE {
            break;
        }
        score -= ((found - mean) / slope).clamp(-1.0, 1.0);
    }
    score
}

/// erfc by the series of erf (Abramowitz and Stegun 7.1.6) near zero and the continued fraction (7.1.14) beyond.
pub(crate) fn complementary_error(x: f64) -> f64 {
    let size = x.abs();
    if size < 2.5 {
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-17 * f64::abs(sum) {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return 1.0 - 2.0 / PI.sqrt() * (-x * x).exp() * sum;
    }
    // From the far end of the fraction: 60 terms give all digits beyond 2.5.
    let fraction = (1..=60).rev().fold(size, |below, n| size + 0.5 * f64::from(n) / below);
    let tail = (-size * size).exp() / (PI.sqrt() * fraction);
    if x > 0.0 { tail } else { 2.0 - tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_their_inverses_agree() {
        let links = [
            Link::Identity,
            Link::Log,
            Link::Logit,
            Link::Inverse,
            Link::Probit,
            Link::ComplementaryLogLog,
        ];
        for link in links {
            for mean in [0.01, 0.2, 0.5, 0.7, 0.99] {
                let (found, slope) = link.mean(link.score(mean));
                assert!((found - mean).abs() < 1e-12, "{link:?} {mean}: {found}");
                let h = 1e-6;
                let score = link.score(mean);
                let numeric = (link.mean(score + h).0 - link.mean(score - h).0) / (2.0 * h);
                assert!((numeric - slope).abs() < 1e-6 * slope.abs().max(1.0), "{link:?} {mean}");
            }
        }
    }

    /// Made with scipy 1.17.1: `scipy.special.erfc`.
    #[test]
    fn the_error_function_has_all_its_digits() {
        for (x, expected) in SCIPY {
            let off = (complementary_error(x) / expected - 1.0).abs();
            assert!(off < 1e-13, "{x}: {off}");
        }
    }

    /// Made with scipy 1.17.1: `scipy.special.log_ndtr`.
    #[test]
    fn logarithms_of_the_normal_distribution_go_on_where_it_is_zero() {
        for (score, expected) in [
            (-50.0, -1254.8313611394),
            (-35.0, -616.975101261),
            (-5.0, -15.064998393),
            (2.0, -0.0230129093),
        ] {
            let (found, ratio) = log_normal(score);
            assert!((found / expected - 1.0).abs() < 1e-8, "{score}: {found}");
            let h = 1e-4;
            let slope = (log_normal(score + h).0 - log_normal(score - h).0) / (2.0 * h);
            assert!((slope - ratio).abs() < 1e-6 * ratio.max(1.0), "{score}: {slope} {ratio}");
        }
    }

    const SCIPY: [(f64, f64); 6] = [
        (-3.0, 1.9999779095030015),
        (-0.5, 1.5204998778130465),
        (0.1, 0.8875370839817152),
        (1.3, 0.06599205505934758),
        (2.6, 0.000236034416529349),
        (6.0, 2.1519736712498913e-17),
    ];
}
