//! The entry of generative adversarial networks; what they do is in `crate::gan`.

use super::ACTIVATION;
use crate::gan::Gan;
use crate::recipe::{self, Recipe};
use starlings_core::{Ability, Entry, Fault, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "gan",
    summary: "Makes rows like those of the data: a generator against a discriminator, in turns",
    reference: "Goodfellow et al., Generative adversarial nets, NeurIPS 2014; Salimans et al., Improved techniques \
                for training GANs, NeurIPS 2016",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: &[],
    needs: &[Ability::WholeModel, Ability::Sum, Ability::Barrier],
    build: |params| Ok(Box::new(built(params)?)),
};

const OWN: &[Param] = &[
    Param {
        name: "hidden",
        kind: ParamKind::Sizes { min: 1, max: 1_000_000 },
        default: Some("[128]"),
        help: "widths of the generator's layers; the discriminator has them in the other order",
    },
    Param {
        name: "code",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("16"),
        help: "numbers of noise that a row is made of",
    },
    Param {
        name: "output",
        kind: ParamKind::Choice(&["sigmoid", "tanh", "plain"]),
        default: Some("sigmoid"),
        help: "what made numbers go through at the end: sigmoid for data from 0 to 1, tanh for −1 to 1",
    },
    Param {
        name: "rounds",
        kind: ParamKind::Integer { min: 1, max: 1000 },
        default: Some("1"),
        help: "steps of the discriminator for one of the generator",
    },
    Param {
        name: "smoothing",
        kind: ParamKind::Float { min: 0.0, max: 0.5 },
        default: Some("0.1"),
        help: "share of the truth of real rows that the discriminator is not told",
    },
    Param {
        name: "dropout",
        kind: ParamKind::Float { min: 0.0, max: 0.99 },
        default: Some("0.0"),
        help: "share of the discriminator's hidden numbers left out while it learns",
    },
    ACTIVATION,
];

fn built(params: &Params) -> Result<Gan> {
    let recipe = Recipe::of(params)?;
    if recipe.patience > 0 {
        return Err(Fault::caller("patience means nothing to a gan")
            .hint("its losses are of two networks against each other and need not fall: leave patience out"));
    }
    let (hidden, dropout) = (params.sizes("hidden"), params.f64("dropout"));
    let layer = |width: &usize| [format!("linear {width}"), params.text("activation").to_string()];
    let tell = |width: &usize| {
        let drop = (dropout > 0.0).then(|| format!("dropout {dropout}"));
        [format!("linear {width}"), "leaky-relu".to_string()].into_iter().chain(drop)
    };
    Ok(Gan {
        generator: hidden.iter().flat_map(layer).collect(),
        squash: (params.text("output") != "plain").then(|| params.text("output").to_string()),
        discriminator: hidden.iter().rev().flat_map(tell).collect(),
        code: params.size("code"),
        rounds: params.size("rounds") as u64,
        smoothing: params.f64("smoothing"),
        recipe,
    })
}
