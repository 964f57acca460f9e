//! Texts as rows of tokens, for language models and other networks of sequences: bytes, or byte pairs that the training
//! texts teach. Every row has `length` tokens: of a longer text the rest is left out, a shorter one is filled up with
//! token 0, the byte that no text has.

use super::byte_pairs::{self, BYTES, pieces};
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use crate::Features;
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "tokens",
    summary: "Texts as rows of tokens: bytes, or byte pairs that come often together",
    reference: "Sennrich et al. (2016), Neural machine translation of rare words with subword units; over bytes: Radford et al. (2019)",
    params: &[
        Param {
            name: "kind",
            kind: ParamKind::Choice(&["byte", "bpe"]),
            default: Some("bpe"),
            help: "bytes as they are, or joined to longer tokens that the training texts teach",
        },
        Param {
            name: "vocabulary",
            kind: ParamKind::Integer { min: 256, max: 1 << 20 },
            default: Some("512"),
            help: "most tokens of kind bpe, the 256 bytes among them: what the learner's tokens must be",
        },
        Param {
            name: "length",
            kind: ParamKind::Integer { min: 1, max: 65_536 },
            default: Some("64"),
            help: "tokens of a row",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let joins = match params.text("kind") {
            "byte" => 0,
            _ => params.size("vocabulary") - BYTES,
        };
        Ok(Box::new(Plan { joins, length: params.size("length") }))
    },
};

/// Different pieces that training may show.
const PIECES_MAX: usize = 1 << 22;

#[derive(Clone, Copy, Debug)]
struct Plan {
    joins: usize,
    length: usize,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, _: usize) -> Box<dyn Statistics> {
        Box::new(Counts { plan: *self, pieces: BTreeMap::new() })
    }
}

/// How often each piece came, in all columns together: they share a vocabulary.
struct Counts {
    plan: Plan,
    pieces: BTreeMap<Vec<u8>, u64>,
}

impl Statistics for Counts {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        for input in inputs {
            let Cells::Texts { codes, texts } = &input.cells else {
                return Err(wrong_kind(input, "texts"));
            };
            if self.plan.joins == 0 {
                continue;
            }
            let mut rows = vec![0u64; texts.len()];
            codes.iter().flatten().for_each(|code| rows[*code as usize] += 1);
            for (text, rows) in texts.iter().zip(rows).filter(|(_, rows)| *rows > 0) {
                for piece in pieces(text.as_bytes()) {
                    match self.pieces.get_mut(piece) {
                        Some(times) => *times += rows,
                        None => drop(self.pieces.insert(piece.to_vec(), rows)),
                    }
                }
            }
            if self.pieces.len() > PIECES_MAX {
                let what = format!("column '{}' has more than {PIECES_MAX} words", input.name);
                return Err(Fault::caller(what).hint("is it a text? kind = \"byte\" learns none"));
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let joins = byte_pairs::learn(&self.pieces, self.plan.joins);
        Ok(Fitted::Tokens(Tokens { length: self.plan.length, joins }))
    }
}

/// A vocabulary, as the pairs of tokens that were joined one after another, and the length of rows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tokens {
    length: usize,
    joins: Vec<(u32, u32)>,
}

impl Apply for Tokens {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let ranks = byte_pairs::ranks(&self.joins);
        let mut outputs = Vec::with_capacity(inputs.len());
        for mut input in inputs {
            let Cells::Texts { codes, texts } = &input.cells else {
                return Err(wrong_kind(&input, "texts"));
            };
            let mut known: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
            let rows = texts.iter().map(|text| {
                let mut row = Vec::with_capacity(self.length);
                for piece in pieces(text.as_bytes()) {
                    if row.len() >= self.length {
                        break;
                    }
                    let tokens =
                        known.entry(piece).or_insert_with(|| byte_pairs::encode(piece, &ranks));
                    row.extend(tokens.iter().map(|&token| token as f32));
                }
                row.resize(self.length, 0.0);
                row
            });
            let rows: Vec<Vec<f32>> = rows.collect();
            let nothing = vec![0.0; self.length];
            let row = |code: &Option<u32>| code.map_or(&nothing, |code| &rows[code as usize]);
            let values = codes.iter().flat_map(row).copied().collect();
            input.cells = Cells::Block(Features::Dense { width: self.length, values });
            input.maker = None;
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }
}
