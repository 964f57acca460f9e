//! Points that travel: rows of the data as blocks of rows whose row number is the global number of the row.
//! Workers hold different rows, so that the fold of their blocks is the union.

use starlings_core::{Kind, Rows, Values};
use starlings_data::{Row, Slice, Table};
use std::collections::BTreeMap;

/// Points by the global number of their row.
#[derive(Default)]
pub(in crate::learners) struct Points {
    points: BTreeMap<u32, Vec<f64>>,
}

impl Points {
    /// Adds a row of a table, with `prefix` before its features.
    pub(in crate::learners) fn add(
        &mut self,
        slice: &Slice,
        table: &Table,
        row: usize,
        prefix: &[f64],
    ) {
        let mut numbers = prefix.to_vec();
        match table.row(row) {
            Row::Dense(values) => numbers.extend(values.iter().map(|&x| f64::from(x))),
            Row::Sparse(columns, values) => {
                numbers.resize(prefix.len() + table.width(), 0.0);
                for (&column, &value) in columns.iter().zip(values) {
                    numbers[prefix.len() + column as usize] = f64::from(value);
                }
            }
        }
        let number = u32::try_from(global(slice, row)).expect("init refuses more rows than this");
        self.points.insert(number, numbers);
    }

    /// As rows of a table of `total` rows and `width` numbers a row.
    pub(in crate::learners) fn into_rows(self, total: i64, width: usize) -> Rows {
        let total = u32::try_from(total).expect("init refuses more rows than this");
        let mut rows = Rows::none(Kind::F64, total, width as u32);
        let mut values = Vec::with_capacity(self.points.len() * width);
        for (number, point) in self.points {
            rows.index.push(number);
            values.extend(point);
        }
        rows.values = Values::F64(values);
        rows
    }
}

/// The global number of a row of a slice, given its number in the table.
pub(in crate::learners) fn global(slice: &Slice, row: usize) -> u64 {
    slice.origin + (row - slice.start) as u64
}
