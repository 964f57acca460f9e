//! The rows from which bins are made: all of them when there are few, else one of each stratum of consecutive rows,
//! chosen by the seed. The same rows for any number of workers, gathered in one exchange: a worker writes the bits of
//! its rows into their places of a block of zeros, and the sum has them all. Quantiles of a data set that fits the
//! sample are exact; of others they are those of the sample, as in LightGBM (Ke et al., 2017).

use super::columns::Columns;
use super::fixed;
use starlings_data::{Batch, Row, Slice, Table};

/// The most rows of a sample.
const ROWS_MAX: u64 = 65_536;
/// The most numbers of a sample: wide rows give fewer of them.
const NUMBERS_MAX: u64 = 1 << 24;
/// Fewer rows than this are no sample.
const ROWS_MIN: u64 = 1024;

/// Which rows are in the sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sample {
    rows: u64,
    count: u64,
    width: usize,
    key: u64,
}

impl Sample {
    /// The sample of `rows` rows of `width` numbers.
    pub(crate) fn new(rows: u64, width: usize, seed: u64) -> Sample {
        let most = (NUMBERS_MAX / width.max(1) as u64).clamp(ROWS_MIN, ROWS_MAX);
        Sample::of(rows, width, (rows.min(most), fixed::key(seed, "bins", &[])))
    }

    /// A sample of `count` rows.
    pub(crate) fn of(rows: u64, width: usize, (count, key): (u64, u64)) -> Sample {
        Sample { rows, count: count.min(rows), width, key }
    }

    /// How many rows it has.
    pub(crate) fn len(&self) -> usize {
        self.count as usize
    }

    /// Words of one row: whether it counts, then the bits of two numbers in each.
    pub(crate) fn words(&self) -> usize {
        1 + self.width.div_ceil(2)
    }

    /// The row at a place of the sample.
    pub(crate) fn row(&self, place: u64) -> u64 {
        let start = |place: u64| {
            (u128::from(place) * u128::from(self.rows) / u128::from(self.count)) as u64
        };
        let (from, to) = (start(place), start(place + 1));
        from + fixed::mix(self.key, place) % (to - from)
    }

    /// Places of the sample whose rows are in a slice, with their rows in the table.
    fn places(&self, slice: &Slice) -> impl Iterator<Item = (usize, usize)> + '_ {
        let (first, last) = (slice.origin, slice.origin + slice.len() as u64);
        let place = |row: u64| {
            (u128::from(row) * u128::from(self.count) / u128::from(self.rows.max(1))) as u64
        };
        let start = slice.start;
        let range = place(first).saturating_sub(1)..(place(last) + 1).min(self.count);
        range.filter_map(move |place| {
            let row = self.row(place);
            let inside = row >= first && row < last;
            inside.then(|| (place as usize, start + (row - first) as usize))
        })
    }

    /// The bits of this worker's rows, zeros elsewhere. Rows that weigh nothing are not there.
    pub(crate) fn gather(&self, batch: &Batch<'_>) -> Vec<i64> {
        let words = self.words();
        let mut block = vec![0; self.len() * words];
        for slice in &batch.slices {
            for (place, row) in self.places(slice) {
                if batch.table.weight(row) > 0.0 {
                    write(batch.table, row, &mut block[place * words..(place + 1) * words]);
                }
            }
        }
        block
    }

    /// The numbers of one feature in the rows that count, missing ones included.
    pub(crate) fn column(&self, block: &[i64], feature: usize) -> Vec<f32> {
        let number = |words: &[i64]| {
            let word = words[1 + feature / 2] as u64;
            f32::from_bits((word >> (32 * (feature % 2))) as u32)
        };
        block.chunks_exact(self.words()).filter(|words| words[0] != 0).map(number).collect()
    }

    /// The bins of all features.
    pub(crate) fn columns(&self, block: &[i64], categorical: &[bool], bins: usize) -> Columns {
        let mut columns = Columns::new();
        for (feature, &categorical) in categorical.iter().enumerate() {
            let mut values = self.column(block, feature);
            values.retain(|value| !value.is_nan());
            // Zeros of both signs are one value.
            values.iter_mut().for_each(|value| *value += 0.0);
            values.sort_unstable_by(f32::total_cmp);
            columns.push(&values, categorical, bins);
        }
        columns
    }
}

fn write(table: &Table, row: usize, words: &mut [i64]) {
    words[0] = 1;
    let mut put = |feature: usize, value: f32| {
        words[1 + feature / 2] |= i64::from(value.to_bits()) << (32 * (feature % 2));
    };
    match table.row(row) {
        Row::Dense(values) => values.iter().enumerate().for_each(|(at, &x)| put(at, x)),
        Row::Sparse(columns, values) => {
            columns.iter().zip(values).for_each(|(&at, &x)| put(at as usize, x));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Shard;
    use starlings_data::{Dealer, Features, Holding};
    use std::sync::Arc;

    #[test]
    fn shards_together_gather_every_row_of_the_sample_once() {
        let rows = 5000;
        let values: Vec<f32> = (0..rows * 3).map(|x| x as f32 - 7000.0).collect();
        let table = Arc::new(Table::new(Features::Dense { width: 3, values }, vec![]));
        let holding = Holding::whole(table, 16);
        let sample = Sample::of(rows as u64, 3, (700, 5));
        let mut sum = vec![0; sample.len() * sample.words()];
        for shard in 0..16 {
            let dealer = Dealer::new(holding.only(&[Shard(shard)]), 0, 1);
            let block = sample.gather(&dealer.everything());
            sum.iter_mut().zip(block).for_each(|(sum, word)| *sum += word);
        }
        let wanted: Vec<f32> =
            (0..700).map(|place| sample.row(place) as f32 * 3.0 + 2.0 - 7000.0).collect();
        assert_eq!(sample.column(&sum, 2), wanted);
        let all = Dealer::new(holding, 0, 1);
        assert_eq!(sample.gather(&all.everything()), sum);
    }
}
