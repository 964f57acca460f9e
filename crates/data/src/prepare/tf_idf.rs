//! Texts as weighted words: how often a term comes in a document times ln((1 + n) / (1 + d)) + 1, where d of the n training
//! documents have it; then each document is scaled. The vocabulary is learnt and sorted: terms of at least `min_df`
//! documents and at most the share `max_df`, of these the `max_features` that come most often. Terms that training
//! did not show are left out. A missing text has no words.

use super::frame::SparseRows;
use super::tokens::{Cut, LOWERCASE, N_GRAM_MAX, N_GRAM_MIN, NORM, Norm};
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "tf-idf",
    summary: "Texts as words weighted by how rare they are",
    reference: "Spärck Jones (1972), A statistical interpretation of term specificity",
    params: &[
        LOWERCASE,
        N_GRAM_MIN,
        N_GRAM_MAX,
        Param {
            name: "min_df",
            kind: ParamKind::Integer { min: 1, max: 1 << 40 },
            default: Some("1"),
            help: "a term of fewer documents is left out",
        },
        Param {
            name: "max_df",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Some("1.0"),
            help: "a term of more than this share of documents is left out",
        },
        Param {
            name: "max_features",
            kind: ParamKind::Integer { min: 0, max: 1 << 24 },
            default: Some("0"),
            help: "most terms, the most frequent; 0: no limit",
        },
        Param {
            name: "use_idf",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "whether rare terms count more",
        },
        Param {
            name: "sublinear_tf",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "whether a term that comes t times counts 1 + ln t",
        },
        NORM,
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Ok(Box::new(Plan {
            reading: Reading {
                cut: Cut::of(params)?,
                norm: Norm::of(params),
                sublinear: params.flag("sublinear_tf"),
            },
            least: params.size("min_df") as u64,
            share: params.f64("max_df"),
            most: params.size("max_features"),
            idf: params.flag("use_idf"),
        }))
    },
};

/// Different terms that training may show.
const TERMS_MAX: usize = 1 << 24;

/// How documents become numbers, the vocabulary aside.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Reading {
    cut: Cut,
    norm: Norm,
    sublinear: bool,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    reading: Reading,
    least: u64,
    share: f64,
    most: usize,
    idf: bool,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums { plan: *self, documents: 0, columns: vec![BTreeMap::new(); inputs] })
    }
}

/// In how many documents a term came, and how often in all.
type Use = (u64, u64);

struct Sums {
    plan: Plan,
    documents: u64,
    columns: Vec<BTreeMap<String, Use>>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        for (input, terms) in inputs.iter().zip(&mut self.columns) {
            let Cells::Texts { codes, texts } = &input.cells else {
                return Err(wrong_kind(input, "texts"));
            };
            let mut rows = vec![0u64; texts.len()];
            codes.iter().flatten().for_each(|code| rows[*code as usize] += 1);
            for (text, rows) in texts.iter().zip(rows).filter(|(_, rows)| *rows > 0) {
                for (term, count) in self.plan.reading.cut.count(text) {
                    let uses = terms.entry(term).or_default();
                    uses.0 += rows;
                    uses.1 += rows * u64::from(count);
                }
                if terms.len() > TERMS_MAX {
                    let what = format!("column '{}' has more than {TERMS_MAX} terms", input.name);
                    return Err(
                        Fault::caller(what).hint("use hashed-n-grams, which learns no vocabulary")
                    );
                }
            }
        }
        let first = inputs.first().map(|input| match &input.cells {
            Cells::Texts { codes, .. } => codes.len() as u64,
            _ => 0,
        });
        self.documents += first.unwrap_or(0);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let (plan, documents) = (self.plan, self.documents as f64);
        let vocabulary = |terms: BTreeMap<String, Use>| {
            let most = plan.share * documents;
            let mut terms: Vec<(String, Use)> = terms
                .into_iter()
                .filter(|(_, uses)| uses.0 >= plan.least && uses.0 as f64 <= most)
                .collect();
            if plan.most > 0 && terms.len() > plan.most {
                terms.sort_by(|a, b| b.1.1.cmp(&a.1.1).then_with(|| a.0.cmp(&b.0)));
                terms.truncate(plan.most);
                terms.sort_by(|a, b| a.0.cmp(&b.0));
            }
            if terms.is_empty() {
                return Err(Fault::caller(
                    "no term is left: the texts are empty, or all terms are too rare or frequent",
                )
                .hint("lower min_df, raise max_df, and see that words have two letters"));
            }
            let weight = |uses: &Use| match plan.idf {
                true => ((1.0 + documents) / (1.0 + uses.0 as f64)).ln() + 1.0,
                false => 1.0,
            };
            let weights = terms.iter().map(|(_, uses)| weight(uses)).collect();
            Ok(Vocabulary { terms: terms.into_iter().map(|(term, _)| term).collect(), weights })
        };
        let columns = self.columns.into_iter().map(vocabulary).collect::<Result<_>>()?;
        Ok(Fitted::TfIdf(TfIdf { reading: plan.reading, columns }))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Vocabulary {
    terms: Vec<String>,
    weights: Vec<f64>,
}

/// The vocabulary of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TfIdf {
    reading: Reading,
    columns: Vec<Vocabulary>,
}

impl Apply for TfIdf {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for (mut input, vocabulary) in inputs.into_iter().zip(&self.columns) {
            let Cells::Texts { codes, texts } = &input.cells else {
                return Err(wrong_kind(&input, "texts"));
            };
            let mut rows = SparseRows::new(vocabulary.terms.len());
            let mut row: Vec<(u32, f64)> = Vec::new();
            for code in codes {
                row.clear();
                for (term, count) in
                    code.iter().flat_map(|code| self.reading.cut.count(&texts[*code as usize]))
                {
                    if let Ok(place) = vocabulary.terms.binary_search(&term) {
                        let count = f64::from(count);
                        let count = if self.reading.sublinear { 1.0 + count.ln() } else { count };
                        row.push((place as u32, count * vocabulary.weights[place]));
                    }
                }
                row.sort_unstable_by_key(|entry| entry.0);
                rows.push(self.reading.norm.scaled(&mut row));
            }
            input.cells = rows.finish();
            input.maker = None;
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }

    fn names(&self, which: usize, input: &str, _: usize) -> Vec<String> {
        let terms = self.columns.get(which).map_or(&[][..], |it| it.terms.as_slice());
        terms.iter().map(|term| format!("{input}: {term}")).collect()
    }
}
