//! A network that a user wrote with Burn as the learner of a job.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor};
use starlings::{
    DataSpec, Job, OwnNetwork, Report, Result, Surroundings, TrainOptions, own_network,
};
use std::process::Command;

/// Two linear layers, as `mlp` with `hidden = [16]` has them.
#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    relu: Relu,
    output: Linear,
}

impl OwnNetwork for Perceptron {
    fn build(features: usize, outputs: usize, device: &Device) -> Perceptron {
        Perceptron {
            hidden: LinearConfig::new(features, 16).init(device),
            relu: Relu::new(),
            output: LinearConfig::new(16, outputs).init(device),
        }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.relu.forward(self.hidden.forward(rows)))
    }
}

/// It keeps running means, which do not learn, and does not say so.
#[derive(Module, Debug)]
struct Normalised {
    norm: BatchNorm,
    output: Linear,
}

impl OwnNetwork for Normalised {
    fn build(features: usize, outputs: usize, device: &Device) -> Normalised {
        let output = LinearConfig::new(features, outputs).init(device);
        Normalised { norm: BatchNormConfig::new(features).init(device), output }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.norm.forward(rows))
    }
}

/// It keeps running means and draws masks, of rows and of what comes out of a layer.
#[derive(Module, Debug)]
struct Regular {
    masks: Dropout,
    hidden: Linear,
    norm: BatchNorm,
    relu: Relu,
    output: Linear,
}

impl OwnNetwork for Regular {
    const STATEFUL: bool = true;

    fn build(features: usize, outputs: usize, device: &Device) -> Regular {
        Regular {
            masks: DropoutConfig::new(0.1).init(),
            hidden: LinearConfig::new(features, 16).with_bias(false).init(device),
            norm: BatchNormConfig::new(16).with_momentum(0.2).init(device),
            relu: Relu::new(),
            output: LinearConfig::new(16, outputs).init(device),
        }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        let hidden = self.norm.forward(self.hidden.forward(self.masks.forward(rows)));
        self.output.forward(self.masks.forward(self.relu.forward(hidden)))
    }
}

/// Its first layer is as it was drawn, whatever happens.
#[derive(Module, Debug)]
struct Frozen {
    drawn: Linear,
    output: Linear,
}

impl OwnNetwork for Frozen {
    const STATEFUL: bool = true;

    fn build(features: usize, outputs: usize, device: &Device) -> Frozen {
        let drawn = LinearConfig::new(features, 32).init(device).no_grad();
        Frozen { drawn, output: LinearConfig::new(32, outputs).init(device) }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        self.output.forward(self.drawn.forward(rows).tanh())
    }
}

/// It gives two numbers whatever it is asked for.
#[derive(Module, Debug)]
struct Stubborn {
    weight: Param<Tensor<2>>,
}

impl OwnNetwork for Stubborn {
    fn build(features: usize, _: usize, device: &Device) -> Stubborn {
        Stubborn { weight: Param::from_tensor(Tensor::ones([features, 2], device)) }
    }

    fn forward(&self, rows: Tensor<2>) -> Tensor<2> {
        rows.matmul(self.weight.val())
    }
}

fn job(learner: &str, changes: &[&str]) -> Result<(starlings::Predictor, Report)> {
    let text = format!(
        "[data]\ntrain = 'digits'\ntest = 'digits:test'\nlabel = 'class'\n\
         [[prepare]]\nname = 'scale'\nkind = 'max-abs'\n[learner]\nname = '{learner}'\nlearning_rate = 0.01\n\
         [train]\nepochs = 3\nbatch = 64\n"
    );
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let job = Job::parse(&text, &changes, &Surroundings { folder: ".".into(), cores: 1 })?;
    let trained = starlings::train(job, TrainOptions::default())?;
    Ok((trained.predictor, trained.report))
}

