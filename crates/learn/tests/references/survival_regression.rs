//! Survival regression against SciPy, lifelines and the figures that Spark's documentation prints.

use crate::world::{close, dense, figures, learner, named, numbers, predict, train, try_train};
use serde_json::Value;
use starlings_data::{Schema, Table};
use starlings_testkit::drive::{Drive, Driven};
use std::sync::Arc;

/// Features with the event's column in their midst, times as labels.
fn rows(data: &Value) -> (Arc<Table>, Schema) {
    let (rows, events) = (data["x"].as_array().unwrap(), numbers(&data["d"]));
    let features = numbers(&rows[0]).len();
    let mut values = Vec::new();
    for (row, event) in rows.iter().zip(&events) {
        let mut row: Vec<f32> = numbers(row).iter().map(|x| *x as f32).collect();
        row.insert(1, *event as f32);
        values.extend(row);
    }
    let times = numbers(&data["t"]).iter().map(|t| *t as f32).collect();
    let mut names: Vec<String> = (0..features).map(|feature| format!("x{feature}")).collect();
    names.insert(1, "died".to_string());
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (dense(features + 1, values, times), named(&names))
}

fn compare(what: &str, found: &Driven, expected: &Value, tolerance: f64) {
    let mut weights = numbers(&expected["weights"]);
    weights.insert(1, 0.0);
    close(what, found.model.f64("weights"), &weights, tolerance);
    let others = [found.model.f64("intercept")[0], found.model.f64("scale")[0]];
    let expected = [&expected["intercept"], &expected["scale"]].map(|v| v.as_f64().unwrap());
    close(what, &others, &expected, tolerance);
}

#[test]
fn every_distribution_reaches_the_maximum_that_scipy_finds() {
    let figures = figures("survival_regression");
    for (data, weighted) in [("generated", true), ("rossi", false)] {
        let data = &figures[data];
        let (table, schema) = rows(data);
        let mut table = (*table).clone();
        if weighted {
            table.weights = numbers(&data["w"]).iter().map(|w| *w as f32).collect();
        }
        let table = Arc::new(table);
        for fit in data["fits"].as_array().unwrap() {
            let name = fit["distribution"].as_str().unwrap();
            let params = format!("event = 'died'\ndistribution = '{name}'");
            let learner = learner("survival-regression", &params);
            let found = train(&*learner, &table, &schema);
            compare(name, &found, fit, 1e-6);
            let objective = fit["objective"].as_f64().unwrap();
            close(name, &[found.grade.objective], &[objective], 1e-10);
            if let Some(median) = fit["lifelines_median"].as_f64() {
                let medians = predict(&*learner, &found.model, &table);
                close(name, &medians[..1], &[median], 1e-3);
            }
        }
    }
}

/// The five rows of Spark's guide; its solver stops at 1e-6.
#[test]
fn the_documented_example_of_spark_comes_out() {
    let figures = figures("survival_regression");
    let (table, schema) = rows(&figures["spark"]);
    let learner = learner("survival-regression", "event = 'died'");
    compare("spark", &train(&*learner, &table, &schema), &figures["spark"], 1e-5);
}

#[test]
fn runs_have_the_same_bits_on_every_flock() {
    let (table, schema) = rows(&figures("survival_regression")["generated"]);
    let learner = learner("survival-regression", "event = 'died'\ndistribution = 'log-normal'");
    let digest = |workers| {
        let options = Drive { workers, ..Drive::default() };
        try_train(&*learner, &table, &schema, &options).unwrap().model.digest()
    };
    assert!([2, 3, 7].iter().all(|&workers| digest(workers) == digest(1)));
}

/// Quantiles are in order, the median is one of them, and a Weibull mean is the median times Γ(1 + σ)/(ln 2)^σ.
#[test]
fn quantiles_and_means_follow_from_the_distribution() {
    let (table, schema) = rows(&figures("survival_regression")["rossi"]);
    let median = learner("survival-regression", "event = 'died'\nquantiles = '0.25, 0.5, 0.75'");
    let found = train(&*median, &table, &schema);
    let times = predict(&*median, &found.model, &table);
    for row in times.chunks_exact(4) {
        assert!(row[1] < row[2] && row[2] < row[3] && row[0] == row[2], "{row:?}");
    }
    let mean = learner("survival-regression", "event = 'died'\nprediction = 'mean'");
    let means = predict(&*mean, &found.model, &table);
    let ratio = means[0] / times[0];
    let scale = found.model.f64("scale")[0];
    // Γ(1 + 0.7124053338573336), made with SciPy 1.17.1.
    assert!((scale - 0.712_405_333_857_333_6).abs() < 1e-6);
    close("mean", &[ratio], &[0.911_047_951_935_773 / 2f64.ln().powf(scale)], 1e-5);
}

/// Features of any scale and place give the same fit.
#[test]
fn scales_of_features_and_times_do_not_matter() {
    let (plain, schema) = rows(&figures("survival_regression")["generated"]);
    let learner = learner("survival-regression", "event = 'died'");
    let found = train(&*learner, &plain, &schema);
    let mut table = (*plain).clone();
    let starlings_data::Features::Dense { values, .. } = &mut table.features else {
        panic!("dense")
    };
    values.chunks_exact_mut(4).for_each(|row| {
        row[0] *= 1e12;
        row[2] *= 2f32.powi(-60);
    });
    table.labels.iter_mut().for_each(|time| *time *= 1024.0);
    let scaled = train(&*learner, &Arc::new(table), &schema);
    let (a, b) = (found.model.f64("weights"), scaled.model.f64("weights"));
    close("weights", &[b[0] * 1e12, b[2] * 2f64.powi(-60), b[3]], &[a[0], a[2], a[3]], 1e-6);
    close("scale", scaled.model.f64("scale"), found.model.f64("scale"), 1e-7);
}

#[test]
fn data_without_sense_are_refused_by_name() {
    let refusal = |params: &str, values: Vec<f32>, times: Vec<f32>| {
        let table = dense(2, values, times);
        let learner = learner("survival-regression", params);
        try_train(&*learner, &table, &named(&["age", "died"]), &Drive::default())
            .unwrap_err()
            .to_string()
    };
    let event = "event = 'died'";
    let text = refusal(event, vec![1., 1., 2., 1.], vec![1., -3.]);
    assert!(text.contains("row 1 has the time -3"), "{text}");
    let text = refusal(event, vec![1., 1., 2., 0.5], vec![1., 3.]);
    assert!(text.contains("row 1 has 0.5 in the event's column"), "{text}");
    let text = refusal(event, vec![1., 0., 2., 0.], vec![1., 3.]);
    assert!(text.contains("all are censored"), "{text}");
    let text = refusal("event = 'dyed'", vec![1., 0., 2., 0.], vec![1., 3.]);
    assert!(text.contains("'died'"), "{text}");
    let text = refusal(event, vec![f32::INFINITY, 1., 2., 1.], vec![1., 3.]);
    assert!(text.contains("feature 0 of row 0 is inf"), "{text}");
}
