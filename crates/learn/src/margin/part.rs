//! The rows of one shard as margin learners see them: those of the table, or those that a feature map made of them.

use crate::rows::{add_row, product};
use starlings_core::Shard;
use starlings_data::{Batch, Picked, Row, Slice, Table};

/// All rows of one shard.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) shard: Shard,
    table: &'a Table,
    start: usize,
    len: usize,
    mapped: Option<(&'a [f32], usize)>,
}

impl<'a> Part<'a> {
    /// The rows of the table.
    pub(crate) fn of(batch: &Batch<'a>, slice: &Slice) -> Part<'a> {
        assert!(matches!(slice.picked, Picked::All(_)), "margin learners pass over all rows");
        let (start, len) = (slice.start, slice.len());
        Part { shard: slice.shard, table: batch.table, start, len, mapped: None }
    }

    /// The same rows and labels with mapped features, `width` numbers a row.
    pub(crate) fn mapped(self, values: &'a [f32], width: usize) -> Part<'a> {
        Part { mapped: Some((values, width)), ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether rows are held sparse.
    pub(crate) fn is_sparse(&self) -> bool {
        self.mapped.is_none() && self.table.dense_rows(0, 0).is_none()
    }

    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> Row<'a> {
        match self.mapped {
            Some((values, width)) => Row::Dense(&values[row * width..(row + 1) * width]),
            None => self.table.row(self.start + row),
        }
    }

    #[inline(always)]
    pub(crate) fn class(&self, row: usize) -> usize {
        self.table.labels[self.start + row] as usize
    }

    #[inline(always)]
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.table.weight(self.start + row)
    }

    /// Adds a multiple of a row.
    #[inline(always)]
    pub(crate) fn add(&self, row: usize, by: f64, into: &mut [f64]) {
        add_row(self.row(row), by, into);
    }

    /// Adds a multiple of a row's squares.
    pub(crate) fn add_squares(&self, row: usize, by: f64, into: &mut [f64]) {
        match self.row(row) {
            Row::Dense(x) => {
                let squares = x.iter().map(|&x| by * f64::from(x).powi(2));
                into.iter_mut().zip(squares).for_each(|(into, square)| *into += square);
            }
            Row::Sparse(columns, x) => {
                for (&column, &x) in columns.iter().zip(x) {
                    into[column as usize] += by * f64::from(x).powi(2);
                }
            }
        }
    }

    /// The product of a row with weights.
    #[inline(always)]
    pub(crate) fn product(&self, row: usize, weights: &[f64]) -> f64 {
        product(self.row(row), weights)
    }
}
