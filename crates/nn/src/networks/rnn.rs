//! Recurrent networks over the steps of a row: plain (Elman, 1990), with long short-term memory (Hochreiter and
//! Schmidhuber, 1997) or gated (Cho et al., 2014). What is known after the last step decides.

use super::{
    DROPOUT, LABEL_SMOOTHING, LAYERS, LOSS, Listed, OWN_LAYERS, Reading, SEQUENCE_TASK, STEPS,
    TOKENS, refuse_idle, sequence_goal,
};
use crate::flow::Form;
use crate::learner::{Design, GIVES, Network};
use crate::own::OwnLayers;
use crate::recipe::{self, Recipe};
use starlings_core::{Entry, Param, ParamKind, Params, Result};
use starlings_learn::BuildLearner;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "rnn",
    summary: "Classes or numbers of sequences, or the next token, by a recurrent network: cells are lstm, gru or plain",
    reference: "Elman, Finding structure in time, 1990; Hochreiter and Schmidhuber, Long short-term memory, 1997; \
                Cho et al., Learning phrase representations using RNN encoder-decoder, EMNLP 2014",
    params: &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN),
    gives: GIVES,
    needs: &[],
    build: |params| {
        let design = Box::new(Rnn::of(params)?);
        Ok(Box::new(Network::new(design, sequence_goal(params)?, Recipe::of(params)?)))
    },
};

const OWN: &[Param] = &[
    Param {
        name: "cell",
        kind: ParamKind::Choice(&["lstm", "gru", "rnn"]),
        default: Some("lstm"),
        help: "what goes from step to step",
    },
    Param {
        name: "hidden",
        kind: ParamKind::Sizes { min: 1, max: 1_000_000 },
        default: Some("[64]"),
        help: "widths of the recurrent layers",
    },
    Param {
        name: "embedding",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some("32"),
        help: "width of the vectors of tokens",
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

struct Rnn {
    reading: Reading,
    listed: Listed,
}

impl Rnn {
    fn of(params: &Params) -> Result<Rnn> {
        let reading = Reading::of(params)?;
        let idle = &["cell", "hidden", "embedding", "dropout"];
        if reading.tokens == 0 {
            refuse_idle(params, OWN, "features are no tokens", &["embedding"])?;
        }
        let listed = Listed::of(params, (OWN, idle), || Rnn::cells(reading, params))?;
        Ok(Rnn { reading, listed })
    }

    fn cells(reading: Reading, params: &Params) -> Vec<String> {
        let dropout = params.f64("dropout");
        let mut lines = Vec::new();
        // Numbers go into the cells as they are; tokens need vectors.
        lines.extend((reading.tokens > 0).then(|| reading.first(params.size("embedding"))));
        for width in params.sizes("hidden") {
            lines.push(format!("{} {width}", params.text("cell")));
            lines.extend((dropout > 0.0).then(|| format!("dropout {dropout}")));
        }
        lines.extend((params.text("task") != "next-token").then(|| "last".to_string()));
        lines
    }
}

impl Design for Rnn {
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
