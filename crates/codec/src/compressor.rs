//! Compressors: lossy codecs for parts of contributions. They have no state and know no blocks; what they lose is the
//! business of [`Residuals`](crate::Residuals).

use crate::Malformed;
use starlings_core::Rng;

/// The law of a compressor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Keeps {
    /// The expectation of what is decoded is what was encoded.
    Unbiased,
    /// What is lost has at most `1 − delta` of the squared norm: ‖x − C(x)‖² ≤ (1 − delta)‖x‖². With error
    /// feedback everything arrives in the end.
    Contraction {
        /// How much is certain to arrive.
        delta: f64,
    },
    /// With error feedback, what is lost is at most this in each number, as long as no contribution has larger
    /// numbers; what larger ones leave behind shrinks by this in each step.
    Within {
        /// The bound.
        absolute: f64,
    },
    /// The expectation of what is decoded is what was encoded, after every number beyond so many deviations
    /// (root mean square of its bucket) has been cut to that size.
    Clipped {
        /// How many deviations.
        deviations: f64,
        /// Numbers in a bucket.
        bucket: usize,
    },
}

/// What a seat keeps of what was lost, and adds to its next contribution.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    /// Momentum correction (Lin et al., 2018): the velocity is gathered before it is compressed. 0 for none.
    pub momentum: f64,
}

/// A lossy codec for parts of contributions: floats only, for integers never change. It has no state; what it
/// loses is kept by [`Residuals`](crate::Residuals).
///
/// Laws: `keeps`; decoding is a function of the bytes alone; any bytes give `Ok` or [`Malformed`], never a panic,
/// and never more memory than the numbers need; a part with a number that is not finite arrives with one.
pub trait Compressor: Send + Sync {
    /// What it promises.
    fn keeps(&self) -> Keeps;

    /// Whether a seat keeps what was lost.
    fn feedback(&self) -> Option<Feedback>;

    /// Appends the encoding of a part. `noise` is of this (seed, step, seat, part).
    fn encode(&self, values: &[f32], noise: &mut Rng, out: &mut Vec<u8>);

    /// Adds what was encoded onto `into`, which is as long as the part was.
    ///
    /// # Errors
    /// When the bytes are no encoding of that many numbers; `into` is unchanged then.
    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed>;
}
