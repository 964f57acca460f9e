//! Sums that depend on the set of contributions alone, not on the number of workers, the topology or the order.
//! The unit is the virtual shard: each shard's contribution is computed by itself, and rounded to a
//! fixed-point grid that all workers agree on before; integers then add up to the same bits in every order
//! (Demmel and Nguyen, 2015, bin floating-point sums for the same end; with a grid agreed beforehand one bin is enough).
//!
//! First the largest exponent of each bucket of numbers is agreed on (a maximum, also the same in every order).
//! Numbers of a bucket are multiples of 2^(e − b), with b = 51 bits, or fewer where more than 2,048 shards would overflow
//! 62 together: what is lost of a number is at most 2^−52 of the bucket's largest, about what f64 itself
//! loses of a sum. On the wire a number has 8 bytes, as an f64 has.

use super::scheduled::Work;
use starlings_codec::grid;
use starlings_core::{Block, Body, FoldError, Kind, Update, Values};
use std::ops::Range;

/// Numbers that share an exponent.
const BUCKET: usize = 1024;

/// The exponent of a bucket of zeros: below that of any number.
const NOTHING: i64 = i64::MIN;
/// The exponent of a bucket with a number that is not finite: above that of any other.
const BROKEN: i64 = i64::MAX;

/// The largest exponents of all buckets of some contributions. The largest of all workers' are agreed on.
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
    match grid::largest_size(values) {
        None => BROKEN,
        Some(0.0) => NOTHING,
        // Below the normal range the grid of the smallest normal number is fine enough.
        Some(largest) => ((largest.to_bits() >> 52) as i64 - 1022).max(-1021),
    }
}

/// The grid that some contributions are put on and their sum is lifted from: f64 while the sum is made, all else before and after.
pub struct OnGrid {
    peaks: Update,
    shards: u32,
    /// What the numbers of each block were before they became integers, and whether they still have to.
    blocks: Vec<(Kind, bool)>,
}

/// The sum of some contributions on the agreed grid, as integers, or as the bits of floats that [`OnGrid`] makes such. `shards` is
/// how many there are in all.
///
/// # Errors
/// When the contributions have different shapes.
pub fn quantised(
    updates: Vec<Update>,
    peaks: Update,
    shards: u32,
) -> Result<(Update, OnGrid), FoldError> {
    let is_one = updates.len() == 1;
    let mut updates = updates.into_iter();
    let mut sum = updates.next().unwrap_or_default();
    let mut blocks = Vec::new();
    for (block, peaks) in sum.blocks.iter_mut().zip(&peaks.blocks) {
        let is_dense = matches!(block.body, Body::Dense(_));
        let (values, grid) = numbers_of(block, peaks, shards);
        let kind = values.kind();
        let is_later = is_one && is_dense && kind == Kind::F64;
        let floats = std::mem::replace(values, Values::I64(Vec::new()));
        *values = Values::I64(match floats {
            Values::F64(floats) if is_later => bytemuck::cast_vec(floats),
            floats => grid.settled(floats),
        });
        blocks.push((kind, is_later));
    }
    for update in updates {
        if update.blocks.len() != sum.blocks.len() {
            return Err(FoldError::Shape);
        }
        let pairs = sum.blocks.iter_mut().zip(update.blocks);
        for (((sum, block), peaks), (kind, _)) in pairs.zip(&peaks.blocks).zip(&blocks) {
            add(sum, block, (peaks, *kind), shards)?;
        }
    }
    Ok((sum, OnGrid { peaks, shards, blocks }))
}

impl OnGrid {
    fn grid(&self, block: usize) -> Grid<'_> {
        Grid { peaks: counts(&self.peaks.blocks[block]), bucket: BUCKET, shards: self.shards }
    }

    /// The sum as the contributions had it, after the work on it: floats again.
    #[must_use]
    pub fn restored(&self, mut sum: Update) -> Update {
        for (at, (kind, _)) in self.blocks.iter().enumerate() {
            let block = &mut sum.blocks[at];
            let is_dense = matches!(block.body, Body::Dense(_));
            let (values, grid) = numbers_of(block, &self.peaks.blocks[at], self.shards);
            if let Values::I64(whole) = values {
                let whole = std::mem::take(whole);
                *values = match kind {
                    Kind::F64 if is_dense => Values::F64(bytemuck::cast_vec(whole)),
                    kind => grid.lifted(whole, *kind),
                };
            }
        }
        sum
    }
}

