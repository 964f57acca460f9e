//! The rows of a batch as bytes: the bin of every feature, row after row, so that a row of up to 64 features is one
//! cache line; and once more column after column, which is how a split reads them.

use super::columns::Columns;
use crate::kernels::prefetch::prefetch;
use starlings_core::Shard;
use starlings_data::{Batch, Row, Table};

/// Rows that are binned at a time, so that both layouts are written while they are in the cache.
const BLOCK: usize = 256;

/// Where a shard's rows stand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Segment {
    /// The shard.
    pub(crate) shard: Shard,
    /// Its first row in the store.
    pub(crate) first: usize,
    /// Its first row in the batch's table.
    pub(crate) start: usize,
    /// The global number of its first row.
    pub(crate) origin: u64,
    /// How many rows.
    pub(crate) len: usize,
}

/// Binned rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Store {
    width: usize,
    rows: usize,
    by_row: Vec<u8>,
    by_column: Vec<u8>,
}

/// The segments of a batch.
pub(crate) fn segments(batch: &Batch<'_>) -> Vec<Segment> {
    let mut first = 0;
    let segment = |slice: &starlings_data::Slice| {
        let (shard, start, origin, len) = (slice.shard, slice.start, slice.origin, slice.len());
        let segment = Segment { shard, first, start, origin, len };
        first += len;
        segment
    };
    batch.slices.iter().map(segment).collect()
}

/// Calls with every row of a batch as a number in the store and its global number.
pub(crate) fn each_row(segments: &[Segment], mut each: impl FnMut(usize, u64)) {
    for segment in segments {
        for at in 0..segment.len {
            each(segment.first + at, segment.origin + at as u64);
        }
    }
}

impl Store {
    /// The bins of a batch's rows.
    pub(crate) fn new(columns: &Columns, table: &Table, segments: &[Segment]) -> Store {
        let rows = segments.iter().map(|segment| segment.len).sum();
        let width = columns.len();
        let mut store =
            Store { width, rows, by_row: vec![0; rows * width], by_column: vec![0; rows * width] };
        if width == 0 {
            return store;
        }
        let absent: Vec<u8> = (0..width).map(|feature| columns.bin(feature, 0.0)).collect();
        for segment in segments {
            for from in (0..segment.len).step_by(BLOCK) {
                let len = BLOCK.min(segment.len - from);
                let rows = (segment.first + from, segment.start + from);
                store.fill(columns, (table, &absent), rows, len);
            }
        }
        store
    }

    fn fill(
        &mut self,
        columns: &Columns,
        (table, absent): (&Table, &[u8]),
        (first, start): (usize, usize),
        len: usize,
    ) {
        let width = self.width;
        let block = &mut self.by_row[first * width..(first + len) * width];
        for (row, bins) in block.chunks_exact_mut(width).enumerate() {
            match table.row(start + row) {
                Row::Dense(values) => {
                    for (feature, (bin, &value)) in bins.iter_mut().zip(values).enumerate() {
                        *bin = columns.bin(feature, value);
                    }
                }
                Row::Sparse(entries, values) => {
                    bins.copy_from_slice(absent);
                    for (&feature, &value) in entries.iter().zip(values) {
                        bins[feature as usize] = columns.bin(feature as usize, value);
                    }
                }
            }
        }
        for feature in 0..width {
            let into = &mut self.by_column[feature * self.rows + first..][..len];
            into.iter_mut().zip(block[feature..].iter().step_by(width)).for_each(|(a, b)| *a = *b);
        }
    }

    /// Of bins that are already known, row after row.
    pub(crate) fn from_rows(width: usize, rows: usize, by_row: Vec<u8>) -> Store {
        let mut by_column = vec![0; by_row.len()];
        for (row, bins) in by_row.chunks_exact(width.max(1)).enumerate() {
            for (feature, &bin) in bins.iter().enumerate() {
                by_column[feature * rows + row] = bin;
            }
        }
        Store { width, rows, by_row, by_column }
    }

    /// How many rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Asks for a row that will be read soon.
    #[inline]
    pub(crate) fn prefetch(&self, row: usize) {
        prefetch(&self.by_row, row * self.width);
        prefetch(&self.by_row, (row + 1) * self.width - 1);
    }

    /// The bins of one row.
    pub(crate) fn row(&self, row: usize) -> &[u8] {
        &self.by_row[row * self.width..(row + 1) * self.width]
    }

    /// The bins of one feature.
    pub(crate) fn column(&self, feature: usize) -> &[u8] {
        &self.by_column[feature * self.rows..(feature + 1) * self.rows]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_data::{Dealer, Features, Holding};
    use std::sync::Arc;

    #[test]
    fn dense_and_sparse_rows_have_the_same_bins_in_both_layouts() {
        let values = vec![0.0, 2.0, 5.0, 0.0, -1.0, f32::NAN, 0.0, 0.0];
        let sparse = Features::Sparse {
            width: 2,
            starts: vec![0, 1, 2, 4, 4],
            columns: vec![1, 0, 0, 1],
            values: vec![2.0, 5.0, -1.0, f32::NAN],
        };
        let mut columns = Columns::new();
        columns.push(&[-1.0, 0.0, 0.0, 5.0], false, 255);
        columns.push(&[0.0, 0.0, 2.0], false, 255);
        let store = |features| {
            let table = Arc::new(Table::new(features, vec![0.0; 4]));
            let dealer = Dealer::new(Holding::whole(table.clone(), 2), 0, 1);
            Store::new(&columns, &table, &segments(&dealer.everything()))
        };
        let dense = store(Features::Dense { width: 2, values });
        assert_eq!(dense, store(sparse));
        assert_eq!(dense.column(0), [2, 3, 1, 2]);
        assert_eq!(dense.column(1), [2, 1, 0, 1]);
        assert_eq!(dense.row(2), [1, 0]);
    }
}
