//! What does not fit is refused with the layer and the sizes; what explodes with the step.

use crate::world::{batch, contribution, facts, network, table};
use starlings_data::Holding;
use starlings_learn::Place;
use starlings_testkit::drive::{Drive, drive};
use std::sync::Arc;

fn start(name: &str, settings: &str, width: usize) -> String {
    let table = table(width, vec![0.5; 4 * width], vec![0.0, 1.0, 0.0, 1.0]);
    let made = network(name, settings)
        .and_then(|learner| learner.init(&facts(&table, 2), Place::WHOLE).map(|_| ()));
    made.err().map(|fault| fault.to_string()).unwrap_or_default()
}

#[test]
fn shapes_that_do_not_fit_name_layer_and_sizes() {
    let cases: [(&str, usize, &[&str]); 11] = [
        ("shape = [1, 28, 28]", 64, &["[1, 28, 28]", "784", "64"]),
        ("shape = [28, 28]", 784, &["[28, 28]", "[channels, height, width]"]),
        ("", 63, &["63 features", "shape ="]),
        ("layers = ['linear 8', 'conv 4']", 64, &["layer 2 'conv 4'", "8 numbers"]),
        ("layers = ['max-pool 9']", 64, &["layer 1 'max-pool 9'", "9×9", "1×8×8"]),
        ("layers = ['conv 4', 'group-norm 3']", 64, &["layer 2", "4 channels", "3 groups"]),
        ("layers = ['convv 4']", 64, &["layer 1 'convv 4'", "'conv'"]),
        ("layers = ['conv 2', 'augment flip on']", 64, &["layer 2", "not the first layer"]),
        ("layers = ['augment shift 9']", 64, &["layer 1 'augment shift 9'", "9 pixels", "1×8×8"]),
        ("layers = ['linear 9', 'image 2 2 2']", 64, &["layer 2 'image 2 2 2'", "8 numbers", "9"]),
        ("loss = 'huber'", 64, &["\"huber\"", "for numbers"]),
    ];
    for (settings, width, parts) in cases {
        let found = start("cnn", settings, width);
        parts.iter().for_each(|part| assert!(found.contains(part), "{settings}: {found}"));
    }
    assert_eq!(start("cnn", "preset = 'lenet-5'", 784), "");
    assert_eq!(start("cnn", "preset = 'resnet-18'", 64), "");
}

#[test]
fn labels_that_the_task_cannot_learn_are_refused() {
    let rows = table(2, vec![0.5; 8], vec![0.0; 4]);
    let learner = network("mlp", "").unwrap();
    let one = learner.init(&facts(&rows, 1), Place::WHOLE).unwrap_err().to_string();
    assert!(one.contains("fewer than two classes"), "{one}");
    let learner = network("mlp", "task = 'regression'").unwrap();
    let classes = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap_err().to_string();
    assert!(classes.contains("not numbers"), "{classes}");
}

#[test]
fn a_number_that_is_not_finite_is_named_with_its_row() {
    let rows = table(2, vec![0.5, 1.0, f32::NAN, 0.0], vec![0.0, 1.0]);
    let learner = network("mlp", "").unwrap();
    let model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
    let fault = contribution(&*learner, &model, &batch(&rows, &[2])).unwrap_err().to_string();
    assert!(fault.contains("feature 0 of row 1 is NaN"), "{fault}");
}

#[test]
fn a_loss_that_explodes_is_told_with_its_step() {
    let values = (0..64).map(|at| (at % 7) as f32 * 1e18).collect();
    let rows = table(2, values, (0..32).map(|row| row as f32).collect());
    let learner =
        network("mlp", "task = 'regression'\nsolver = 'sgd'\nlearning_rate = 10.0").unwrap();
    let options = Drive { batch: 8, ..Drive::default() };
    let holding = Holding::whole(Arc::new(rows.clone()), options.shards);
    let facts = options.facts(&facts(&rows, 1).schema, 32);
    let fault = drive(&*learner, &facts, &holding, &options).unwrap_err().to_string();
    assert!(fault.contains("diverged") && fault.contains("step"), "{fault}");
    assert!(fault.contains("learning_rate"), "{fault}");
}

/// 784 × 512 and 512 × 10 weights with biases: five numbers each under adam (twice weights, gradient, two means).
#[test]
fn what_a_network_takes_of_memory_is_foreseen() {
    let rows = table(784, vec![0.5; 4 * 784], vec![0.0, 1.0, 0.0, 1.0]);
    let of = |settings: &str| {
        let learner = network("mlp", &format!("hidden = [512]\n{settings}")).unwrap();
        learner.footprint(&facts(&rows, 10), 100).unwrap()
    };
    let (adam, sgd) = (of(""), of("solver = 'sgd'"));
    let weights = 785 * 512 + 513 * 10;
    assert_eq!((adam.model, sgd.model), (4 * 5 * weights, 4 * 3 * weights));
    // A row is 512 numbers after the first layer and after its function, then 10; each with its gradient.
    assert_eq!(adam.step, 100 * 2 * 4 * (512 + 512 + 10));
    assert_eq!(of("accumulate = 4").step, adam.step / 4);
    assert!(adam.largest.contains("layer 1 'linear 512' with 401920 weights"), "{}", adam.largest);
}
