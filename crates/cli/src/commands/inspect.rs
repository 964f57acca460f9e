//! `starlings inspect`: what a model file, a data set or a folder of checkpoints holds.

use super::portrait::{self, PortraitArguments};
use crate::data_arguments::Reading;
use crate::output::{say, say_json, table};
use clap::Args;
use serde_json::{Value, json};
use starlings::observe::figures;
use starlings::{
    CheckpointStore, Column, ColumnKind, DataSpec, Encoding, Fault, LabelNeed, Predictor, Result,
    Role, Step, Survey, Target, survey,
};
use std::path::{Path, PathBuf};

/// Show what a model, a data set or a checkpoint holds
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  starlings inspect digits.safetensors         learner, parameters, columns, tensors, where it came from; trees and importances
  starlings inspect trees.safetensors --tree 7 one tree in full
  starlings inspect model.safetensors --data test.csv --column age    permutation importances and partial dependence
  starlings inspect trees.safetensors --output pictures/              the same as SVG and PNG
  starlings inspect data.csv --label price     rows, columns, missing values, classes
  starlings inspect checkpoints/               which checkpoints are whole")]
pub(crate) struct Arguments {
    /// A model file, a data set or a folder of checkpoints
    what: String,
    #[command(flatten)]
    portrait: PortraitArguments,
    #[command(flatten)]
    reading: Reading,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let path = Path::new(&arguments.what);
    let (value, text) = if path.extension().is_some_and(|it| it == "safetensors") {
        let predictor = Predictor::load(path)?;
        let (value, text) = model(path, &predictor);
        portrait::add(&predictor, &arguments.portrait, &arguments.reading, (value, text))?
    } else if arguments.portrait.is_given() {
        return Err(Fault::caller(format!("'{}' is not a model", arguments.what)).hint(
            "--data, --column, --tree, --depth and --output are for model files (.safetensors)",
        ));
    } else if let Some((folder, steps)) = checkpoints(path)? {
        checkpoint(&folder, &steps)?
    } else {
        data(&arguments.what, &arguments.reading.spec(&arguments.what))?
    };
    match arguments.json {
        true => say_json(&value),
        false => say(&text),
    }
}

type Shown = (Value, String);

fn model(path: &Path, predictor: &Predictor) -> Shown {
    let (file, schema) = (predictor.file(), predictor.schema());
    let tensors: Vec<Value> = file
        .model
        .iter()
        .filter(|(_, tensor)| tensor.role == Role::Weight)
        .map(|(name, tensor)| {
            json!({"name": name, "shape": tensor.shape, "kind": format!("{:?}", tensor.values.kind()).to_lowercase()})
        })
        .collect();
    let value = json!({
        "what": "model", "path": path, "learner": file.learner, "params": file.params,
        "schema": schema, "tensors": tensors, "provenance": file.provenance, "job": file.job,
    });
    let origin = &file.provenance;
    let mut rows = vec![
        pair("model", path.display()),
        pair("learner", &file.learner),
        pair("parameters", short(&file.params)),
        pair("features", figures::count(schema.features as u64)),
        pair("target", target(&schema.target, schema.label.as_deref())),
        pair(
            "trained",
            format!("{} steps on {} workers, seed {}", origin.steps, origin.workers, origin.seed),
        ),
        pair("training rows", short(&json!(origin.metrics))),
        pair("test rows", short(&json!(origin.evaluation))),
        pair("data digest", &origin.data_digest),
        pair("written by", format!("starlings {}", origin.starlings_version)),
    ];
    rows.retain(|row| !row[1].is_empty());
    let mut text = table(&rows) + "\ntensors\n";
    let cell = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let lines: Vec<Vec<String>> = tensors
        .iter()
        .map(|it| vec![format!("  {}", cell(&it["name"])), cell(&it["kind"]), cell(&it["shape"])])
        .collect();
    text += &table(&lines);
    text += &columns(&schema.columns);
    if let Some(words) = predictor.describe() {
        text = text + "\n" + &words;
    }
    (value, text)
}

