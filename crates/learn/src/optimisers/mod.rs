//! Optimisers: pure functions on slices with explicit state, so that the state can live in the model and a
//! server can step the rows it owns. Those that need nothing but slices work on f32 and f64 alike: linear models keep
//! their weights as f64, networks as f32. They are always inlined, so that callers can run them on wider vectors.

pub mod adagrad;
pub mod adam;
pub mod adamw;
pub(crate) mod conjugate_gradient;
pub mod fading;
pub mod lamb;
pub(crate) mod lbfgs;
pub(crate) mod line_search;
pub mod momentum;
pub mod nesterov;
pub(crate) mod orthant;
pub(crate) mod probing;
pub(crate) mod resting;
pub mod rmsprop;
pub mod sgd;

use starlings_core::{FAINT_DOUBLE, FAINT_SINGLE};
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Sub, SubAssign};

/// A kind of number that weights are made of.
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
    + PartialOrd
{
    /// The distance from one to the next larger number.
    const EPSILON: Self;
    /// Velocities below this have [faded](fading). It is normal, and so is its product with any sensible rate.
    const FAINT: Self;
    /// The same for mean squares: smaller, since of them the root counts, and no rate multiplies them.
    const FAINT_SQUARE: Self;

    /// The nearest such number.
    fn of(value: f64) -> Self;
    /// As f64.
    fn wide(self) -> f64;
    /// Its square root.
    fn root(self) -> Self;
    /// Without its sign.
    fn size(self) -> Self;
}

impl Real for f64 {
    const EPSILON: f64 = f64::EPSILON;
    const FAINT: f64 = FAINT_DOUBLE;
    const FAINT_SQUARE: f64 = f64::from_bits((1023 - 1000) << 52);

    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn root(self) -> f64 {
        self.sqrt()
    }

    #[inline(always)]
    fn size(self) -> f64 {
        self.abs()
    }
}

impl Real for f32 {
    const EPSILON: f32 = f32::EPSILON;
    const FAINT: f32 = FAINT_SINGLE;
    const FAINT_SQUARE: f32 = f32::from_bits((127 - 120) << 23);

    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn root(self) -> f32 {
        self.sqrt()
    }

    #[inline(always)]
    fn size(self) -> f32 {
        self.abs()
    }
}
