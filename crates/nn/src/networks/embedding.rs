//! Vectors of tokens by what stands near them (Mikolov et al., "Efficient estimation of word representations in vector
//! space", 2013): the skip-gram model. From the vector of a token its neighbours within a window are to be told, by a
//! softmax over all tokens. Tokens that stand among the same others get vectors that point the same way.

use super::DROPOUT;
use crate::flow::Form;
use crate::goal::Goal;
use crate::learner::{Answer, Design, GIVES, Network};
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "embedding",
    summary: "Vectors of tokens by what stands near them: the skip-gram model; of a row, the mean of its tokens'",
    reference: "Mikolov, Chen, Corrado and Dean, Efficient estimation of word representations in vector space, 2013",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let goal = Goal::Near { tokens: params.size("tokens"), window: params.size("window") };
        let mut lines =
            vec![format!("embedding {} {}", params.size("tokens"), params.size("width"))];
        let dropout = params.f64("dropout");
        lines.extend((dropout > 0.0).then(|| format!("dropout {dropout}")));
        Ok(Box::new(Network::new(Box::new(Vectors { lines }), goal, Recipe::of(params)?)))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "tokens",
        kind: ParamKind::Integer { min: 2, max: 16_777_216 },
        default: Some("256"),
        help: "how many different tokens there are: features are whole numbers below",
    },
    Param {
        name: "width",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("32"),
        help: "numbers of a token's vector",
    },
    Param {
        name: "window",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("2"),
        help: "how far a neighbour may stand, on either side",
    },
    DROPOUT,
];

struct Vectors {
    lines: Vec<String>,
}

impl Design for Vectors {
    fn input(&self, features: usize) -> Result<Form> {
        Ok(Form::Flat(features))
    }

    fn lines(&self, _: usize) -> Vec<String> {
        self.lines.clone()
    }

    fn answer(&self) -> Answer {
        Answer::Mean(1)
    }
}
