//! Sixteen bits per float: IEEE binary16 (`fp16`: 11 significant bits, up to 65,504) or bfloat16 (`bf16`: 8
//! significant bits, the range of f32), rounded to the nearest with ties to even (Micikevicius et al., 2018;
//! Kalamkar et al., 2019). Sums are made in the full precision of the block and rounded again at each hop.
//! Integers travel raw.
//!
//! A number beyond the range becomes infinity rather than the largest number: a sum that overflowed must show,
//! so that the run stops or lowers its scale, while a clipped one would go on with a wrong direction unseen.
//! NaN stays NaN. Numbers below the normal range lose precision step by step, and vanish to a zero of
//! their sign.
//!
//! A number that was decoded once is encoded to the same bits again, so a total may be passed on any number of
//! times; the seat that made it must take its own encoding too, or it alone would keep more digits.
//!
//! f64 is first cut to the 24 significant bits of f32 with the last bit set if anything was lost ("rounding to
//! odd", Boldo and Melquiond, 2008), which makes the second rounding right. The `half` crate's own
//! conversion of f64 rounds twice on some machines and once on others.

use super::{BuildCodec, raw};
use crate::{Codec, Into, Law, Malformed, Scheme};
use half::f16;
use half::slice::HalfFloatSliceExt;
use starlings_core::{Ability, Entry, Kind, Param, ParamKind, Values};
use std::ops::Range;

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "half",
    summary: "Floats travel in 16 bits: half or a quarter of the bytes",
    reference: "Micikevicius et al.: Mixed precision training, ICLR 2018; Kalamkar et al.: A study of bfloat16, 2019",
    params: &[Param {
        name: "format",
        kind: ParamKind::Choice(&["fp16", "bf16"]),
        default: Some("fp16"),
        help: "fp16 has more digits (11 bits, up to 65,504), bf16 more range (8 bits, up to 3e38)",
    }],
    gives: &[Ability::Summable, Ability::Elementwise, Ability::OneWay],
    needs: &[],
    build: |params| {
        let half = match params.text("format") {
            "fp16" => Half { narrow: to_fp16, widen: from_fp16, relative: FP16_RELATIVE },
            _ => Half { narrow: to_bf16, widen: from_bf16, relative: BF16_RELATIVE },
        };
        Ok(Scheme::Numbers(Box::new(half)))
    },
};

// Half a unit in the last of 11, or 8, significant bits.
const FP16_RELATIVE: f64 = 1.0 / (1u64 << 11) as f64;
const BF16_RELATIVE: f64 = 1.0 / (1u64 << 8) as f64;

/// Numbers converted at a time, on the stack: small enough to stay in the first cache.
const BATCH: usize = 512;

struct Half {
    /// f32 to 16 bits; both slices are equally long.
    narrow: fn(&[f32], &mut [u16]),
    /// 16 bits to f32; both slices are equally long.
    widen: fn(&[u16], &mut [f32]),
    relative: f64,
}

impl Codec for Half {
    fn law(&self) -> Law {
        Law::Bounded { relative: self.relative }
    }

    fn encoded_len(&self, kind: Kind, len: usize) -> usize {
        len.saturating_mul(width(kind))
    }

    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len(values.kind(), to - from));
        match values {
            Values::F32(inner) => encode_f32(&inner[from..to], out, self.narrow),
            Values::F64(inner) => encode_f64(&inner[from..to], out, self.narrow),
            Values::I64(_) => out.extend_from_slice(raw::memory(values, from, to)),
        }
    }

    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: Range<usize>,
        how: Into,
    ) -> Result<(), Malformed> {
        if values.kind() == Kind::I64 {
            return raw::decode(bytes, values, range, how);
        }
        if bytes.len() != range.len().saturating_mul(2) {
            return Err(Malformed("the bytes are not two for each number"));
        }
        match (values, how) {
            (Values::F32(inner), Into::Add) => {
                decode_with(&mut inner[range], bytes, self.widen, |a, b| *a += b);
            }
            (Values::F32(inner), Into::Put) => {
                decode_with(&mut inner[range], bytes, self.widen, |a, b| *a = b);
            }
            (Values::F64(inner), Into::Add) => {
                decode_with(&mut inner[range], bytes, self.widen, |a, b| *a += f64::from(b));
            }
            (Values::F64(inner), Into::Put) => {
                decode_with(&mut inner[range], bytes, self.widen, |a, b| *a = f64::from(b));
            }
            (Values::I64(_), _) => {}
        }
        Ok(())
    }
}

/// Bytes of one number on the wire.
fn width(kind: Kind) -> usize {
    match kind {
        Kind::F32 | Kind::F64 => 2,
        Kind::I64 => Kind::I64.bytes(),
    }
}

fn encode_f32(values: &[f32], out: &mut Vec<u8>, narrow: fn(&[f32], &mut [u16])) {
    let mut bits = [0u16; BATCH];
    for batch in values.chunks(BATCH) {
        let bits = &mut bits[..batch.len()];
        narrow(batch, bits);
        out.extend_from_slice(bytemuck::cast_slice(bits));
    }
}

