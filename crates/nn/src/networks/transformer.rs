//! The transformer (Vaswani et al., "Attention is all you need", 2017): blocks of attention over the steps of a row. As an
//! encoder its mean over steps decides on classes or numbers; as a decoder alone (Radford et al., "Improving language
//! understanding by generative pre-training", 2018) each step looks back only and tells the next token.

use super::{
    DROPOUT, LABEL_SMOOTHING, LAYERS, LOSS, Listed, OWN_LAYERS, Reading, SEQUENCE_TASK, STEPS,
    TOKENS, sequence_goal,
};
use crate::flow::Form;
use crate::learner::{Design, GIVES, Network};
use crate::own::OwnLayers;
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "transformer",
    summary: "Classes or numbers of sequences by a transformer's encoder, or the next token by its decoder alone",
    reference: "Vaswani et al., Attention is all you need, NeurIPS 2017; Xiong et al., On layer normalization in the \
                transformer architecture, ICML 2020",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Transformer::of(params)?);
        Ok(Box::new(Network::new(design, sequence_goal(params)?, Recipe::of(params)?)))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "width",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("64"),
        help: "numbers in the vector of a step",
    },
    Param {
        name: "heads",
        kind: ParamKind::Integer { min: 1, max: 4096 },
        default: Some("4"),
        help: "heads of attention; they divide the width",
    },
    Param {
        name: "blocks",
        kind: ParamKind::Integer { min: 0, max: 4096 },
        default: Some("2"),
        help: "blocks one after another",
    },
    STEPS,
    TOKENS,
    DROPOUT,
    LAYERS,
    OWN_LAYERS,
    SEQUENCE_TASK,
    LOSS,
    LABEL_SMOOTHING,
];

struct Transformer {
    reading: Reading,
    listed: Listed,
}

impl Transformer {
    fn of(params: &Params) -> Result<Transformer> {
        let (reading, dropout) = (Reading::of(params)?, params.f64("dropout"));
        let (width, heads) = (params.size("width"), params.size("heads"));
        if !width.is_multiple_of(heads) {
            return Err(Fault::caller(format!(
                "a width of {width} cannot be cut into {heads} heads"
            ))
            .hint("choose a number of heads that divides the width"));
        }
        let looks_back = params.text("task") == "next-token";
        let mut block = format!("transformer {heads}{}", if looks_back { " causal" } else { "" });
        if dropout > 0.0 {
            block.push_str(&format!(" dropout {dropout}"));
        }
        let mut lines = vec![reading.first(width), "position".to_string()];
        lines.extend(std::iter::repeat_n(block, params.size("blocks")));
        lines.push("layer-norm".to_string());
        lines.extend((!looks_back).then(|| "global-average-pool".to_string()));
        let idle = &["width", "heads", "blocks", "dropout"];
        Ok(Transformer { reading, listed: Listed::of(params, (OWN, idle), || lines)? })
    }
}

impl Design for Transformer {
    fn input(&self, features: usize) -> Result<Form> {
        self.reading.form(features)
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.listed.lines.clone()
    }

    fn own(&self) -> &OwnLayers {
        &self.listed.own
    }
}
