//! Preparation inside the model: steps between the columns of a file and the features of a learner. They are fitted on
//! the training rows, stored in the model and applied wherever rows are read, so that a trained model takes raw files.
//!
//! A step replaces the columns it takes by others; what is left at the end is encoded as always (numbers, then categories
//! as the learner wants them). Statistics are sums over rows, added up chunk by chunk. Each file here is one step, or a
//! part that several steps share.

mod bin;
mod byte_pairs;
mod fit;
mod frame;
mod hash;
mod impute;
mod murmur;
mod n_grams;
mod one_hot;
mod outputs;
mod polynomial;
mod quantiles;
mod scale;
mod select_l1;
mod target;
mod tf_idf;
mod token_rows;
mod tokens;

pub(crate) use fit::Fitter;
pub use fit::check;
pub(crate) use frame::Frame;
pub use frame::{Cells, Series};
pub(crate) use outputs::{Census, Output, assemble};

use crate::chunk::Chunk;
use crate::{Column, ColumnKind, Encoding, Features};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Params, Result};
use std::collections::{BTreeMap, BTreeSet};

/// How a preparation is built from its parameters.
pub type BuildPreparation = fn(&Params) -> Result<Box<dyn Preparation>>;

/// All preparations, for `starlings list preparations` and for `[[prepare]]` of a job.
pub const PREPARATIONS: &[Entry<BuildPreparation>] = &[
    scale::ENTRY,
    impute::ENTRY,
    one_hot::ENTRY,
    target::ENTRY,
    hash::ENTRY,
    bin::ENTRY,
    polynomial::ENTRY,
    tf_idf::ENTRY,
    n_grams::ENTRY,
    token_rows::ENTRY,
    select_l1::ENTRY,
];

/// One step as a job describes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepSpec {
    /// An entry of [`PREPARATIONS`].
    pub name: String,
    /// The columns it takes; without it all that it is made for.
    pub columns: Option<Vec<String>>,
    /// Its parameters, as TOML.
    pub given: String,
}

/// A step that is not fitted yet.
pub trait Preparation: Send + Sync {
    /// Whether it takes a column of this kind when the job names no columns.
    fn takes(&self, kind: Kind) -> bool;

    /// Statistics before the first row.
    fn begin(&self, inputs: usize) -> Box<dyn Statistics>;
}

/// What a column holds on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Numbers.
    Numbers,
    /// Texts.
    Texts,
    /// Many features at once.
    Block,
}

/// What a step learns from rows: sums, so that the order of chunks does not matter.
pub trait Statistics: Send {
    /// Takes the next rows; `inputs` are the step's columns.
    ///
    /// # Errors
    /// When a column is of a kind that the step does not take.
    fn add(&mut self, inputs: &[&Series], labels: &Labels<'_>) -> Result<()>;

    /// The fitted step.
    ///
    /// # Errors
    /// When the rows do not define it.
    fn finish(self: Box<Self>) -> Result<Fitted>;
}

/// The labels of some rows, and where the rows stand.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// One a row; codes of classes, or numbers; empty when there are none.
    pub values: &'a [f32],
    /// How many classes; 0 when labels are numbers.
    pub classes: usize,
    /// The number of the first row in the whole data set.
    pub first_row: u64,
}

/// A fitted step. One variant for each file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fitted {
    /// Numbers on a common scale.
    Scale(scale::Scale),
    /// Missing values filled.
    Impute(impute::Impute),
    /// A 0/1 feature for each category.
    OneHot(one_hot::OneHot),
    /// Categories as the labels they had.
    Target(target::Target),
    /// Columns hashed into a fixed number of features.
    Hash(hash::Hash),
    /// Numbers as the interval they fall into.
    Bin(bin::Bin),
    /// Products of columns.
    Polynomial(polynomial::Polynomial),
    /// Weighted words of texts.
    TfIdf(tf_idf::TfIdf),
    /// Hashed words of texts.
    NGrams(n_grams::NGrams),
    /// Texts as rows of tokens.
    Tokens(token_rows::Tokens),
    /// Columns that a penalised fit needs.
    SelectL1(select_l1::SelectL1),
}

