//! Losses, gradients and answers of every layer are PyTorch's (double precision there, single here): the figures are in
//! bench/references/nn.json, made by nn.py beside it.

use crate::world::{batch, contribution, f32s, facts, network, table};
use serde_json::Value;
use starlings_core::{Role, Tensor, Values};
use starlings_learn::Place;

const FIGURES: &str = include_str!("../../../../bench/references/nn.json");

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// Numbers are as near as f32 allows, measured by the largest of them.
fn near(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let size = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let off = (found - expected).abs() / size;
        assert!(off < 1e-5, "{what} [{at}]: {found} instead of {expected}");
    }
}

#[test]
fn losses_gradients_and_answers_are_those_of_torch() {
    let figures: Value = serde_json::from_str(FIGURES).unwrap();
    for case in figures["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (kind, settings) =
            (case["learner"].as_str().unwrap(), case["settings"].as_str().unwrap());
        let learner = network(kind, settings).unwrap();
        let width = case["features"].as_u64().unwrap() as usize;
        let outputs = case["outputs"].as_u64().unwrap() as usize;
        let table = table(width, numbers(&case["rows"]), numbers(&case["labels"]));
        let outputs = if case["labels"].as_array().unwrap().is_empty() { 0 } else { outputs };
        let mut model = learner.init(&facts(&table, outputs), Place::WHOLE).unwrap();
        for (tensor, told) in case["tensors"].as_object().unwrap() {
            let shape: Vec<usize> = told["shape"]
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_u64().unwrap() as usize)
                .collect();
            let own = model.get(tensor).unwrap_or_else(|| panic!("{name}: no parameter {tensor}"));
            assert_eq!(own.shape, shape, "{name}: {tensor}");
            let values = Values::F32(numbers(&told["values"]));
            model.set(tensor, Tensor { shape, values, role: Role::Weight });
        }
        let weights = model.iter().filter(|(_, tensor)| tensor.role == Role::Weight).count();
        assert_eq!(weights, case["tensors"].as_object().unwrap().len() + 1, "{name}: parameters");
        let batch = batch(&table, &[table.rows()]);
        let update = contribution(&*learner, &model, &batch).unwrap();
        let loss = case["loss"].as_f64().unwrap();
        assert!(
            (update.f64("loss")[0] - loss).abs() < 1e-5 * loss.abs().max(1.0),
            "{name}: {loss}"
        );
        for (tensor, gradient) in case["gradients"].as_object().unwrap() {
            near(&format!("{name}: {tensor}"), f32s(&update, tensor), &numbers(gradient));
        }
        let mut answers = Vec::new();
        learner.predict(&model, &batch, &mut answers).unwrap();
        let answers: Vec<f32> = answers.iter().map(|&x| x as f32).collect();
        near(&format!("{name}: answers"), &answers, &numbers(&case["answers"]));
    }
}
