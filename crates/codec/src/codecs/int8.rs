//! One byte a number: QSGD (Alistarh et al., 2017). Each bucket has a norm, and each number becomes a whole number of
//! `levels`ths of it, rounded up or down by chance so that the expectation is the number itself. Nothing is
//! kept of what is lost: it cancels in the mean.
//!
//! The norm is the largest magnitude, with which one byte is fine enough for a variance of a thousandth; the
//! euclidean norm of the paper's theorems sends mostly zeros in small numbers of levels, and has a larger variance.
//!
//! On the wire: the norms of all buckets (f32), then a signed byte for each number. A bucket with a number that is
//! not finite has such a norm, and no number of it arrives finite.
//! Cost: 1 + 4 / bucket bytes a number.

use super::BuildCodec;
use crate::kernels::{noise::Noise, norms, widest};
use crate::{Compressor, Feedback, Keeps, Malformed, Scheme};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "int8",
    summary: "Floats travel in one byte, rounded by chance to levels of their bucket's norm: right on average",
    reference: "Alistarh et al.: QSGD: communication-efficient SGD via gradient quantization and encoding, NIPS 2017",
    params: &[
        Param {
            name: "levels",
            kind: ParamKind::Integer { min: 1, max: 127 },
            default: Some("127"),
            help: "levels from 0 to the norm: fewer are coarser, and no shorter",
        },
        Param {
            name: "bucket",
            kind: ParamKind::Integer { min: 1, max: 1 << 20 },
            default: Some("512"),
            help: "numbers that share a norm: fewer are more precise, at 4 bytes a bucket",
        },
        Param {
            name: "norm",
            kind: ParamKind::Choice(&["max", "euclidean"]),
            default: Some("max"),
            help: "what the levels are parts of: the largest magnitude, or the length of the bucket",
        },
    ],
    gives: &[Ability::OneWay],
    needs: &[Ability::Contributions],
    build: |params| {
        Ok(Scheme::Contributions(Box::new(Int8 {
            levels: params.i64("levels") as f32,
            bucket: params.size("bucket"),
            norm: if params.text("norm") == "max" { Norm::Max } else { Norm::Euclidean },
        })))
    },
};

struct Int8 {
    levels: f32,
    bucket: usize,
    norm: Norm,
}

#[derive(Clone, Copy)]
enum Norm {
    Max,
    Euclidean,
}

impl Compressor for Int8 {
    fn keeps(&self) -> Keeps {
        Keeps::Unbiased
    }

    fn feedback(&self) -> Option<Feedback> {
        None
    }

    fn encode(&self, values: &[f32], noise: &mut Rng, out: &mut Vec<u8>) {
        let noise = Noise::draw(noise);
        let (start, heads) = (out.len(), 4 * values.len().div_ceil(self.bucket));
        out.resize(start + heads + values.len(), 0);
        let (heads, levels) = out[start..].split_at_mut(heads);
        let heads = heads.as_chunks_mut::<4>().0;
        let buckets = values.chunks(self.bucket).zip(levels.chunks_mut(self.bucket));
        for (number, ((values, levels), head)) in buckets.zip(heads).enumerate() {
            let norm = widest(
                #[inline(always)]
                || match self.norm {
                    Norm::Max => norms::largest(values),
                    Norm::Euclidean => euclidean(values),
                },
            );
            *head = norm.to_le_bytes();
            let from = (number * self.bucket) as u32;
            widest(
                #[inline(always)]
                || quantise(values, norm, self.levels, (noise, from), levels),
            );
        }
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let heads = 4 * into.len().div_ceil(self.bucket);
        if bytes.len() != heads + into.len() {
            return Err(Malformed(
                "the bytes are not one for each number and four for each bucket",
            ));
        }
        let (heads, levels) = bytes.split_at(heads);
        let buckets = into.chunks_mut(self.bucket).zip(levels.chunks(self.bucket));
        for ((into, levels), head) in buckets.zip(heads.as_chunks::<4>().0) {
            let norm = f32::from_le_bytes(*head);
            widest(
                #[inline(always)]
                || restore(levels, norm, self.levels, into),
            );
        }
        Ok(())
    }
}

/// The length of a bucket as a vector. One beyond the range is cut to the largest number.
#[inline(always)]
fn euclidean(values: &[f32]) -> f32 {
    let largest = norms::largest(values);
    if largest.is_finite() {
        (norms::sum_of_squares(values).sqrt() as f32).min(f32::MAX)
    } else {
        largest
    }
}

#[inline(always)]
fn quantise(values: &[f32], norm: f32, levels: f32, (noise, from): (Noise, u32), out: &mut [u8]) {
    // Adding it rounds to whole numbers, which then are the lowest bits: conversions would check their range.
    const WHOLE: f32 = (1u32 << 23) as f32;
    const SIGNED: f32 = WHOLE * 1.5;
    for (at, (value, out)) in values.iter().zip(out).enumerate() {
        // Division before multiplication: at most `levels`, however small the norm.
        let size = value.abs() / norm * levels;
        let size = if size < levels { size } else { levels };
        let nearest = (size + WHOLE) - WHOLE;
        let floor = if nearest > size { nearest - 1.0 } else { nearest };
        let up = noise.uniform(from.wrapping_add(at as u32)) < size - floor;
        let level = if up { floor + 1.0 } else { floor };
        *out = (level.copysign(*value) + SIGNED).to_bits() as u8;
    }
}

#[inline(always)]
fn restore(levels: &[u8], norm: f32, most: f32, into: &mut [f32]) {
    // The quotient is at most 1: a norm near the end of the range does not overflow.
    into.iter_mut()
        .zip(levels)
        .for_each(|(sum, &level)| *sum += norm * (f32::from(level as i8) / most));
}
