//! Numbers that are not zero, and where they are: exact, for any kind. The way [`Way::Sparse`](crate::Way) of the
//! `auto` codec: a gradient over few words, or a ReLU network's, is mostly zeros.
//!
//! On the wire: how many (u32), their places, their bits. A negative zero is a number like others, so putting
//! gives the same bits back; adding leaves a negative zero of the sum alone where adding 0 would turn it positive.

use crate::{Into, Malformed, places};
use bytemuck::Pod;
use starlings_core::Values;
use std::ops::{AddAssign, Range};

/// How many numbers of the part are not zero.
#[must_use]
pub fn nonzero(values: &Values, range: Range<usize>) -> usize {
    match values {
        Values::F32(inner) => inner[range].iter().filter(|value| value.to_bits() != 0).count(),
        Values::F64(inner) => inner[range].iter().filter(|value| value.to_bits() != 0).count(),
        Values::I64(inner) => inner[range].iter().filter(|&&value| value != 0).count(),
    }
}

/// About how many bytes an encoding has when the nonzeros are spread evenly; `width` bytes a number.
#[must_use]
pub fn typical_len(nonzero: usize, len: usize, width: usize) -> usize {
    4 + places::typical_len(nonzero, len) + nonzero.saturating_mul(width)
}

/// Appends the encoding of `values[range]`.
pub fn encode(values: &Values, range: Range<usize>, out: &mut Vec<u8>) {
    match values {
        Values::F32(inner) => encode_with(&inner[range], |value| value.to_bits() != 0, out),
        Values::F64(inner) => encode_with(&inner[range], |value| value.to_bits() != 0, out),
        Values::I64(inner) => encode_with(&inner[range], |value| value != 0, out),
    }
}

/// Decodes onto `values[range]`.
///
/// # Errors
/// When the bytes are no encoding of that many numbers; `values` are unchanged then.
pub fn decode(
    bytes: &[u8],
    values: &mut Values,
    range: Range<usize>,
    how: Into,
) -> Result<(), Malformed> {
    let len = range.len();
    let (count, rest) = bytes.split_first_chunk::<4>().ok_or(Malformed("the count is cut off"))?;
    let count = u32::from_le_bytes(*count) as usize;
    let (places, numbers) = places::decode(rest, len, count)?;
    if numbers.len() != count.saturating_mul(values.kind().bytes()) {
        return Err(Malformed("the bytes are not as many as the numbers need"));
    }
    match values {
        Values::F32(inner) => take(&mut inner[range], &places, numbers, how, f32::add_assign),
        Values::F64(inner) => take(&mut inner[range], &places, numbers, how, f64::add_assign),
        Values::I64(inner) => {
            take(&mut inner[range], &places, numbers, how, |a, b| *a = a.wrapping_add(b));
        }
    }
    Ok(())
}

fn encode_with<T: Pod>(values: &[T], travels: impl Fn(T) -> bool, out: &mut Vec<u8>) {
    assert!(u32::try_from(values.len()).is_ok(), "a part has fewer than 2^32 numbers");
    let places: Vec<u32> =
        (0..values.len() as u32).filter(|&place| travels(values[place as usize])).collect();
    out.extend_from_slice(&(places.len() as u32).to_le_bytes());
    places::encode(&places, values.len(), out);
    places
        .iter()
        .for_each(|&place| out.extend_from_slice(bytemuck::bytes_of(&values[place as usize])));
}

fn take<T: Pod>(
    into: &mut [T],
    places: &[u32],
    numbers: &[u8],
    how: Into,
    add: impl Fn(&mut T, T),
) {
    let numbers = numbers.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    let pairs = places.iter().zip(numbers);
    match how {
        Into::Add => pairs.for_each(|(&place, number)| add(&mut into[place as usize], number)),
        Into::Put => {
            into.fill(T::zeroed());
            pairs.for_each(|(&place, number)| into[place as usize] = number);
        }
    }
}
