//! Texts as hashed words: each term counts in the feature that its hash names, with the hash's sign, and then each document
//! is scaled. No vocabulary is learnt or stored, whatever the number of terms.

use super::frame::SparseRows;
use super::hash::{FEATURES, SEED, SIGNED};
use super::murmur::place;
use super::tokens::{Cut, LOWERCASE, N_GRAM_MAX, N_GRAM_MIN, NORM, Norm};
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Param, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "hashed-n-grams",
    summary: "Texts as hashed words and runs of words: no vocabulary is learnt",
    reference: "Weinberger et al. (2009), Feature hashing for large scale multitask learning",
    params: &[
        Param { default: Some("262144"), ..FEATURES },
        LOWERCASE,
        N_GRAM_MIN,
        N_GRAM_MAX,
        NORM,
        SIGNED,
        SEED,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Ok(Box::new(NGrams {
            cut: Cut::of(params)?,
            norm: Norm::of(params),
            features: params.size("features") as u32,
            signed: params.flag("signed"),
            seed: params.size("seed") as u32,
        }))
    },
};

/// How texts are hashed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct NGrams {
    cut: Cut,
    norm: Norm,
    features: u32,
    signed: bool,
    seed: u32,
}

impl Preparation for NGrams {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, _: usize) -> Box<dyn Statistics> {
        Box::new(*self)
    }
}

impl Statistics for NGrams {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        match inputs.iter().find(|input| input.cells.kind() != Kind::Texts) {
            Some(other) => Err(wrong_kind(other, "texts")),
            None => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        Ok(Fitted::NGrams(*self))
    }
}

impl Apply for NGrams {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for mut input in inputs {
            let Cells::Texts { codes, texts } = &input.cells else {
                return Err(wrong_kind(&input, "texts"));
            };
            let mut rows = SparseRows::new(self.features as usize);
            for code in codes {
                let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
                for (term, count) in
                    code.iter().flat_map(|code| self.cut.count(&texts[*code as usize]))
                {
                    let (feature, sign) = place(term.as_bytes(), self.features, self.seed);
                    let sign = if self.signed { f64::from(sign) } else { 1.0 };
                    *sums.entry(feature).or_default() += sign * f64::from(count);
                }
                let mut row: Vec<(u32, f64)> = sums.into_iter().collect();
                rows.push(self.norm.scaled(&mut row));
            }
            input.cells = rows.finish();
            input.maker = None;
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }
}