#[test]
fn it_learns_as_the_same_network_of_the_catalogue_and_alike_on_any_number_of_workers() {
    starlings::register(own_network::<Perceptron>("perceptron-of-mine", "two layers")).unwrap();
    let runs: Vec<Report> = [1, 2, 3]
        .map(|workers| job("perceptron-of-mine", &[&format!("cluster.workers={workers}")]))
        .into_iter()
        .map(|run| run.unwrap().1)
        .collect();
    for run in &runs {
        let apart = (run.objective - runs[0].objective).abs() / runs[0].objective;
        assert!(apart < 1e-5, "{} workers are {apart} apart", run.workers);
    }
    assert_ne!(runs[0].digest, job("perceptron-of-mine", &["train.seed=2"]).unwrap().1.digest);
    assert_eq!(runs[0].digest, job("perceptron-of-mine", &[]).unwrap().1.digest);
    // Other first weights, the same distribution and the same steps.
    let ours = job("mlp", &["learner.hidden=[16]"]).unwrap().1;
    let apart = (ours.evaluation["accuracy"] - runs[0].evaluation["accuracy"]).abs();
    assert!(apart < 0.05 && runs[0].evaluation["accuracy"] > 0.8, "{apart}");
    // Codec and consistency are words of the job here, too, and the model predicts.
    let changes = ["cluster.workers=2", "cluster.codec=half", "cluster.consistency=local"];
    let (predictor, report) = job("perceptron-of-mine", &changes).unwrap();
    assert!(report.evaluation["accuracy"] > 0.7);
    assert!(predictor.predict(&DataSpec::new("digits:test")).unwrap().classes.len() > 100);
}

#[test]
fn running_means_and_masks_do_not_depend_on_the_number_of_workers() {
    starlings::register(own_network::<Regular>("regular", "means and masks")).unwrap();
    let run = |changes: &[&str]| {
        let changes: Vec<&str> = changes.iter().chain(&["train.shards=4"]).copied().collect();
        job("regular", &changes).unwrap().1
    };
    let runs = [1, 2, 4].map(|workers| run(&[&format!("cluster.workers={workers}")]));
    for report in &runs {
        // The objective is told with running means, so it is off where those are.
        let apart = (report.objective - runs[0].objective).abs() / runs[0].objective;
        assert!(apart < 1e-4, "{} workers are {apart} apart", report.workers);
        assert!(report.evaluation["accuracy"] > 0.8, "{:?}", report.evaluation);
    }
    assert_eq!(runs[0].digest, run(&["cluster.workers=1"]).digest);
    // Masks are not the same in every step: with other seeds the loss is another.
    assert_ne!(runs[0].digest, run(&["train.seed=9"]).digest);
    // Owners of rows could not move means.
    let served = ["cluster.workers=2", "cluster.topology=star", "cluster.consistency=async"];
    assert!(job("regular", &served).is_err());
}

#[test]
fn frozen_parameters_stay_as_they_were_drawn() {
    starlings::register(own_network::<Frozen>("frozen", "a layer that stays")).unwrap();
    let weights = |epochs: u32| {
        let changes = ["cluster.workers=2".to_string(), format!("train.epochs={epochs}")];
        let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
        let (predictor, _) = job("frozen", &changes).unwrap();
        let of = |name: &str| predictor.file().model.get(name).unwrap().values.clone();
        (of("drawn.weight"), of("output.weight"))
    };
    let (short, long) = (weights(1), weights(2));
    assert_eq!(short.0, long.0);
    assert_ne!(short.1, long.1);
}

#[test]
fn what_cannot_be_trained_so_is_refused_with_the_reason() {
    starlings::register(own_network::<Normalised>("normalised", "has means")).unwrap();
    let refused = |name: &str| job(name, &[]).err().unwrap().to_string();
    let means = refused("normalised");
    assert!(means.contains("running_mean") && means.contains("does not learn"), "{means}");
    assert!(means.contains("STATEFUL"), "{means}");
    starlings::register(own_network::<Stubborn>("stubborn", "two outputs")).unwrap();
    let stubborn = refused("stubborn");
    assert!(stubborn.contains("2 numbers where 2 of 10"), "{stubborn}");
    let taken = starlings::register(own_network::<Stubborn>("mlp", "taken")).unwrap_err();
    assert!(taken.to_string().contains("already"), "{taken}");
}

#[test]
fn a_program_with_a_network_of_its_own_is_its_own_worker() {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/burn_network");
    let run = |workers: u32| {
        let change = format!("cluster.workers={workers}");
        let output =
            Command::new(&example).args([change.as_str(), "train.epochs=2"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let objective = text.strip_prefix("objective ").and_then(|rest| rest.split(',').next());
        objective.unwrap().parse::<f64>().unwrap()
    };
    let (one, two) = (run(1), run(2));
    assert!(one < 1.5 && (one - two).abs() / one < 1e-5, "{one} {two}");
}
