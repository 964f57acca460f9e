//! Sums that depend on the set of contributions alone, not on the number of workers, the topology or the order.
//! The unit is the virtual shard: each shard's contribution is computed by itself, and rounded to a
//! fixed-point grid that all workers agree on before; integers then add up to the same bits in every order
//! (Demmel and Nguyen, 2015, bin floating-point sums for the same end; with a grid agreed beforehand one bin is enough).
//!
//! First the largest exponent of each bucket of numbers is agreed on (a maximum, also the same in every order).
//! Numbers of a bucket are multiples of 2^(e − b), with b = 51 bits, or fewer where more than 2,048 shards would overflow
//! 62 together: what is lost of a number is at most 2^−52 of the bucket's largest, about what f64 itself
//! loses of a sum. On the wire a number has 8 bytes, as an f64 has.

use starlings_codec::{Codec, Into as Put, Law, Malformed};
use starlings_core::{Block, Body, FoldError, Kind, Rows, Update, Values};
use std::ops::Range;

/// Numbers that share an exponent.
const BUCKET: usize = 1024;

/// The exponent of a bucket of zeros: below that of any number.
const NOTHING: i64 = i64::MIN;
/// The exponent of a bucket with a number that is not finite: above that of any other.
const BROKEN: i64 = i64::MAX;

/// The largest exponents of all buckets of some contributions, to be agreed on by [`Peaks`].
///
/// # Panics
/// If there is no contribution.
#[must_use]
pub fn exponents(updates: &[Update]) -> Update {
    let first = updates.first().expect("every worker contributes");
    let mut peaks = Update::default();
    for (at, block) in first.blocks.iter().enumerate() {
        let mut largest = match &block.body {
            Body::Dense(values) if values.kind() != Kind::I64 => {
                vec![NOTHING; values.len().div_ceil(BUCKET).max(1)]
            }
            _ => vec![NOTHING],
        };
        for update in updates {
            match &update.blocks[at].body {
                Body::Dense(values) => raise(&mut largest, values),
                Body::Rows(rows) => largest[0] = largest[0].max(exponent_of(&rows.values)),
                Body::Factors(_) => unreachable!("nobody asks for factors here"),
            }
        }
        peaks.blocks.push(Block::counts(block.name.clone(), largest));
    }
    peaks
}

fn raise(largest: &mut [i64], values: &Values) {
    match values {
        Values::F64(values) => {
            for (largest, bucket) in largest.iter_mut().zip(values.chunks(BUCKET)) {
                *largest = (*largest).max(largest_exponent(bucket));
            }
        }
        Values::F32(values) => {
            for (largest, bucket) in largest.iter_mut().zip(values.chunks(BUCKET)) {
                let wide: Vec<f64> = bucket.iter().map(|&value| f64::from(value)).collect();
                *largest = (*largest).max(largest_exponent(&wide));
            }
        }
        Values::I64(_) => {}
    }
}

fn exponent_of(values: &Values) -> i64 {
    let mut largest = vec![NOTHING; values.len().div_ceil(BUCKET).max(1)];
    raise(&mut largest, values);
    largest.into_iter().max().unwrap_or(NOTHING)
}

/// The smallest e with |x| < 2^e for all of them.
fn largest_exponent(values: &[f64]) -> i64 {
    // Comparisons and sums that the compiler makes vectors of; NaN and infinity spoil the sum of zeros.
    let (mut largest, mut zeros) = ([0.0f64; 4], [0.0f64; 4]);
    for four in values.chunks(4) {
        for (lane, &value) in four.iter().enumerate() {
            let size = value.abs();
            largest[lane] = if size > largest[lane] { size } else { largest[lane] };
            zeros[lane] += value * 0.0;
        }
    }
    let finite = zeros.iter().all(|zero| *zero == 0.0);
    let largest = largest.into_iter().fold(0.0, f64::max);
    match (finite, largest) {
        (false, _) => BROKEN,
        (true, 0.0) => NOTHING,
        // Below the normal range the grid of the smallest normal number is fine enough.
        (true, largest) => ((largest.to_bits() >> 52) as i64 - 1022).max(-1021),
    }
}

/// The sum of some contributions on the agreed grid, as integers. `shards` is how many there are in all.
///
/// # Errors
/// When the contributions have different shapes.
pub fn quantised(updates: &[Update], peaks: &Update, shards: u32) -> Result<Update, FoldError> {
    let mut sum: Option<Update> = None;
    for update in updates {
        let mut whole = Update::default();
        for (block, peaks) in update.blocks.iter().zip(&peaks.blocks) {
            let peaks = counts(peaks);
            let body = match &block.body {
                Body::Dense(values) => Body::Dense(to_grid(values, peaks, BUCKET, shards)),
                Body::Rows(rows) => {
                    let values = to_grid(&rows.values, peaks, usize::MAX, shards);
                    Body::Rows(Rows { values, index: rows.index.clone(), ..*rows })
                }
                Body::Factors(_) => unreachable!("nobody asks for factors here"),
            };
            whole.blocks.push(Block { name: block.name.clone(), body });
        }
        match &mut sum {
            None => sum = Some(whole),
            Some(sum) => sum.fold(&whole)?,
        }
    }
    Ok(sum.unwrap_or_default())
}

