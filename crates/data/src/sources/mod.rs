//! Where rows come from. Each source is one file here and one entry of [`SOURCES`]; it says what columns
//! there are and delivers rows in chunks. What the columns mean is not its business.

mod arrow;
pub(crate) mod builtin;
mod csv;
mod idx;
mod jsonl;
mod libsvm;
mod npy;
mod parquet;
mod passages;
mod synthetic;
mod text;

use crate::chunk::{Chunk, Mark};
use crate::input::{Input, Tally};
use crate::{DataSpec, Encoding, LabelNeed, Schema};
use starlings_core::{Entry, Result};
use std::ops::Range;

/// All sources, for `starlings list sources`, for the job file's `format` and for guessing by name.
pub const SOURCES: &[Entry<Format>] = &[
    csv::CSV,
    csv::TSV,
    libsvm::FROM_ONE,
    libsvm::FROM_ZERO,
    parquet::ENTRY,
    arrow::ENTRY,
    npy::ENTRY,
    jsonl::ENTRY,
    text::ENTRY,
    passages::ENTRY,
    idx::ENTRY,
    synthetic::ENTRY,
    builtin::ENTRY,
];

/// How files of a format are recognised and opened.
pub struct Format {
    /// Endings of file names, without the dot and without `.gz` or `.zst`.
    pub extensions: &'static [&'static str],
    /// Whether the first bytes (decompressed) look like this format.
    pub(crate) recognise: fn(&[u8]) -> bool,
    pub(crate) open: fn(Place, &DataSpec) -> Result<Box<dyn Rows>>,
}

/// Where one part of a data set is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    File(Input),
    /// Images and their labels.
    Pair(Input, Input),
    /// Features and their labels, in two arrays.
    Arrays(Input, Option<Input>),
    /// A name or address that its source understands.
    Named(String),
}

/// The rows of one part of a data set.
///
/// Law: `read` delivers consecutive rows in order, and the same rows however they are asked for.
pub(crate) trait Rows {
    /// What messages call it.
    fn name(&self) -> String;

    /// What columns there are.
    fn shape(&self) -> &Shape;

    /// Its size in bytes, by which a changed file is noticed.
    fn size(&self) -> Result<u64>;

    /// Number of rows and schema, where they are known without reading.
    fn known(&self, _encoding: Encoding, _label: LabelNeed) -> Result<Option<(u64, Schema)>> {
        Ok(None)
    }

    /// Delivers at least the rows asked for; rows beside them may come too.
    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()>;
}

/// Who takes the chunks.
pub(crate) type Sink<'a> = dyn FnMut(Chunk) -> Result<Flow> + 'a;

/// Whether the sink wants more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    More,
    Stop,
}

/// What to read.
#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) reading: &'a Reading,
    pub(crate) rows: Range<u64>,
    /// Places to start at, from an earlier read of the whole; empty in that first read.
    pub(crate) marks: &'a [Mark],
    /// Takes all bytes of the file, if its digest is wanted.
    pub(crate) tally: Option<&'a Tally>,
}

impl Request<'_> {
    /// The last mark at or before the first row wanted, and the first at or after the last.
    pub(crate) fn between(&self) -> (Option<Mark>, Option<Mark>) {
        let after_start = self.marks.partition_point(|mark| mark.row <= self.rows.start);
        let end = self.marks.partition_point(|mark| mark.row < self.rows.end);
        (after_start.checked_sub(1).map(|at| self.marks[at]), self.marks.get(end).copied())
    }
}

/// What columns a part has.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Columns with names.
    Columns {
        columns: Vec<Guess>,
        /// Whether the names are the file's own, rather than `c0`, `c1` …
        named: bool,
        /// The label column, where the source itself says which it is.
        label: Option<usize>,
    },
    /// Features with numbers; labels, if any, stand apart.
    Numbered {
        labels: bool,
        /// Sparse rows.
        sparse: bool,
        /// Features a row, where it is known before reading.
        width: Option<usize>,
    },
}

/// A column as its first rows show it.
#[derive(Clone, Debug)]
pub(crate) struct Guess {
    pub(crate) name: String,
    /// Whether it looks like numbers.
    pub(crate) numbers: bool,
}

/// What becomes of each column.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Reading {
    /// One for each column of the file; empty for numbered features.
    pub(crate) roles: Vec<Role>,
    /// The columns' names, for messages.
    pub(crate) names: Vec<String>,
    /// For each feature slot, whether it holds texts.
    pub(crate) texts: Vec<bool>,
    /// What labels become.
    pub(crate) label: LabelNeed,
    /// Whether `qid:` fields (libsvm) say the group of a row.
    pub(crate) queries: bool,
}

/// What is said of a weight that is none.
pub(crate) const NO_WEIGHT: &str = "is no weight: weights are finite numbers from 0 up";
/// What is said of a row without a group.
pub(crate) const NO_GROUP: &str = "is no group: every row needs one";

/// What becomes of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Skip,
    /// The feature of this slot.
    Feature(usize),
    Label,
    /// How much the row counts.
    Weight,
    /// Which group the row belongs to.
    Group,
}
