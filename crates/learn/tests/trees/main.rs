//! Tree learners: against other libraries on real data, against brute force on small data, the same bits for any
//! number of workers, and the corners of their input.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod continuing;
mod corners;
mod exchanges;
mod forests;
mod oracle;
mod peers;
mod reading;
mod workers;

use starlings_core::{Entry, Result};
use starlings_data::{
    Column, ColumnKind, Dealer, Encoding, Features, Holding, Schema, Table, Target,
};
use starlings_learn::{LEARNERS, Learner, Task};
use starlings_testkit::drive::{Drive, Driven, drive};
use std::sync::Arc;

fn learner(name: &str, parameters: &str) -> Box<dyn Learner> {
    build(name, parameters).unwrap()
}

fn build(name: &str, parameters: &str) -> Result<Box<dyn Learner>> {
    let entry = Entry::find("learner", LEARNERS, name).unwrap();
    let params = entry.check("learner", &parameters.parse().unwrap()).unwrap();
    (entry.build)(&params)
}

/// A schema of numbers, with as many classes as the labels have where classes are wanted.
fn schema(learner: &dyn Learner, table: &Table) -> Schema {
    let classes =
        table.labels.iter().fold(0.0, |most: f32, &label| most.max(label)).min(1e6) as usize + 1;
    let target = match learner.task() {
        Task::Classification => {
            Target::Classes((0..classes.max(2)).map(|c| c.to_string()).collect())
        }
        Task::Anomaly => Target::None,
        _ => Target::Number,
    };
    let encoding = Encoding::Codes;
    Schema { columns: vec![], encoding, features: table.width(), target, label: None }
}

/// The same with columns that have names; those with codes are categories.
fn named(mut schema: Schema, codes: &[(&str, usize)]) -> Schema {
    let column = |(position, (name, codes)): (usize, &(&str, usize))| Column {
        name: (*name).to_string(),
        position,
        kind: match codes {
            0 => ColumnKind::Numeric { mean: 0.0 },
            _ => ColumnKind::Categorical { codes: (0..*codes).map(|c| c.to_string()).collect() },
        },
        missing: 0,
    };
    schema.columns = codes.iter().enumerate().map(column).collect();
    schema
}

fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Table {
    Table::new(Features::Dense { width, values }, labels)
}

fn train_on(learner: &dyn Learner, table: &Table, schema: &Schema, workers: u32) -> Result<Driven> {
    let options = Drive { workers, ..Drive::default() };
    let facts = options.facts(schema, table.rows() as u64);
    drive(learner, &facts, &Holding::whole(Arc::new(table.clone()), 16), &options)
}

fn train(name: &str, parameters: &str, table: &Table, workers: u32) -> Driven {
    let learner = learner(name, parameters);
    let schema = schema(&*learner, table);
    train_on(&*learner, table, &schema, workers).unwrap()
}

fn predict(learner: &dyn Learner, driven: &Driven, table: &Table) -> Vec<f64> {
    let dealer = Dealer::new(Holding::whole(Arc::new(table.clone()), 1), 0, 1);
    let mut out = Vec::new();
    learner.predict(&driven.model, &dealer.everything(), &mut out).unwrap();
    out
}
