//! No compression: numbers travel as they lie in memory, little-endian, so that encoding is a copy, or none
//! at all (see [`Codec::borrow`]). The yardstick of all other codecs.

use super::BuildCodec;
use crate::{Codec, Into, Law, Malformed, Scheme};
use starlings_core::{Ability, Entry, Kind, Values};
use std::ops::Range;

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "raw",
    summary: "Numbers travel as they are",
    reference: "IEEE 754-2019: binary32 and binary64, little-endian",
    params: &[],
    gives: &[Ability::Lossless, Ability::Summable, Ability::Elementwise, Ability::OneWay],
    needs: &[],
    build: |_| Ok(Scheme::Numbers(Box::new(Raw))),
};

// The bytes in memory are the bytes on the wire. A big-endian machine would have to swap them.
const _: () = assert!(cfg!(target_endian = "little"), "the wire is little-endian");

struct Raw;

impl Codec for Raw {
    fn law(&self) -> Law {
        Law::Exact
    }

    fn encoded_len(&self, kind: Kind, len: usize) -> usize {
        len.saturating_mul(kind.bytes())
    }

    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(memory(values, from, to));
    }

    fn borrow<'a>(&self, values: &'a Values, from: usize, to: usize) -> Option<&'a [u8]> {
        Some(memory(values, from, to))
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: Range<usize>,
        how: Into,
    ) -> Result<(), Malformed> {
        decode(bytes, values, range, how)
    }

    /// In one pass, where a copy and a sum would be two.
    fn decode_beside(
        &self,
        bytes: &[u8],
        base: &Values,
        values: &mut Values,
        range: Range<usize>,
    ) -> Result<(), Malformed> {
        if bytes.len() != range.len().saturating_mul(values.kind().bytes()) {
            return Err(Malformed(LENGTH));
        }
        match (values, base) {
            (Values::F32(into), Values::F32(base)) => {
                let theirs =
                    bytes.as_chunks::<4>().0.iter().map(|group| f32::from_le_bytes(*group));
                put_sums(&mut into[range.clone()], &base[range], theirs, |a, b| a + b);
            }
            (Values::F64(into), Values::F64(base)) => {
                let theirs =
                    bytes.as_chunks::<8>().0.iter().map(|group| f64::from_le_bytes(*group));
                put_sums(&mut into[range.clone()], &base[range], theirs, |a, b| a + b);
            }
            (Values::I64(into), Values::I64(base)) => {
                let theirs =
                    bytes.as_chunks::<8>().0.iter().map(|group| i64::from_le_bytes(*group));
                put_sums(&mut into[range.clone()], &base[range], theirs, i64::wrapping_add);
            }
            _ => unreachable!("base is of the kind of what is summed"),
        }
        Ok(())
    }
}

const LENGTH: &str = "the bytes are not as many as the numbers need";

fn put_sums<T: Copy>(
    into: &mut [T],
    base: &[T],
    theirs: impl Iterator<Item = T>,
    add: impl Fn(T, T) -> T,
) {
    into.iter_mut().zip(base).zip(theirs).for_each(|((a, b), c)| *a = add(*b, c));
}

/// The bytes of `values[from..to]` in memory.
pub(super) fn memory(values: &Values, from: usize, to: usize) -> &[u8] {
    match values {
        Values::F32(inner) => bytemuck::cast_slice(&inner[from..to]),
        Values::F64(inner) => bytemuck::cast_slice(&inner[from..to]),
        Values::I64(inner) => bytemuck::cast_slice(&inner[from..to]),
    }
}

/// Adds or puts the bytes of numbers of the same kind onto `values[range]`.
pub(super) fn decode(
    bytes: &[u8],
    values: &mut Values,
    range: Range<usize>,
    how: Into,
) -> Result<(), Malformed> {
    if bytes.len() != range.len().saturating_mul(values.kind().bytes()) {
        return Err(Malformed(LENGTH));
    }
    match (values, how) {
        (Values::F32(inner), Into::Add) => add_f32(&mut inner[range], bytes),
        (Values::F64(inner), Into::Add) => add_f64(&mut inner[range], bytes),
        (Values::I64(inner), Into::Add) => add_i64(&mut inner[range], bytes),
        (Values::F32(inner), Into::Put) => put(&mut inner[range], bytes),
        (Values::F64(inner), Into::Put) => put(&mut inner[range], bytes),
        (Values::I64(inner), Into::Put) => put(&mut inner[range], bytes),
    }
    Ok(())
}

fn put<T: bytemuck::Pod>(into: &mut [T], bytes: &[u8]) {
    bytemuck::cast_slice_mut(into).copy_from_slice(bytes);
}

// Frames put their payload at any address, so numbers are read from byte groups: the compiler makes
// unaligned vector loads of it.

fn add_f32(into: &mut [f32], bytes: &[u8]) {
    let (groups, _) = bytes.as_chunks::<4>();
    into.iter_mut().zip(groups).for_each(|(a, b)| *a += f32::from_le_bytes(*b));
}

fn add_f64(into: &mut [f64], bytes: &[u8]) {
    let (groups, _) = bytes.as_chunks::<8>();
    into.iter_mut().zip(groups).for_each(|(a, b)| *a += f64::from_le_bytes(*b));
}

/// Wraps on overflow, as blocks do when they are folded.
fn add_i64(into: &mut [i64], bytes: &[u8]) {
    let (groups, _) = bytes.as_chunks::<8>();
    into.iter_mut().zip(groups).for_each(|(a, b)| *a = a.wrapping_add(i64::from_le_bytes(*b)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_is_little_endian() {
        let mut out = Vec::new();
        Raw.encode(&Values::I64(vec![7, 0x0102]), 1, 2, &mut out);
        assert_eq!(out, [2, 1, 0, 0, 0, 0, 0, 0]);
        out.clear();
        Raw.encode(&Values::F32(vec![1.0]), 0, 1, &mut out);
        assert_eq!(out, [0, 0, 0x80, 0x3f]);
    }

    #[test]
    fn unaligned_bytes_are_added_onto_the_range_alone() {
        let mut frame = vec![0xff];
        Raw.encode(&Values::F64(vec![1.5, -2.0]), 0, 2, &mut frame);
        let mut values = Values::F64(vec![10.0; 4]);
        Raw.decode(&frame[1..], &mut values, 1..3, Into::Add).unwrap();
        assert_eq!(values, Values::F64(vec![10.0, 11.5, 8.0, 10.0]));
    }
}
