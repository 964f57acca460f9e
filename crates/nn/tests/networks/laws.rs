//! The laws of learners, which the conformance suite checks for all: to 1e-5, for networks compute in f32.

use crate::world::network;
use starlings_testkit::conformance::learner::check_within;

const F32: f64 = 1e-5;

const SOLVERS: &[&str] = &[
    "solver = 'sgd'",
    "solver = 'momentum'\nactivation = 'tanh'",
    "solver = 'nesterov'\nweight_decay = 0.01",
    "solver = 'adagrad'",
    "solver = 'rmsprop'\nactivation = 'silu'",
    "solver = 'adamw'\nweight_decay = 0.1\nschedule = 'cosine'\nwarmup_steps = 3",
    "solver = 'lamb'\nschedule = 'step'\nstep_every = 4",
    "solver = 'muon'\nschedule = 'linear'",
];

const LAYERS: &[&str] = &[
    "hidden = []",
    "hidden = [6, 4]\nactivation = 'gelu'",
    "clip_norm = 0.1\nactivation = 'leaky-relu'",
    "dropout = 0.3",
    "norm = 'layer-norm'\nactivation = 'sigmoid'",
    "norm = 'batch-norm'",
    "accumulate = 3\ndropout = 0.3\nnorm = 'batch-norm'",
    "patience = 1\nlearning_rate = 1e-4",
];

fn obeys(name: &str, settings: &str) {
    let learner = network(name, settings).unwrap();
    check_within(&*learner, &|_| true, F32)
        .unwrap_or_else(|law| panic!("{name} {settings}: {law}"));
}

fn under_solvers(solvers: &[&str]) {
    solvers.iter().for_each(|settings| obeys("mlp", &format!("hidden = [6]\n{settings}")));
}

#[test]
fn perceptrons_obey_the_laws_under_solvers_by_gradient() {
    under_solvers(&SOLVERS[..4]);
}

#[test]
fn perceptrons_obey_the_laws_under_solvers_by_means() {
    under_solvers(&SOLVERS[4..]);
}

fn with_layers(layers: &[&str]) {
    for settings in layers {
        let hidden = if settings.starts_with("hidden") { "" } else { "hidden = [6]\n" };
        obeys("mlp", &format!("{hidden}{settings}"));
    }
}

#[test]
fn perceptrons_obey_the_laws_with_every_layer() {
    with_layers(&LAYERS[..4]);
}

#[test]
fn perceptrons_obey_the_laws_with_every_norm() {
    with_layers(&LAYERS[4..]);
}

#[test]
fn networks_of_numbers_obey_the_laws() {
    for settings in [
        "hidden = [6]",
        "hidden = [6]\nsolver = 'sgd'\nnorm = 'batch-norm'",
        "hidden = [6]\nloss = 'huber'",
    ] {
        obeys("mlp", &format!("task = 'regression'\n{settings}"));
    }
}

#[test]
fn recurrent_networks_obey_the_laws() {
    for cell in ["rnn", "gru"] {
        obeys("rnn", &format!("cell = '{cell}'\nhidden = [4]"));
    }
}

#[test]
fn networks_with_memory_obey_the_laws() {
    obeys("rnn", "cell = 'lstm'\nhidden = [4]");
}

#[test]
fn transformers_obey_the_laws() {
    obeys("transformer", "width = 4\nheads = 2\nblocks = 1\ndropout = 0.1");
}

#[test]
fn autoencoders_obey_the_laws() {
    for answer in ["code", "reconstruction", "error"] {
        obeys("autoencoder", &format!("hidden = [4]\ncode = 2\nnoise = 0.1\nanswer = '{answer}'"));
    }
    obeys("vae", "hidden = [4]\ncode = 2");
}

#[test]
fn convolutional_autoencoders_obey_the_laws() {
    let encoder = "shape = [1, 1, 4]\nencoder = ['conv 2 1x3', 'relu', 'linear 2']";
    let checked = |settings: &str| {
        let learner = network("autoencoder", settings).unwrap();
        check_within(&*learner, &|table| table.width() == 4, F32)
    };
    let short = checked(&format!("{encoder}\ndecoder = ['linear 2', 'image 2 1 1']")).unwrap_err();
    assert!(short.contains("an image of 2×1×1") && short.contains("4 numbers"), "{short}");
    for answer in ["code", "error"] {
        let decoder = "decoder = ['linear 4', 'image 1 1 4', 'conv 1 1x3']";
        checked(&format!("answer = '{answer}'\n{encoder}\n{decoder}")).unwrap();
    }
}

#[test]
fn augmented_images_obey_the_laws() {
    let settings = "shape = [1, 1, 5]\nlayers = ['augment flip on', 'conv 2 1x3', 'relu']";
    let learner = network("cnn", settings).unwrap();
    check_within(&*learner, &|table| table.width() == 5, F32).unwrap_or_else(|law| panic!("{law}"));
}

#[test]
fn convolutional_networks_obey_the_laws() {
    images_obey(&[
        "['conv 4 1x3', 'relu', 'linear 4', 'tanh']",
        "['conv 4 1x3', 'group-norm 2', 'relu', 'dropout 0.2', 'global-average-pool']",
    ]);
}

#[test]
fn residual_networks_obey_the_laws() {
    images_obey(&["['residual 4 groups 2', 'global-average-pool']"]);
}

fn images_obey(layers: &[&str]) {
    for layers in layers {
        for width in [5, 3, 1] {
            let settings = format!("shape = [1, 1, {width}]\nlayers = {layers}");
            let learner = network("cnn", &settings).unwrap();
            check_within(&*learner, &|table| table.width() == width, F32)
                .unwrap_or_else(|law| panic!("{settings}: {law}"));
        }
    }
}
