//! State that decays, and is nothing in the end. Where a gradient has become zero for good, as behind a rectifier that
//! never opens again, a velocity shrinks by a tenth a step. It never arrives: the floats below the normal ones are so
//! coarse that nine tenths of a few units round back to as many. Processors take many times longer over such numbers, so
//! that a network of which much has come to rest would learn the more slowly the longer it learns.
//!
//! What has become too small to count is therefore set to zero while it is still normal. That is a choice between two
//! numbers and no branch, so that loops still run on wide vectors. All larger numbers keep their bits, and what is no
//! number stays none, so that whoever looks for such still finds them.

use super::Real;

/// What has decayed to `value`, or zero if that is below `faint`: [`Real::FAINT`] for velocities and mean gradients,
/// [`faint_square`] for mean squares.
#[inline(always)]
pub fn faded<T: Real>(value: T, faint: T) -> T {
    if value.size() < faint { T::of(0.0) } else { value }
}

/// The mean square below which nothing counts, where its root is added to `epsilon`: the sum of the two is `epsilon`
/// either way. Nothing fades where that is zero, since a quotient stands on the root alone.
#[inline(always)]
pub fn faint_square<T: Real>(epsilon: T) -> T {
    let lost_in_rounding = epsilon * T::EPSILON * T::of(0.25);
    let square = lost_in_rounding * lost_in_rounding;
    if square < T::FAINT_SQUARE { square } else { T::FAINT_SQUARE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimisers::adam::{Adam, Means};
    use crate::optimisers::momentum::Momentum;
    use crate::optimisers::rmsprop::RmsProp;
    use crate::optimisers::{adam, adamw, lamb, momentum, nesterov, rmsprop};
    use std::iter::Sum;
    use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Sub, SubAssign};

    const PACE: Momentum = Momentum { rate: 0.1, momentum: 0.9 };
    const SQUARES: RmsProp = RmsProp { rate: 0.01, keep: 0.9, epsilon: 1e-8 };
    const MEANS: Adam = Adam { rate: 0.1, beta1: 0.9, beta2: 0.95, epsilon: 1e-8 };

    /// Weights, their gradient, what an optimiser remembers of them, and the count of steps.
    type Step<T> = fn(&mut [T], &[T], &mut [Vec<T>], i64);

    /// Every optimiser whose state decays, with how many numbers it remembers for each weight.
    fn optimisers<T: Real>() -> [(&'static str, usize, Step<T>); 6] {
        [
            ("momentum", 1, |w, g, state, _| momentum::step(PACE, w, g, &mut state[0])),
            ("nesterov", 1, |w, g, state, _| nesterov::step(PACE, w, g, &mut state[0])),
            ("rmsprop", 1, |w, g, state, _| rmsprop::step(SQUARES, w, g, &mut state[0])),
            ("adam", 2, |w, g, state, count| adam::step(MEANS, count, w, g, means(state))),
            ("adamw", 2, |w, g, state, count| adamw::step((MEANS, 0.1), count, w, g, means(state))),
            ("lamb", 2, |w, g, state, count| lamb::step((MEANS, 0.1), count, w, g, means(state))),
        ]
    }

    fn means<T>(state: &mut [Vec<T>]) -> Means<'_, T> {
        let [first, second] = state else { panic!("two means") };
        Means { first, second }
    }

    /// From ordinary state through so many steps without a gradient.
    fn rested<T: Real>(steps: i64) -> impl Iterator<Item = (&'static str, Vec<Vec<T>>)> {
        optimisers().into_iter().map(move |(name, states, step)| {
            let mut weights = [T::of(0.5), T::of(-2.0), T::of(0.0)];
            let mut state = vec![vec![T::of(1.0), T::of(0.3), T::of(0.0)]; states];
            for count in 1..=steps {
                step(&mut weights, &[T::of(0.0); 3], &mut state, count);
            }
            assert!(weights.iter().all(|weight| weight.wide().is_finite()), "{name}");
            (name, state)
        })
    }

    #[test]
    fn what_decays_without_end_becomes_exactly_zero() {
        for (name, state) in rested::<f32>(2_000) {
            assert!(state.iter().flatten().all(|value| value.to_bits() == 0), "{name}: {state:?}");
        }
        for (name, state) in rested::<f64>(14_000) {
            assert!(state.iter().flatten().all(|value| value.to_bits() == 0), "{name}: {state:?}");
        }
    }

    #[test]
    fn nothing_is_below_the_normal_numbers_on_its_way() {
        for steps in (600..1_800).step_by(7) {
            for (name, state) in rested::<f32>(steps) {
                let fine = state.iter().flatten().all(|value| !value.is_subnormal());
                assert!(fine, "{name} after {steps}: {state:?}");
            }
        }
    }

    #[test]
    fn what_is_no_number_or_has_no_end_stays_so() {
        assert!(faded(f32::NAN, f32::FAINT).is_nan() && faded(-f64::NAN, f64::FAINT).is_nan());
        assert_eq!(faded(f32::NEG_INFINITY, f32::FAINT), f32::NEG_INFINITY);
        for (name, states, step) in optimisers::<f32>() {
            let mut state = vec![vec![f32::NAN]; states];
            let mut weights = [1.0];
            step(&mut weights, &[0.0], &mut state, 1);
            assert!(weights[0].is_nan(), "{name}");
            assert!(state.iter().all(|state| state[0].is_nan()), "{name}: {state:?}");
        }
    }

    /// Where there is no ε a root that became zero would divide zero by zero.
    #[test]
    fn squares_fade_only_far_below_epsilon() {
        assert_eq!(
            (faint_square(1e-8_f32), faint_square(1e-8)),
            (2e0_f32.powi(-120), 2e0_f64.powi(-1000))
        );
        assert_eq!((faint_square(0_f32), faint_square(0_f64)), (0.0, 0.0));
        for epsilon in [1e-3_f32, 1e-8, 1e-12, 1e-18] {
            assert_eq!(epsilon + faint_square(epsilon).sqrt(), epsilon);
        }
        let (mut weights, mut squares) = ([1.0_f32], [1.0]);
        for _ in 0..3_000 {
            rmsprop::step(RmsProp { epsilon: 0.0, ..SQUARES }, &mut weights, &[0.0], &mut squares);
        }
        assert_eq!(weights, [1.0]);
    }

    #[test]
    fn ordinary_steps_have_the_bits_they_would_have_without() {
        let plain = optimisers::<Unfading>();
        for ((name, states, step), (.., plain)) in optimisers::<f32>().into_iter().zip(plain) {
            let (mut weights, mut state) = (gradient(7), vec![vec![0.0; 40]; states]);
            let mut others: Vec<_> = weights.iter().copied().map(Unfading).collect();
            let mut memory = vec![vec![Unfading(0.0); 40]; states];
            for count in 1..=60 {
                let slopes = gradient(count);
                let same: Vec<_> = slopes.iter().copied().map(Unfading).collect();
                step(&mut weights, &slopes, &mut state, count);
                plain(&mut others, &same, &mut memory, count);
            }
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let bare = |values: &[Unfading]| values.iter().map(|x| x.0).collect::<Vec<_>>();
            assert_eq!(bits(&weights), bits(&bare(&others)), "{name}");
            for (state, memory) in state.iter().zip(&memory) {
                assert_eq!(bits(state), bits(&bare(memory)), "{name}");
            }
        }
    }

    /// From large to small, of both signs, and for some weights zero in the end.
    fn gradient(count: i64) -> Vec<f32> {
        let slope = |at: i32| {
            let sign = if (i64::from(at) * 31 + count * 17) % 7 < 3 { -1.0 } else { 1.0 };
            let is_over = at % 4 == 3 && count > 30;
            if is_over { 0.0 } else { sign * (1.0 + count as f32 / 9.0) * 10f32.powi(at % 16 - 11) }
        };
        (0..40).map(slope).collect()
    }

    /// Numbers of which nothing is faint: on them a step is what it was without fading.
    #[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
    struct Unfading(f32);

    impl Real for Unfading {
        const EPSILON: Unfading = Unfading(f32::EPSILON);
        const FAINT: Unfading = Unfading(0.0);
        const FAINT_SQUARE: Unfading = Unfading(0.0);

        fn of(value: f64) -> Unfading {
            Unfading(value as f32)
        }

        fn wide(self) -> f64 {
            f64::from(self.0)
        }

        fn root(self) -> Unfading {
            Unfading(self.0.sqrt())
        }

        fn size(self) -> Unfading {
            Unfading(self.0.abs())
        }
    }

    macro_rules! operators {
        ($($name:ident $method:ident $sign:tt),*) => {$(
            impl $name for Unfading {
                type Output = Unfading;

                fn $method(self, other: Unfading) -> Unfading {
                    Unfading(self.0 $sign other.0)
                }
            }
        )*};
    }

    macro_rules! assignments {
        ($($name:ident $method:ident $sign:tt),*) => {$(
            impl $name for Unfading {
                fn $method(&mut self, other: Unfading) {
                    *self = *self $sign other;
                }
            }
        )*};
    }

    operators!(Add add +, Sub sub -, Mul mul *, Div div /);
    assignments!(AddAssign add_assign +, SubAssign sub_assign -, MulAssign mul_assign *);

    impl Sum for Unfading {
        fn sum<I: Iterator<Item = Unfading>>(values: I) -> Unfading {
            Unfading(values.map(|value| value.0).sum())
        }
    }
}
