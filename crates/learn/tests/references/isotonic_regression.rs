//! Isotonic regression against scikit-learn, on any flock.

use crate::world::{
    close, dense, figures, floats, learner, named, numbers, predict, schema, shared, sparse, train,
    try_train,
};
use serde_json::Value;
use starlings_data::Table;
use starlings_testkit::drive::Drive;
use std::sync::Arc;

fn compare(name: &str, table: &Arc<Table>, feature: usize, fit: &Value) {
    let params =
        format!("feature = '{feature}'\nincreasing = '{}'", fit["increasing"].as_str().unwrap());
    let learner = learner("isotonic-regression", &params);
    for workers in [1, 2, 5] {
        let options = Drive { workers, ..Drive::default() };
        let trained = try_train(&*learner, table, &schema(table.width(), 0), &options).unwrap();
        let model = &trained.model;
        assert_eq!(model.i64("shape")[1] == 1, fit["rises"].as_bool().unwrap(), "{name}");
        let some = |tensor: &str| model.f64(tensor).iter().take(200).copied().collect::<Vec<_>>();
        close(name, &some("thresholds"), &numbers(&fit["thresholds"]), 1e-12);
        close(name, &some("values"), &numbers(&fit["values"]), 1e-9);
        let square = fit["mean_square"].as_f64().unwrap();
        close(name, &[trained.grade.objective], &[square], 1e-9);
        let probe = floats(&fit["probe"]);
        let width = table.width();
        let mut values = vec![0.0; probe.len() * width];
        probe.iter().enumerate().for_each(|(row, x)| values[row * width + feature] = *x);
        let probe = dense(width, values, vec![]);
        close(name, &predict(&*learner, model, &probe), &numbers(&fit["expected"]), 1e-9);
    }
}

#[test]
fn steps_and_predictions_are_those_of_scikit_learn() {
    for case in figures("isotonic_regression")["cases"].as_array().unwrap() {
        let mut table = (*dense(1, floats(&case["x"]), floats(&case["y"]))).clone();
        table.weights = floats(&case["w"]);
        for fit in case["fits"].as_array().unwrap() {
            for table in [sparse(&table), Arc::new(table.clone())] {
                compare(case["name"].as_str().unwrap(), &table, 0, fit);
            }
        }
    }
}

#[test]
fn house_values_rise_with_income_as_in_scikit_learn() {
    let Some(text) = shared("cal_housing.data.gz") else { return };
    let found = figures("isotonic_regression");
    compare("houses", &crate::world::csv(text.lines()), 7, &found["houses"]);
}

#[test]
fn the_feature_may_be_named_and_others_are_of_no_account() {
    let schema = named(&["noise", "dose"]);
    let values = vec![7., 1., -3., 2., 9., 3., 0., 4.];
    let table = dense(2, values, vec![1., 3., 2., 5.]);
    let learner = learner("isotonic-regression", "feature = 'dose'");
    let trained = train(&*learner, &table, &schema);
    assert_eq!(predict(&*learner, &trained.model, &table), [1., 2.5, 2.5, 5.]);
    let probe = dense(2, vec![0., 0., 0., 3.5, 0., 99.], vec![]);
    assert_eq!(predict(&*learner, &trained.model, &probe), [1., 3.75, 5.]);
    let wrong = crate::world::learner("isotonic-regression", "feature = 'doze'");
    let refused = try_train(&*wrong, &table, &schema, &Drive::default()).unwrap_err();
    assert!(refused.to_string().contains("'dose'"), "{refused}");
}

#[test]
fn corners() {
    let up = learner("isotonic-regression", "");
    let fitted = |values: Vec<f32>, labels: Vec<f32>| {
        let table = dense(1, values, labels);
        predict(&*up, &train(&*up, &table, &schema(1, 0)).model, &table)
    };
    assert_eq!(fitted(vec![3.0], vec![7.0]), [7.0]);
    assert_eq!(fitted(vec![3.0; 4], vec![1., 2., 3., 6.]), [3.0; 4]);
    assert_eq!(fitted(vec![-0.0, 0.0, 1e38, -1e38], vec![1., 3., 9., -9.]), [2., 2., 9., -9.]);
    let table = dense(1, vec![1.0, f32::NAN], vec![1., 2.]);
    let refused = try_train(&*up, &table, &schema(1, 0), &Drive::default()).unwrap_err();
    assert!(refused.to_string().contains("row 1 has the feature NaN"), "{refused}");
}
