//! The two kinds of floats as one, for loops that are written once.

use crate::kernels::widest;
use starlings_core::{FAINT_DOUBLE, FAINT_SINGLE, Values};
use std::ops::{Add, AddAssign, Mul, Sub};

/// f32 or f64.
pub(crate) trait Float:
    Copy + Default + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + AddAssign
{
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    fn single(self) -> f32;
    fn of_single(value: f32) -> Self;
    fn is_finite(self) -> bool;
    /// The same, or zero where a velocity of this size is [nothing](starlings_core::faint).
    fn faded(self) -> Self;
    /// The numbers, which are of this kind.
    fn slice(values: &Values) -> &[Self];
    /// As f32, with room to convert into.
    fn singles<'a>(numbers: &'a [Self], room: &'a mut Vec<f32>) -> &'a [f32];
    fn values(numbers: Vec<Self>) -> Values;
}

impl Float for f32 {
    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of_single(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }

    #[inline(always)]
    fn faded(self) -> f32 {
        if self.abs() < FAINT_SINGLE { 0.0 } else { self }
    }

    fn slice(values: &Values) -> &[f32] {
        values.as_f32().expect("numbers of the same kind")
    }

    fn singles<'a>(numbers: &'a [f32], _: &'a mut Vec<f32>) -> &'a [f32] {
        numbers
    }

    fn values(numbers: Vec<f32>) -> Values {
        Values::F32(numbers)
    }
}

impl Float for f64 {
    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn of_single(value: f32) -> f64 {
        f64::from(value)
    }

    #[inline(always)]
    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }

    #[inline(always)]
    fn faded(self) -> f64 {
        if self.abs() < FAINT_DOUBLE { 0.0 } else { self }
    }

    fn slice(values: &Values) -> &[f64] {
        values.as_f64().expect("numbers of the same kind")
    }

    fn singles<'a>(numbers: &'a [f64], room: &'a mut Vec<f32>) -> &'a [f32] {
        room.clear();
        room.extend(numbers.iter().map(|number| number.single()));
        room
    }

    fn values(numbers: Vec<f64>) -> Values {
        Values::F64(numbers)
    }
}

/// Runs one expression for whichever floats are inside; integers are a bug of the caller.
macro_rules! floats {
    ($values:expr, $inner:ident => $body:expr) => {
        match $values {
            Values::F32($inner) => $body,
            Values::F64($inner) => $body,
            Values::I64(_) => panic!("integers are never compressed"),
        }
    };
}
pub(crate) use floats;

/// Adds numbers of either kind onto `into[at..]`.
///
/// # Panics
/// If they do not fit, or are integers.
pub(crate) fn add(into: &mut Values, at: usize, numbers: &Values) {
    let end = at + numbers.len();
    match (into, numbers) {
        (Values::F32(into), Values::F32(numbers)) => add_slice(&mut into[at..end], numbers),
        (Values::F64(into), Values::F64(numbers)) => add_slice(&mut into[at..end], numbers),
        (Values::F32(into), Values::F64(numbers)) => {
            into[at..end].iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number as f32);
        }
        (Values::F64(into), Values::F32(numbers)) => {
            let pairs = into[at..end].iter_mut().zip(numbers);
            pairs.for_each(|(sum, number)| *sum += f64::from(*number));
        }
        _ => panic!("integers are never compressed"),
    }
}

/// Adds numbers of the same kind.
pub(crate) fn add_slice<T: Float>(into: &mut [T], numbers: &[T]) {
    widest(
        #[inline(always)]
        || {
            into.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += *number);
        },
    );
}
