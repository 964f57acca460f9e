//! Clusters, densities, projections and selections against scikit-learn's figures (`bench/references/clusters.json`, made
//! anew by `bench/references/clusters.py`), and what sets each apart from its neighbours.

#![allow(clippy::unwrap_used, reason = "whatever fails here fails the test")]

mod bisecting;
mod bounds;
mod mixture;
mod power_iteration;
mod projection;
mod selection;
mod weights;

use serde_json::Value;
use starlings_core::{Entry, Fault, Result};
use starlings_data::{Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{LEARNERS, Learner};
use starlings_testkit::drive::{Drive, Driven, drive};
use std::io::Read;
use std::sync::Arc;

fn figures() -> Value {
    serde_json::from_str(include_str!("../../../../bench/references/clusters.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(all) => all.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

fn built(name: &str, params: &str) -> Box<dyn Learner> {
    tried(name, params).unwrap()
}

fn tried(name: &str, params: &str) -> Result<Box<dyn Learner>> {
    let entry = Entry::find("learner", LEARNERS, name)?;
    (entry.build)(&entry.check("learner", &params.parse().unwrap())?)
}

fn dense(width: usize, values: Vec<f32>) -> Table {
    Table::new(Features::Dense { width, values }, vec![])
}

fn sparse(table: &Table) -> Table {
    let Features::Dense { width, values } = &table.features else { panic!("dense") };
    let (mut starts, mut columns, mut entries) = (vec![0], vec![], vec![]);
    for row in values.chunks(*width) {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            entries.push(*value);
        }
        starts.push(columns.len());
    }
    let features = Features::Sparse { width: *width, starts, columns, values: entries };
    Table { features: features.into(), ..table.clone() }
}

fn iris() -> Table {
    let text = include_str!("../assets/iris.csv");
    let values = text.lines().skip(1).flat_map(|line| line.split(',').take(4));
    dense(4, values.map(|number| number.parse().unwrap()).collect())
}

fn digits() -> Table {
    let packed = include_bytes!("../../../data/assets/digits.csv.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let numbers: Vec<f32> = line.split(',').map(|number| number.parse().unwrap()).collect();
        values.extend(&numbers[..64]);
        labels.push(numbers[64]);
    }
    Table { labels, ..dense(64, values) }
}

/// The rows of `generated` in `clusters.py`.
fn made() -> Table {
    let value = |i: u64, j: u64| {
        let h = (i * 7919 + j * 104_729 + i * j * 31 + (i * i) % 1009 * 17) % 4001;
        let group = i % 3;
        h as f64 / 1000.0 + if group == j { group as f64 * 9.0 + 4.0 } else { 0.0 }
    };
    dense(4, (0..600).flat_map(|i| (0..4).map(move |j| value(i, j) as f32)).collect())
}

fn schema(table: &Table) -> Schema {
    let classes = table.labels.iter().fold(-1.0f32, |most, label| most.max(*label)) as i64 + 1;
    let target = match classes {
        0 => Target::None,
        _ => Target::Classes((0..classes).map(|class| class.to_string()).collect()),
    };
    Schema {
        columns: vec![],
        encoding: Encoding::OneHot,
        features: table.width(),
        target,
        label: None,
    }
}

fn fit(learner: &dyn Learner, table: &Table, workers: u32) -> Driven {
    fitted(learner, table, &Drive { workers, ..Drive::default() }).unwrap()
}

fn refused(learner: &dyn Learner, table: &Table) -> Fault {
    fitted(learner, table, &Drive::default()).unwrap_err()
}

fn fitted(learner: &dyn Learner, table: &Table, options: &Drive) -> Result<Driven> {
    let facts = options.facts(&schema(table), table.rows() as u64);
    drive(learner, &facts, &Holding::whole(Arc::new(table.clone()), options.shards), options)
}

fn predictions(learner: &dyn Learner, driven: &Driven, table: &Table) -> Vec<f64> {
    let holding = Holding::whole(Arc::new(table.clone()), 1);
    let mut out = Vec::new();
    let dealer = starlings_data::Dealer::new(holding, 0, 1);
    learner.predict(&driven.model, &dealer.everything(), &mut out).unwrap();
    out
}

fn close(found: &[f64], wanted: &[f64], bound: f64) {
    assert_eq!(found.len(), wanted.len());
    let scale = wanted.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= bound * scale, "{found}, not {wanted}");
    }
}
