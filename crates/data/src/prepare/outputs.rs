//! What is left when all steps are done, and how it becomes features: numbers as they are (their mean for missing ones),
//! categories as the learner wants them, blocks feature by feature. Rows are kept sparse where a row has less than a
//! quarter of its features, on average over the training rows.

use super::{Cells, Frame, Prepared, Series, Step};
use crate::chunk::Dictionary;
use crate::learning::sorted;
use crate::{Column, ColumnKind, Encoding, Features};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result};

/// Rows are sparse from this many features for each that is not zero.
const SPARSE_FROM: u64 = 4;
/// Schemas list features by name up to here.
const LISTED_MAX: usize = 4096;

/// One column at the end of all steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Output {
    Number { mean: f64 },
    Category { codes: Vec<String> },
    Block { width: usize },
}

impl Output {
    fn width(&self, encoding: Encoding) -> usize {
        match self {
            Output::Number { .. } => 1,
            Output::Category { codes } if encoding == Encoding::OneHot => codes.len(),
            Output::Category { .. } => 1,
            Output::Block { width } => *width,
        }
    }
}

/// Counts what is left when all steps are done.
#[derive(Default)]
pub(crate) struct Census {
    columns: Vec<Seen>,
    rows: u64,
}

#[derive(Default)]
struct Seen {
    name: String,
    maker: Option<(usize, usize)>,
    sum: f64,
    present: u64,
    texts: Option<Dictionary>,
    block: Option<usize>,
}

/// What was found.
pub(crate) struct Found {
    pub(crate) outputs: Vec<Output>,
    pub(crate) sparse: bool,
    /// The columns for the schema; none when there are too many to list.
    pub(crate) columns: Vec<Column>,
    pub(crate) features: usize,
}

impl Census {
    pub(crate) fn add(&mut self, frame: &Frame) -> Result<()> {
        self.columns.resize_with(frame.columns.len(), Seen::default);
        for (column, seen) in frame.columns.iter().zip(&mut self.columns) {
            (seen.maker, seen.name) = (column.maker, column.name.clone());
            match &column.cells {
                Cells::Numbers(values) => {
                    for value in values.iter().filter(|value| !value.is_nan()) {
                        if value.is_infinite() {
                            return Err(Fault::caller(format!(
                                "column '{}' is too large for 32-bit numbers once it is prepared",
                                column.name
                            )));
                        }
                        seen.sum += f64::from(*value);
                        seen.present += 1;
                    }
                }
                Cells::Texts { codes, texts } => {
                    let known = seen.texts.get_or_insert_default();
                    for text in texts {
                        known.code(text)?;
                    }
                    seen.present += codes.iter().flatten().count() as u64;
                }
                Cells::Block(features) => {
                    let (width, entries) = match features {
                        Features::Dense { width, values } => (*width, values.len()),
                        Features::Sparse { width, values, .. } => (*width, values.len()),
                    };
                    seen.block = Some(seen.block.unwrap_or(0).max(width));
                    seen.present += entries as u64;
                }
            }
        }
        self.rows += frame.rows as u64;
        Ok(())
    }

    pub(crate) fn finish(self, steps: &[Step], encoding: Encoding) -> Result<Found> {
        let rows = self.rows;
        let mut entries = 0;
        let mut outputs = Vec::with_capacity(self.columns.len());
        for seen in &self.columns {
            outputs.push(match (&seen.texts, seen.block) {
                (_, Some(width)) => {
                    entries += seen.present;
                    Output::Block { width }
                }
                (Some(texts), _) => {
                    entries += seen.present;
                    Output::Category { codes: sorted(texts.texts()).0 }
                }
                (None, None) => {
                    entries += rows;
                    Output::Number { mean: seen.sum / seen.present.max(1) as f64 }
                }
            });
        }
        let features: usize = outputs.iter().map(|output| output.width(encoding)).sum();
        let coded = outputs.iter().position(|output| matches!(output, Output::Category { .. }));
        let coded = coded.filter(|_| encoding != Encoding::OneHot);
        // Codes are no sizes: a learner of codes must know which features they are, and have all rows dense.
        let sparse = coded.is_none() && features as u64 * rows > SPARSE_FROM * entries;
        let listed = features <= LISTED_MAX;
        if let (Some(text), false) = (coded, listed) {
            return Err(Fault::caller(format!(
                "column '{}' is left as codes beside {features} features",
                self.columns[text].name
            ))
            .hint("prepare it, too: one-hot, target-encoding or hash-encoding"));
        }
        let columns = match listed {
            true => self.columns.iter().zip(&outputs).flat_map(|it| listing(it, steps, rows)),
            false => return Ok(Found { outputs, sparse, columns: vec![], features }),
        };
        let mut columns: Vec<Column> = columns.collect();
        columns.iter_mut().enumerate().for_each(|(position, column)| column.position = position);
        Ok(Found { outputs, sparse, columns, features })
    }
}

