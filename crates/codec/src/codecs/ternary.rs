//! Three values a number: −s, 0 or s, where s is the largest magnitude of the bucket (TernGrad, Wen et al., 2017). A
//! number becomes its sign times s with the probability |x| / s, so that the expectation is the number itself.
//!
//! One large number makes s large and most others zero. The paper's remedy is to cut numbers beyond `clip` deviations
//! first; the expectation is then that of the cut numbers, which is no longer unbiased, and
//! [`Keeps::Clipped`] says so. The deviation is about zero, where gradients have their mean: numbers that are all
//! alike are not cut.
//!
//! On the wire: s of all buckets (f32), then five numbers to a byte, as digits to the base three.
//! Cost: 1/5 + 4 / bucket bytes a number.

use super::BuildCodec;
use crate::kernels::{noise::Noise, norms, widest};
use crate::{Compressor, Feedback, Keeps, Malformed, Scheme};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "ternary",
    summary: "Numbers travel as minus one, zero or one, drawn so that they are right on average",
    reference: "Wen et al.: TernGrad: ternary gradients to reduce communication in distributed deep learning, NIPS 2017",
    params: &[
        Param {
            name: "clip",
            kind: ParamKind::Float { min: 0.0, max: 1e6 },
            default: Some("2.5"),
            help: "cut numbers beyond so many deviations first, which is less noise and some bias; 0 for never",
        },
        Param {
            name: "bucket",
            kind: ParamKind::Integer { min: 5, max: 1 << 20 },
            default: Some("500"),
            help: "numbers that share a scale, rounded up to a multiple of 5",
        },
    ],
    gives: &[Ability::OneWay],
    needs: &[Ability::Contributions],
    build: |params| {
        Ok(Scheme::Contributions(Box::new(Ternary {
            clip: params.f64("clip"),
            // Whole bytes of digits, so that buckets do not share one.
            bucket: params.size("bucket").next_multiple_of(5),
        })))
    },
};

/// Digits in a byte: 3^5 = 243.
const DIGITS: usize = 5;

/// The digits of every byte that is one, as −1, 0 and 1.
static SIGNS: [[f32; DIGITS]; 243] = signs();

struct Ternary {
    clip: f64,
    bucket: usize,
}

impl Compressor for Ternary {
    fn keeps(&self) -> Keeps {
        if self.clip > 0.0 {
            Keeps::Clipped { deviations: self.clip, bucket: self.bucket }
        } else {
            Keeps::Unbiased
        }
    }

    fn feedback(&self) -> Option<Feedback> {
        None
    }

    fn encode(&self, values: &[f32], noise: &mut Rng, out: &mut Vec<u8>) {
        let noise = Noise::draw(noise);
        let (start, heads) = (out.len(), 4 * values.len().div_ceil(self.bucket));
        // Digits are written one to a byte, and then packed to the front.
        let packed = values.len().div_ceil(DIGITS);
        out.resize(start + heads + packed * DIGITS, 1);
        let (heads, digits) = out[start..].split_at_mut(heads);
        let buckets = values.chunks(self.bucket).zip(digits.chunks_mut(self.bucket));
        for (number, ((values, digits), head)) in
            buckets.zip(heads.as_chunks_mut::<4>().0).enumerate()
        {
            let scale = widest(
                #[inline(always)]
                || self.scale(values),
            );
            *head = scale.to_le_bytes();
            let from = (number * self.bucket) as u32;
            widest(
                #[inline(always)]
                || draw(values, scale, (noise, from), digits),
            );
        }
        pack(digits, packed);
        let len = heads.len() + packed;
        out.truncate(start + len);
    }

    fn decode(&self, bytes: &[u8], into: &mut [f32]) -> Result<(), Malformed> {
        let heads = 4 * into.len().div_ceil(self.bucket);
        if bytes.len() != heads + into.len().div_ceil(DIGITS) {
            return Err(Malformed("the bytes are not one for 5 numbers and four for each bucket"));
        }
        let (heads, digits) = bytes.split_at(heads);
        if digits.iter().any(|&byte| usize::from(byte) >= SIGNS.len()) {
            return Err(Malformed("a byte that is no five digits"));
        }
        let buckets = into.chunks_mut(self.bucket).zip(digits.chunks(self.bucket / DIGITS));
        for ((into, digits), head) in buckets.zip(heads.as_chunks::<4>().0) {
            unpack(digits, f32::from_le_bytes(*head), into);
        }
        Ok(())
    }
}

impl Ternary {
    /// The largest magnitude that is left after clipping; not finite if one of the numbers is not.
    #[inline(always)]
    fn scale(&self, values: &[f32]) -> f32 {
        let largest = norms::largest(values);
        if self.clip == 0.0 || !largest.is_finite() {
            return largest;
        }
        let deviation = (norms::sum_of_squares(values) / values.len() as f64).sqrt();
        largest.min((self.clip * deviation) as f32)
    }
}

#[inline(always)]
fn draw(values: &[f32], scale: f32, (noise, from): (Noise, u32), digits: &mut [u8]) {
    for (at, (value, digit)) in values.iter().zip(digits).enumerate() {
        // Beyond 1 where it is clipped: always drawn. 0 / 0 is never.
        let chance = value.abs() / scale;
        let drawn = u8::from(noise.uniform(from.wrapping_add(at as u32)) < chance);
        *digit = if *value < 0.0 { 1 - drawn } else { 1 + drawn };
    }
}

/// Five digits to a byte, from the front.
fn pack(digits: &mut [u8], packed: usize) {
    for byte in 0..packed {
        let group: [u8; DIGITS] = std::array::from_fn(|at| digits[byte * DIGITS + at]);
        digits[byte] = group.iter().rev().fold(0, |sum, digit| 3 * sum + digit);
    }
}

fn unpack(digits: &[u8], scale: f32, into: &mut [f32]) {
    let (groups, rest) = into.as_chunks_mut::<DIGITS>();
    for (group, &byte) in groups.iter_mut().zip(digits) {
        let signs = &SIGNS[usize::from(byte)];
        group.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += scale * sign);
    }
    if let Some(&last) = digits.last() {
        let signs = &SIGNS[usize::from(last)];
        rest.iter_mut().zip(signs).for_each(|(sum, sign)| *sum += scale * sign);
    }
}

const fn signs() -> [[f32; DIGITS]; 243] {
    let mut table = [[0.0; DIGITS]; 243];
    let mut byte = 0;
    while byte < table.len() {
        let (mut rest, mut at) = (byte, 0);
        while at < DIGITS {
            table[byte][at] = [-1.0, 0.0, 1.0][rest % 3];
            (rest, at) = (rest / 3, at + 1);
        }
        byte += 1;
    }
    table
}
