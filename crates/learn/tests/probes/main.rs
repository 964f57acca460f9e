//! The learners that strain the trait: resident rows with memory that can be rebuilt (boosted stumps), stages
//! with wires (pipelined perceptron), memory that cannot be rebuilt and counts that servers own (topics).

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod boosted_stumps;
mod pipelined_perceptron;
mod topic_model;

use starlings_core::Entry;
use starlings_data::{Encoding, Features, Holding, Schema, Table, Target};
use starlings_learn::{LEARNERS, Learner};
use std::sync::Arc;

/// Knuth's generator (MMIX): short enough to be written again in the scripts that made the references.
struct Knuth(u64);

impl Knuth {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn learner(name: &str, parameters: &str) -> Box<dyn Learner> {
    let entry = Entry::find("learner", LEARNERS, name).unwrap();
    let params = entry.check("learner", &parameters.parse().unwrap()).unwrap();
    let learner = (entry.build)(&params).unwrap();
    assert_eq!((learner.gives(), learner.requires()), (entry.gives, entry.needs));
    learner
}

fn schema(features: usize, classes: usize) -> Schema {
    let target = match classes {
        0 => Target::None,
        _ => Target::Classes((0..classes).map(|class| class.to_string()).collect()),
    };
    Schema { columns: vec![], encoding: Encoding::OneHot, features, target, label: None }
}

fn dense(width: usize, values: Vec<f32>, labels: Vec<f32>) -> Holding {
    Holding::whole(Arc::new(Table::new(Features::Dense { width, values }, labels)), 16)
}

/// The same rows with their zeros left out.
fn sparse(holding: &Holding) -> Holding {
    let Features::Dense { width, values } = &holding.table.features else { panic!("dense") };
    let (mut starts, mut columns, mut kept) = (vec![0], vec![], vec![]);
    for row in values.chunks_exact(*width) {
        for (column, &x) in (0..).zip(row).filter(|(_, x)| **x != 0.0) {
            columns.push(column);
            kept.push(x);
        }
        starts.push(columns.len());
    }
    let features = Features::Sparse { width: *width, starts, columns, values: kept };
    Holding::whole(Arc::new(Table::new(features, holding.table.labels.clone())), 16)
}
