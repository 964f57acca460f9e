//! Looking into a trained model: importances, trees, and what the prediction is for each value of a column.

use crate::predictor::Predictor;
use starlings_core::{Fault, Result, nearest};
use starlings_data::{Column, ColumnKind, DataSpec, Encoding, Features, Row, Schema, Table};
use starlings_learn::{Branch, Importance, Samples, partial_dependence, permutation_importance};

/// Rows that are looked at: more cost time and change little.
const ROWS_MAX: usize = 2_000;
/// How often each feature is shuffled.
const SHUFFLES: usize = 3;
/// Values of a column at which the prediction is asked for.
const PLACES_MAX: usize = 24;

/// The mean prediction for each value of a column.
#[derive(Clone, PartialEq, Debug)]
pub struct Dependence {
    /// The column.
    pub column: String,
    /// Its values: numbers, or the codes of categories.
    pub places: Vec<f64>,
    /// The categories; empty for numbers.
    pub names: Vec<String>,
    /// What the numbers of a prediction are.
    pub outputs: Vec<String>,
    /// The mean prediction at each value.
    pub means: Vec<Vec<f64>>,
}

impl Predictor {
    /// How much each feature is used, the most used first; empty where the model does not tell.
    #[must_use]
    pub fn importances(&self) -> Vec<Importance> {
        self.learner.importances(&self.file().model, self.schema())
    }

    /// A tree of the model by its number.
    #[must_use]
    pub fn tree(&self, number: usize) -> Option<Vec<Branch>> {
        self.learner.tree(&self.file().model, self.schema(), number)
    }

    /// Rows that the model makes up; `None` where it does not make any.
    #[must_use]
    pub fn samples(&self, count: usize, seed: u64) -> Option<Samples> {
        self.learner.samples(&self.file().model, count, seed)
    }

    /// How much worse the model predicts these rows when a feature is shuffled, the worst first (Breiman, 2001).
    ///
    /// # Errors
    /// When the data cannot be read, does not fit the model or has no labels.
    pub fn permutation(&self, data: &DataSpec) -> Result<Vec<(String, f64)>> {
        let table = thinned(&*self.labelled_rows(data)?);
        let found =
            permutation_importance(&*self.learner, &self.file().model, &table, (SHUFFLES, 0))?;
        let mut named: Vec<(String, f64)> = names(self.schema()).into_iter().zip(found).collect();
        named.sort_by(|a, b| b.1.total_cmp(&a.1));
        Ok(named)
    }

    /// The mean prediction of these rows when all have the same value in a column, for each of its values.
    ///
    /// # Errors
    /// When the data cannot be read, does not fit the model or has no such column.
    pub fn dependence(&self, data: &DataSpec, column: &str) -> Result<Dependence> {
        let schema = self.schema();
        let (first, kind) = place(schema, column)?;
        let table = thinned(&*self.rows(data)?);
        let (places, codes): (Vec<f64>, Vec<String>) = match &kind {
            Some(ColumnKind::Categorical { codes }) => {
                let shown = codes.iter().take(PLACES_MAX).cloned();
                shown.enumerate().map(|(code, name)| (code as f64, name)).unzip()
            }
            _ => (values(&table, first), Vec::new()),
        };
        let one_hot = schema.encoding == Encoding::OneHot && !codes.is_empty();
        let width = match &kind {
            Some(ColumnKind::Categorical { codes }) if one_hot => codes.len(),
            _ => 1,
        };
        let choice = |&place: &f64| match one_hot {
            true => (0..width)
                .map(|code| (first + code, f32::from(u8::from(code == place as usize))))
                .collect(),
            false => vec![(first, place as f32)],
        };
        let choices: Vec<_> = places.iter().map(choice).collect();
        let means = partial_dependence(&*self.learner, &self.file().model, &table, &choices)?;
        Ok(Dependence {
            column: column.to_string(),
            places,
            names: codes,
            outputs: self.names(),
            means,
        })
    }
}

/// The first feature of a column, and what it holds; columns without names go by their numbers.
fn place(schema: &Schema, name: &str) -> Result<(usize, Option<ColumnKind>)> {
    let mut first = 0;
    for column in &schema.columns {
        if column.name == name {
            return Ok((first, Some(column.kind.clone())));
        }
        first += column.features(schema.encoding);
    }
    match name.parse::<usize>() {
        Ok(number) if schema.columns.is_empty() && number < schema.features => Ok((number, None)),
        _ => {
            let known: Vec<&str> =
                schema.columns.iter().map(|column| column.name.as_str()).collect();
            let fault = Fault::caller(format!("the model has no column '{name}'"));
            Err(match nearest(name, known.iter().copied()) {
                Some(near) => fault.hint(format!("did you mean '{near}'?")),
                None if known.is_empty() => fault.hint(format!(
                    "its columns are numbers from 0 to {}",
                    schema.features.saturating_sub(1)
                )),
                None => fault.hint(format!("its columns are {}", known.join(", "))),
            })
        }
    }
}

/// The names of features.
fn names(schema: &Schema) -> Vec<String> {
    let of = |column: &Column| match (&column.kind, schema.encoding) {
        (ColumnKind::Categorical { codes }, Encoding::OneHot) => {
            codes.iter().map(|code| format!("{}={code}", column.name)).collect()
        }
        _ => vec![column.name.clone()],
    };
    match schema.columns.is_empty() {
        true => (0..schema.features).map(|at| format!("feature {at}")).collect(),
        false => schema.columns.iter().flat_map(of).collect(),
    }
}

/// Values of a feature: all, if there are few, else as many quantiles.
fn values(table: &Table, feature: usize) -> Vec<f64> {
    let Features::Dense { width, values } = &table.features else { return Vec::new() };
    let column = values.iter().skip(feature).step_by((*width).max(1));
    let mut sorted: Vec<f32> = column.copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f32::total_cmp);
    let mut distinct = sorted.clone();
    distinct.dedup();
    if distinct.len() > PLACES_MAX {
        let last = sorted.len() - 1;
        distinct = (0..PLACES_MAX).map(|at| sorted[at * last / (PLACES_MAX - 1)]).collect();
        distinct.dedup();
    }
    distinct.into_iter().map(f64::from).collect()
}

/// Rows at even distances, every number written out.
fn thinned(table: &Table) -> Table {
    let (rows, width) = (table.rows(), table.width());
    let kept = rows.min(ROWS_MAX);
    let chosen: Vec<usize> = (0..kept).map(|at| at * rows / kept.max(1)).collect();
    let mut values = vec![0.0; kept * width];
    for (&row, into) in chosen.iter().zip(values.chunks_exact_mut(width.max(1))) {
        match table.row(row) {
            Row::Dense(from) => into.copy_from_slice(from),
            Row::Sparse(columns, from) => {
                columns.iter().zip(from).for_each(|(&at, &value)| into[at as usize] = value);
            }
        }
    }
    let labels = chosen.iter().filter_map(|&row| table.labels.get(row).copied()).collect();
    Table::new(Features::Dense { width, values }, labels)
}
