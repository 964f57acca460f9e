//! Data made on the spot, for measuring and for tests: `synthetic://classification?rows=1000000&features=28`.
//! Row r is a function of (seed, r) alone, so that any worker makes any rows and none are sent.

mod baskets;
mod documents;
mod ranking;
mod ratings;
mod survival;
mod tabular;

use super::{Format, Guess, NO_WEIGHT, Place, Request, Role, Rows, Shape, Sink};
use crate::blocks::in_order;
use crate::chunk::Chunk;
use crate::columns::choose;
use crate::{Column, ColumnKind, DataSpec, Encoding, Features, LabelNeed, Schema, Target};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Data made on the spot.
pub(super) const ENTRY: Entry<Format> = Entry {
    name: "synthetic",
    summary: "Data made from a seed: synthetic://classification, regression, blobs, ratings, survival, \
              documents, baskets, ranking",
    reference: "each generator names its model",
    params: &[],
    gives: &[],
    needs: &[],
    build: Format { extensions: &[], recognise: |_| false, open },
};

/// How addresses of this source begin.
const SCHEME: &str = "synthetic://";
/// Rows made at a time.
const ROWS: u64 = 4096;

type Build = fn(&Params) -> Generator;

const GENERATORS: &[Entry<Build>] = &[
    tabular::CLASSIFICATION,
    tabular::REGRESSION,
    tabular::BLOBS,
    ratings::ENTRY,
    survival::ENTRY,
    documents::ENTRY,
    baskets::ENTRY,
    ranking::ENTRY,
];

/// A maker of rows.
enum Generator {
    Columns(Box<dyn MakeColumns>),
    Counts(Box<dyn MakeCounts>),
}

/// Makes rows of columns and a label.
trait MakeColumns: Sync {
    /// Names of the columns, and how many identities one has that is not numbers.
    fn columns(&self) -> Vec<(String, Option<u64>)>;
    /// The label's name.
    fn label(&self) -> &'static str;
    /// How many classes; `None` when labels are numbers.
    fn classes(&self) -> Option<u64>;
    /// Writes the columns of a row and gives its label.
    fn make(&self, row: u64, values: &mut [f32]) -> f32;
}

/// Makes sparse rows of counts without labels.
trait MakeCounts: Sync {
    /// Columns of the matrix.
    fn width(&self) -> usize;
    /// Adds the row's entries.
    fn make(&self, row: u64, entries: &mut BTreeMap<u32, f32>);
}

struct Synthetic {
    spec: DataSpec,
    address: String,
    rows: u64,
    generator: Generator,
    shape: Shape,
}

fn open(place: Place, spec: &DataSpec) -> Result<Box<dyn Rows>> {
    let Place::Named(address) = place else {
        return Err(Fault::caller("synthetic data have an address, not a path"));
    };
    let rest = address.strip_prefix(SCHEME).unwrap_or(&address);
    let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
    let entry = Entry::find("generator", GENERATORS, name)
        .map_err(|fault| fault.during(address.clone()))?;
    let params = entry.check("generator", &table(&address, query)?)?;
    let generator = (entry.build)(&params);
    let rows = params.size(entry.params[0].name) as u64;
    let shape = match &generator {
        Generator::Counts(counts) => {
            Shape::Numbered { labels: false, sparse: true, width: Some(counts.width()) }
        }
        Generator::Columns(made) => {
            let names = made.columns().into_iter();
            let mut columns: Vec<Guess> = names
                .map(|(name, identities)| Guess { name, numbers: identities.is_none() })
                .collect();
            columns.push(Guess { name: made.label().to_string(), numbers: true });
            Shape::Columns { label: Some(columns.len() - 1), columns, named: true }
        }
    };
    Ok(Box::new(Synthetic { spec: spec.clone(), address, rows, generator, shape }))
}

/// `a=1&b=2.5` as a table.
fn table(address: &str, query: &str) -> Result<toml::Table> {
    let mut table = toml::Table::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, text) = pair.split_once('=').ok_or_else(|| {
            Fault::caller(format!("{address}: '{pair}' is not key=value"))
                .hint(format!("such as {SCHEME}classification?rows=1000&features=20"))
        })?;
        let value = match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => toml::Value::Integer(whole),
            (_, Ok(number)) => toml::Value::Float(number),
            _ => toml::Value::String(text.to_string()),
        };
        table.insert(key.to_string(), value);
    }
    Ok(table)
}

/// A size, for the generators' declarations.
const fn size(name: &'static str, default: &'static str, max: i64, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Integer { min: 1, max }, default: Some(default), help }
}

/// A scale, for the generators' declarations.
const fn scale(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Float { min: 0.0, max: 1e6 }, default: Some(default), help }
}

const ROWS_MAX: i64 = 1 << 40;

const SEED: Param = Param {
    name: "seed",
    kind: ParamKind::Integer { min: 0, max: i64::MAX },
    default: Some("1"),
    help: "the same seed makes the same rows",
};

