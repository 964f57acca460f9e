//! Losses of the margin y·f(x), with what stochastic dual coordinate ascent asks of them: the conjugate and the best
//! step of one dual variable (Shalev-Shwartz and Zhang, "Stochastic dual coordinate ascent methods for regularized loss
//! minimization", 2013). A dual variable is from zero to the row's weight (hinge) or without bound (squared hinge); the
//! weights of the model are the sum of dual variables times y·x, over λ times the sum of the rows' weights.

/// A convex loss of the margin.
pub(crate) trait MarginLoss: Copy {
    /// The loss at a margin.
    fn value(self, margin: f64) -> f64;

    /// Minus the derivative at a margin: how hard the row pulls.
    fn pull(self, margin: f64) -> f64;

    /// Minus the conjugate: what a dual variable adds to the dual objective. `weight` is the row's, not zero.
    fn dual(self, dual: f64, weight: f64) -> f64;

    /// The dual variable that maximises the dual objective, all others fixed. `norm` is how fast the margin grows with it.
    fn best(self, dual: f64, margin: f64, norm: f64, weight: f64) -> f64;
}

/// max(0, 1 − margin).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hinge;

impl MarginLoss for Hinge {
    #[inline(always)]
    fn value(self, margin: f64) -> f64 {
        (1.0 - margin).max(0.0)
    }

    #[inline(always)]
    fn pull(self, margin: f64) -> f64 {
        if margin < 1.0 { 1.0 } else { 0.0 }
    }

    #[inline(always)]
    fn dual(self, dual: f64, _: f64) -> f64 {
        dual
    }

    #[inline(always)]
    fn best(self, dual: f64, margin: f64, norm: f64, weight: f64) -> f64 {
        match norm > 0.0 {
            true => (dual + (1.0 - margin) / norm).clamp(0.0, weight),
            false => weight * self.pull(margin),
        }
    }
}

/// max(0, 1 − margin)².
#[derive(Clone, Copy, Debug)]
pub(crate) struct SquaredHinge;

impl MarginLoss for SquaredHinge {
    #[inline(always)]
    fn value(self, margin: f64) -> f64 {
        (1.0 - margin).max(0.0).powi(2)
    }

    #[inline(always)]
    fn pull(self, margin: f64) -> f64 {
        2.0 * (1.0 - margin).max(0.0)
    }

    #[inline(always)]
    fn dual(self, dual: f64, weight: f64) -> f64 {
        dual - dual * dual / (4.0 * weight)
    }

    #[inline(always)]
    fn best(self, dual: f64, margin: f64, norm: f64, weight: f64) -> f64 {
        let bend = 1.0 / (2.0 * weight);
        (dual + (1.0 - margin - dual * bend) / (norm + bend)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The dual objective of one variable: its own part, and a margin that grows with it.
    fn gain(
        loss: impl MarginLoss,
        from: f64,
        to: f64,
        (margin, norm, weight): (f64, f64, f64),
    ) -> f64 {
        let change = to - from;
        loss.dual(to, weight) - margin * change - 0.5 * norm * change * change
    }

    fn is_best(loss: impl MarginLoss, largest: f64) {
        for margin in [-2.0, 0.3, 1.0, 4.0] {
            for (norm, weight) in [(0.5, 1.0), (3.0, 0.2), (1e-6, 2.0)] {
                for from in [0.0, 0.1, 0.2] {
                    let place = (margin, norm, weight);
                    let best = loss.best(from, margin, norm, weight);
                    let most = gain(loss, from, best, place);
                    for step in 0..200 {
                        let other = f64::from(step) / 200.0 * largest * weight;
                        assert!(
                            gain(loss, from, other, place) <= most + 1e-12,
                            "{place:?} {other}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn no_dual_variable_is_better_than_the_best() {
        is_best(Hinge, 1.0);
        is_best(SquaredHinge, 20.0);
    }

    #[test]
    fn loss_and_conjugate_touch_where_the_pull_is() {
        // Fenchel's equality: value(m) = max over a of a·(…): value(m) + (−dual(a)) = −a·m at a = pull(m).
        for margin in [-3.0, 0.0, 0.9, 1.5] {
            for (value, pull, dual) in [
                (Hinge.value(margin), Hinge.pull(margin), Hinge.dual(Hinge.pull(margin), 1.0)),
                (
                    SquaredHinge.value(margin),
                    SquaredHinge.pull(margin),
                    SquaredHinge.dual(SquaredHinge.pull(margin), 1.0),
                ),
            ] {
                assert!((value - dual + pull * margin).abs() < 1e-12, "{margin}");
            }
        }
    }
}
