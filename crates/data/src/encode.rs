//! From raw columns to features by a schema: means for missing numbers, 0/1 features for categories.
//! Whether features are dense or sparse depends on the schema alone, so that all workers agree.

use crate::chunk::{Chunk, Dictionary};
use crate::groups::Grouping;
use crate::partition::{beside, gathered};
use crate::prepare::{Frame, Prepared, assemble, walk};
use crate::sources::Flow;
use crate::spill::{Pile, Room};
use crate::{ColumnKind, Encoding, Features, Schema, Table, Target};
use starlings_core::{Fault, Result, suggestion};
use std::mem::take;
use std::ops::Deref;

/// Encoded features are kept sparse from this many features for each column.
const SPARSE_FROM: usize = 4;

/// Collects chunks into a table by a known schema.
pub(crate) struct Fitting<'a> {
    schema: &'a Schema,
    prepared: &'a Prepared,
    /// The number of the next row in the data set, where the rows are those of the training.
    pub(crate) next_row: Option<u64>,
    /// The codes of each column that has them.
    codes: Vec<Option<Dictionary>>,
    classes: Option<Dictionary>,
    grouping: Grouping,
    pile: Pile<'a>,
    /// Rows that will be added, and all of the data set.
    expected: (u64, u64),
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
}

impl<'a> Fitting<'a> {
    /// Rows beyond what there is room for go to a file; without a room all stay in memory.
    pub(crate) fn new(
        schema: &'a Schema,
        prepared: &'a Prepared,
        room: Option<&'a Room>,
    ) -> Result<Fitting<'a>> {
        let codes = schema.columns.iter().map(|column| match &column.kind {
            ColumnKind::Numeric { .. } => Ok(None),
            ColumnKind::Categorical { codes } => dictionary(codes).map(Some),
        });
        let classes = match &schema.target {
            Target::Classes(classes) => Some(dictionary(classes)?),
            _ => None,
        };
        Ok(Fitting {
            schema,
            prepared,
            next_row: None,
            codes: codes.collect::<Result<_>>()?,
            classes,
            grouping: Grouping::default(),
            pile: Pile::new(schema.features, room),
            expected: (0, 0),
            labels: vec![],
            weights: vec![],
            groups: vec![],
        })
    }

    /// Rows of a group may stand anywhere.
    pub(crate) fn scattered(&mut self) {
        self.grouping = Grouping::scattered();
    }

    /// So many rows will be added, of so many in all.
    pub(crate) fn expect(&mut self, rows: u64, all: u64) {
        self.expected = (rows, all);
    }

    /// Takes the next rows of the file called `name`.
    pub(crate) fn add(&mut self, name: &str, chunk: Chunk) -> Result<Flow> {
        self.add_some(name, chunk, None)
    }

    /// Takes some of the next rows: what is made of a row may depend on its number, so that all are encoded.
    pub(crate) fn add_some(
        &mut self,
        name: &str,
        mut chunk: Chunk,
        picked: Option<&[usize]>,
    ) -> Result<Flow> {
        if let Some(surprise) = chunk.surprises.pop() {
            return Err(surprise.fault);
        }
        if let Some(classes) = &self.classes {
            relabel(name, &mut chunk, classes)?;
        }
        let columns = if self.prepared.is_empty() { &self.codes[..] } else { &[] };
        for (slot, (seen, codes)) in chunk.texts.iter().zip(columns).enumerate() {
            if let (Some(seen), Some(codes)) = (seen, codes) {
                let code = |text: &String| codes.find(text).map_or(f32::NAN, |code| code as f32);
                let map: Vec<f32> = seen.texts().iter().map(code).collect();
                recode(&mut chunk.features, slot, &map);
            }
        }
        if !chunk.labels.is_empty() && self.labels.len() != self.rows() {
            return Err(Fault::caller(format!("{name} has labels, and files before it have none")));
        }
        for (what, here, before) in [
            ("weights", chunk.weights.is_empty(), self.weights.is_empty()),
            ("groups", chunk.groups.is_empty(), self.groups.is_empty()),
        ] {
            if self.rows() > 0 && here != before {
                return Err(Fault::caller(format!("{name}: not all files have {what}")));
            }
        }
        self.groups.extend(self.grouping.add(name, &chunk)?);
        let features = match self.prepared.is_empty() {
            true => encode(chunk.features, self.schema),
            false => {
                let frame = self.prepared.apply(&mut chunk, self.next_row)?;
                assemble(&frame, self.prepared, self.schema.encoding)
            }
        };
        self.next_row = self.next_row.map(|row| row + chunk.rows as u64);
        let is_first = self.rows() == 0;
        match picked {
            None => {
                self.pile.add(chunk.rows, features)?;
                self.weights.extend_from_slice(&chunk.weights);
                self.labels.extend_from_slice(&chunk.labels);
            }
            Some(rows) => {
                let some = Table::new(features, vec![]);
                self.pile.add(rows.len(), gathered(&some, rows))?;
                self.weights.extend(beside(&chunk.weights, rows));
                self.labels.extend(beside(&chunk.labels, rows));
            }
        }
        // Only the first rows say how wide they are.
        if is_first {
            let (rows, all) = self.expected;
            self.pile.expect(rows.saturating_sub(self.rows() as u64), all);
        }
        Ok(Flow::More)
    }

    pub(crate) fn rows(&self) -> usize {
        self.pile.rows()
    }

    pub(crate) fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// The rows so far, which are forgotten here. What follows stays in memory.
    pub(crate) fn piece(&mut self) -> Result<Table> {
        let pile = std::mem::replace(&mut self.pile, Pile::new(self.schema.features, None));
        let features = pile.finish(|plain| nothing(plain, self.schema, self.prepared))?;
        let (labels, weights) = (take(&mut self.labels), take(&mut self.weights));
        Ok(Table { features, labels, weights, groups: take(&mut self.groups) })
    }

    pub(crate) fn finish(mut self) -> Result<Table> {
        self.piece()
    }
}

