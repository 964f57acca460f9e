//! Rows of one encoding for a learner that wants another: the features of an ensemble's rows become those of a member.
//! Where members differ in what they want, the ensemble reads codes, from which both can be made.

use starlings_core::{FEATURES, Fault, Graph, Model, Op, Result, Role, Tensor, Values, suggestion};
use starlings_data::{Column, ColumnKind, Encoding, Features, Row, Schema};

/// Where a feature of the member comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Source {
    /// The same number; a missing one becomes `fill`, unless that is missing itself.
    Copy { from: usize, fill: f32 },
    /// 1 where the code is this one.
    Is { from: usize, code: usize },
    /// The code's own code elsewhere, from this place of the list on.
    Recode { from: usize, start: usize, codes: usize },
}

/// A code that no row has.
const NEVER: usize = 1 << 25;

/// How rows become a member's rows.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Conversion {
    sources: Vec<Source>,
    /// Codes elsewhere; −1 where there is none.
    codes: Vec<i64>,
}

impl Conversion {
    /// Only these features.
    pub(super) fn only(features: &[usize]) -> Conversion {
        let copy = |&from: &usize| Source::Copy { from, fill: f32::NAN };
        Conversion { sources: features.iter().map(copy).collect(), codes: vec![] }
    }

    /// From rows of codes to what an encoding makes of the same columns, and the schema of that; none where there is
    /// nothing to change.
    pub(super) fn to(encoding: Encoding, schema: &Schema) -> (Option<Conversion>, Schema) {
        let seen = Schema { encoding, ..schema.clone() };
        if encoding == schema.encoding || schema.columns.is_empty() {
            return (None, seen);
        }
        let mut sources = Vec::new();
        for (from, column) in schema.columns.iter().enumerate() {
            match &column.kind {
                ColumnKind::Numeric { mean } => {
                    sources.push(Source::Copy { from, fill: *mean as f32 });
                }
                ColumnKind::Categorical { codes } => {
                    sources.extend((0..codes.len()).map(|code| Source::Is { from, code }));
                }
            }
        }
        let features = sources.len();
        (Some(Conversion { sources, codes: vec![] }), Schema { features, ..seen })
    }

    /// From rows of codes to the rows of a model that was trained elsewhere: columns are found by their names, and
    /// categories by their texts. None where features have numbers instead of names.
    ///
    /// # Errors
    /// A column that the model reads and the rows lack, or one that holds something else.
    pub(super) fn between(rows: &Schema, model: &Schema) -> Result<Option<Conversion>> {
        let texts = |column: &&Column| matches!(column.kind, ColumnKind::Categorical { .. });
        if let Some(column) = rows.columns.iter().find(texts).filter(|_| model.columns.is_empty()) {
            return Err(Fault::caller(format!(
                "the model reads features by their places, and the column '{}' holds texts",
                column.name
            ))
            .hint("leave the column out, or export the model with an input for each column"));
        }
        if model.columns.is_empty() && rows.features == model.features {
            return Ok(None);
        }
        if model.columns.is_empty() {
            return Err(Fault::caller(format!(
                "the model reads {} features, and the rows have {}",
                model.features, rows.features
            )));
        }
        let mut made = Conversion { sources: vec![], codes: vec![] };
        for column in &model.columns {
            let found = rows.columns.iter().position(|own| own.name == column.name);
            let from = found.ok_or_else(|| {
                let known: Vec<&str> = rows.columns.iter().map(|own| own.name.as_str()).collect();
                Fault::caller(format!(
                    "the model reads the column '{}', which is not there",
                    column.name
                ))
                .hint(suggestion(&column.name, &known))
            })?;
            made.add_column((from, &rows.columns[from].kind), column, model.encoding)?;
        }
        Ok(Some(made))
    }