fn counts(block: &Block) -> &[i64] {
    match &block.body {
        Body::Dense(Values::I64(counts)) => counts,
        _ => &[],
    }
}

/// How far a number of a bucket is shifted up: x · 2^shift is below 2^51, and the sum of all shards' below 2^62.
fn shift(peak: i64, shards: u32) -> i64 {
    let shards_log = i64::from(u32::BITS - (shards.max(1) - 1).leading_zeros());
    (62 - shards_log).min(51) - peak
}

/// Added to a number below 2^51 it leaves the nearest whole number, ties to even, in the last bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

fn to_grid(values: &Values, peaks: &[i64], bucket: usize, shards: u32) -> Values {
    let whole = |into: &mut Vec<i64>, from: &mut dyn Iterator<Item = f64>, peak: Option<i64>| {
        let Some(peak) = peak.filter(|peak| !matches!(*peak, NOTHING | BROKEN)) else {
            return into.extend(from.map(|_| 0));
        };
        into.extend(from.map(|value| rounded(scaled(value, shift(peak, shards)))));
    };
    let bucket = bucket.min(values.len().max(1));
    let mut into = Vec::with_capacity(values.len());
    match values {
        Values::I64(values) => return Values::I64(values.clone()),
        Values::F64(values) => {
            for (at, numbers) in values.chunks(bucket).enumerate() {
                let peak = peaks.get(at).copied();
                let usual = peak.filter(|peak| !matches!(*peak, NOTHING | BROKEN));
                match usual.and_then(|peak| scale(shift(peak, shards))) {
                    // The common case, which the compiler makes vectors of.
                    Some(scale) => {
                        into.extend(numbers.iter().map(|&value| rounded(value * scale)));
                    }
                    None => whole(&mut into, &mut numbers.iter().copied(), peak),
                }
            }
        }
        Values::F32(values) => {
            for (at, numbers) in values.chunks(bucket).enumerate() {
                let mut wide = numbers.iter().map(|&value| f64::from(value));
                whole(&mut into, &mut wide, peaks.get(at).copied());
            }
        }
    }
    Values::I64(into)
}

fn rounded(value: f64) -> i64 {
    (value + ROUNDER).to_bits() as i64 - ROUNDER.to_bits() as i64
}

/// 2^shift, where one number holds it.
fn scale(shift: i64) -> Option<f64> {
    (-1000..=1000).contains(&shift).then(|| f64::from_bits(((shift + 1023) as u64) << 52))
}

/// x · 2^shift, in two steps where one factor would leave the range.
fn scaled(value: f64, shift: i64) -> f64 {
    let half = shift / 2;
    value * 2f64.powi(half as i32) * 2f64.powi((shift - half) as i32)
}

/// The sum as the contributions had it: floats again.
#[must_use]
pub fn restored(sum: Update, peaks: &Update, like: &Update, shards: u32) -> Update {
    let mut blocks = Vec::with_capacity(sum.blocks.len());
    for ((block, peaks), like) in sum.blocks.into_iter().zip(&peaks.blocks).zip(&like.blocks) {
        let peaks = counts(peaks);
        let body = match (block.body, &like.body) {
            (Body::Dense(values), Body::Dense(like)) => {
                Body::Dense(from_grid(values, like.kind(), (peaks, BUCKET), shards))
            }
            (Body::Rows(rows), Body::Rows(like)) => {
                let peaks = (peaks, usize::MAX);
                let values = from_grid(rows.values, like.values.kind(), peaks, shards);
                Body::Rows(Rows { values, ..rows })
            }
            (body, _) => body,
        };
        blocks.push(Block { name: block.name, body });
    }
    Update { blocks }
}

fn from_grid(values: Values, kind: Kind, (peaks, bucket): (&[i64], usize), shards: u32) -> Values {
    let Values::I64(values) = values else { return values };
    if kind == Kind::I64 {
        return Values::I64(values);
    }
    let bucket = bucket.min(values.len().max(1));
    let mut into: Vec<f64> = Vec::with_capacity(values.len());
    for (at, numbers) in values.chunks(bucket).enumerate() {
        match peaks.get(at).copied() {
            None | Some(NOTHING) => into.extend(numbers.iter().map(|_| 0.0)),
            Some(BROKEN) => into.extend(numbers.iter().map(|_| f64::NAN)),
            Some(peak) => match scale(-shift(peak, shards)) {
                Some(scale) => into.extend(numbers.iter().map(|&value| value as f64 * scale)),
                None => {
                    let shift = -shift(peak, shards);
                    into.extend(numbers.iter().map(|&value| scaled(value as f64, shift)));
                }
            },
        }
    }
    match kind {
        Kind::F32 => Values::F32(into.into_iter().map(|value| value as f32).collect()),
        _ => Values::F64(into),
    }
}

/// A codec whose sum is the maximum, for agreeing on exponents by any topology that folds on the way.
pub struct Peaks;

impl Codec for Peaks {
    fn law(&self) -> Law {
        Law::Exact
    }