/// The features of no rows; `plain` without columns.
fn nothing(plain: Features, schema: &Schema, prepared: &Prepared) -> Features {
    if !prepared.is_empty() {
        let nothing = walk(&prepared.steps, Frame::empty(&prepared.raw), None);
        let nothing = nothing.expect("fitted steps take an empty frame");
        return assemble(&nothing, prepared, schema.encoding);
    }
    let empty = Features::Dense { width: schema.columns.len(), values: vec![] };
    match schema.columns.is_empty() {
        true => plain,
        false => encode(empty, schema),
    }
}

/// Chunks' own codes of classes become those of the schema.
pub(crate) fn relabel(name: &str, chunk: &mut Chunk, classes: &Dictionary) -> Result<()> {
    if let Some(seen) = &chunk.classes {
        let codes = seen.texts().iter().map(|text| class_code(name, classes, text));
        let codes: Vec<f32> = codes.collect::<Result<_>>()?;
        let labels = chunk.labels.iter_mut().filter(|label| !label.is_nan());
        labels.for_each(|label| *label = codes[*label as usize]);
    }
    Ok(())
}

pub(crate) fn dictionary(texts: &[String]) -> Result<Dictionary> {
    let mut dictionary = Dictionary::default();
    for text in texts {
        dictionary.code(text)?;
    }
    Ok(dictionary)
}

fn class_code(name: &str, classes: &Dictionary, text: &str) -> Result<f32> {
    let found = classes.find(text).or_else(|| classes.find(&plain_number(text)?));
    found.map(|code| code as f32).ok_or_else(|| {
        let known: Vec<&str> = classes.texts().iter().map(String::as_str).collect();
        Fault::caller(format!("{name}: label '{text}' is none of the classes of the training data"))
            .hint(suggestion(text, &known))
    })
}

/// A number in the one way that classes are written, so that 1, +1 and 1.0 are one class.
pub(crate) fn plain_number(text: &str) -> Option<String> {
    let number: f64 = text.parse().ok()?;
    // Larger whole numbers are not told apart as floats, and stay texts.
    (number.abs() < (1u64 << 53) as f64).then(|| (number + 0.0).to_string())
}

/// Replaces the codes of a slot.
pub(crate) fn recode(features: &mut Features, slot: usize, map: &[f32]) {
    let Features::Dense { width, values } = features else { return };
    for value in values.iter_mut().skip(slot).step_by(*width) {
        if !value.is_nan() {
            *value = map[*value as usize];
        }
    }
}

