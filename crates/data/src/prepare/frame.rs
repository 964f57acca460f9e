//! Some rows as columns, on their way through the steps of a preparation.

use super::Kind;
use crate::chunk::Chunk;
use crate::{Column, ColumnKind, Features};

/// The name of the one block that rows of numbers without columns are.
pub(crate) const BLOCK: &str = "features";

/// Some rows as columns.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<Series>,
}

/// One column.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) cells: Cells,
    /// The step that made it, and of which of its inputs.
    pub(crate) maker: Option<(usize, usize)>,
}

/// The values of a column.
#[derive(Clone, Debug)]
pub enum Cells {
    /// Numbers; NaN is missing.
    Numbers(Vec<f32>),
    /// Texts, as codes; `None` is missing.
    Texts {
        /// The code of each row.
        codes: Vec<Option<u32>>,
        /// The text of each code.
        texts: Vec<String>,
    },
    /// Many features at once.
    Block(Features),
}

impl Cells {
    /// What they are.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Cells::Numbers(_) => Kind::Numbers,
            Cells::Texts { .. } => Kind::Texts,
            Cells::Block(_) => Kind::Block,
        }
    }

    /// Categories of any column but a block: a number's category is how it is written.
    pub(crate) fn categories(&self) -> Option<(Vec<Option<u32>>, Vec<String>)> {
        match self {
            Cells::Block(_) => None,
            Cells::Texts { codes, texts } => Some((codes.clone(), texts.clone())),
            Cells::Numbers(values) => {
                let mut known = crate::chunk::Dictionary::default();
                let code = |value: &f32| match value.is_nan() {
                    true => None,
                    // 0 and -0 are one number.
                    false => known.code(&(value + 0.0).to_string()).ok(),
                };
                let codes = values.iter().map(code).collect();
                Some((codes, known.texts().to_vec()))
            }
        }
    }
}

impl Series {
    pub(crate) fn new(name: impl Into<String>, cells: Cells) -> Series {
        Series { name: name.into(), cells, maker: None }
    }

    /// The column, leaving an empty one behind.
    pub(crate) fn take(&mut self) -> Series {
        let cells = std::mem::replace(&mut self.cells, Cells::Numbers(Vec::new()));
        Series { name: self.name.clone(), cells, maker: self.maker }
    }
}

impl Frame {
    /// No rows of these columns of a file.
    pub(crate) fn empty(raw: &[Column]) -> Frame {
        let cells = |column: &Column| match column.kind {
            ColumnKind::Numeric { .. } => Cells::Numbers(vec![]),
            ColumnKind::Categorical { .. } => Cells::Texts { codes: vec![], texts: vec![] },
        };
        let columns = match raw.is_empty() {
            true => {
                let nothing = Features::Dense { width: 0, values: vec![] };
                vec![Series::new(BLOCK, Cells::Block(nothing))]
            }
            false => raw.iter().map(|it| Series::new(&it.name, cells(it))).collect(),
        };
        Frame { rows: 0, columns }
    }

    /// The rows of a chunk, whose features are taken.
    pub(crate) fn of_chunk(chunk: &mut Chunk, raw: &[Column]) -> Frame {
        let nothing = Features::Dense { width: 0, values: vec![] };
        let features = std::mem::replace(&mut chunk.features, nothing);
        let (rows, slots) = (chunk.rows, &chunk.texts);
        let values = match features {
            Features::Dense { values, .. } if !raw.is_empty() => values,
            block => {
                let columns = vec![Series::new(BLOCK, Cells::Block(block))];
                return Frame { rows, columns };
            }
        };
        let texts = |slot: usize| {
            slots.get(slot).and_then(Option::as_ref).map(|texts| texts.texts().to_vec())
        };
        Frame::of_rows(rows, &values, (raw, &texts))
    }

    /// Rows of numbers and of codes, of which `texts` has the meanings by column; NaN is missing.
    pub(crate) fn of_rows(
        rows: usize,
        values: &[f32],
        (raw, texts): (&[Column], &dyn Fn(usize) -> Option<Vec<String>>),
    ) -> Frame {
        let column = |(slot, column): (usize, &Column)| {
            let values = values.iter().skip(slot).step_by(raw.len());
            let cells = match texts(slot) {
                None => Cells::Numbers(values.copied().collect()),
                Some(texts) => Cells::Texts {
                    codes: values.map(|it| (!it.is_nan()).then_some(*it as u32)).collect(),
                    texts,
                },
            };
            Series::new(&column.name, cells)
        };
        Frame { rows, columns: raw.iter().enumerate().map(column).collect() }
    }
}

/// Sparse rows, made row by row.
#[derive(Debug)]
pub(crate) struct SparseRows {
    width: usize,
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl SparseRows {
    pub(crate) fn new(width: usize) -> SparseRows {
        SparseRows { width, starts: vec![0], columns: vec![], values: vec![] }
    }

    /// Adds a row; columns increase.
    pub(crate) fn push(&mut self, entries: impl IntoIterator<Item = (u32, f32)>) {
        for (column, value) in entries {
            self.columns.push(column);
            self.values.push(value);
        }
        self.starts.push(self.columns.len());
    }

    pub(crate) fn finish(self) -> Cells {
        let SparseRows { width, starts, columns, values } = self;
        Cells::Block(Features::Sparse { width, starts, columns, values })
    }
}