impl Rows for Synthetic {
    fn name(&self) -> String {
        self.address.clone()
    }

    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn size(&self) -> Result<u64> {
        Ok(self.rows)
    }

    fn known(&self, encoding: Encoding, label: LabelNeed) -> Result<Option<(u64, Schema)>> {
        if self.spec.weight.is_some() || self.spec.group.is_some() {
            return Ok(None);
        }
        let choice = choose(&self.address, &self.shape, &self.spec, encoding, label)?;
        let mut schema = Schema {
            columns: vec![],
            encoding,
            features: 0,
            target: Target::None,
            label: choice.label.clone(),
        };
        let made = match &self.generator {
            Generator::Counts(counts) => {
                schema.features = counts.width();
                return Ok(Some((self.rows, schema)));
            }
            Generator::Columns(made) => made,
        };
        let columns = made.columns();
        for &position in &choice.features {
            // The label's column as a feature, or numbers as identities: only reading tells.
            let Some((name, identities)) = columns.get(position).cloned() else { return Ok(None) };
            let kind = match (identities, encoding) {
                (Some(count), _) => ColumnKind::Categorical {
                    codes: (0..count).map(|code| code.to_string()).collect(),
                },
                (None, Encoding::OneHot | Encoding::Codes) => ColumnKind::Numeric { mean: 0.0 },
                (None, Encoding::Identity) => return Ok(None),
            };
            schema.columns.push(Column { name, position, kind, missing: 0 });
        }
        schema.features = schema.columns.iter().map(|column| column.features(encoding)).sum();
        schema.target = match (label, made.classes()) {
            (LabelNeed::None, _) => Target::None,
            _ if choice.label.as_deref() != Some(made.label()) => return Ok(None),
            (LabelNeed::Number, _) => Target::Number,
            (LabelNeed::Class | LabelNeed::SomeClasses, None) => return Ok(None),
            (LabelNeed::Class | LabelNeed::SomeClasses, Some(count)) => {
                Target::Classes((0..count).map(|class| class.to_string()).collect())
            }
        };
        Ok(Some((self.rows, schema)))
    }

    fn read(&self, request: &Request<'_>, sink: &mut Sink<'_>) -> Result<()> {
        if let Some(tally) = request.tally {
            tally.update(self.address.as_bytes());
        }
        let mut row = request.rows.start;
        let end = self.rows.min(request.rows.end);
        let mut next = || {
            let task = (row < end).then(|| row..(row + ROWS).min(end));
            row += ROWS;
            Ok(task)
        };
        let work = |rows: &Range<u64>| match &self.generator {
            Generator::Columns(made) => columns_chunk(made.as_ref(), rows, request),
            Generator::Counts(counts) => Ok(counts_chunk(counts.as_ref(), rows)),
        };
        in_order(request.rows.start, &mut next, &work, sink)
    }
}

fn columns_chunk(
    made: &dyn MakeColumns,
    rows: &Range<u64>,
    request: &Request<'_>,
) -> Result<Chunk> {
    let reading = request.reading;
    let mut chunk = Chunk::dense(&reading.texts, reading.label.is_class());
    let mut all = vec![0.0; reading.roles.len()];
    let width = reading.texts.len();
    let mut values = vec![0.0; width * (rows.end - rows.start) as usize];
    for (at, row) in rows.clone().enumerate() {
        let last = all.len() - 1;
        all[last] = made.make(row, &mut all[..last]);
        for (column, (value, role)) in all.iter().zip(&reading.roles).enumerate() {
            match *role {
                Role::Skip => {}
                Role::Feature(slot) => {
                    values[at * width + slot] = match &mut chunk.texts[slot] {
                        None => *value,
                        Some(texts) => texts.code(&value.to_string())? as f32,
                    };
                }
                Role::Label => chunk.labels.push(match &mut chunk.classes {
                    None => *value,
                    Some(classes) => classes.code(&value.to_string())? as f32,
                }),
                Role::Weight if value.is_finite() && *value >= 0.0 => chunk.weights.push(*value),
                Role::Weight => {
                    let column = &reading.names[column];
                    return Err(Fault::caller(format!(
                        "row {row}, column '{column}': '{value}' {NO_WEIGHT}"
                    )));
                }
                Role::Group => chunk.groups.push(chunk.group_keys.code(&value.to_string())?),
            }
        }
        chunk.rows += 1;
    }
    chunk.features = Features::Dense { width, values };
    chunk.add_up();
    Ok(chunk)
}

fn counts_chunk(counts: &dyn MakeCounts, rows: &Range<u64>) -> Chunk {
    let mut chunk = Chunk::sparse(counts.width(), false);
    let Features::Sparse { starts, columns, values, .. } = &mut chunk.features else {
        unreachable!("made sparse above")
    };
    let mut entries = BTreeMap::new();
    for row in rows.clone() {
        entries.clear();
        counts.make(row, &mut entries);
        columns.extend(entries.keys());
        values.extend(entries.values());
        starts.push(columns.len());
    }
    chunk.rows = (rows.end - rows.start) as usize;
    chunk
}
