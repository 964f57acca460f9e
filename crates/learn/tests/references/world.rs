//! What these tests share: building learners, small data, training, comparing.

use serde_json::Value;
use starlings_core::{Entry, Fault, Model};
use starlings_data::{
    Column, ColumnKind, Dealer, Encoding, Features, Holding, Schema, Table, Target,
};
use starlings_learn::{LEARNERS, Learner};
use starlings_testkit::drive::{Drive, Driven, drive};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

/// A learner with parameters as in a job.
pub(crate) fn learner(name: &str, params: &str) -> Box<dyn Learner> {
    let entry = Entry::find("learner", LEARNERS, name).unwrap();
    (entry.build)(&entry.check("learner", &params.parse().unwrap()).unwrap()).unwrap()
}

/// Features without names, and this many classes; none means numbers.
pub(crate) fn schema(features: usize, classes: usize) -> Schema {
    let target = match classes {
        0 => Target::Number,
        _ => Target::Classes((0..classes).map(|class| class.to_string()).collect()),
    };
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

/// Numeric columns with these names.
pub(crate) fn named(names: &[&str]) -> Schema {
    let column = |(position, name): (usize, &&str)| Column {
        name: (*name).to_string(),
        position,
        kind: ColumnKind::Numeric { mean: 0.0 },
        missing: 0,
    };
    let columns = names.iter().enumerate().map(column).collect();
    Schema { columns, ..schema(names.len(), 0) }
}

/// Trains, or says why not.
pub(crate) fn try_train(
    learner: &dyn Learner,
    table: &Arc<Table>,
    schema: &Schema,
    options: &Drive,
) -> Result<Driven, Fault> {
    let facts = options.facts(schema, table.rows() as u64);
    drive(learner, &facts, &Holding::whole(Arc::clone(table), options.shards), options)
}

/// Trains on three workers.
pub(crate) fn train(learner: &dyn Learner, table: &Arc<Table>, schema: &Schema) -> Driven {
    let options = Drive { workers: 3, ..Drive::default() };
    try_train(learner, table, schema, &options).unwrap()
}

/// Predictions for all rows.
pub(crate) fn predict(learner: &dyn Learner, model: &Model, table: &Arc<Table>) -> Vec<f64> {
    let mut out = Vec::new();
    let dealer = Dealer::new(Holding::whole(Arc::clone(table), 1), 1, 1);
    learner.predict(model, &dealer.everything(), &mut out).unwrap();
    out
}

/// Rows held dense.
pub(crate) fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Arc<Table> {
    Arc::new(Table::new(Features::Dense { width, values }, labels))
}

/// The same rows held sparse.
pub(crate) fn sparse(table: &Table) -> Arc<Table> {
    let Features::Dense { width, values } = &table.features else { panic!("dense wanted") };
    let (mut starts, mut columns, mut kept) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks_exact(*width) {
        for (column, &value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            kept.push(value);
        }
        starts.push(kept.len());
    }
    let features = Features::Sparse { width: *width, starts, columns, values: kept };
    Arc::new(Table { features: features.into(), ..table.clone() })
}

/// Rows of numbers separated by commas, the last of which is the label.
pub(crate) fn csv<'a>(lines: impl Iterator<Item = &'a str>) -> Arc<Table> {
    let (mut values, mut labels, mut width) = (Vec::new(), Vec::new(), 0);
    for line in lines {
        let numbers: Vec<f32> = line.split(',').map(|cell| cell.trim().parse().unwrap()).collect();
        let (label, features) = numbers.split_last().unwrap();
        width = features.len();
        values.extend_from_slice(features);
        labels.push(*label);
    }
    dense(width, values, labels)
}

/// All flowers.
pub(crate) fn iris() -> Arc<Table> {
    csv(include_str!("../assets/iris.csv").lines().skip(1))
}

/// The built-in digits: all but every fifth row, or these.
pub(crate) fn digits(test: bool) -> Arc<Table> {
    let mut text = String::new();
    let packed = &include_bytes!("../../../data/assets/digits.csv.gz")[..];
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    csv(text.lines().enumerate().filter(|(row, _)| (row % 5 == 4) == test).map(|(_, line)| line))
}

/// The text of a file of the shared data sets, unpacked; none, with a message, where they are not.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn shared(name: &str) -> Option<String> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data"));
    let Ok(bytes) = std::fs::read(folder.join(name)) else {
        eprintln!("skipped: {name} is not there");
        return None;
    };
    let mut text = String::new();
    match name.ends_with(".gz") {
        true => flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap(),
        false => bytes.as_slice().read_to_string(&mut text).unwrap(),
    };
    Some(text)
}

/// The figures of a family.
pub(crate) fn figures(family: &str) -> Value {
    let path = format!("{}/../../bench/references/{family}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A list of numbers, nested or not.
pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(inner) => inner.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

/// The same as f32.
pub(crate) fn floats(value: &Value) -> Vec<f32> {
    numbers(value).iter().map(|number| *number as f32).collect()
}

/// Compares number by number: relative where they are large, absolute where they are small.
#[track_caller]
pub(crate) fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs() / expected.abs().max(1.0);
        assert!(off <= tolerance, "{what}, number {at}: {found} is not {expected}");
    }
}
