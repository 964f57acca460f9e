//! Which column is the label and which are features: by the job's words when a model is trained, by the
//! schema in the model when it is used.

use crate::sources::{Guess, Reading, Role, Shape};
use crate::{ColumnKind, ColumnRef, DataSpec, Encoding, LabelNeed, Schema, Target};
use serde::{Deserialize, Serialize};
use starlings_core::{Fault, Result, suggestion};

/// Column names that mean the label when the job names none.
const LABEL_NAMES: [&str; 4] = ["label", "class", "target", "y"];

/// The field of libsvm files that says the group of a row.
const QUERIES: &str = "qid";

/// What a job wants of the columns.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) reading: Reading,
    /// The column of each feature slot.
    pub(crate) features: Vec<usize>,
    /// The label's name.
    pub(crate) label: Option<String>,
    /// The names of the columns of weights and of groups.
    pub(crate) beside: Beside,
}

/// Columns that are neither features nor labels, by name.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Beside {
    /// How much rows count.
    #[serde(default)]
    pub weight: Option<String>,
    /// Which group rows belong to.
    #[serde(default)]
    pub group: Option<String>,
}

/// Chooses columns for training.
pub(crate) fn choose(
    name: &str,
    shape: &Shape,
    spec: &DataSpec,
    encoding: Encoding,
    need: LabelNeed,
) -> Result<Choice> {
    let Shape::Columns { columns, label, .. } = shape else {
        return numbered(name, shape, spec, encoding, need);
    };
    let find = |wanted: &ColumnRef| find(name, columns, wanted);
    let label = match (&spec.label, need) {
        (Some(wanted), _) => Some(find(wanted)?),
        (None, LabelNeed::None) => *label,
        (None, _) => {
            Some(label.or_else(|| usual_label(columns)).ok_or_else(|| no_label(name, columns))?)
        }
    };
    let weight = spec.weight.as_ref().map(find).transpose()?;
    let group = spec.grouped_by().map(find).transpose()?;
    let features = match &spec.features {
        None => {
            let apart = [label, weight, group];
            (0..columns.len()).filter(|column| !apart.contains(&Some(*column))).collect()
        }
        Some(wanted) => wanted.iter().map(find).collect::<Result<Vec<usize>>>()?,
    };
    let mut roles = vec![Role::Skip; columns.len()];
    let apart = [(label, Role::Label), (weight, Role::Weight), (group, Role::Group)];
    let features_of =
        features.iter().enumerate().map(|(slot, &at)| (Some(at), Role::Feature(slot)));
    for (column, role) in apart.into_iter().chain(features_of) {
        let Some(column) = column else { continue };
        if roles[column] != Role::Skip {
            let column = &columns[column].name;
            return Err(Fault::caller(format!("column '{column}' of {name} is chosen twice"))
                .hint("a column is the label, the weight, the group or a feature, and that once"));
        }
        roles[column] = role;
    }
    if let (Some(label), LabelNeed::None) = (label, need) {
        roles[label] = Role::Skip;
    }
    if features.is_empty() {
        return Err(Fault::caller(format!("{name} has no feature column"))
            .hint("is the delimiter right? `delimiter = \";\"` in [data] sets it"));
    }
    let texts = features
        .iter()
        .map(|&column| encoding == Encoding::Identity || !columns[column].numbers)
        .collect();
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let named = |column: Option<usize>| column.map(|column| names[column].clone());
    let (label, beside) = (named(label), Beside { weight: named(weight), group: named(group) });
    let reading = Reading { roles, names, texts, label: need, queries: false };
    Ok(Choice { reading, features, label, beside })
}

fn numbered(
    name: &str,
    shape: &Shape,
    spec: &DataSpec,
    encoding: Encoding,
    need: LabelNeed,
) -> Result<Choice> {
    let Shape::Numbered { labels, sparse, .. } = shape else {
        unreachable!("columns are handled before")
    };
    let refuse = |what: &str| Err(Fault::caller(format!("{name}: {what}")));
    if encoding == Encoding::Identity {
        return refuse("its features are numbers, and the learner wants columns of identities");
    }
    if spec.features.is_some() {
        return refuse("`features` chooses columns by name or position, and this format has none");
    }
    if need != LabelNeed::None && !labels {
        return refuse("it has no labels, and the learner needs them");
    }
    let queries = spec.grouped_by().is_some();
    if queries && !(*labels && *sparse && spec.grouped_by() == Some(&QUERIES.into())) {
        return refuse("`group` chooses a column, and this format has none (libsvm: \"qid\")");
    }
    if spec.weight.is_some() {
        return refuse("`weight` chooses a column, and this format has none").map_err(
            |fault: Fault| {
                fault.hint(
                    "write a weight a line into a file beside it, called as it with .weight behind",
                )
            },
        );
    }
    let reading = Reading { queries, ..numbers(need) };
    let group = queries.then(|| QUERIES.to_string());
    let beside = Beside { weight: None, group };
    Ok(Choice { reading, features: vec![], label: None, beside })
}

/// How rows of numbers without columns are read.
fn numbers(label: LabelNeed) -> Reading {
    Reading { roles: vec![], names: vec![], texts: vec![], label, queries: false }
}