/// The columns that a schema lists for one output.
fn listing((seen, output): (&Seen, &Output), steps: &[Step], rows: u64) -> Vec<Column> {
    let column =
        |name: String, kind: ColumnKind, missing: u64| Column { name, position: 0, kind, missing };
    let missing = rows.saturating_sub(seen.present);
    match output {
        Output::Number { mean } => {
            vec![column(seen.name.clone(), ColumnKind::Numeric { mean: *mean }, missing)]
        }
        Output::Category { codes } => {
            let kind = ColumnKind::Categorical { codes: codes.clone() };
            vec![column(seen.name.clone(), kind, missing)]
        }
        Output::Block { width } => {
            let numbered = || (0..*width).map(|at| format!("{}[{at}]", seen.name)).collect();
            let names = seen.maker.map_or_else(numbered, |(step, which)| {
                steps[step].fitted.step().names(which, &seen.name, *width)
            });
            let kind = ColumnKind::Numeric { mean: 0.0 };
            names.into_iter().map(|name| column(name, kind.clone(), 0)).collect()
        }
    }
}

/// Columns of a frame as features.
pub(crate) fn assemble(frame: &Frame, prepared: &Prepared, encoding: Encoding) -> Features {
    let parts: Vec<Part<'_>> = frame
        .columns
        .iter()
        .zip(&prepared.outputs)
        .scan(0, |start, (column, output)| {
            let part = Part::new(column, output, *start, encoding);
            *start += output.width(encoding);
            Some(part)
        })
        .collect();
    let width = prepared.outputs.iter().map(|output| output.width(encoding)).sum();
    match prepared.sparse {
        true => {
            let (mut starts, mut columns, mut values) = (vec![0], vec![], vec![]);
            for row in 0..frame.rows {
                for part in &parts {
                    part.entries(row, &mut |feature, value| {
                        if value != 0.0 {
                            columns.push(feature as u32);
                            values.push(value);
                        }
                    });
                }
                starts.push(columns.len());
            }
            Features::Sparse { width, starts, columns, values }
        }
        false => {
            let mut values = vec![0.0; width * frame.rows];
            for (row, place) in values.chunks_exact_mut(width.max(1)).enumerate() {
                for part in &parts {
                    part.entries(row, &mut |feature, value| place[feature] = value);
                }
            }
            Features::Dense { width, values }
        }
    }
}

/// One column of a frame, ready to be written row by row.
struct Part<'a> {
    start: usize,
    width: usize,
    cells: &'a Cells,
    /// What stands in for a missing number.
    fill: f32,
    /// The codes of the chunk's texts.
    codes: Vec<Option<u32>>,
    one_hot: bool,
}

impl<'a> Part<'a> {
    fn new(column: &'a Series, output: &Output, start: usize, encoding: Encoding) -> Part<'a> {
        let one_hot = encoding == Encoding::OneHot;
        let fill = match output {
            Output::Number { mean } if one_hot => *mean as f32,
            _ => f32::NAN,
        };
        let codes = match (&column.cells, output) {
            (Cells::Texts { texts, .. }, Output::Category { codes }) => {
                let mut known = Dictionary::default();
                codes.iter().for_each(|text| drop(known.code(text)));
                texts.iter().map(|text| known.find(text)).collect()
            }
            _ => Vec::new(),
        };
        Part { start, width: output.width(encoding), cells: &column.cells, fill, codes, one_hot }
    }

    /// The features of a row, in order.
    #[inline]
    fn entries(&self, row: usize, put: &mut dyn FnMut(usize, f32)) {
        match self.cells {
            Cells::Numbers(values) => {
                let value = values[row];
                put(self.start, if value.is_nan() { self.fill } else { value });
            }
            Cells::Texts { codes, .. } => {
                let code =
                    codes[row].and_then(|code| self.codes.get(code as usize).copied().flatten());
                match (code, self.one_hot) {
                    (Some(code), true) => put(self.start + code as usize, 1.0),
                    (None, true) => {}
                    (code, false) => put(self.start, code.map_or(f32::NAN, |code| code as f32)),
                }
            }
            Cells::Block(Features::Dense { width, values }) => {
                let cells = values[row * width..(row + 1) * width].iter().take(self.width);
                cells.enumerate().for_each(|(at, value)| put(self.start + at, *value));
            }
            Cells::Block(Features::Sparse { starts, columns, values, .. }) => {
                for entry in starts[row]..starts[row + 1] {
                    let feature = columns[entry] as usize;
                    // Training showed no feature beyond the width.
                    if feature < self.width {
                        put(self.start + feature, values[entry]);
                    }
                }
            }
        }
    }
}