/// Applies a fitted step.
pub(crate) trait Apply {
    /// What becomes of each input: its columns stand in its place. `first_row` is the number of the first row where the
    /// rows are those of the training, else `None`.
    fn apply(&self, inputs: Vec<Series>, first_row: Option<u64>) -> Result<Vec<Vec<Series>>>;

    /// The names of the features of a block that this step made of its input number `which`, called `input`.
    fn names(&self, which: usize, input: &str, width: usize) -> Vec<String> {
        let _ = which;
        (0..width).map(|feature| format!("{input}[{feature}]")).collect()
    }
}

impl Fitted {
    pub(crate) fn step(&self) -> &dyn Apply {
        match self {
            Fitted::Scale(step) => step,
            Fitted::Impute(step) => step,
            Fitted::OneHot(step) => step,
            Fitted::Target(step) => step,
            Fitted::Hash(step) => step,
            Fitted::Bin(step) => step,
            Fitted::Polynomial(step) => step,
            Fitted::TfIdf(step) => step,
            Fitted::NGrams(step) => step,
            Fitted::Tokens(step) => step,
            Fitted::SelectL1(step) => step,
        }
    }
}

/// A fitted step and the columns it takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The entry's name.
    pub name: String,
    /// The columns it takes, by the names they have when the steps before are done.
    pub inputs: Vec<String>,
    /// What was learnt.
    pub fitted: Fitted,
}

/// All that turns the columns of a file into features.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// The columns of the file; empty for files whose features have numbers instead of names.
    pub raw: Vec<Column>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// What is left when all steps are done.
    pub(crate) outputs: Vec<Output>,
    /// Whether rows are kept sparse.
    pub(crate) sparse: bool,
    /// Features of files without columns.
    pub(crate) raw_width: usize,
}

impl Prepared {
    /// Whether nothing is prepared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The same without what only the training rows need.
    #[must_use]
    pub fn for_prediction(mut self) -> Prepared {
        for step in &mut self.steps {
            if let Fitted::Target(target) = &mut step.fitted {
                target.forget_folds();
            }
        }
        self
    }

    /// Whether a step reads texts letter by letter. Rows that are encoded have them no more.
    #[must_use]
    pub fn reads_letters(&self) -> bool {
        let letters = |step: &Step| {
            matches!(
                step.fitted,
                Fitted::TfIdf(_) | Fitted::NGrams(_) | Fitted::Hash(_) | Fitted::Tokens(_)
            )
        };
        self.steps.iter().any(letters)
    }

    /// The same for rows that are encoded: the codes of its raw columns are the texts that its steps tell apart.
    ///
    /// # Errors
    /// When the steps cannot be written down.
    pub fn with_codes(mut self) -> Result<Prepared> {
        let known = serde_json::to_value((&self.steps, &self.outputs))
            .map_err(|error| Fault::caller("the preparation cannot be read").caused_by(error))?;
        let mut texts = BTreeSet::new();
        collect(&known, &mut texts);
        for column in &mut self.raw {
            if let ColumnKind::Categorical { codes } = &mut column.kind {
                *codes = texts.iter().cloned().collect();
            }
        }
        Ok(self)
    }

