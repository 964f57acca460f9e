//! The catalogue of networks: one file each, two lines here.

mod autoencoder;
mod cnn;
mod mlp;
mod rnn;
mod transformer;
mod vae;

use crate::flow::Form;
use crate::goal::Goal;
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// All networks.
pub static NETWORKS: &[Entry<BuildLearner>] =
    &[mlp::ENTRY, cnn::ENTRY, rnn::ENTRY, transformer::ENTRY, autoencoder::ENTRY, vae::ENTRY];

/// What a network with labels is asked.
const TASK: Param = Param {
    name: "task",
    kind: ParamKind::Choice(&["classification", "regression"]),
    default: Some("classification"),
    help: "whether labels are classes or numbers",
};

const LABEL_SMOOTHING: Param = Param {
    name: "label_smoothing",
    kind: ParamKind::Float { min: 0.0, max: 1.0 },
    default: Some("0.0"),
    help: "share of the truth that is spread over all classes",
};

/// The goal of a network with labels.
fn goal(params: &Params) -> Goal {
    match params.text("task") {
        "regression" => Goal::Number,
        _ => Goal::Class { smoothing: params.f64("label_smoothing") },
    }
}

const ACTIVATION: Param = Param {
    name: "activation",
    kind: ParamKind::Choice(&["relu", "leaky-relu", "gelu", "silu", "tanh", "sigmoid"]),
    default: Some("relu"),
    help: "the function after each hidden layer",
};

const DROPOUT: Param = Param {
    name: "dropout",
    kind: ParamKind::Float { min: 0.0, max: 0.99 },
    default: Some("0.0"),
    help: "share of hidden numbers left out while learning",
};

const TOKENS: Param = Param {
    name: "tokens",
    kind: ParamKind::Integer { min: 0, max: 16_777_216 },
    default: Some("0"),
    help: "if features are tokens, how many different ones there are; 0 takes features as numbers",
};

const STEPS: Param = Param {
    name: "steps",
    kind: ParamKind::Integer { min: 0, max: 1_000_000 },
    default: Some("0"),
    help: "steps that a row's numbers are cut into, one after another; 0 makes each number a step",
};

/// What a network of sequences is asked.
const SEQUENCE_TASK: Param = Param {
    name: "task",
    kind: ParamKind::Choice(&["classification", "regression", "next-token"]),
    default: Some("classification"),
    help: "whether labels are classes or numbers, or each token is to tell the next (then rows need no labels)",
};

/// The goal of a network of sequences.
fn sequence_goal(params: &Params) -> Result<Goal> {
    if params.text("task") != "next-token" {
        return Ok(goal(params));
    }
    match params.size("tokens") {
        0 => Err(Fault::caller("task = \"next-token\" needs to know how many tokens there are")
            .hint("set tokens, 256 for bytes")),
        tokens => Ok(Goal::Next { tokens, smoothing: params.f64("label_smoothing") }),
    }
}

/// How rows of numbers or tokens become sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reading {
    tokens: usize,
    steps: usize,
}

impl Reading {
    fn of(params: &Params) -> Reading {
        Reading { tokens: params.size("tokens"), steps: params.size("steps") }
    }

    fn form(self, features: usize) -> Result<Form> {
        let steps = if self.steps == 0 { features } else { self.steps };
        match self.tokens {
            1.. => Ok(Form::Flat(features)),
            0 if features.is_multiple_of(steps) => {
                Ok(Form::Sequence { steps, width: features / steps })
            }
            0 => {
                Err(Fault::caller(format!("{features} features cannot be cut into {steps} steps"))
                    .hint("choose steps that divide the number of features"))
            }
        }
    }

    /// The first layer: vectors of tokens, or of the numbers of a step.
    fn first(self, width: usize) -> String {
        match self.tokens {
            0 => format!("linear {width}"),
            tokens => format!("embedding {tokens} {width}"),
        }
    }
}