/// The folder and the steps, if this is a folder of checkpoints or one checkpoint of it.
fn checkpoints(path: &Path) -> Result<Option<(PathBuf, Vec<Step>)>> {
    if path.to_str().is_some_and(starlings::is_address) {
        // What is no checkpoint there may be data, whose reader says what is wrong with the address.
        let steps = store(path).and_then(|store| store.steps()).unwrap_or_default();
        return Ok((!steps.is_empty()).then(|| (path.to_path_buf(), steps)));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let steps = store(path)?.steps()?;
    if !steps.is_empty() {
        return Ok(Some((path.to_path_buf(), steps)));
    }
    let path = path.canonicalize()?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let step = name.strip_prefix("step-").and_then(|step| step.parse().ok()).map(Step);
    match (path.parent(), step) {
        (Some(folder), Some(step)) => Ok(Some((folder.to_path_buf(), vec![step]))),
        _ => Ok(None),
    }
}

fn store(folder: &Path) -> Result<CheckpointStore> {
    starlings::checkpoint_store(folder, 2)
}

fn checkpoint(folder: &Path, steps: &[Step]) -> Result<Shown> {
    let store = store(folder)?;
    let mut values = Vec::new();
    let mut text = format!("checkpoints in {}\n", folder.display());
    for step in steps {
        let (value, lines) = match store.load(*step) {
            Ok(found) => whole(&found.manifest, *step),
            Err(fault) => broken(*step, &fault),
        };
        values.push(value);
        text += &lines;
    }
    Ok((json!({"what": "checkpoints", "path": folder, "checkpoints": values}), text))
}

fn whole(manifest: &starlings::Manifest, step: Step) -> Shown {
    let value = json!({
        "step": step, "verified": true, "bytes": manifest.bytes(), "workers": manifest.workers,
        "fingerprint": manifest.fingerprint, "parts": manifest.parts, "written_by": manifest.written_by,
    });
    let mut rows = vec![vec![
        format!("  after {} steps", step.0),
        figures::bytes(manifest.bytes()),
        "verified".to_string(),
    ]];
    rows.extend(
        manifest
            .parts
            .iter()
            .map(|part| vec![format!("    {}", part.name), figures::bytes(part.length)]),
    );
    (value, table(&rows))
}

fn broken(step: Step, fault: &Fault) -> Shown {
    let value = json!({"step": step, "verified": false, "fault": fault.message()});
    (value, format!("  after {} steps: not usable: {}\n", step.0, fault.message()))
}

/// More classes than this in a column of numbers means that the numbers are amounts.
const CLASSES_MAX: usize = 100;

fn data(what: &str, spec: &DataSpec) -> Result<Shown> {
    let survey = study(spec)?;
    let value = json!({
        "what": "data", "path": what, "format": survey.format, "rows": survey.rows,
        "features": survey.schema.features, "columns": survey.schema.columns, "target": survey.schema.target,
        "label": survey.schema.label, "class_rows": survey.class_rows, "entries": survey.entries,
        "files": survey.files.iter().map(|file| json!({"name": file.name, "rows": file.rows, "bytes": file.bytes}))
            .collect::<Vec<_>>(),
        "digest": survey.digest,
    });
    let schema = &survey.schema;
    let mut rows = vec![
        pair("data", what),
        pair("format", &survey.format),
        pair("files", survey.files.len()),
        pair("rows", figures::count(survey.rows)),
        pair("features", format!("{} after encoding", figures::count(schema.features as u64))),
    ];
    rows.push(pair("target", target(&schema.target, schema.label.as_deref())));
    rows.extend(survey.entries.map(|entries| pair("entries", figures::count(entries))));
    rows.push(pair("digest", &survey.digest));
    let mut text = table(&rows);
    if let (Target::Classes(classes), false) = (&schema.target, survey.class_rows.is_empty()) {
        let lines = classes.iter().zip(&survey.class_rows).take(SHOWN_MAX);
        let lines: Vec<_> =
            lines.map(|(class, rows)| pair(&format!("  {class}"), figures::count(*rows))).collect();
        text += &format!("\nrows of each class\n{}{}", table(&lines), more(classes.len()));
    }
    Ok((value, text + &columns(&schema.columns)))
}

/// Reads the labels as what they seem to be.
fn study(spec: &DataSpec) -> Result<Survey> {
    let as_classes = survey(spec, Encoding::OneHot, LabelNeed::Class);
    match as_classes {
        Ok(found) if found.schema.classes() <= CLASSES_MAX => Ok(found),
        Ok(found) => Ok(survey(spec, Encoding::OneHot, LabelNeed::Number).unwrap_or(found)),
        // No label was found or asked for: the columns are worth showing all the same.
        Err(_) if spec.label.is_none() => survey(spec, Encoding::OneHot, LabelNeed::None),
        Err(fault) => Err(fault),
    }
}

fn target(target: &Target, label: Option<&str>) -> String {
    let of = label.map(|label| format!(" in column '{label}'")).unwrap_or_default();
    match target {
        Target::None => "none".to_string(),
        Target::Number => format!("a number{of}"),
        Target::Classes(classes) => format!("{} classes{of}", classes.len()),
    }
}

/// Columns or classes shown to people; JSON has all.
const SHOWN_MAX: usize = 20;

fn columns(columns: &[Column]) -> String {
    if columns.is_empty() {
        return String::new();
    }
    let titles = ["  column", "kind", "missing", "values"].map(str::to_string).to_vec();
    let mut rows = vec![titles];
    rows.extend(columns.iter().take(SHOWN_MAX).map(|column| {
        let (kind, values) = match &column.kind {
            ColumnKind::Numeric { mean } => ("number", format!("mean {}", figures::number(*mean))),
            ColumnKind::Categorical { codes } => ("category", few(codes)),
        };
        vec![format!("  {}", column.name), kind.to_string(), figures::count(column.missing), values]
    }));
    format!("\ncolumns\n{}{}", table(&rows), more(columns.len()))
}

fn few(codes: &[String]) -> String {
    let first = codes.iter().take(4).map(String::as_str).collect::<Vec<_>>().join(", ");
    match codes.len() {
        0..=4 => first,
        count => format!("{first} … ({} in all)", figures::count(count as u64)),
    }
}

fn more(count: usize) -> String {
    match count.checked_sub(SHOWN_MAX) {
        None | Some(0) => String::new(),
        Some(rest) => format!("  and {} more (--json shows all)\n", figures::count(rest as u64)),
    }
}

fn pair(name: &str, value: impl std::fmt::Display) -> Vec<String> {
    vec![name.to_string(), value.to_string()]
}

/// A flat object as `a = 1, b = 2`.
fn short(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten();
    let one = |(name, value): (&String, &Value)| match value.as_f64() {
        Some(number) => format!("{name} = {}", figures::number(number)),
        None => format!("{name} = {value}"),
    };
    fields.map(one).collect::<Vec<_>>().join(", ")
}
