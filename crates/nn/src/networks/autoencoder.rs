//! The autoencoder (Hinton and Salakhutdinov, "Reducing the dimensionality of data with neural networks", 2006): a network
//! that gives back its row through a narrow layer, whose numbers are then the row in short. With noise on its input it
//! is a denoising one (Vincent et al., 2008). Rows that it gives back badly are unusual.

use super::{ACTIVATION, OWN_LAYERS, image, no_image, refuse_idle};
use crate::flow::Form;
use crate::goal::Goal;
use crate::learner::{Answer, Design, GIVES, Network};
use crate::own::OwnLayers;
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
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
        let design = Box::new(Autoencoder::of(params)?);
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
    Param {
        name: "shape",
        kind: ParamKind::Sizes { min: 1, max: 100_000 },
        default: Some("[]"),
        help: "[channels, height, width] of a row, where encoder and decoder are listed; without it, one square channel",
    },
    Param {
        name: "encoder",
        kind: ParamKind::Texts,
        default: Some("[]"),
        help: "the layers from row to code one by one: [\"conv 8\", \"relu\", \"max-pool 2\", \"linear 16\"]",
    },
    Param {
        name: "decoder",
        kind: ParamKind::Texts,
        default: Some("[]"),
        help: "the layers from code to row: [\"linear 128\", \"image 8 4 4\", \"upsample 2\", \"conv 1\"]",
    },
    OWN_LAYERS,
];

struct Autoencoder {
    lines: Vec<String>,
    answer: Answer,
    /// Whether its layers were listed, and the shape of a row then.
    listed: Option<Vec<usize>>,
    own: OwnLayers,
}

impl Autoencoder {
    fn of(params: &Params) -> Result<Autoencoder> {
        let (encoder, decoder) = (params.texts("encoder"), params.texts("decoder"));
        let own = OwnLayers::parse(&params.tables("layer"))?;
        if encoder.is_empty() != decoder.is_empty() {
            return Err(Fault::caller("an autoencoder has both encoder and decoder, or neither")
                .hint("list the layers on both sides of the code, or give hidden and code alone"));
        }
        let shape = params.sizes("shape");
        if encoder.is_empty() {
            if !shape.is_empty() {
                return Err(Fault::caller(
                    "shape is for layers that are listed in encoder and decoder",
                )
                .hint("leave out shape: hidden layers take a row as plain numbers"));
            }
            return Ok(Autoencoder { own, ..Autoencoder::mirrored(params) });
        }
        if !shape.is_empty() && shape.len() != 3 {
            return Err(no_image(&shape));
        }
        refuse_idle(
            params,
            OWN,
            "encoder and decoder are listed",
            &["hidden", "code", "activation"],
        )?;
        let noise = params.f64("noise");
        let noise = (noise > 0.0).then(|| format!("noise {noise}"));
        let before = encoder.len() + usize::from(noise.is_some());
        let listed = encoder.iter().chain(&decoder).map(ToString::to_string);
        let lines = noise.into_iter().chain(listed).collect();
        let answer = answer(params, before);
        Ok(Autoencoder { lines, answer, listed: Some(shape), own })
    }

    /// The layers between row and code again in the other order behind it.
    fn mirrored(params: &Params) -> Autoencoder {
        let (hidden, activation) = (params.sizes("hidden"), params.text("activation"));
        let noise = params.f64("noise");
        let mut lines: Vec<String> =
            (noise > 0.0).then(|| format!("noise {noise}")).into_iter().collect();
        let layer = |width: &usize| [format!("linear {width}"), activation.to_string()];
        lines.extend(hidden.iter().flat_map(layer));
        lines.push(format!("linear {}", params.size("code")));
        let answer = answer(params, lines.len());
        // Without hidden layers it is linear: its code spans what principal components span.
        lines.extend(hidden.iter().rev().flat_map(layer));
        Autoencoder { lines, answer, listed: None, own: OwnLayers::default() }
    }
}

/// What predictions are, of a network whose code comes after so many layers.
fn answer(params: &Params, layers: usize) -> Answer {
    match params.text("answer") {
        "reconstruction" => Answer::Output,
        "error" => Answer::Error,
        _ => Answer::Code(layers),
    }
}

impl Design for Autoencoder {
    fn input(&self, features: usize) -> Result<Form> {
        match &self.listed {
            None => Ok(Form::Flat(features)),
            Some(shape) => image(shape, features),
        }
    }

    fn closes(&self) -> bool {
        self.listed.is_none()
    }

    fn own(&self) -> &OwnLayers {
        &self.own
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.lines.clone()
    }

    fn answer(&self) -> Answer {
        self.answer
    }
}
