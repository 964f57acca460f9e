//! The catalogue of networks: one file each, two lines here.

mod autoencoder;
mod cnn;
mod embedding;
mod gan;
mod mlp;
mod rnn;
mod transformer;
mod vae;

use crate::flow::Form;
use crate::goal::{Apart, Goal};
use crate::own::OwnLayers;
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// All networks.
pub static NETWORKS: &[Entry<BuildLearner>] = &[
    mlp::ENTRY,
    cnn::ENTRY,
    rnn::ENTRY,
    transformer::ENTRY,
    embedding::ENTRY,
    autoencoder::ENTRY,
    vae::ENTRY,
    gan::ENTRY,
];

/// The form of rows that are images of a shape; without one, of one square channel.
///
/// # Errors
/// When a row has another number of features.
fn image(shape: &[usize], features: usize) -> Result<Form> {
    let side = features.isqrt();
    let [channels, height, width] = match *shape {
        [channels, height, width] => [channels, height, width],
        _ if side * side == features => [1, side, side],
        _ => {
            return Err(Fault::caller(format!("{features} features are no square image"))
                .hint("set shape = [channels, height, width]"));
        }
    };
    let numbers = channels * height * width;
    if numbers != features {
        return Err(Fault::caller(format!(
            "shape = [{channels}, {height}, {width}] has {numbers} numbers, rows have {features}"
        ))
        .hint(
            "set shape = [channels, height, width] so that their product is the features of a row",
        ));
    }
    Ok(Form::Image { channels, height, width })
}

/// A shape that has not three sizes.
fn no_image(shape: &[usize]) -> Fault {
    Fault::caller(format!("shape = {shape:?} is not that of an image"))
        .hint("write shape = [channels, height, width], such as [1, 28, 28]")
}

/// Refuses parameters that have no effect beside others: those that differ from their defaults.
pub(crate) fn refuse_idle(
    params: &Params,
    own: &'static [Param],
    when: &str,
    idle: &[&str],
) -> Result<()> {
    let (given, usual) = (params.to_table(), Params::defaults(own)?.to_table());
    match idle.iter().find(|name| given.get(**name) != usual.get(**name)) {
        None => Ok(()),
        Some(name) => Err(Fault::caller(format!("{name} has no effect where {when}"))
            .hint(format!("leave out {name}"))),
    }
}

/// What a network with labels is asked.
pub(crate) const TASK: Param = Param {
    name: "task",
    kind: ParamKind::Choice(&["classification", "regression"]),
    default: Some("classification"),
    help: "whether labels are classes or numbers",
};

pub(crate) const LABEL_SMOOTHING: Param = Param {
    name: "label_smoothing",
    kind: ParamKind::Float { min: 0.0, max: 1.0 },
    default: Some("0.0"),
    help: "share of the truth that is spread over all classes",
};

pub(crate) const LOSS: Param = Param {
    name: "loss",
    kind: ParamKind::Choice(&["default", "cross-entropy", "focal", "squared", "absolute", "huber"]),
    default: Some("default"),
    help: "what is made small: cross-entropy or focal for classes, squared, absolute or huber for numbers; default takes the first",
};

/// The goal of a network with labels.
///
/// # Errors
/// A loss that is not for the task.
pub(crate) fn goal(params: &Params) -> Result<Goal> {
    let smoothing = params.f64("label_smoothing");
    if params.text("task") == "regression" && smoothing > 0.0 {
        return Err(Fault::caller(
            "label_smoothing is for classes, and task = \"regression\" has none",
        )
        .hint("leave out label_smoothing"));
    }
    match (params.text("task"), params.text("loss")) {
        ("regression", "default" | "squared") => Ok(Goal::Number(Apart::Squared)),
        ("regression", "absolute") => Ok(Goal::Number(Apart::Absolute)),
        ("regression", "huber") => Ok(Goal::Number(Apart::Huber)),
        ("regression", loss) => Err(Fault::caller(format!("loss = \"{loss}\" is for classes"))
            .hint("for numbers choose squared, absolute or huber")),
        (_, "default" | "cross-entropy") => Ok(Goal::Class { smoothing }),
        (_, "focal") if smoothing > 0.0 => {
            Err(Fault::caller("loss = \"focal\" has no label_smoothing").hint("leave one out"))
        }
        (_, "focal") => Ok(Goal::Focal),
        (_, loss) => Err(Fault::caller(format!("loss = \"{loss}\" is for numbers"))
            .hint("for classes choose cross-entropy or focal, or set task = \"regression\"")),
    }
}

const ACTIVATION: Param = Param {
    name: "activation",
    kind: ParamKind::Choice(&["relu", "leaky-relu", "gelu", "silu", "tanh", "sigmoid"]),
    default: Some("relu"),
    help: "the function after each hidden layer",
};

const LAYERS: Param = Param {
    name: "layers",
    kind: ParamKind::Texts,
    default: Some("[]"),
    help: "the layers one by one, but for the last, which gives the outputs: [\"linear 32\", \"relu\", …]",
};

const OWN_LAYERS: Param = Param {
    name: "layer",
    kind: ParamKind::Tables,
    default: Some("[]"),
    help: "layers of the job's own, each written [[layer]] with name, sizes and compute",
};

/// The layers of a job: those it lists, or else those of the entry.
struct Listed {
    lines: Vec<String>,
    own: OwnLayers,
}

impl Listed {
    /// `idle` are parameters, of those that the entry declares, which mean nothing to layers that are listed.
    ///
    /// # Errors
    /// A definition that is not understood, or a parameter without effect.
    fn of(
        params: &Params,
        (declared, idle): (&'static [Param], &[&str]),
        otherwise: impl FnOnce() -> Vec<String>,
    ) -> Result<Listed> {
        let own = OwnLayers::parse(&params.tables("layer"))?;
        let lines: Vec<String> = params.texts("layers").iter().map(ToString::to_string).collect();
        if !lines.is_empty() {
            refuse_idle(params, declared, "layers are listed", idle)?;
        }
        Ok(Listed { lines: if lines.is_empty() { otherwise() } else { lines }, own })
    }
}

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
        return goal(params);
    }
    if !["default", "cross-entropy"].contains(&params.text("loss")) {
        return Err(Fault::caller("task = \"next-token\" has the loss cross-entropy")
            .hint("leave loss out"));
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
    /// # Errors
    /// Steps beside tokens.
    fn of(params: &Params) -> Result<Reading> {
        let (tokens, steps) = (params.size("tokens"), params.size("steps"));
        match (tokens, steps) {
            (1.., 1..) => {
                Err(Fault::caller("steps has no effect beside tokens: each token is a step")
                    .hint("leave out steps, or tokens if features are numbers"))
            }
            _ => Ok(Reading { tokens, steps }),
        }
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
