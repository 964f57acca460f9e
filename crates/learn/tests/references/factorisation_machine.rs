//! Factorisation machines against PyTorch's gradients and optimisers, and what they learn that lines cannot.

use crate::world::{
    close, dense, figures, floats, learner, numbers, predict, schema, sparse, try_train,
};
use starlings_core::{Rng, Role, Tensor};
use starlings_data::{Holding, Table};
use starlings_learn::{Memory, Place};
use starlings_testkit::drive::{Drive, Run};
use std::sync::Arc;

#[test]
fn steps_are_those_of_torch() {
    let figures = figures("factorisation_machine");
    let features = figures["features"].as_u64().unwrap() as usize;
    let steps = figures["steps"].as_u64().unwrap();
    for run in figures["runs"].as_array().unwrap() {
        let params = run["params"].as_str().unwrap();
        let (labels, classes) = match run["task"].as_str().unwrap() {
            "regression" => (floats(&figures["numbers"]), 0),
            _ => (floats(&figures["classes"]), 2),
        };
        let table = dense(features, floats(&figures["x"]), labels);
        let learner = learner("factorisation-machine", params);
        let rows = table.rows() as u64;
        // Every feature occurs in some row, so that sparse rows move all weights in every step too.
        for table in [sparse(&table), table] {
            let options =
                Drive { workers: 2, batch: rows, epochs: Some(steps), ..Drive::default() };
            let facts = options.facts(&schema(features, classes), rows);
            let mut model = learner.init(&facts, Place::WHOLE).unwrap();
            let start = numbers(&figures["start"]);
            let width = start.len() / features;
            model.set("weights", Tensor::of(&[features, width], start, Role::Weight));
            let holding = Holding::whole(Arc::clone(&table), options.shards);
            let mut run_ = Run::resume(&*learner, &holding, &options, (0, &model, &Memory::new()));
            while run_.step().unwrap() {}
            let found = run_.finish().unwrap().model;
            close(params, found.f64("weights"), &numbers(&run["weights"]), 1e-9);
            close(params, found.f64("bias"), &[run["bias"].as_f64().unwrap()], 1e-9);
        }
    }
}

/// Users and items as 0/1 features; what counts is the pair alone: the product of two signs.
fn pairs(rows: usize) -> Arc<Table> {
    let mut rng = Rng::named(7, "pairs", &[]);
    let (mut values, mut labels) = (vec![0.0; rows * 20], Vec::new());
    for row in values.chunks_exact_mut(20) {
        let (user, item) = (rng.below(10) as usize, rng.below(10) as usize);
        row[user] = 1.0;
        row[10 + item] = 1.0;
        labels.push(if (user % 2 == 0) == (item < 5) { 1.0 } else { 0.0 });
    }
    dense(20, values, labels)
}

/// By the margins alone every class is as likely: a linear model is right half of the time.
#[test]
fn interactions_are_learned_that_no_linear_model_has() {
    let table = pairs(600);
    let options = Drive { workers: 2, epochs: Some(60), ..Drive::default() };
    let accuracy = |params: &str| {
        let params = format!("task = 'classification'\nlearning_rate = 0.05\n{params}");
        let learner = learner("factorisation-machine", &params);
        let found = try_train(&*learner, &sparse(&table), &schema(20, 2), &options).unwrap();
        found.grade.metrics["accuracy"]
    };
    for solver in ["adam", "adagrad"] {
        let (with, without) = (
            accuracy(&format!("solver = '{solver}'\ncomponents = 4")),
            accuracy(&format!("solver = '{solver}'\ncomponents = 0")),
        );
        assert!(with == 1.0 && without < 0.65, "{solver}: {with} with factors, {without} without");
    }
}

#[test]
fn numbers_are_fitted_too() {
    let mut rng = Rng::named(8, "numbers", &[]);
    let values: Vec<f32> = (0..500 * 4).map(|_| rng.normal() as f32).collect();
    let labels = values
        .chunks_exact(4)
        .map(|x| 1.0 + 0.5 * x[0] + 2.0 * x[1] * x[2] - x[0] * x[3])
        .collect();
    let table = dense(4, values, labels);
    let options = Drive { epochs: Some(100), ..Drive::default() };
    let rmse = |components: u32| {
        let params = format!("components = {components}\nl2 = 0.0\nlearning_rate = 0.02");
        let learner = learner("factorisation-machine", &params);
        let found = try_train(&*learner, &table, &schema(4, 0), &options).unwrap();
        assert_eq!(predict(&*learner, &found.model, &table).len(), 500);
        found.grade.metrics["rmse"]
    };
    let (machine, linear) = (rmse(6), rmse(0));
    assert!(machine < 0.1 && linear > 1.5, "{machine} with factors, {linear} without");
}

#[test]
fn corners_and_refusals() {
    let options = Drive { epochs: Some(300), ..Drive::default() };
    let refusal = |params: &str, values: Vec<f32>, labels: Vec<f32>, classes: usize| {
        let learner = learner("factorisation-machine", params);
        let table = dense(1, values, labels);
        try_train(&*learner, &table, &schema(1, classes), &options).unwrap_err().to_string()
    };
    let class = "task = 'classification'";
    assert!(refusal(class, vec![1., 2.], vec![0., 1.], 3).contains("two classes"));
    assert!(refusal("", vec![1., f32::INFINITY], vec![0., 1.], 0).contains("row 1 is inf"));
    assert!(refusal("", vec![1., 2.], vec![0., f32::NAN], 0).contains("row 1 has the label NaN"));
    let text = refusal("solver = 'sgd'\nlearning_rate = 1e6", vec![1e3, -2e3], vec![5., 1.], 0);
    assert!(text.contains("diverged") && text.contains("learning_rate"), "{text}");
    // A constant column and rows that repeat.
    let learner = learner("factorisation-machine", "");
    let table = dense(2, [3., 1.].repeat(30), vec![2.0; 30]);
    let found = try_train(&*learner, &table, &schema(2, 0), &options).unwrap();
    assert!(found.grade.metrics["rmse"] < 0.05, "{:?}", found.grade);
}
