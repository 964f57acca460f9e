//! Networks learn: small data are fitted, recipes do what they say.

use crate::world::{batch, contribution, f32s, facts, moment, network, table};
use starlings_core::{Model, Rng, Role, Tensor, Values};
use starlings_data::{Holding, Table};
use starlings_learn::{Facts, Grade, Learner, Place};
use starlings_testkit::drive::{Drive, Driven, drive};
use std::sync::Arc;

/// Two spirals, which no line can tell apart.
fn spirals() -> Table {
    let mut rng = Rng::named(1, "spirals", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..400 {
        let (arm, along) = ((row % 2) as f64, rng.uniform());
        let angle = 4.0 * along + arm * std::f64::consts::PI;
        let radius = 0.2 + along;
        values.push((radius * angle.cos() + 0.03 * rng.normal()) as f32);
        values.push((radius * angle.sin() + 0.03 * rng.normal()) as f32);
        labels.push(arm as f32);
    }
    table(2, values, labels)
}

fn trained(learner: &dyn Learner, table: &Table, outputs: usize, options: Drive) -> Driven {
    let holding = Holding::whole(Arc::new(table.clone()), options.shards);
    let facts = Facts {
        shards: options.shards,
        seed: options.seed,
        epochs: options.epochs,
        batch: options.batch,
        ..facts(table, outputs)
    };
    drive(learner, &facts, &holding, &options).unwrap()
}

fn grade(settings: &str, epochs: u64) -> Grade {
    let options = Drive { epochs: Some(epochs), batch: 40, ..Drive::default() };
    let learner = network("mlp", settings).unwrap();
    trained(&*learner, &spirals(), 2, options).grade
}

#[test]
fn every_solver_tells_two_spirals_apart() {
    for settings in [
        "solver = 'sgd'\nlearning_rate = 0.3",
        "solver = 'momentum'\nlearning_rate = 0.1",
        "solver = 'nesterov'\nlearning_rate = 0.1",
        "solver = 'adagrad'\nlearning_rate = 0.1",
        "solver = 'rmsprop'\nlearning_rate = 0.01",
        "solver = 'adam'\nlearning_rate = 0.01",
        "solver = 'adamw'\nlearning_rate = 0.01\nweight_decay = 0.01",
        "solver = 'lamb'\nlearning_rate = 0.01",
        "solver = 'muon'\nlearning_rate = 0.02\nschedule = 'cosine'",
    ] {
        let found = grade(&format!("hidden = [32, 32]\n{settings}"), 60);
        let accuracy = found.metrics["accuracy"];
        assert!(accuracy > 0.97, "{settings}: {accuracy} {}", found.objective);
    }
}

#[test]
fn a_line_cannot_tell_them_apart() {
    assert!(grade("hidden = []\nlearning_rate = 0.01", 30).metrics["accuracy"] < 0.9);
}

#[test]
fn patience_ends_training_that_does_not_improve() {
    let options = Drive { epochs: Some(50), batch: 40, ..Drive::default() };
    let steps = |settings: &str| {
        let learner = network("mlp", settings).unwrap();
        trained(&*learner, &spirals(), 2, options).steps
    };
    let plain = steps("hidden = [4]\nsolver = 'sgd'\nlearning_rate = 1e-30");
    let patient = steps("hidden = [4]\nsolver = 'sgd'\nlearning_rate = 1e-30\npatience = 3");
    assert_eq!(plain, 500);
    assert!(patient < 100, "{patient} steps");
}

#[test]
fn parts_of_a_batch_add_up_to_the_whole() {
    let rows = spirals();
    let batch = batch(&rows, &[25; 16]);
    let of = |settings: &str| {
        let settings = format!("hidden = [8]\nnorm = 'batch-norm'\ndropout = 0.2\n{settings}");
        let learner = network("mlp", &settings).unwrap();
        let model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
        contribution(&*learner, &model, &batch).unwrap()
    };
    let (whole, parts) = (of(""), of("accumulate = 4"));
    assert!((whole.f64("loss")[0] - parts.f64("loss")[0]).abs() < 1e-5 * whole.f64("loss")[0]);
    for block in whole.blocks.iter().filter(|block| !["loss", "rows"].contains(&&*block.name)) {
        let (whole, parts) = (f32s(&whole, &block.name), f32s(&parts, &block.name));
        let size = whole.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        let near = whole.iter().zip(parts).all(|(a, b)| (a - b).abs() < 1e-5 * size);
        assert!(near, "{}: {whole:?} {parts:?}", block.name);
    }
}

/// Ghost batches of two or three rows divide by deviations near zero and make much of the last bit; of 20 rows they do not.
#[test]
fn batch_norm_does_not_depend_on_the_number_of_workers() {
    let objective = |workers: u32| {
        let learner = network("mlp", "hidden = [8]\nnorm = 'batch-norm'\ndropout = 0.2").unwrap();
        let options = Drive { workers, shards: 4, epochs: Some(4), batch: 80, ..Drive::default() };
        trained(&*learner, &spirals(), 2, options).grade.objective
    };
    let alone = objective(1);
    for workers in [2, 3, 4] {
        let found = objective(workers);
        assert!((found - alone).abs() < 1e-5 * alone, "{workers} workers: {found} {alone}");
    }
}

#[test]
fn clipping_and_dropout_change_something() {
    let of = |settings: &str| grade(&format!("hidden = [8]\n{settings}"), 2).objective;
    let plain = of("");
    for settings in ["clip_norm = 0.01", "dropout = 0.5", "label_smoothing = 0.3"] {
        assert!((of(settings) - plain).abs() > 1e-4, "{settings}");
    }
}

#[test]
fn running_means_of_batch_norm_become_those_of_the_data() {
    let mut rng = Rng::named(2, "shifted", &[]);
    let values: Vec<f32> = (0..600).map(|_| 3.0 + 2.0 * rng.normal() as f32).collect();
    let rows = table(1, values, (0..600).map(|row| (row % 2) as f32).collect());
    let learner =
        network("cnn", "shape = [1, 1, 1]\nlayers = ['batch-norm']\nlearning_rate = 1e-9").unwrap();
    let options = Drive { epochs: Some(8), batch: 60, shards: 2, ..Drive::default() };
    let model = trained(&*learner, &rows, 2, options).model;
    let of = |name: &str| match &model.get(name).unwrap().values {
        starlings_core::Values::F32(values) => values[0],
        _ => panic!("f32"),
    };
    assert!((of("00-batch-norm.mean") - 3.0).abs() < 0.3, "{}", of("00-batch-norm.mean"));
    assert!((of("00-batch-norm.variance") - 4.0).abs() < 0.6, "{}", of("00-batch-norm.variance"));
    assert_eq!(model.get("00-batch-norm.mean").unwrap().role, Role::Weight);
}

#[test]
fn starts_depend_on_the_seed_alone() {
    let learner = network("mlp", "").unwrap();
    let with = |seed: u64| {
        let known = Facts { seed, ..facts(&spirals(), 2) };
        learner.init(&known, Place::WHOLE).unwrap().digest()
    };
    assert_eq!(with(1), with(1));
    assert_ne!(with(1), with(2));
}

/// Squares of error grow without bound, so that one row far off pulls the answer; magnitudes pull alike, however far.
#[test]
fn losses_differ_in_how_they_take_a_row_that_is_far_off() {
    let mut labels = vec![1.0f32; 40];
    labels[0] = 101.0;
    let rows = table(1, vec![1.0; 40], labels);
    let answer = |loss: &str| {
        let settings = format!(
            "task = 'regression'\nhidden = []\nloss = '{loss}'\nlearning_rate = 0.05\nschedule = 'cosine'"
        );
        let learner = network("mlp", &settings).unwrap();
        let options = Drive { epochs: Some(400), batch: 40, ..Drive::default() };
        let model = trained(&*learner, &rows, 1, options).model;
        let mut out = Vec::new();
        learner.predict(&model, &batch(&rows, &[1]), &mut out).unwrap();
        out[0]
    };
    let (squared, absolute, huber) = (answer("squared"), answer("absolute"), answer("huber"));
    assert!((squared - 3.5).abs() < 0.05, "{squared}");
    assert!((absolute - 1.0).abs() < 0.05, "{absolute}");
    assert!((huber - (1.0 + 1.0 / 39.0)).abs() < 0.02, "{huber}");
}

/// Digits moved by a pixel are new to a network that never saw them so.
#[test]
fn augmentation_teaches_what_the_rows_do_not_show() {
    let mut rng = Rng::named(8, "bars", &[]);
    // A bar that stands or lies, always in the middle of a square of five.
    let bar = |lies: bool, at: usize| -> Vec<f32> {
        let on = |row: usize, column: usize| if lies { row == at } else { column == at };
        (0..25).map(|pixel| f32::from(u8::from(on(pixel / 5, pixel % 5)))).collect()
    };
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..200 {
        let noise = bar(row % 2 == 0, 2).into_iter().map(|x| x + 0.1 * rng.normal() as f32);
        values.extend(noise.collect::<Vec<_>>());
        labels.push((row % 2) as f32);
    }
    let rows = table(25, values, labels);
    let moved =
        table(25, [bar(true, 0), bar(false, 4), bar(true, 4), bar(false, 0)].concat(), vec![]);
    let right = |layers: &str| {
        let learner =
            network("cnn", &format!("layers = [{layers}]\nlearning_rate = 0.01")).unwrap();
        let options = Drive { epochs: Some(20), batch: 40, ..Drive::default() };
        let model = trained(&*learner, &rows, 2, options).model;
        let mut out = Vec::new();
        learner.predict(&model, &batch(&moved, &[4]), &mut out).unwrap();
        let chances = out.chunks_exact(2).enumerate();
        chances.map(|(row, chances)| chances[row % 2]).sum::<f64>() / 4.0
    };
    let (plain, taught) =
        (right("'linear 16', 'relu'"), right("'augment shift 2', 'linear 16', 'relu'"));
    assert!(taught > 0.9 && taught > plain + 0.1, "{plain} {taught}");
}

#[test]
fn a_schedule_falls_over_the_steps_that_the_job_has() {
    let rows = spirals();
    let steps = |settings: &str, known: Facts| {
        let learner = network("mlp", settings).unwrap();
        let model = learner.init(&known, Place::WHOLE).unwrap();
        model.i64("network")[2]
    };
    let known = Facts { epochs: Some(50), steps: Some(12), ..facts(&rows, 2) };
    assert_eq!(steps("schedule = 'cosine'", known.clone()), 12);
    assert_eq!(steps("schedule = 'linear'\ndecay_steps = 30", known.clone()), 30);
    let many = Facts { epochs: Some(1), steps: Some(1_000_000), ..known };
    assert_eq!(steps("schedule = 'cosine'", many), rows.rows().div_ceil(32) as i64);
}

#[test]
fn statistics_of_rows_travel_by_names_that_codecs_leave_alone() {
    let rows = spirals();
    let learner = network("mlp", "hidden = [4]\nnorm = 'batch-norm'").unwrap();
    let model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
    let update = contribution(&*learner, &model, &batch(&rows, &[rows.rows()])).unwrap();
    for name in ["01-batch-norm.mean", "01-batch-norm.variance"] {
        assert!(model.is_tracked(name) && model.get(name).is_some(), "{name}");
        assert!(update.get(name).is_none(), "{name} is taken for a gradient");
        assert!(update.get(&format!("tracked.{name}")).is_some(), "{name}");
    }
    assert!(!model.is_tracked("01-batch-norm.scale"));
    let mut moved = model.clone();
    learner.apply(&mut moved, &update, &moment(rows.rows() as u64)).unwrap();
    assert_ne!(moved.get("01-batch-norm.mean"), model.get("01-batch-norm.mean"));
}

#[test]
fn a_bias_before_batch_normalisation_is_left_out_unless_the_model_has_it() {
    let rows = spirals();
    let listed = "layers = ['linear 4', 'batch-norm', 'relu']";
    let learner = network("mlp", listed).unwrap();
    let mut model = learner.init(&facts(&rows, 2), Place::WHOLE).unwrap();
    assert!(model.get("00-linear.bias").is_none() && model.get("03-linear.bias").is_some());
    let all = batch(&rows, &[rows.rows()]);
    let answers = |model: &Model| {
        let mut out = Vec::new();
        learner.predict(model, &all, &mut out).unwrap();
        out
    };
    let before = answers(&model);
    // A model of a time when the bias was trained: its running means count on it.
    let values = Values::F32(vec![3.0; 4]);
    let role = Role::Weight;
    model.set("00-linear.bias", Tensor { shape: vec![4], values, role });
    assert_ne!(answers(&model), before);
    let update = contribution(&*learner, &model, &all).unwrap();
    assert!(update.get("00-linear.bias").is_some());
}
