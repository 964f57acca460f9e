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

#[test]
fn perceptrons_obey_the_laws_under_every_solver() {
    SOLVERS.iter().for_each(|settings| obeys("mlp", &format!("hidden = [6]\n{settings}")));
}

#[test]
fn perceptrons_obey_the_laws_with_every_layer() {
    for settings in LAYERS {
        let hidden = if settings.starts_with("hidden") { "" } else { "hidden = [6]\n" };
        obeys("mlp", &format!("{hidden}{settings}"));
    }
}

#[test]
fn networks_of_numbers_obey_the_laws() {
    for settings in ["hidden = [6]", "hidden = [6]\nsolver = 'sgd'\nnorm = 'batch-norm'"] {
        obeys("mlp", &format!("task = 'regression'\n{settings}"));
    }
}

#[test]
fn networks_of_sequences_obey_the_laws() {
    for cell in ["rnn", "lstm", "gru"] {
        obeys("rnn", &format!("cell = '{cell}'\nhidden = [4]"));
    }
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
fn convolutional_networks_obey_the_laws() {
    let layers = [
        "['conv 4 1x3', 'relu', 'linear 4', 'tanh']",
        "['conv 4 1x3', 'group-norm 2', 'relu', 'dropout 0.2', 'global-average-pool']",
        "['residual 4 groups 2', 'global-average-pool']",
    ];
    for layers in layers {
        for width in [5, 3, 1] {
            let settings = format!("shape = [1, 1, {width}]\nlayers = {layers}");
            let learner = network("cnn", &settings).unwrap();
            check_within(&*learner, &|table| table.width() == width, F32)
                .unwrap_or_else(|law| panic!("{settings}: {law}"));
        }
    }
}
