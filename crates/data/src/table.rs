//! The rows as a worker holds them: features as f32 (dense, row after row, or compressed sparse rows) and
//! labels beside them. Read-only once loaded, so that all threads of a process share one table.

/// The features of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Features {
    /// `width` numbers a row, row after row. A missing number is NaN until it is filled.
    Dense {
        /// Numbers in a row.
        width: usize,
        /// All numbers.
        values: Vec<f32>,
    },
    /// Compressed sparse rows: row r has the entries `starts[r]..starts[r + 1]`.
    Sparse {
        /// Columns of the whole matrix.
        width: usize,
        /// Where each row starts; one longer than the number of rows.
        starts: Vec<usize>,
        /// The column of each entry, increasing within a row.
        columns: Vec<u32>,
        /// The value of each entry.
        values: Vec<f32>,
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

/// Features and labels of the rows that a worker holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// The features.
    pub features: Features,
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
        Table { features, labels, weights: Vec::new(), groups: Vec::new() }
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
