//! The rows as a worker holds them: features as f32 (dense, row after row, or compressed sparse rows) and
//! labels beside them. Read-only once loaded, so that all threads of a process share one table.

use crate::numbers::Numbers;
use serde::{Deserialize, Serialize};

/// The features of rows. `F` and `C` hold the numbers: vectors while rows are put together, and in a [`Table`] whatever
/// [`Numbers`] they were put into.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Features<F = Vec<f32>, C = Vec<u32>> {
    /// `width` numbers a row, row after row. A missing number is NaN until it is filled.
    Dense {
        /// Numbers in a row.
        width: usize,
        /// All numbers.
        values: F,
    },
    /// Compressed sparse rows: row r has the entries `starts[r]..starts[r + 1]`.
    Sparse {
        /// Columns of the whole matrix.
        width: usize,
        /// Where each row starts; one longer than the number of rows.
        starts: Vec<usize>,
        /// The column of each entry, increasing within a row.
        columns: C,
        /// The value of each entry.
        values: F,
    },
}

/// One row, as kernels read it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Row<'a> {
    /// All numbers.
    Dense(&'a [f32]),
    /// Columns and values of the entries that are not zero.
    Sparse(&'a [u32], &'a [f32]),
}

/// Features in memory or in a file.
pub type Stored = Features<Numbers<f32>, Numbers<u32>>;

impl From<Features> for Stored {
    fn from(features: Features) -> Stored {
        match features {
            Features::Dense { width, values } => Stored::Dense { width, values: values.into() },
            Features::Sparse { width, starts, columns, values } => {
                let (columns, values) = (columns.into(), values.into());
                Stored::Sparse { width, starts, columns, values }
            }
        }
    }
}

/// Features and labels of the rows that a worker holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// The features.
    pub features: Stored,
    /// One label a row: a class code, a number, or empty when there are none.
    pub labels: Vec<f32>,
    /// How much each row counts, finite and not negative; empty when all count one.
    pub weights: Vec<f32>,
    /// The group (query, site, session) of each row; rows of a group stand together. Empty when there are none.
    pub groups: Vec<u32>,
}

impl Table {
    /// Rows that all count one and belong to no group.
    #[must_use]
    pub fn new(features: Features, labels: Vec<f32>) -> Table {
        Table { features: features.into(), labels, weights: Vec::new(), groups: Vec::new() }
    }

    /// Whether the features lie in a file, because there was no room for them in memory.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        match &self.features {
            Features::Dense { values, .. } | Features::Sparse { values, .. } => values.is_mapped(),
        }
    }

    /// How much a row counts.
    #[must_use]
    pub fn weight(&self, row: usize) -> f64 {
        self.weights.get(row).map_or(1.0, |&weight| f64::from(weight))
    }

    /// How many rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        match &self.features {
            Features::Dense { width: 0, .. } => self.labels.len(),
            Features::Dense { width, values } => values.len() / width,
            Features::Sparse { starts, .. } => starts.len() - 1,
        }
    }

    /// How many features.
    #[must_use]
    pub fn width(&self) -> usize {
        match &self.features {
            Features::Dense { width, .. } | Features::Sparse { width, .. } => *width,
        }
    }

    /// One row.
    #[must_use]
    pub fn row(&self, row: usize) -> Row<'_> {
        match &self.features {
            Features::Dense { width, values } => {
                Row::Dense(&values[row * width..(row + 1) * width])
            }
            Features::Sparse { starts, columns, values, .. } => {
                let (from, to) = (starts[row], starts[row + 1]);
                Row::Sparse(&columns[from..to], &values[from..to])
            }
        }
    }

    /// Consecutive rows of a dense table as one slice; `None` when the table is sparse.
    #[must_use]
    pub fn dense_rows(&self, from: usize, to: usize) -> Option<&[f32]> {
        match &self.features {
            Features::Dense { width, values } => Some(&values[from * width..to * width]),
            Features::Sparse { .. } => None,
        }
    }
}
