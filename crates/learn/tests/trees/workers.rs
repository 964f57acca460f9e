//! The same trees, to the bit, for any number of workers.

use crate::{dense, train};
use starlings_core::Rng;
use starlings_data::Table;

/// 600 rows of eight features, some missing, some weights zero.
pub(crate) fn rows(classes: u64) -> Table {
    let mut rng = Rng::named(9, "rows", &[classes]);
    let values: Vec<f32> = (0..4800)
        .map(|_| if rng.below(12) == 0 { f32::NAN } else { rng.normal() as f32 })
        .collect();
    let label = |row: &[f32], rng: &mut Rng| {
        let score = row[0] * row[1] + row[2].max(-1.0) + 0.3 * rng.normal() as f32;
        if score.is_nan() { 0.0 } else { (score + 1.0).clamp(0.0, classes as f32 - 1.0).round() }
    };
    let labels = values.chunks(8).map(|row| label(row, &mut rng)).collect();
    let mut table = dense(8, values, labels);
    table.weights = (0..600).map(|_| rng.below(4) as f32 * 0.37).collect();
    table.groups = (0..600).map(|row| row / 7).collect();
    table
}

#[test]
fn one_two_and_four_workers_grow_the_same_bits() {
    let ways = [
        ("gradient-boosting", "", 2),
        ("gradient-boosting", "gradient_bits = '13'", 3),
        ("gradient-boosting", "goss = true\ngradient_bits = '13'", 2),
        ("gradient-boosting", "subsample = 0.6\ncolumn_share = 0.7\nearly_stopping = 3", 2),
        ("gradient-boosting", "growth = 'level-wise'\nmax_depth = 4\nloss = 'squared'", 3),
        ("gradient-boosting", "loss = 'quantile'\nalpha = 0.4", 3),
        ("gradient-boosting", "loss = 'lambdarank'", 4),
        ("gradient-boosting", "parallelism = 'voting'\nvotes = 2", 2),
        ("gradient-boosting", "parallelism = 'feature'", 3),
        ("gradient-boosting", "parallelism = 'feature'\nloss = 'lambdarank'", 4),
        ("random-forest", "trees = 10", 3),
        ("random-forest", "trees = 5\ncriterion = 'variance'", 3),
        ("decision-tree", "", 3),
    ];
    for (name, parameters, classes) in ways {
        let more = match name {
            "gradient-boosting" => format!("{parameters}\ntrees = 6\nmin_rows_leaf = 5"),
            _ => parameters.to_string(),
        };
        let table = rows(classes);
        let alone = train(name, &more, &table, 1);
        assert!(alone.model.f64("nodes").len() > 8 * 8, "{name} {more}: no trees to compare");
        for workers in [2, 4] {
            let together = train(name, &more, &table, workers);
            let same = alone.model.digest() == together.model.digest();
            assert!(same, "{name} {more}: {workers} workers grow other trees");
        }
    }
}

#[test]
fn sparse_rows_grow_the_trees_of_dense_ones() {
    let mut table = rows(2);
    let starlings_data::Features::Dense { values, .. } = &mut table.features else { panic!() };
    values.iter_mut().for_each(|value| *value = value.round());
    let (mut starts, mut columns, mut kept) = (vec![0], vec![], vec![]);
    for row in values.chunks(8) {
        for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            columns.push(column as u32);
            kept.push(*value);
        }
        starts.push(columns.len());
    }
    let mut sparse = table.clone();
    sparse.features = starlings_data::Features::Sparse {
        width: 8,
        starts,
        columns: columns.into(),
        values: kept.into(),
    };
    for name in ["gradient-boosting", "random-forest"] {
        let [dense, sparse] = [&table, &sparse].map(|rows| train(name, "trees = 4", rows, 2));
        assert_eq!(dense.model.digest(), sparse.model.digest(), "{name}");
        assert_eq!(dense.grade, sparse.grade, "{name}");
    }
}