    fn encoded_len(&self, kind: Kind, len: usize) -> usize {
        len.saturating_mul(kind.bytes())
    }

    fn encode(&self, values: &Values, from: usize, to: usize, out: &mut Vec<u8>) {
        crate::choices::raw().encode(values, from, to, out);
    }

    fn decode(
        &self,
        bytes: &[u8],
        values: &mut Values,
        range: Range<usize>,
        how: Put,
    ) -> Result<(), Malformed> {
        let mut theirs = Values::zeros(values.kind(), range.len());
        crate::choices::raw().decode(bytes, &mut theirs, 0..range.len(), Put::Put)?;
        let (Values::I64(ours), Values::I64(theirs)) = (values, theirs) else {
            return Err(Malformed("exponents are whole numbers"));
        };
        for (ours, theirs) in ours[range].iter_mut().zip(theirs) {
            *ours = if how == Put::Add { theirs.max(*ours) } else { theirs };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn contribution(shard: u64) -> Update {
        let mut rng = Rng::named(shard, "contribution", &[]);
        let mut number = || rng.normal() * 10f64.powf(40.0 * rng.uniform() - 20.0);
        let values: Vec<f64> = (0..3000).map(|_| number()).collect();
        let index: Vec<u32> = (0..50).filter(|row| row % (shard as u32 + 2) == 0).collect();
        let rows = Values::F64(index.iter().map(|_| number()).collect());
        let rows = Rows { total: 50, width: 1, index, values: rows };
        let single = Values::F32((0..5).map(|_| number() as f32).collect());
        Update {
            blocks: vec![
                Block::dense("a", values),
                Block::rows("b", rows),
                Block { name: "c".to_string(), body: Body::Dense(single) },
                Block::counts("d", vec![shard as i64, 1]),
            ],
        }
    }

    /// Sums shards that workers hold in this way.
    fn summed(workers: &[&[u64]]) -> Update {
        let held: Vec<Vec<Update>> = workers
            .iter()
            .map(|shards| shards.iter().map(|&shard| contribution(shard)).collect())
            .collect();
        let mut peaks = exponents(&held[0]);
        for held in &held[1..] {
            let theirs = exponents(held);
            for (ours, theirs) in peaks.blocks.iter_mut().zip(&theirs.blocks) {
                let mut bytes = Vec::new();
                let (Body::Dense(ours), Body::Dense(theirs)) = (&mut ours.body, &theirs.body)
                else {
                    panic!("exponents are dense")
                };
                Peaks.encode(theirs, 0, theirs.len(), &mut bytes);
                let len = ours.len();
                Peaks.decode(&bytes, ours, 0..len, Put::Add).unwrap();
            }
        }
        let mut sum = quantised(&held[0], &peaks, 6).unwrap();
        for held in &held[1..] {
            sum.fold(&quantised(held, &peaks, 6).unwrap()).unwrap();
        }
        restored(sum, &peaks, &held[0][0], 6)
    }

    #[test]
    fn the_bits_do_not_depend_on_who_holds_what() {
        let alone = summed(&[&[0, 1, 2, 3, 4, 5]]);
        for workers in [
            &[&[5u64, 3, 1][..], &[0, 2, 4]][..],
            &[&[0], &[1], &[2], &[3], &[4], &[5]],
            &[&[4], &[1, 5, 0, 2], &[3]],
        ] {
            assert_eq!(summed(workers), alone);
        }
    }

    #[test]
    fn sums_are_those_of_f64_to_within_the_largest_numbers_last_bits() {
        let sum = summed(&[&[0, 1, 2, 3, 4, 5]]);
        let held: Vec<Update> = (0..6).map(contribution).collect();
        for (bucket, sums) in sum.f64("a").chunks(BUCKET).enumerate() {
            let at = bucket * BUCKET;
            let largest = held
                .iter()
                .flat_map(|update| &update.f64("a")[at..at + sums.len()])
                .fold(0.0f64, |largest, value| largest.max(value.abs()));
            for (offset, sum) in sums.iter().enumerate() {
                let plain: f64 = held.iter().map(|update| update.f64("a")[at + offset]).sum();
                // Six roundings of at most 2^-51 of the largest, and those of the plain sum itself.
                assert!((sum - plain).abs() <= largest * 2f64.powi(-48), "{sum:e} {plain:e}");
            }
        }
        assert_eq!(sum.i64("d"), [15, 6]);
    }

    #[test]
    fn a_number_that_is_not_finite_shows_and_spoils_only_its_bucket() {
        let mut values = vec![1.0; 2 * BUCKET];
        values[3] = f64::INFINITY;
        let update = Update { blocks: vec![Block::dense("a", values)] };
        let peaks = exponents(std::slice::from_ref(&update));
        let sum = quantised(std::slice::from_ref(&update), &peaks, 1).unwrap();
        let sum = restored(sum, &peaks, &update, 1);
        assert!(sum.f64("a")[..BUCKET].iter().all(|value| value.is_nan()));
        assert!(sum.f64("a")[BUCKET..].iter().all(|&value| value == 1.0));
    }
}
