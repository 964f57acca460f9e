//! The multi-layer perceptron (Rumelhart, Hinton and Williams, "Learning representations by back-propagating errors",
//! 1986): linear layers with a function between them.

use super::{ACTIVATION, DROPOUT, LABEL_SMOOTHING, LAYERS, LOSS, Listed, OWN_LAYERS, TASK, goal};
use crate::flow::Form;
use crate::learner::{Design, GIVES, Network};
use crate::own::OwnLayers;
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "mlp",
    summary: "Classes or numbers by a multi-layer perceptron; layers, optimiser and schedule by name",
    reference: "Rumelhart, Hinton and Williams, Learning representations by back-propagating errors, Nature 323, 1986",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Mlp::of(params)?);
        Ok(Box::new(Network::new(design, goal(params)?, Recipe::of(params)?)))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "hidden",
        kind: ParamKind::Sizes { min: 1, max: 1_000_000 },
        default: Some("[256, 128]"),
        help: "widths of the layers between input and output",
    },
    ACTIVATION,
    Param {
        name: "norm",
        kind: ParamKind::Choice(&["none", "batch-norm", "layer-norm"]),
        default: Some("none"),
        help: "what normalises each hidden layer before its function",
    },
    DROPOUT,
    LAYERS,
    OWN_LAYERS,
    TASK,
    LOSS,
    LABEL_SMOOTHING,
];

struct Mlp(Listed);

impl Mlp {
    fn of(params: &Params) -> Result<Mlp> {
        let idle = &["hidden", "activation", "norm", "dropout"];
        Listed::of(params, (OWN, idle), || Mlp::hidden(params)).map(Mlp)
    }

    fn hidden(params: &Params) -> Vec<String> {
        let (norm, dropout) = (params.text("norm"), params.f64("dropout"));
        let mut lines = Vec::new();
        for width in params.sizes("hidden") {
            // Batch normalisation takes a bias out again: its gradient would be nothing but rounding.
            let bias = if norm == "batch-norm" { " bias off" } else { "" };
            lines.push(format!("linear {width}{bias}"));
            lines.extend((norm != "none").then(|| norm.to_string()));
            lines.push(params.text("activation").to_string());
            lines.extend((dropout > 0.0).then(|| format!("dropout {dropout}")));
        }
        lines
    }
}

impl Design for Mlp {
    fn input(&self, features: usize) -> Result<Form> {
        Ok(Form::Flat(features))
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.0.lines.clone()
    }

    fn own(&self) -> &OwnLayers {
        &self.0.own
    }
}