impl Work for OnGrid {
    fn before(&self, block: usize, range: Range<usize>, values: &mut Values) {
        if let (Some((_, true)), Values::I64(bits)) = (self.blocks.get(block), values) {
            self.grid(block).settle(bits, range);
        }
    }

    fn after(&self, block: usize, range: Range<usize>, values: &mut Values) {
        if let (Some((Kind::F64, _)), Values::I64(whole)) = (self.blocks.get(block), values) {
            self.grid(block).lift(whole, range);
        }
    }
}

/// Adds a block to one that is on the grid already.
fn add(
    sum: &mut Block,
    mut block: Block,
    (peaks, kind): (&Block, Kind),
    shards: u32,
) -> Result<(), FoldError> {
    if sum.name != block.name {
        return Err(FoldError::Shape);
    }
    let (values, grid) = numbers_of(&mut block, peaks, shards);
    if values.kind() != kind {
        return Err(FoldError::Kind);
    }
    let floats = std::mem::replace(values, Values::I64(Vec::new()));
    match (&mut sum.body, &mut block.body) {
        (Body::Dense(Values::I64(sums)), Body::Dense(_)) if sums.len() == floats.len() => {
            grid.settle_onto(sums, floats);
            Ok(())
        }
        (Body::Rows(sums), Body::Rows(rows)) => {
            rows.values = Values::I64(grid.settled(floats));
            sums.fold(rows)
        }
        _ => Err(FoldError::Shape),
    }
}

/// The numbers of a block, and the grid that they belong on.
fn numbers_of<'a, 'b>(
    block: &'a mut Block,
    peaks: &'b Block,
    shards: u32,
) -> (&'a mut Values, Grid<'b>) {
    let peaks = counts(peaks);
    match &mut block.body {
        Body::Dense(values) => (values, Grid { peaks, bucket: BUCKET, shards }),
        Body::Rows(rows) => (&mut rows.values, Grid { peaks, bucket: usize::MAX, shards }),
        Body::Factors(_) => unreachable!("nobody asks for factors here"),
    }
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

/// Which multiples of which powers of two the numbers of a block become.
struct Grid<'a> {
    peaks: &'a [i64],
    bucket: usize,
    shards: u32,
}

