//! Rows on their way from a source to a table: numbers, and texts as codes in the chunk's own dictionary.
//! Sources make chunks (several at a time), and the loader joins them in the order of rows.

use crate::Features;
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Codes travel as f32, which is exact for whole numbers up to here.
pub(crate) const CODES_MAX: usize = 1 << 24;

/// A place where reading can start: the row that begins at this byte of the (decompressed) file. For
/// Parquet the byte is the number of the row group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Row within the file.
    pub row: u64,
    /// Where it begins.
    pub byte: u64,
    /// Its line, from 1.
    pub line: u64,
}

/// Consecutive rows of one file.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// Row within the file of the first row.
    pub(crate) first_row: u64,
    /// How many rows.
    pub(crate) rows: usize,
    /// One value a slot; numbers, or codes into `texts`. NaN is missing.
    pub(crate) features: Features,
    /// One a row or none at all; numbers, or codes into `classes`.
    pub(crate) labels: Vec<f32>,
    /// How much each row counts; one a row or none at all.
    pub(crate) weights: Vec<f32>,
    /// The group of each row, as codes into `group_keys`; one a row or none at all.
    pub(crate) groups: Vec<u32>,
    /// The texts of groups.
    pub(crate) group_keys: Dictionary,
    /// The texts of each slot that holds texts.
    pub(crate) texts: Vec<Option<Dictionary>>,
    /// The texts of labels that are classes.
    pub(crate) classes: Option<Dictionary>,
    /// Sum and number of the values present in each slot.
    pub(crate) sums: Vec<(f64, u64)>,
    /// Places to start at; rows are counted from the chunk's first.
    pub(crate) marks: Vec<Mark>,
    /// The first text of each slot that was to hold numbers.
    pub(crate) surprises: Vec<Surprise>,
}

/// A text where a number was expected.
#[derive(Clone, Debug)]
pub(crate) struct Surprise {
    pub(crate) slot: usize,
    /// What to tell the caller if it cannot be helped.
    pub(crate) fault: Fault,
}

impl Chunk {
    /// An empty chunk; `texts` says which slots hold texts.
    pub(crate) fn dense(texts: &[bool], classes: bool) -> Chunk {
        let features = Features::Dense { width: texts.len(), values: Vec::new() };
        Chunk::new(features, texts, classes)
    }

    /// An empty chunk of rows whose features are numbers without columns.
    pub(crate) fn numbers(width: usize, classes: bool) -> Chunk {
        Chunk::new(Features::Dense { width, values: Vec::new() }, &[], classes)
    }

    /// An empty chunk of sparse rows.
    pub(crate) fn sparse(width: usize, classes: bool) -> Chunk {
        let (columns, values) = (Vec::new(), Vec::new());
        Chunk::new(Features::Sparse { width, starts: vec![0], columns, values }, &[], classes)
    }

    fn new(features: Features, texts: &[bool], classes: bool) -> Chunk {
        Chunk {
            first_row: 0,
            rows: 0,
            features,
            labels: Vec::new(),
            weights: Vec::new(),
            groups: Vec::new(),
            group_keys: Dictionary::default(),
            texts: texts.iter().map(|text| text.then(Dictionary::default)).collect(),
            classes: classes.then(Dictionary::default),
            sums: Vec::new(),
            marks: Vec::new(),
            surprises: Vec::new(),
        }
    }

    /// Adds up the values present in each slot. Done where the chunk is made, which is on several threads.
    pub(crate) fn add_up(&mut self) {
        let Features::Dense { width, values } = &self.features else { return };
        let mut sums = vec![(0.0, 0); *width];
        if *width > 0 {
            for row in values.chunks_exact(*width) {
                for ((sum, present), value) in sums.iter_mut().zip(row) {
                    let known = !value.is_nan();
                    *sum += if known { f64::from(*value) } else { 0.0 };
                    *present += u64::from(known);
                }
            }
        }
        self.sums = sums;
    }

    /// Keeps only these rows, counted from the chunk's first.
    pub(crate) fn crop(&mut self, keep: Range<usize>) {
        if keep == (0..self.rows) {
            return;
        }
        match &mut self.features {
            Features::Dense { width, values } => {
                values.truncate(keep.end * *width);
                values.drain(..keep.start * *width);
            }
            Features::Sparse { starts, columns, values, .. } => {
                let entries = starts[keep.start]..starts[keep.end];
                columns.truncate(entries.end);
                columns.drain(..entries.start);
                values.truncate(entries.end);
                values.drain(..entries.start);
                *starts =
                    starts[keep.start..=keep.end].iter().map(|at| at - entries.start).collect();
            }
        }
        crop(&mut self.labels, &keep);
        crop(&mut self.weights, &keep);
        crop(&mut self.groups, &keep);
        self.first_row += keep.start as u64;
        self.rows = keep.len();
    }
}

/// Keeps only these rows' values, where there are any.
fn crop<T>(values: &mut Vec<T>, keep: &Range<usize>) {
    if !values.is_empty() {
        values.truncate(keep.end);
        values.drain(..keep.start);
    }
}

/// Texts in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dictionary {
    texts: Vec<String>,
    codes: HashMap<String, u32>,
}

impl Dictionary {
    /// The code of a text, a new one if it is new.
    ///
    /// # Errors
    /// More texts than codes can tell apart.
    pub(crate) fn code(&mut self, text: &str) -> Result<u32> {
        if let Some(&code) = self.codes.get(text) {
            return Ok(code);
        }
        if self.texts.len() >= CODES_MAX {
            return Err(Fault::caller(format!(
                "more than {CODES_MAX} different texts in a column"
            ))
            .hint("leave the column out with `features = [...]`"));
        }
        let code = self.texts.len() as u32;
        self.texts.push(text.to_string());
        self.codes.insert(text.to_string(), code);
        Ok(code)
    }

    /// The code of a text of a file, which may not be UTF-8.
    pub(crate) fn code_of_bytes(&mut self, text: &[u8]) -> Result<u32> {
        match std::str::from_utf8(text) {
            Ok(text) => self.code(text),
            Err(_) => self.code(&String::from_utf8_lossy(text)),
        }
    }

    /// The code of a known text.
    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.codes.get(text).copied()
    }

    /// All texts in the order of codes.
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }
}
