//! Sorting by sums: the bits of an f32, put in the order of the numbers, are a key below 2³². Blocks of rows with
//! such keys fold to their sorted union, so that a flock sorts values without moving a row.

use crate::columns;
use starlings_core::{Rows, Values};
use starlings_data::Batch;

/// Bits by which rows are counted when values must come in ranges.
const PREFIX_BITS: u32 = 16;

/// A number whose order as an integer is the order of finite floats; zeros are equal.
pub(super) fn key(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The float of a key.
pub(super) fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// Σw and Σwy of each value whose key is in a range, in order. Rows of weight zero are not there.
pub(super) fn sums(batch: &Batch<'_>, feature: usize, (from, to): (u32, u32)) -> Rows {
    let table = batch.table;
    // Keys and rows in one word, so that sorting moves one number and keeps the order of rows.
    let mut order: Vec<u64> = Vec::with_capacity(batch.len());
    for row in batch.rows().filter(|&row| table.weight(row) > 0.0) {
        let key = key(columns::number_at(table, row, feature));
        if (from..to).contains(&key) {
            order.push(u64::from(key) << 32 | row as u64);
        }
    }
    order.sort_unstable();
    let (mut index, mut values) = (Vec::new(), Vec::new());
    for equal in order.chunk_by(|a, b| a >> 32 == b >> 32) {
        let (mut weights, mut labels) = (0.0, 0.0);
        for row in equal.iter().map(|word| *word as u32 as usize) {
            let weight = table.weight(row);
            weights += weight;
            labels += weight * f64::from(table.labels[row]);
        }
        index.push((equal[0] >> 32) as u32);
        values.extend([weights, labels]);
    }
    Rows { total: u32::MAX, width: 2, index, values: Values::F64(values) }
}

/// How many rows have values with each prefix.
pub(super) fn count_prefixes(batch: &Batch<'_>, feature: usize) -> Vec<i64> {
    let mut counts = vec![0; 1 << PREFIX_BITS];
    for row in batch.rows().filter(|&row| batch.table.weight(row) > 0.0) {
        let key = key(columns::number_at(batch.table, row, feature));
        counts[(key >> (32 - PREFIX_BITS)) as usize] += 1;
    }
    counts
}

/// Where ranges end, so that each has at most `most` rows or is a single prefix, which has at most 2¹⁶ values.
pub(super) fn cut(counts: &[i64], most: u64) -> Vec<i64> {
    let (mut ends, mut rows) = (Vec::new(), 0);
    for (prefix, &count) in counts.iter().enumerate() {
        if rows > 0 && rows + count as u64 > most {
            ends.push((prefix as i64) << (32 - PREFIX_BITS));
            rows = 0;
        }
        rows += count as u64;
    }
    ends.push(i64::from(u32::MAX));
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_floats_and_come_back() {
        let sorted = [f32::MIN, -2.5, -1e-30, 0.0, 1e-40, 0.7, 3.0, f32::MAX];
        assert!(sorted.windows(2).all(|pair| key(pair[0]) < key(pair[1])));
        assert!(sorted.iter().all(|&x| value(key(x)) == x && key(x) < u32::MAX));
        assert_eq!(key(-0.0), key(0.0));
    }

    #[test]
    fn ranges_hold_no_more_rows_than_allowed() {
        let mut counts = vec![0; 1 << PREFIX_BITS];
        for (prefix, rows) in [(3, 5), (4, 4), (9, 20), (10, 1), (65_535, 2)] {
            counts[prefix] = rows;
        }
        let ends = cut(&counts, 10);
        assert_eq!(ends, [9 << 16, 10 << 16, i64::from(u32::MAX)]);
        assert_eq!(cut(&counts, 100).len(), 1);
    }
}