    fn add_column(
        &mut self,
        (from, own): (usize, &ColumnKind),
        column: &Column,
        encoding: Encoding,
    ) -> Result<()> {
        match (own, &column.kind) {
            (ColumnKind::Numeric { .. }, ColumnKind::Numeric { mean }) => {
                let fill = if encoding == Encoding::OneHot { *mean as f32 } else { f32::NAN };
                self.sources.push(Source::Copy { from, fill });
            }
            (ColumnKind::Categorical { codes: own }, ColumnKind::Categorical { codes }) => {
                let place = |text: &String, of: &[String]| of.iter().position(|own| own == text);
                if encoding == Encoding::OneHot {
                    let is = |text| Source::Is { from, code: place(text, own).unwrap_or(NEVER) };
                    self.sources.extend(codes.iter().map(is));
                    return Ok(());
                }
                let start = self.codes.len();
                let known =
                    own.iter().map(|text| place(text, codes).map_or(-1, |code| code as i64));
                self.codes.extend(known);
                self.sources.push(Source::Recode { from, start, codes: own.len() });
            }
            (ColumnKind::Numeric { .. }, _) => {
                return Err(Fault::caller(format!(
                    "the column '{}' holds numbers, and texts where the model was trained",
                    column.name
                )));
            }
            _ => {
                return Err(Fault::caller(format!(
                    "the column '{}' holds texts, and numbers where the model was trained",
                    column.name
                )));
            }
        }
        Ok(())
    }

    /// Into the model, so that predictions find it again.
    pub(super) fn save(&self, name: &str, model: &mut Model) {
        let (mut places, mut fills) = (Vec::new(), Vec::new());
        for source in &self.sources {
            match *source {
                Source::Copy { from, fill } => {
                    places.extend([from as i64, -1]);
                    fills.push(f64::from(fill));
                }
                Source::Is { from, code } => {
                    places.extend([from as i64, code as i64]);
                    fills.push(0.0);
                }
                Source::Recode { from, start, codes } => {
                    places.extend([from as i64, -2 - start as i64]);
                    fills.push(codes as f64);
                }
            }
        }
        let shape = vec![self.sources.len(), 2];
        let places = Tensor { shape, values: Values::I64(places), role: Role::Weight };
        model.set(format!("{name}.places"), places);
        model.set(format!("{name}.codes"), whole(self.codes.clone(), Role::Weight));
        // A fill that is missing is told apart by its own number: NaN would not survive a comparison of models.
        let kept = fills.iter().map(|fill| if fill.is_nan() { f64::MAX } else { *fill }).collect();
        model.set(format!("{name}.fills"), Tensor::of(&[fills.len()], kept, Role::Weight));
    }

    /// From the model; none where rows are seen as they are.
    pub(super) fn load(name: &str, model: &Model) -> Option<Conversion> {
        let places = model.get(&format!("{name}.places"))?.values.as_i64()?;
        let fills = model.get(&format!("{name}.fills"))?.values.as_f64()?;
        let source = |(place, fill): (&[i64], &f64)| {
            let from = place[0] as usize;
            match usize::try_from(place[1]) {
                Ok(code) => Source::Is { from, code },
                Err(_) if place[1] <= -2 => {
                    let start = (-2 - place[1]) as usize;
                    Source::Recode { from, start, codes: *fill as usize }
                }
                Err(_) if *fill == f64::MAX => Source::Copy { from, fill: f32::NAN },
                Err(_) => Source::Copy { from, fill: *fill as f32 },
            }
        };
        let codes = model.get(&format!("{name}.codes"))?.values.as_i64()?.to_vec();
        let sources = places.chunks_exact(2).zip(fills).map(source).collect();
        Some(Conversion { sources, codes })
    }

    /// An empty table's features, to which rows are added: sparse where the rows are and stay so.
    pub(super) fn empty<F, C>(&self, like: &Features<F, C>) -> Features {
        let width = self.sources.len();
        match like {
            Features::Sparse { .. } if self.keeps_zeros() => {
                Features::Sparse { width, starts: vec![0], columns: vec![], values: vec![] }
            }
            _ => Features::Dense { width, values: vec![] },
        }
    }

    fn keeps_zeros(&self) -> bool {
        let ordered = |pair: &[Source]| match pair {
            [Source::Copy { from: a, .. }, Source::Copy { from: b, .. }] => a < b,
            _ => false,
        };
        self.sources.windows(2).all(ordered)
    }

