//! Ranges: values that come in several exchanges give what they give in one.

use super::*;
use crate::{Memory, NoWires, Outbox};
use starlings_core::{Rng, Step};
use starlings_data::{Dealer, Encoding, Features, Holding, Schema, Table, Target};
use std::sync::Arc;

/// Trains in one place, and says in how many steps.
fn train(table: &Arc<Table>, values_max: u64, increasing: Option<bool>) -> (Model, u64) {
    let learner = Isotonic { feature: "0".to_string(), increasing, values_max };
    let schema = Schema {
        columns: vec![],
        encoding: Encoding::OneHot,
        features: 1,
        target: Target::Number,
        label: None,
    };
    let rows = table.rows() as u64;
    let facts = Facts { rows, schema, shards: 4, seed: 1, epochs: None, steps: None, batch: 1 };
    let dealer = Dealer::new(Holding::whole(Arc::clone(table), 4), 1, 1);
    let batch = dealer.everything();
    let mut model = learner.init(&facts, Place::WHOLE).unwrap();
    for step in 0.. {
        let moment = Moment { step: Step(step), pass: 0, seed: 1, rows };
        let mut outbox = Outbox::new();
        let work = &mut Work {
            moment,
            place: Place::WHOLE,
            model: &model,
            batch: &batch,
            memory: &mut Memory::new(),
            wires: &mut NoWires,
            outbox: &mut outbox,
        };
        learner.contribute(work).unwrap();
        if learner.apply(&mut model, &outbox.take(), &moment).unwrap().done {
            return (model, step + 1);
        }
    }
    unreachable!("the loop is endless")
}

#[test]
fn values_in_ranges_give_what_all_at_once_give() {
    let mut rng = Rng::named(1, "ranges", &[]);
    let values: Vec<f32> = (0..500).map(|_| (rng.normal() * 3.0).round() as f32 / 4.0).collect();
    let labels = values.iter().map(|&x| x + rng.normal() as f32).collect();
    let table = Arc::new(Table::new(Features::Dense { width: 1, values }, labels));
    for increasing in [Some(true), Some(false), None] {
        let (whole, steps) = train(&table, 1000, increasing);
        assert_eq!(steps, if increasing.is_some() { 1 } else { 3 });
        let (ranges, more) = train(&table, 40, increasing);
        assert!(more > steps + 5, "{more} steps");
        for name in ["thresholds", "values"] {
            assert_eq!(whole.f64(name), ranges.f64(name));
        }
    }
}

/// The definition: at each value the largest, over starts at or before it, of the smallest, over ends at or after it,
/// of the mean between (Barlow et al., 1972, the min-max formulas).
#[test]
fn pooling_gives_what_the_max_min_formula_gives() {
    let mut rng = Rng::named(2, "formula", &[]);
    for rows in [1, 2, 3, 10, 40] {
        let labels: Vec<f32> = (0..rows).map(|at| at as f32 * 0.1 + rng.normal() as f32).collect();
        let values = (0..rows).map(|at| at as f32).collect();
        let mean = |from: usize, to: usize| {
            let sum: f64 = labels[from..=to].iter().map(|&y| f64::from(y)).sum();
            sum / (to + 1 - from) as f64
        };
        let table = Table::new(Features::Dense { width: 1, values }, labels.clone());
        let (model, _) = train(&Arc::new(table), 1000, Some(true));
        for at in 0..rows {
            let least = |from: usize| (at..rows).map(|to| mean(from, to)).fold(f64::MAX, f64::min);
            let expected = (0..=at).map(least).fold(f64::MIN, f64::max);
            let found = interpolate(model.f64("thresholds"), model.f64("values"), at as f64);
            assert!((found - expected).abs() < 1e-12, "{at} of {rows}: {found} {expected}");
        }
    }
}
