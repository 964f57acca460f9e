//! The perceptron against scikit-learn's, and what its theorems promise.

use crate::world::{
    dense, digits, figures, learner, predict, schema, shared, sparse, train, try_train,
};
use starlings_core::Rng;
use starlings_data::Table;
use starlings_testkit::drive::Drive;
use std::sync::Arc;

fn accuracy(
    name: &str,
    params: &str,
    (fit, test): (&Arc<Table>, &Arc<Table>),
    classes: usize,
) -> f64 {
    let learner = learner(name, params);
    let model = train(&*learner, fit, &schema(fit.width(), classes)).model;
    let probabilities = predict(&*learner, &model, test);
    let rows = probabilities.chunks_exact(classes).zip(&test.labels);
    let right = rows.filter(|(row, label)| {
        let best = (0..classes).fold(0, |best, at| if row[at] > row[best] { at } else { best });
        best == **label as usize
    });
    right.count() as f64 / test.rows() as f64
}

/// Within three deviations of the mean over scikit-learn's 20 seeds; averaging makes it better than the mean.
#[test]
fn digits_are_told_apart_as_well_as_by_scikit_learn() {
    let expected = &figures("perceptron")["digits"];
    let (mean, spread) =
        (expected["mean"].as_f64().unwrap(), expected["deviation"].as_f64().unwrap());
    let data = (&digits(false), &digits(true));
    for params in ["", "mixing = 'errors'"] {
        let found = accuracy("perceptron", params, data, 10);
        assert!(found > mean - 3.0 * spread, "{params}: {found}, scikit-learn {mean} ± {spread}");
    }
    let averaged = accuracy("perceptron", "average = true", data, 10);
    assert!(averaged > mean, "averaged: {averaged}, scikit-learn {mean} ± {spread}");
}

#[test]
fn breast_cancer_is_told_as_well_as_by_scikit_learn() {
    let Some(text) = shared("sklearn_breast_cancer.csv") else { return };
    let expected = &figures("perceptron")["breast_cancer"];
    let (mean, spread) =
        (expected["mean"].as_f64().unwrap(), expected["deviation"].as_f64().unwrap());
    let all = crate::world::csv(text.lines().skip(1));
    let (width, rows) = (all.width(), all.rows());
    let mut scaled: Vec<f32> = all.dense_rows(0, rows).unwrap().to_vec();
    for feature in 0..width {
        let column: Vec<f64> =
            scaled.iter().skip(feature).step_by(width).map(|&x| f64::from(x)).collect();
        let mean = column.iter().sum::<f64>() / rows as f64;
        let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64;
        for (x, wide) in scaled.iter_mut().skip(feature).step_by(width).zip(&column) {
            *x = ((wide - mean) / variance.sqrt()) as f32;
        }
    }
    let part = |test: bool| {
        let rows = (0..rows).filter(|row| (row % 5 == 4) == test);
        let (values, labels): (Vec<&[f32]>, Vec<f32>) =
            rows.map(|row| (&scaled[row * width..(row + 1) * width], all.labels[row])).unzip();
        dense(width, values.concat(), labels)
    };
    for params in ["", "average = true"] {
        let found = accuracy("perceptron", params, (&part(false), &part(true)), 2);
        assert!(found > mean - 3.0 * spread, "{params}: {found}, scikit-learn {mean} ± {spread}");
    }
}

/// Rows on both sides of a line (or in three wedges) with room between them.
fn separable(rows: usize, classes: usize) -> Arc<Table> {
    let mut rng = Rng::named(5, "separable", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    while labels.len() < rows {
        let x = [rng.normal(), rng.normal(), rng.normal()];
        let scores: Vec<f64> = [[1.0, 2.0, -1.0], [-1.0, 1.0, 1.0], [0.0, -3.0, 0.0]][..classes]
            .iter()
            .map(|w| w.iter().zip(&x).map(|(w, x)| w * x).sum::<f64>() + 0.3)
            .collect();
        let best = (0..classes).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        let next = (0..classes).filter(|&c| c != best).map(|c| scores[c]).fold(f64::MIN, f64::max);
        if scores[best] - next > 0.5 {
            values.extend(x.map(|x| x as f32));
            labels.push(best as f32);
        }
    }
    dense(3, values, labels)
}

/// Novikoff (1962), and theorem 3 of McDonald et al. (2010) for the mixture by errors.
#[test]
fn classes_that_a_line_parts_end_without_a_mistake() {
    for classes in [2, 3] {
        let table = separable(300, classes);
        for table in [sparse(&table), table] {
            for params in ["tolerance = 0.0\npatience = 1000", "mixing = 'errors'\npatience = 1000"]
            {
                let learner = learner("perceptron", params);
                let found = train(&*learner, &table, &schema(3, classes));
                assert!(found.outcome.done && found.steps < 900, "{params}: {}", found.steps);
                assert_eq!(found.grade.metrics["accuracy"], 1.0, "{params}");
                assert_eq!(found.grade.objective, 0.0, "{params}");
            }
        }
    }
}

/// With one shard, no shuffling and one pass the updates can be done by hand.
#[test]
fn mistakes_and_only_mistakes_move_the_weights() {
    let table = dense(2, vec![1., 0., 0., 1., -1., -1.], vec![1., 1., 0.]);
    let options = Drive { shards: 1, epochs: Some(1), ..Drive::default() };
    let weights = |params: &str| {
        let learner = learner("perceptron", &format!("shuffle = false\n{params}"));
        let found = try_train(&*learner, &table, &schema(2, 2), &options).unwrap();
        found.model.f64("weights").to_vec()
    };
    // Row 0: score 0, a mistake: w = (1, 0), b = 1. Row 1: score 1, right. Row 2: score 0, a mistake: w = (2, 1), b = 0.
    assert_eq!(weights(""), [2., 1., 0.]);
    // After each row: (1, 0, 1), (1, 0, 1), (2, 1, 0).
    let averaged = weights("average = true");
    crate::world::close("averaged", &averaged, &[4. / 3., 1. / 3., 2. / 3.], 1e-15);
    // Row 2 scores −1 without an intercept, and is right.
    assert_eq!(weights("intercept = false"), [1., 1.]);
}

#[test]
fn models_have_the_same_bits_on_every_flock() {
    let table = digits(false);
    for params in ["", "average = true\nmixing = 'errors'"] {
        let learner = learner("perceptron", params);
        let digest = |workers| {
            let options = Drive { workers, epochs: Some(10), ..Drive::default() };
            try_train(&*learner, &table, &schema(64, 10), &options).unwrap().model.digest()
        };
        assert!([2, 3, 7, 16].iter().all(|&workers| digest(workers) == digest(1)), "{params}");
    }
}

#[test]
fn corners_and_refusals() {
    let plain = learner("perceptron", "");
    let options = Drive::default();
    let table = dense(1, vec![f32::NAN, 1.0], vec![0., 1.]);
    let refused = try_train(&*plain, &table, &schema(1, 2), &options).unwrap_err();
    assert!(refused.to_string().contains("feature 0 of row 0 is NaN"), "{refused}");
    let refused = try_train(&*plain, &table, &schema(1, 1), &options).unwrap_err();
    assert!(refused.to_string().contains("two are needed"), "{refused}");
    // A constant column, scales far apart, rows that repeat.
    let values = [[1e30, 5., 1e-20], [-1e30, 5., 1e-20]].concat().repeat(20);
    let table = dense(3, values, [1., 0.].repeat(20));
    let found = train(&*plain, &table, &schema(3, 2));
    assert_eq!(found.grade.metrics["accuracy"], 1.0);
}