    /// Adds a row.
    pub(super) fn add(&self, row: Row<'_>, room: &mut Vec<f32>, into: &mut Features) {
        match into {
            Features::Sparse { starts, columns, values, .. } => {
                if let Row::Sparse(entries, numbers) = row {
                    for (at, source) in self.sources.iter().enumerate() {
                        let Source::Copy { from, .. } = *source else { continue };
                        if let Ok(entry) = entries.binary_search(&(from as u32)) {
                            columns.push(at as u32);
                            values.push(numbers[entry]);
                        }
                    }
                }
                starts.push(columns.len());
            }
            Features::Dense { values, .. } => match row {
                Row::Dense(numbers) => self.add_dense(numbers, values),
                Row::Sparse(entries, numbers) => {
                    let width = self.sources.iter().map(|s| s.from() + 1).max().unwrap_or(0);
                    room.clear();
                    room.resize(width, 0.0);
                    for (&at, &x) in entries.iter().zip(numbers) {
                        if let Some(place) = room.get_mut(at as usize) {
                            *place = x;
                        }
                    }
                    self.add_dense(room, values);
                }
            },
        }
    }

    fn add_dense(&self, row: &[f32], into: &mut Vec<f32>) {
        into.extend(self.sources.iter().map(|source| match *source {
            Source::Copy { from, fill } => {
                let x = row[from];
                if x.is_nan() { fill } else { x }
            }
            Source::Is { from, code } => f32::from(u8::from(row[from] == code as f32)),
            Source::Recode { from, start, codes } => {
                let code = Some(row[from]).filter(|code| *code >= 0.0 && *code < codes as f32);
                let code = code.map_or(-1, |code| self.codes[start + code as usize]);
                if code < 0 { f32::NAN } else { code as f32 }
            }
        }));
    }

    /// The same as operators; the name of the value that holds the member's features. None where codes are looked up.
    pub(super) fn graph(&self, graph: &mut Graph, name: &str) -> Option<String> {
        if self.sources.iter().any(|source| matches!(source, Source::Recode { .. })) {
            return None;
        }
        let columns = self.sources.iter().map(|source| source.from()).collect();
        let picked = graph.node(Op::Columns(columns), &[FEATURES]);
        let width = self.sources.len();
        let codes = self.sources.iter().map(|source| match source {
            Source::Is { code, .. } => *code as f64,
            _ => -1.0,
        });
        let codes = graph.constant(&format!("{name}.codes"), &[width], codes.collect());
        let is_code = self.sources.iter().map(|source| match source {
            Source::Is { .. } => 1.0,
            _ => 0.0,
        });
        let is_code = graph.constant(&format!("{name}.is_code"), &[width], is_code.collect());
        let filled = match self.sources.iter().all(|source| source.leaves_missing()) {
            true => picked.clone(),
            false => {
                let fills = self.sources.iter().map(|source| match source {
                    Source::Copy { fill, .. } if !fill.is_nan() => f64::from(*fill),
                    _ => 0.0,
                });
                let fills = graph.constant(&format!("{name}.fills"), &[width], fills.collect());
                let missing = graph.node(Op::IsNaN, &[&picked]);
                graph.node(Op::Where, &[&missing, &fills, &picked])
            }
        };
        let same = graph.node(Op::Equal, &[&picked, &codes]);
        Some(graph.node(Op::Where, &[&is_code, &same, &filled]))
    }
}

impl Source {
    fn from(&self) -> usize {
        match *self {
            Source::Copy { from, .. } | Source::Is { from, .. } | Source::Recode { from, .. } => {
                from
            }
        }
    }

    fn leaves_missing(&self) -> bool {
        matches!(self, Source::Copy { fill, .. } if fill.is_nan())
    }
}

/// The features of each column of a schema: what can be left out together.
pub(super) fn columns(schema: &Schema) -> Vec<std::ops::Range<usize>> {
    if schema.columns.is_empty() {
        return (0..schema.features).map(|at| at..at + 1).collect();
    }
    let mut at = 0;
    let range = |column: &Column| {
        let from = at;
        at += column.features(schema.encoding);
        from..at
    };
    schema.columns.iter().map(range).collect()
}

/// A tensor of whole numbers.
pub(super) fn whole(values: Vec<i64>, role: Role) -> Tensor {
    Tensor { shape: vec![values.len()], values: Values::I64(values), role }
}
