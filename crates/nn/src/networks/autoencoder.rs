//! The autoencoder (Hinton and Salakhutdinov, "Reducing the dimensionality of data with neural networks", 2006): a network
//! that gives back its row through a narrow layer, whose numbers are then the row in short. With noise on its input it
//! is a denoising one (Vincent et al., 2008). Rows that it gives back badly are unusual.

use super::ACTIVATION;
use crate::flow::Form;
use crate::goal::Goal;
use crate::learner::{Answer, Design, GIVES, Network};
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "autoencoder",
    summary: "Rows in fewer numbers, given back, or their error as a score of anomaly; plain or denoising",
    reference: "Hinton and Salakhutdinov, Reducing the dimensionality of data with neural networks, Science 313, 2006; \
                Vincent et al., Extracting and composing robust features with denoising autoencoders, ICML 2008",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Autoencoder::of(params));
        Ok(Box::new(Network::new(design, Goal::Itself, Recipe::of(params))))
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
        default: Some("16"),
        help: "numbers of the code",
    },
    Param {
        name: "noise",
        kind: ParamKind::Float { min: 0.0, max: 1e6 },
        default: Some("0.0"),
        help: "deviation of the noise on rows while learning; above 0 it is a denoising autoencoder",
    },
    Param {
        name: "answer",
        kind: ParamKind::Choice(&["code", "reconstruction", "error"]),
        default: Some("code"),
        help: "what predictions are: the code, the row given back, or its mean squared error",
    },
    ACTIVATION,
];

struct Autoencoder {
    lines: Vec<String>,
    answer: Answer,
}

impl Autoencoder {
    fn of(params: &Params) -> Autoencoder {
        let (hidden, activation) = (params.sizes("hidden"), params.text("activation"));
        let noise = params.f64("noise");
        let mut lines: Vec<String> =
            (noise > 0.0).then(|| format!("noise {noise}")).into_iter().collect();
        let layer = |width: &usize| [format!("linear {width}"), activation.to_string()];
        lines.extend(hidden.iter().flat_map(layer));
        lines.push(format!("linear {}", params.size("code")));
        let answer = match params.text("answer") {
            "reconstruction" => Answer::Output,
            "error" => Answer::Error,
            _ => Answer::Code(lines.len()),
        };
        // Without hidden layers it is linear: its code spans what principal components span.
        lines.extend(hidden.iter().rev().flat_map(layer));
        Autoencoder { lines, answer }
    }
}

impl Design for Autoencoder {
    fn input(&self, features: usize) -> Result<Form> {
        Ok(Form::Flat(features))
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.lines.clone()
    }

    fn answer(&self) -> Answer {
        self.answer
    }
}
