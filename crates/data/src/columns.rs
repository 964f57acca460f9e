//! Which column is the label and which are features: by the job's words when a model is trained, by the
//! schema in the model when it is used.

use crate::sources::{Guess, Reading, Role, Shape};
use crate::{ColumnKind, ColumnRef, DataSpec, Encoding, LabelNeed, Schema, Target};
use starlings_core::{Fault, Result, suggestion};

/// Column names that mean the label when the job names none.
const LABEL_NAMES: [&str; 4] = ["label", "class", "target", "y"];

/// What a job wants of the columns.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) reading: Reading,
    /// The column of each feature slot.
    pub(crate) features: Vec<usize>,
    /// The label's name.
    pub(crate) label: Option<String>,
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
    let features = match &spec.features {
        None => (0..columns.len()).filter(|column| Some(*column) != label).collect(),
        Some(wanted) => wanted.iter().map(find).collect::<Result<Vec<usize>>>()?,
    };
    let mut roles = vec![Role::Skip; columns.len()];
    if let (Some(label), true) = (label, need != LabelNeed::None) {
        roles[label] = Role::Label;
    }
    for (slot, &column) in features.iter().enumerate() {
        if roles[column] != Role::Skip || Some(column) == label {
            let column = &columns[column].name;
            return Err(Fault::caller(format!("column '{column}' of {name} is chosen twice"))
                .hint("the label cannot be a feature, and a feature comes once"));
        }
        roles[column] = Role::Feature(slot);
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
    let label = label.map(|label| names[label].clone());
    Ok(Choice { reading: Reading { roles, names, texts, label: need }, features, label })
}

fn numbered(
    name: &str,
    shape: &Shape,
    spec: &DataSpec,
    encoding: Encoding,
    need: LabelNeed,
) -> Result<Choice> {
    let Shape::Numbered { labels, .. } = shape else { unreachable!("columns are handled before") };
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
    let reading = Reading { roles: vec![], names: vec![], texts: vec![], label: need };
    Ok(Choice { reading, features: vec![], label: None })
}

/// Finds the columns of a schema in another file.
pub(crate) fn by_schema(
    name: &str,
    shape: &Shape,
    spec: &DataSpec,
    schema: &Schema,
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
            Ok(Reading { roles, names, texts, label })
        }
        Shape::Numbered { labels, width, .. } if schema.columns.is_empty() => {
            if let Some(width) = width.filter(|width| *width != schema.features) {
                return Err(Fault::caller(format!(
                    "{name} has {width} features a row, and the model was trained on {}",
                    schema.features
                )));
            }
            let label = if *labels { need } else { LabelNeed::None };
            Ok(Reading { roles: vec![], names: vec![], texts: vec![], label })
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