/// Finds the columns of a schema in another file.
pub(crate) fn by_schema(
    name: &str,
    shape: &Shape,
    spec: &DataSpec,
    (schema, beside): (&Schema, &Beside),
) -> Result<Reading> {
    let need = match schema.target {
        Target::None => LabelNeed::None,
        Target::Classes(_) => LabelNeed::Class,
        Target::Number => LabelNeed::Number,
    };
    match shape {
        Shape::Columns { columns, named, label } if !schema.columns.is_empty() => {
            let features = features_of_schema(name, columns, *named, schema)?;
            let mut roles = vec![Role::Skip; columns.len()];
            for (slot, &column) in features.iter().enumerate() {
                roles[column] = Role::Feature(slot);
            }
            // Weights and groups are used where the file has them; what the caller names must be there.
            let by_name = |named: &Option<String>| {
                named.as_ref().and_then(|name| columns.iter().position(|it| it.name == *name))
            };
            let given = |wanted: &Option<ColumnRef>| {
                wanted.as_ref().map(|wanted| find(name, columns, wanted)).transpose()
            };
            for (given, known, role) in [
                (given(&spec.weight)?, by_name(&beside.weight), Role::Weight),
                (given(&spec.group)?, by_name(&beside.group), Role::Group),
            ] {
                let free = |column: &usize| roles[*column] == Role::Skip;
                if let Some(column) = given.or(known).filter(free) {
                    roles[column] = role;
                }
            }
            let label = label_of_schema(name, columns, spec, schema)?.or(*label);
            let label =
                label.filter(|&column| need != LabelNeed::None && roles[column] == Role::Skip);
            if let Some(column) = label {
                roles[column] = Role::Label;
            }
            let texts = schema
                .columns
                .iter()
                .map(|column| matches!(column.kind, ColumnKind::Categorical { .. }))
                .collect();
            let names = columns.iter().map(|column| column.name.clone()).collect();
            let label = if label.is_some() { need } else { LabelNeed::None };
            Ok(Reading { roles, names, texts, label, queries: false })
        }
        Shape::Numbered { labels, width, .. } if schema.columns.is_empty() => {
            if let Some(width) = width.filter(|width| *width != schema.features) {
                return Err(Fault::caller(format!(
                    "{name} has {width} features a row, and the model was trained on {}",
                    schema.features
                )));
            }
            let label = if *labels { need } else { LabelNeed::None };
            let queries = beside.group.is_some() || spec.group == Some(QUERIES.into());
            Ok(Reading { queries, ..numbers(label) })
        }
        _ => Err(Fault::caller(format!("{name} does not fit the model"))
            .caused_by("one has columns with names, the other features with numbers")
            .hint("use the kind of file that the model was trained on")),
    }
}

fn features_of_schema(
    name: &str,
    columns: &[Guess],
    named: bool,
    schema: &Schema,
) -> Result<Vec<usize>> {
    if named {
        let wanted = schema.columns.iter().map(|column| ColumnRef::Name(column.name.clone()));
        return wanted.map(|wanted| find(name, columns, &wanted)).collect();
    }
    let last = schema.columns.iter().map(|column| column.position).max().unwrap_or(0);
    if last < columns.len() {
        return Ok(schema.columns.iter().map(|column| column.position).collect());
    }
    // A file with exactly the feature columns: the label's column is gone, and those behind it moved up.
    if columns.len() == schema.columns.len() {
        let mut positions: Vec<usize> =
            schema.columns.iter().map(|column| column.position).collect();
        positions.sort_unstable();
        let place = |column: &crate::Column| positions.partition_point(|at| *at < column.position);
        return Ok(schema.columns.iter().map(place).collect());
    }
    Err(Fault::caller(format!(
        "{name} has {} columns, and the model needs column {last} (from 0)",
        columns.len()
    ))
    .hint("give the file a header, or the columns of the training data"))
}

fn label_of_schema(
    name: &str,
    columns: &[Guess],
    spec: &DataSpec,
    schema: &Schema,
) -> Result<Option<usize>> {
    match (&spec.label, &schema.label) {
        // The job's words for the training data come along; here the label may be absent.
        (Some(ColumnRef::Name(wanted)), _) if Some(wanted) != schema.label.as_ref() => {
            find(name, columns, &ColumnRef::Name(wanted.clone())).map(Some)
        }
        (_, Some(label)) => Ok(columns.iter().position(|column| column.name == *label)),
        (Some(wanted), None) => Ok(find(name, columns, wanted).ok()),
        (None, None) => Ok(None),
    }
}

fn usual_label(columns: &[Guess]) -> Option<usize> {
    let usual =
        |name: &&str| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
    LABEL_NAMES.iter().find_map(usual)
}

fn no_label(name: &str, columns: &[Guess]) -> Fault {
    let last = columns.last().map_or("", |column| column.name.as_str());
    Fault::caller(format!("{name}: the learner needs labels, and no column is called one")).hint(
        format!("say which it is in [data]: `label = \"{last}\"`, or `label = -1` for the last"),
    )
}

fn find(name: &str, columns: &[Guess], wanted: &ColumnRef) -> Result<usize> {
    let count = columns.len();
    match wanted {
        ColumnRef::Name(wanted) => {
            columns.iter().position(|column| column.name == *wanted).ok_or_else(|| {
                let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                Fault::caller(format!("{name} has no column '{wanted}'"))
                    .hint(suggestion(wanted, &known))
            })
        }
        ColumnRef::Index(index) => {
            let from_start = if *index < 0 { *index + count as i64 } else { *index };
            usize::try_from(from_start).ok().filter(|column| *column < count).ok_or_else(|| {
                Fault::caller(format!("{name} has no column {index}: it has {count} columns"))
                    .hint(format!("columns count from 0 to {}; -1 is the last", count - 1))
            })
        }
    }
}