fn encode_f64(values: &[f64], out: &mut Vec<u8>, narrow: fn(&[f32], &mut [u16])) {
    let (mut single, mut bits) = ([0f32; BATCH], [0u16; BATCH]);
    for batch in values.chunks(BATCH) {
        let (single, bits) = (&mut single[..batch.len()], &mut bits[..batch.len()]);
        single.iter_mut().zip(batch).for_each(|(to, from)| *to = round_to_odd(*from));
        narrow(single, bits);
        out.extend_from_slice(bytemuck::cast_slice(bits));
    }
}

/// Converts batch by batch and lets `take` add or put each number.
fn decode_with<T>(
    into: &mut [T],
    bytes: &[u8],
    widen: fn(&[u16], &mut [f32]),
    take: impl Fn(&mut T, f32),
) {
    let (mut bits, mut single) = ([0u16; BATCH], [0f32; BATCH]);
    for (batch, encoded) in into.chunks_mut(BATCH).zip(bytes.chunks(2 * BATCH)) {
        let (bits, single) = (&mut bits[..batch.len()], &mut single[..batch.len()]);
        bytemuck::cast_slice_mut(bits).copy_from_slice(encoded);
        widen(bits, single);
        batch.iter_mut().zip(single.iter()).for_each(|(to, from)| take(to, *from));
    }
}

/// Cuts to 24 significant bits and sets the last one if anything was cut off, so that no number falls onto a
/// tie that it was not on. Exact in the normal range of f32; infinity and NaN keep their nature.
fn round_to_odd(value: f64) -> f32 {
    const CUT: u64 = (1 << 29) - 1;
    let bits = value.to_bits();
    let sticky = u64::from(bits & CUT != 0) << 29;
    f64::from_bits((bits & !CUT) | sticky) as f32
}

fn to_fp16(from: &[f32], to: &mut [u16]) {
    bytemuck::cast_slice_mut::<u16, f16>(to).convert_from_f32_slice(from);
}

fn from_fp16(from: &[u16], to: &mut [f32]) {
    bytemuck::cast_slice::<u16, f16>(from).convert_to_f32_slice(to);
}

/// bfloat16 is the upper half of an f32, so rounding is one addition. Written without branches: the compiler
/// makes vectors of it.
fn to_bf16(from: &[f32], to: &mut [u16]) {
    for (to, from) in to.iter_mut().zip(from) {
        let bits = from.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
        // Rounding could carry a NaN into infinity: set its quiet bit instead.
        let kept = if from.is_nan() { bits | 0x0040_0000 } else { rounded };
        *to = (kept >> 16) as u16;
    }
}

fn from_bf16(from: &[u16], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = f32::from_bits(u32::from(*from) << 16));
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use starlings_core::Rng;

    fn encode(values: &[f64], narrow: fn(&[f32], &mut [u16])) -> Vec<u16> {
        let mut out = Vec::new();
        encode_f64(values, &mut out, narrow);
        out.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)).collect()
    }

    #[test]
    fn f64_is_rounded_once() {
        // Just above the tie between 1 and its fp16 successor 1 + 2^-10: f32 would fall onto the tie.
        let above_tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(encode(&[above_tie], to_fp16), [0x3c01]);
        assert_eq!(encode(&[1.0 + 2f64.powi(-11)], to_fp16), [0x3c00]);
        let above_tie = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(encode(&[above_tie], to_bf16), [0x3f81]);
        assert_eq!(encode(&[1.0 + 2f64.powi(-8)], to_bf16), [0x3f80]);
    }

    #[test]
    fn fp16_agrees_with_the_nearest_of_all_its_numbers() {
        // Its finite positive numbers are the bit patterns below infinity, in order.
        let all: Vec<f64> = (0..0x7c00).map(|bits| f16::from_bits(bits).to_f64()).collect();
        let mut rng = Rng::named(1, "half", &[]);
        for _ in 0..2_000 {
            let value = rng.uniform() * 2f64.powf(rng.uniform() * 43.9 - 28.0);
            let upper = all.partition_point(|&number| number < value).clamp(1, all.len() - 1);
            let nearest =
                if value - all[upper - 1] < all[upper] - value { upper - 1 } else { upper };
            assert_eq!(encode(&[value], to_fp16), [nearest as u16], "{value:e}");
        }
    }

    #[test]
    fn bf16_agrees_with_the_half_crate_on_every_exponent() {
        let mut rng = Rng::named(2, "half", &[]);
        let some = (0..20_000).map(|_| f32::from_bits(rng.next_u64() as u32));
        let special = [0.0, -0.0, f32::INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE, 1e-45];
        let values: Vec<f32> = some.chain(special).collect();
        let mut bits = vec![0; values.len()];
        to_bf16(&values, &mut bits);
        for (value, bits) in values.iter().zip(bits) {
            assert_eq!(bits, bf16::from_f32(*value).to_bits(), "{value:e}");
        }
    }

    #[test]
    fn fp16_overflows_to_infinity_where_bf16_does_not() {
        assert_eq!(
            encode(&[65_519.0, 65_520.0, -1e9, 1e300], to_fp16),
            [0x7bff, 0x7c00, 0xfc00, 0x7c00]
        );
        assert!(
            encode(&[65_520.0, -1e9], to_bf16)
                .iter()
                .all(|bits| bf16::from_bits(*bits).is_finite())
        );
    }
}
