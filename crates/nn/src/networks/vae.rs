//! The variational autoencoder (Kingma and Welling, "Auto-encoding variational Bayes", 2014): the code of a row is a
//! distribution, kept near the standard normal one, so that codes drawn from that give new rows. The loss of a row is
//! (squared error + beta · divergence) / features (beta: Higgins et al., 2017).

use super::ACTIVATION;
use crate::flow::Form;
use crate::goal::Goal;
use crate::learner::{Answer, Design, GIVES, Network};
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "vae",
    summary: "Rows as distributions of codes near the standard normal one, and given back from them",
    reference: "Kingma and Welling, Auto-encoding variational Bayes, ICLR 2014; Higgins et al., beta-VAE, ICLR 2017",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Vae::of(params));
        Ok(Box::new(Network::new(design, Goal::Itself, Recipe::of(params)?)))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "hidden",
        kind: ParamKind::Sizes { min: 1, max: 1_000_000 },
        default: Some("[128]"),
        help: "widths of the layers between row and code; they come again in the other order behind it",
    },
    Param {
        name: "code",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("8"),
        help: "numbers of the code",
    },
    Param {
        name: "beta",
        kind: ParamKind::Float { min: 0.0, max: 1e6 },
        default: Some("1.0"),
        help: "how much it counts that codes are spread like the standard normal distribution",
    },
    Param {
        name: "answer",
        kind: ParamKind::Choice(&["code", "reconstruction", "error"]),
        default: Some("code"),
        help: "what predictions are: the mean code, the row given back from it, or its mean squared error",
    },
    ACTIVATION,
];

struct Vae {
    hidden: Vec<usize>,
    activation: String,
    code: usize,
    beta: f64,
    answer: String,
}

impl Vae {
    fn of(params: &Params) -> Vae {
        Vae {
            hidden: params.sizes("hidden"),
            activation: params.text("activation").to_string(),
            code: params.size("code"),
            beta: params.f64("beta"),
            answer: params.text("answer").to_string(),
        }
    }
}

impl Design for Vae {
    fn input(&self, features: usize) -> Result<Form> {
        Ok(Form::Flat(features))
    }

    fn lines(&self, features: usize) -> Vec<String> {
        let layer = |width: &usize| [format!("linear {width}"), self.activation.clone()];
        let mut lines: Vec<String> = self.hidden.iter().flat_map(layer).collect();
        // The goal is a mean over a row's numbers: the divergence is brought to the same scale.
        let weight = self.beta / features.max(1) as f64;
        lines.push(format!("sample {} weight {weight}", self.code));
        lines.extend(self.hidden.iter().rev().flat_map(layer));
        lines
    }

    fn codes(&self) -> Option<usize> {
        Some(2 * self.hidden.len() + 1)
    }

    fn answer(&self) -> Answer {
        match self.answer.as_str() {
            "reconstruction" => Answer::Output,
            "error" => Answer::Error,
            _ => Answer::Code(2 * self.hidden.len() + 1),
        }
    }
}