    /// As one text, to be kept beside other things.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn to_text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Fault::caller("the preparation cannot be written").caused_by(error))
    }

    /// From that text.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_text(text: &str) -> Result<Prepared> {
        serde_json::from_str(text)
            .map_err(|error| Fault::caller("the preparation is broken").caused_by(error))
    }

    /// The features of rows that are at hand as the raw columns have them: numbers, and codes of texts; NaN is missing.
    ///
    /// # Errors
    /// When a step refuses a value.
    pub fn features(&self, values: &[f32], encoding: Encoding) -> Result<Features> {
        let (width, mut values) = (self.raw.len().max(1), values.to_vec());
        let mut seen = Vec::with_capacity(width);
        for (slot, column) in self.raw.iter().enumerate() {
            let ColumnKind::Categorical { codes } = &column.kind else {
                seen.push(None);
                continue;
            };
            // A step may refuse a text that it does not know: it is shown those that rows have, and no others.
            let (mut places, mut texts) = (BTreeMap::new(), Vec::new());
            for value in values.iter_mut().skip(slot).step_by(width).filter(|it| !it.is_nan()) {
                let code = *value as usize;
                let place = *places.entry(code).or_insert_with(|| {
                    texts.push(codes.get(code).cloned().unwrap_or_default());
                    texts.len() - 1
                });
                *value = place as f32;
            }
            seen.push(Some(texts));
        }
        let texts = |slot: usize| seen[slot].clone();
        let frame = Frame::of_rows(values.len() / width, &values, (&self.raw, &texts));
        let frame = walk(&self.steps, frame, None)?;
        Ok(assemble(&frame, self, encoding))
    }

    /// The columns of a chunk when all steps are done.
    pub(crate) fn apply(&self, chunk: &mut Chunk, first_row: Option<u64>) -> Result<Frame> {
        walk(&self.steps, Frame::of_chunk(chunk, &self.raw), first_row)
    }
}

/// All texts within a document; some that are no categories are among them, and do no harm.
fn collect(document: &serde_json::Value, texts: &mut BTreeSet<String>) {
    match document {
        serde_json::Value::String(text) => drop(texts.insert(text.clone())),
        serde_json::Value::Array(many) => many.iter().for_each(|one| collect(one, texts)),
        serde_json::Value::Object(fields) => {
            texts.extend(fields.keys().cloned());
            fields.values().for_each(|one| collect(one, texts));
        }
        _ => {}
    }
}

/// Takes a frame through some steps.
pub(crate) fn walk(steps: &[Step], mut frame: Frame, first_row: Option<u64>) -> Result<Frame> {
    for (at, step) in steps.iter().enumerate() {
        let positions = positions(&frame, &step.inputs, &step.name)?;
        let inputs: Vec<Series> = positions.iter().map(|&at| frame.columns[at].take()).collect();
        let made = step.fitted.step().apply(inputs, first_row);
        let made = made.map_err(|fault| fault.during(format!("preparation '{}'", step.name)))?;
        let mut places: Vec<Vec<Series>> = frame.columns.into_iter().map(|it| vec![it]).collect();
        for (which, (position, mut columns)) in positions.into_iter().zip(made).enumerate() {
            for column in &mut columns {
                column.maker = column.maker.or(Some((at, which)));
            }
            places[position] = columns;
        }
        frame.columns = places.into_iter().flatten().collect();
    }
    Ok(frame)
}

fn positions(frame: &Frame, inputs: &[String], step: &str) -> Result<Vec<usize>> {
    let find = |name: &String| {
        let found = frame.columns.iter().position(|column| column.name == *name);
        found.ok_or_else(|| {
            let known: Vec<&str> = frame.columns.iter().map(|it| it.name.as_str()).collect();
            Fault::caller(format!("preparation '{step}': there is no column '{name}'"))
                .hint(starlings_core::suggestion(name, &known))
        })
    };
    inputs.iter().map(find).collect()
}

/// A column of the wrong kind.
pub(crate) fn wrong_kind(column: &Series, wanted: &str) -> Fault {
    let holds = match column.cells.kind() {
        Kind::Numbers => "numbers",
        Kind::Texts => "texts",
        Kind::Block => "many features at once",
    };
    Fault::caller(format!("column '{}' holds {holds}, and the step wants {wanted}", column.name))
        .hint("name the columns it is to take: columns = [\"…\"]")
}
