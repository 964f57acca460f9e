//! What counts as nothing of a momentum that decays. Left to itself it never becomes zero: the floats below the normal ones
//! are so coarse that nine tenths of a few units round back to as many, and processors take many times longer over such
//! numbers. So whoever keeps a momentum sets it to zero while it is still normal; all larger numbers keep their bits.

use crate::Kind;

/// Momenta of f32 below this are nothing. It is normal, and so is its product with any sensible rate.
pub const FAINT_SINGLE: f32 = f32::from_bits((127 - 100) << 23);

/// The same for f64.
pub const FAINT_DOUBLE: f64 = f64::from_bits((1023 - 960) << 52);

/// Below which size a momentum that is stored in such numbers is nothing.
#[must_use]
pub fn faint(kind: Kind) -> f64 {
    match kind {
        Kind::F32 => FAINT_SINGLE as f64,
        Kind::F64 => FAINT_DOUBLE,
        Kind::I64 => 0.0,
    }
}

/// What has decayed to `value`, or zero if that is below `faint`. What is no number stays none.
#[inline(always)]
#[must_use]
pub fn faded(value: f64, faint: f64) -> f64 {
    if value.abs() < faint { 0.0 } else { value }
}
