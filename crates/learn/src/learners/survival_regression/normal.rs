//! The tail of the standard normal distribution, accurate also where it is tiny: by the series around zero, and by
//! Laplace's continued fraction where that would cancel (Abramowitz and Stegun, 1964, 26.2.11 and 26.2.14).

/// ½ ln 2π.
pub(super) const HALF_LN_TAU: f64 = 0.918_938_533_204_672_7;
/// Beyond this the fraction takes over.
const FAR: f64 = 3.0;
/// Terms of the fraction; at [`FAR`] fewer would do.
const TERMS: u32 = 120;

/// Of the numbers above x.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Tail {
    /// ln P(X > x).
    pub(super) ln_survival: f64,
    /// φ(x) / P(X > x).
    pub(super) hazard: f64,
}

/// The tail above x.
pub(super) fn tail(x: f64) -> Tail {
    let ln_density = -0.5 * x * x - HALF_LN_TAU;
    if x > FAR {
        let hazard = fraction(x);
        return Tail { ln_survival: ln_density - hazard.ln(), hazard };
    }
    let survival = if x < -FAR {
        // What lies below is tiny: its own tail.
        1.0 - ln_density.exp() / fraction(-x)
    } else {
        0.5 - ln_density.exp() * series(x)
    };
    Tail { ln_survival: survival.ln(), hazard: ln_density.exp() / survival }
}

/// The number below which a share lies, by Newton's method on the distribution function, halving where it leaves the
/// interval.
pub(super) fn quantile(share: f64) -> f64 {
    if share > 0.5 {
        return -quantile(1.0 - share);
    }
    // P(X < −z) = share, sought for z ≥ 0 on the logarithm, which is nearly a parabola there.
    let (wanted, mut low, mut high) = (share.ln(), 0.0, 40.0);
    let mut z = 1.0;
    for _ in 0..200 {
        let tail = tail(z);
        if tail.ln_survival > wanted {
            low = z
        } else {
            high = z
        }
        let mut next = z + (tail.ln_survival - wanted) / tail.hazard;
        if !(low..=high).contains(&next) {
            next = 0.5 * (low + high);
        }
        if (next - z).abs() <= 1e-15 * z.abs() {
            return -next;
        }
        z = next;
    }
    -z
}

/// P(0 < X < x) / φ(x) = x + x³/3 + x⁵/(3·5) + …
fn series(x: f64) -> f64 {
    let (mut term, mut sum, mut odd) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        odd += 2.0;
        term *= x * x / odd;
        sum += term;
    }
    sum
}

/// φ(x) / P(X > x) = x + 1/(x + 2/(x + 3/(x + …))).
fn fraction(x: f64) -> f64 {
    let mut below = x;
    for term in (1..=TERMS).rev() {
        below = x + f64::from(term) / below;
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with SciPy 1.17.1: `norm.logsf(x)`.
    #[test]
    fn logarithms_of_tails_are_those_of_scipy() {
        for (x, expected) in LOGSF {
            let found = tail(x).ln_survival;
            assert!((found - expected).abs() < 2e-13 * expected.abs().max(1e-3), "{x}: {found}");
        }
    }

    #[test]
    fn quantiles_are_known() {
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-13);
        assert!((quantile(1e-10) + 6.361_340_902_404_056).abs() < 1e-12);
        assert!(quantile(0.5).abs() < 1e-15);
    }

    const LOGSF: [(f64, f64); 7] = [
        (-8.0, -6.220960574271742e-16),
        (-1.0, -0.1727537790234499),
        (0.0, -std::f64::consts::LN_2),
        (1.5, -2.7059444008238898),
        (2.9, -6.284058234947419),
        (3.1, -6.940688458421228),
        (20.0, -203.9171553710973),
    ];
}
