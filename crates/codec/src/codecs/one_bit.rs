//! One bit a number: its sign (Seide et al., 2014). Each bucket has two numbers, the means of those from 0 up and
//! of those below, which are what its signs stand for: the best that one bit can do. What is lost is added to
//! the next contribution; without that, training fails.
//!
//! On the wire: both means of all buckets (f32), then the signs, the first number in the lowest bit. NaN and infinities
//! make the mean of their side infinite or NaN.
//! Cost: 1/8 + 8 / bucket bytes a number.

use super::BuildCodec;
use crate::kernels::{norms, widest};
use crate::{Compressor, Feedback, Keeps, Malformed, Scheme};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "one-bit",
    summary: "Signs travel, with two means for each bucket; what is lost is added to the next contribution",
    reference: "Seide et al.: 1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs, Interspeech 2014",
    params: &[Param {
        name: "bucket",
        kind: ParamKind::Integer { min: 8, max: 1 << 20 },
        default: Some("512"),
        help: "numbers that share two means, rounded up to a multiple of 8",
    }],
    gives: &[Ability::OneWay],
    needs: &[Ability::Contributions],
    build: |params| {
        // Whole bytes of signs, so that buckets do not share one.
        let bucket = params.size("bucket").next_multiple_of(8);
        Ok(Scheme::Contributions(Box::new(OneBit { bucket })))
    },
};

struct OneBit {
    bucket: usize,
}

impl Compressor for OneBit {
    /// By Cauchy and Schwarz: the means have (Σ|x|)² / n of the squared norm at least, and (Σ|x|)² ≥ Σx².
    fn keeps(&self) -> Keeps {
        Keeps::Contraction { delta: 1.0 / self.bucket as f64 }
    }

    fn feedback(&self) -> Option<Feedback> {
        Some(Feedback { momentum: 0.0 })
    }

    fn encode(&self, values: &[f32], _: &mut Rng, out: &mut Vec<u8>) {
        let start = out.len();
        out.reserve(8 * values.len().div_ceil(self.bucket) + values.len().div_ceil(8));
        for values in values.chunks(self.bucket) {
            // Narrow vectors: of the widest ones the compiler makes six times the work here and in `pack`.
            let (upper, lower) = norms::two_means(values);
            out.extend_from_slice(&upper.to_le_bytes());
            out.extend_from_slice(&lower.to_le_bytes());
        }
        let heads = out.len() - start;
        out.resize(start + heads + values.len().div_ceil(8), 0);
        pack(values, &mut out[start + heads..]);
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let heads = 8 * into.len().div_ceil(self.bucket);
        if bytes.len() != heads + into.len().div_ceil(8) {
            return Err(Malformed("the bytes are not one for 8 numbers and eight for each bucket"));
        }
        let (heads, signs) = bytes.split_at(heads);
        let buckets = into.chunks_mut(self.bucket).zip(signs.chunks(self.bucket / 8));
        for ((into, signs), head) in buckets.zip(heads.as_chunks::<8>().0) {
            let [a, b, c, d, e, f, g, h] = *head;
            let means = (f32::from_le_bytes([a, b, c, d]), f32::from_le_bytes([e, f, g, h]));
            widest(
                #[inline(always)]
                || unpack(signs, means, into),
            );
        }
        Ok(())
    }
}

fn pack(values: &[f32], signs: &mut [u8]) {
    let (groups, rest) = values.as_chunks::<8>();
    for (group, signs) in groups.iter().zip(signs.iter_mut()) {
        *signs = byte_of(group);
    }
    if let (Some(last), false) = (signs.last_mut(), rest.is_empty()) {
        *last = byte_of(rest);
    }
}

#[inline(always)]
fn byte_of(values: &[f32]) -> u8 {
    let bits = values.iter().enumerate().map(|(at, &value)| u8::from(value >= 0.0) << at);
    bits.fold(0, |byte, bit| byte | bit)
}

#[inline(always)]
fn unpack(signs: &[u8], (upper, lower): (f32, f32), into: &mut [f32]) {
    let (groups, rest) = into.as_chunks_mut::<8>();
    let mean = |signs: u8, at: usize| if (signs >> at) & 1 == 1 { upper } else { lower };
    for (group, &signs) in groups.iter_mut().zip(signs) {
        for (at, sum) in group.iter_mut().enumerate() {
            *sum += mean(signs, at);
        }
    }
    if let Some(&last) = signs.last() {
        rest.iter_mut().enumerate().for_each(|(at, sum)| *sum += mean(last, at));
    }
}
