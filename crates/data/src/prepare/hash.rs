//! Columns hashed into a fixed number of features (the hashing trick): a category counts 1 in the feature of
//! `column=category`, a number counts itself in the feature of its column. Signs alternate with the hash, so that
//! collisions cancel on average. Nothing is learnt, and categories never seen are as good as others.

use super::frame::SparseRows;
use super::murmur::place;
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Param, ParamKind, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "hash-encoding",
    summary: "Columns hashed together into a fixed number of features",
    reference: "Weinberger et al. (2009), Feature hashing for large scale multitask learning",
    params: &[FEATURES, SIGNED, SEED],
    gives: &[],
    needs: &[],
    build: |params| {
        let (features, seed) = (params.size("features") as u32, params.size("seed") as u32);
        Ok(Box::new(Hash { features, signed: params.flag("signed"), seed }))
    },
};

pub(super) const FEATURES: Param = Param {
    name: "features",
    kind: ParamKind::Integer { min: 1, max: 1 << 28 },
    default: Some("1024"),
    help: "how many features there are",
};

pub(super) const SIGNED: Param = Param {
    name: "signed",
    kind: ParamKind::Flag,
    default: Some("true"),
    help: "whether half of the texts count negatively, so that collisions cancel on average",
};

pub(super) const SEED: Param = Param {
    name: "seed",
    kind: ParamKind::Integer { min: 0, max: u32::MAX as i64 },
    default: Some("0"),
    help: "another seed puts texts into other features",
};

/// How columns are hashed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hash {
    features: u32,
    signed: bool,
    seed: u32,
}

impl Preparation for Hash {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, _: usize) -> Box<dyn Statistics> {
        Box::new(*self)
    }
}

impl Statistics for Hash {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        match inputs.iter().find(|input| input.cells.kind() == Kind::Block) {
            Some(block) => Err(wrong_kind(block, "texts or numbers")),
            None => Ok(()),
        }
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        Ok(Fitted::Hash(*self))
    }
}

impl Hash {
    fn place(&self, text: &str) -> (u32, f32) {
        let (feature, sign) = place(text.as_bytes(), self.features, self.seed);
        (feature, if self.signed { sign } else { 1.0 })
    }
}

impl Apply for Hash {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut rows: Vec<BTreeMap<u32, f32>> = Vec::new();
        for input in &inputs {
            match &input.cells {
                Cells::Numbers(values) => {
                    rows.resize(values.len(), BTreeMap::new());
                    let (feature, sign) = self.place(&input.name);
                    for (row, value) in rows.iter_mut().zip(values) {
                        if !value.is_nan() {
                            *row.entry(feature).or_default() += sign * value;
                        }
                    }
                }
                Cells::Texts { codes, texts } => {
                    rows.resize(codes.len(), BTreeMap::new());
                    let named = |text: &String| self.place(&format!("{}={text}", input.name));
                    let places: Vec<(u32, f32)> = texts.iter().map(named).collect();
                    for (row, code) in rows.iter_mut().zip(codes) {
                        if let Some(code) = code {
                            let (feature, sign) = places[*code as usize];
                            *row.entry(feature).or_default() += sign;
                        }
                    }
                }
                Cells::Block(_) => return Err(wrong_kind(input, "texts or numbers")),
            }
        }
        let mut made = SparseRows::new(self.features as usize);
        rows.into_iter().for_each(|row| made.push(row.into_iter().filter(|entry| entry.1 != 0.0)));
        // All columns become one block, in the place of the first.
        let mut outputs: Vec<Vec<Series>> = inputs.iter().map(|_| Vec::new()).collect();
        if let Some(first) = outputs.first_mut() {
            first.push(Series::new("hashed", made.finish()));
        }
        Ok(outputs)
    }
}