/// Adds rows behind others of the same kind.
pub(crate) fn append<F, C>(to: &mut Features<F, C>, from: &Features<F, C>)
where
    F: Deref<Target = [f32]> + for<'a> Extend<&'a f32>,
    C: Deref<Target = [u32]> + for<'a> Extend<&'a u32>,
{
    match (to, from) {
        (Features::Dense { values, .. }, Features::Dense { values: more, .. }) => {
            values.extend(more.iter());
        }
        (
            Features::Sparse { width, starts, columns, values },
            Features::Sparse { width: w, starts: s, columns: c, values: v },
        ) => {
            let shift = columns.len();
            starts.extend(s[1..].iter().map(|start| start + shift));
            columns.extend(c.iter());
            values.extend(v.iter());
            *width = (*width).max(*w);
        }
        _ => unreachable!("chunks of one source are of one kind"),
    }
}

/// Encodes raw features: codes are already those of the schema.
pub(crate) fn encode(raw: Features, schema: &Schema) -> Features {
    let categorical =
        schema.columns.iter().any(|column| matches!(column.kind, ColumnKind::Categorical { .. }));
    match raw {
        Features::Sparse { width, starts, columns, values } if width > schema.features => {
            narrow(schema.features, (&starts, &columns, &values))
        }
        Features::Sparse { starts, columns, values, .. } => {
            Features::Sparse { width: schema.features, starts, columns, values }
        }
        dense if schema.encoding != Encoding::OneHot || schema.columns.is_empty() => dense,
        Features::Dense { width, mut values } if !categorical => {
            fill(width, &mut values, schema);
            Features::Dense { width, values }
        }
        Features::Dense { values, .. } => {
            match schema.features > SPARSE_FROM * schema.columns.len() {
                true => one_hot_sparse(&values, schema),
                false => one_hot_dense(&values, schema),
            }
        }
    }
}

/// Leaves out features that the schema does not know.
fn narrow(width: usize, (starts, columns, values): (&[usize], &[u32], &[f32])) -> Features {
    let (mut new_starts, mut new_columns, mut new_values) = (vec![0], vec![], vec![]);
    for row in starts.windows(2) {
        for entry in row[0]..row[1] {
            if (columns[entry] as usize) < width {
                new_columns.push(columns[entry]);
                new_values.push(values[entry]);
            }
        }
        new_starts.push(new_columns.len());
    }
    Features::Sparse { width, starts: new_starts, columns: new_columns, values: new_values }
}

/// Missing numbers become the column's mean.
fn fill(width: usize, values: &mut [f32], schema: &Schema) {
    let means: Vec<f32> = schema.columns.iter().map(|column| mean(&column.kind)).collect();
    for row in values.chunks_exact_mut(width) {
        for (value, mean) in row.iter_mut().zip(&means) {
            *value = if value.is_nan() { *mean } else { *value };
        }
    }
}

fn mean(kind: &ColumnKind) -> f32 {
    match kind {
        ColumnKind::Numeric { mean } => *mean as f32,
        ColumnKind::Categorical { .. } => f32::NAN,
    }
}

/// The features of a row that are not zero.
fn entries<'a>(row: &'a [f32], schema: &'a Schema) -> impl Iterator<Item = (usize, f32)> + 'a {
    let mut start = 0;
    row.iter().zip(&schema.columns).filter_map(move |(value, column)| {
        let first = start;
        start += column.features(Encoding::OneHot);
        let entry = match &column.kind {
            ColumnKind::Numeric { .. } if value.is_nan() => (first, mean(&column.kind)),
            ColumnKind::Numeric { .. } => (first, *value),
            ColumnKind::Categorical { .. } if value.is_nan() => return None,
            ColumnKind::Categorical { .. } => (first + *value as usize, 1.0),
        };
        (entry.1 != 0.0).then_some(entry)
    })
}

fn one_hot_dense(values: &[f32], schema: &Schema) -> Features {
    let (width, columns) = (schema.features, schema.columns.len());
    let mut encoded = vec![0.0; values.len() / columns * width];
    for (row, place) in values.chunks_exact(columns).zip(encoded.chunks_exact_mut(width)) {
        for (feature, value) in entries(row, schema) {
            place[feature] = value;
        }
    }
    Features::Dense { width, values: encoded }
}

fn one_hot_sparse(values: &[f32], schema: &Schema) -> Features {
    let (mut starts, mut columns, mut encoded) = (vec![0], vec![], vec![]);
    for row in values.chunks_exact(schema.columns.len()) {
        for (feature, value) in entries(row, schema) {
            columns.push(feature as u32);
            encoded.push(value);
        }
        starts.push(columns.len());
    }
    Features::Sparse { width: schema.features, starts, columns, values: encoded }
}