impl Grid<'_> {
    /// The buckets that hold some of these numbers, and which of them: each with how far its numbers are shifted up; `None` where
    /// they are all zero or one of them is not finite.
    fn buckets(
        &self,
        numbers: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>, Option<i64>)> {
        let bucket = self.bucket.min(numbers.end.max(1));
        (numbers.start / bucket..numbers.end.div_ceil(bucket)).map(move |at| {
            let from = numbers.start.max(at * bucket);
            let peak = self.peaks.get(at).filter(|peak| !matches!(**peak, NOTHING | BROKEN));
            let shift = peak.map(|&peak| shift(peak, self.shards));
            (at, from..numbers.end.min((at + 1) * bucket), shift)
        })
    }

    /// Numbers as multiples. f64 change where they lie.
    fn settled(&self, values: Values) -> Vec<i64> {
        let mut bits: Vec<i64> = match values {
            Values::I64(whole) => return whole,
            Values::F64(values) => bytemuck::cast_vec(values),
            Values::F32(values) => {
                values.iter().map(|&value| f64::from(value).to_bits() as i64).collect()
            }
        };
        let all = 0..bits.len();
        self.settle(&mut bits, all);
        bits
    }

    /// The bits of f64 as multiples.
    fn settle(&self, bits: &mut [i64], range: Range<usize>) {
        for (_, range, shift) in self.buckets(range) {
            let bits = &mut bits[range];
            let Some(shift) = shift else {
                bits.fill(0);
                continue;
            };
            let (first, second) = scales(shift);
            if second != 1.0 {
                times(bits, second);
            }
            grid::settle(bits, first);
        }
    }

    /// Adds numbers as multiples to multiples.
    fn settle_onto(&self, sums: &mut [i64], values: Values) {
        match values {
            Values::F64(values) => {
                for (_, range, shift) in self.buckets(0..sums.len()) {
                    let (sums, values) = (&mut sums[range.clone()], &values[range]);
                    match shift.map(scales) {
                        None => {}
                        Some((scale, 1.0)) => grid::settle_onto(sums, values, scale),
                        Some((first, second)) => {
                            let values: Vec<f64> = values.iter().map(|x| x * second).collect();
                            grid::settle_onto(sums, &values, first);
                        }
                    }
                }
            }
            others => {
                let whole = self.settled(others);
                let pairs = sums.iter_mut().zip(whole);
                pairs.for_each(|(sum, whole)| *sum = sum.wrapping_add(whole));
            }
        }
    }

    /// Multiples as the numbers they were made from.
    fn lifted(&self, mut whole: Vec<i64>, kind: Kind) -> Values {
        if kind == Kind::I64 {
            return Values::I64(whole);
        }
        let all = 0..whole.len();
        self.lift(&mut whole, all);
        let values: Vec<f64> = bytemuck::cast_vec(whole);
        match kind {
            Kind::F32 => Values::F32(values.into_iter().map(|value| value as f32).collect()),
            _ => Values::F64(values),
        }
    }

    /// Multiples as the bits of f64.
    fn lift(&self, whole: &mut [i64], range: Range<usize>) {
        for (at, range, shift) in self.buckets(range) {
            let whole = &mut whole[range];
            match shift {
                None if self.peaks.get(at) == Some(&BROKEN) => {
                    whole.fill(f64::NAN.to_bits() as i64);
                }
                None => whole.fill(0),
                Some(shift) => {
                    let (first, second) = scales(-shift);
                    grid::lift(whole, first);
                    if second != 1.0 {
                        times(whole, second);
                    }
                }
            }
        }
    }
}

/// The bits of f64, times a number.
fn times(bits: &mut [i64], factor: f64) {
    let product = |bits: i64| (f64::from_bits(bits as u64) * factor).to_bits() as i64;
    bits.iter_mut().for_each(|bits| *bits = product(*bits));
}

/// 2^shift as two factors: the second is one, unless one number cannot hold the product.
fn scales(shift: i64) -> (f64, f64) {
    let power = |shift: i64| f64::from_bits(((shift + 1023) as u64) << 52);
    match shift {
        -1000..=1000 => (power(shift), 1.0),
        _ => (power(shift - shift / 2), power(shift / 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scheduled::{after_all, before_all};
    use super::*;
    use starlings_core::{Rng, Rows};

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
                let Body::Dense(Values::I64(ours)) = &mut ours.body else {
                    panic!("exponents are whole numbers")
                };
                ours.iter_mut().zip(counts(theirs)).for_each(|(a, b)| *a = (*a).max(*b));
            }
        }
        let mut parts = held.into_iter().map(|held| {
            let (mut part, grid) = quantised(held, peaks.clone(), 6).unwrap();
            before_all(&grid, &mut part);
            (part, grid)
        });
        let (mut sum, grid) = parts.next().unwrap();
        parts.for_each(|(part, _)| sum.fold(&part).unwrap());
        after_all(&grid, &mut sum);
        grid.restored(sum)
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
        let (mut sum, grid) = quantised(vec![update], peaks, 1).unwrap();
        before_all(&grid, &mut sum);
        after_all(&grid, &mut sum);
        let sum = grid.restored(sum);
        assert!(sum.f64("a")[..BUCKET].iter().all(|value| value.is_nan()));
        assert!(sum.f64("a")[BUCKET..].iter().all(|&value| value == 1.0));
    }
}
