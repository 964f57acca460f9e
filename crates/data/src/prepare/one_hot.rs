//! A 0/1 feature for each category of a column. Rare categories share one feature where `max_categories` or
//! `min_frequency` say so: the most frequent are kept, and of equals those that come later in order. A category that
//! training did not show becomes no feature, or an error. Missing values become no feature.

use super::frame::SparseRows;
use super::wrong_kind;
use super::{Apply, BuildPreparation, Fitted, Kind, Labels, Preparation, Series, Statistics};
use crate::learning::sorted;
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result, suggestion};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "one-hot",
    summary: "A 0/1 feature for each category, rare ones together if wanted",
    reference: "Suits (1957), Use of dummy variables in regression equations",
    params: &[
        Param {
            name: "max_categories",
            kind: ParamKind::Integer { min: 0, max: 1 << 24 },
            default: Some("0"),
            help: "most features of a column, the shared one of rare categories among them; 0: no limit",
        },
        Param {
            name: "min_frequency",
            kind: ParamKind::Integer { min: 1, max: 1 << 40 },
            default: Some("1"),
            help: "a category of fewer rows is rare",
        },
        Param {
            name: "unseen",
            kind: ParamKind::Choice(&["none", "error"]),
            default: Some("none"),
            help: "what becomes of a category that training did not show",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Ok(Box::new(Plan {
            most: params.size("max_categories"),
            least_rows: params.size("min_frequency") as u64,
            refuse: params.text("unseen") == "error",
        }))
    },
};

#[derive(Clone, Copy, Debug)]
struct Plan {
    most: usize,
    least_rows: u64,
    refuse: bool,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Texts
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums { plan: *self, columns: vec![BTreeMap::new(); inputs] })
    }
}

struct Sums {
    plan: Plan,
    /// Rows of each category.
    columns: Vec<BTreeMap<String, u64>>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        for (input, counts) in inputs.iter().zip(&mut self.columns) {
            let found = input.cells.categories();
            let (codes, texts) = found.ok_or_else(|| wrong_kind(input, "categories"))?;
            let mut here = vec![0u64; texts.len()];
            codes.into_iter().flatten().for_each(|code| here[code as usize] += 1);
            for (text, rows) in texts.into_iter().zip(here) {
                *counts.entry(text).or_default() += rows;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let plan = self.plan;
        let columns = self.columns.into_iter().map(|counts| {
            let texts: Vec<String> = counts.keys().cloned().collect();
            let (texts, _) = sorted(&texts);
            let rows: Vec<u64> = texts.iter().map(|text| counts[text]).collect();
            let rare = rare(&rows, plan);
            let (mut kept, mut pooled) = (Vec::new(), Vec::new());
            for (text, rare) in texts.into_iter().zip(rare) {
                if rare { pooled.push(text) } else { kept.push(text) }
            }
            Categories { kept, pooled, refuse: plan.refuse }
        });
        Ok(Fitted::OneHot(OneHot { columns: columns.collect() }))
    }
}

/// Which categories share a feature.
fn rare(rows: &[u64], plan: Plan) -> Vec<bool> {
    let mut rare: Vec<bool> = rows.iter().map(|rows| *rows < plan.least_rows).collect();
    let pooled = rare.iter().filter(|rare| **rare).count();
    let features = rows.len() - pooled + usize::from(pooled > 0);
    if plan.most > 0 && features > plan.most {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&category| rows[category]);
        let drop = rows.len() + 1 - plan.most.min(rows.len() + 1);
        order[..drop.min(rows.len())].iter().for_each(|&category| rare[category] = true);
    }
    rare
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Categories {
    /// Those with a feature of their own.
    kept: Vec<String>,
    /// Those that share the last feature.
    pooled: Vec<String>,
    refuse: bool,
}

/// The categories of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OneHot {
    columns: Vec<Categories>,
}

impl Categories {
    fn width(&self) -> usize {
        self.kept.len() + usize::from(!self.pooled.is_empty())
    }

    fn feature(&self, places: &BTreeMap<&str, u32>, name: &str, text: &str) -> Result<Option<u32>> {
        match places.get(text) {
            Some(place) => Ok(Some(*place)),
            None if !self.refuse => Ok(None),
            None => {
                let known: Vec<&str> = self.kept.iter().map(String::as_str).collect();
                let what =
                    format!("column '{name}': category '{text}' is not in the training data");
                Err(Fault::caller(what).hint(suggestion(text, &known)))
            }
        }
    }
}

impl Apply for OneHot {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for (mut input, categories) in inputs.into_iter().zip(&self.columns) {
            let kept = categories.kept.iter().enumerate();
            let mut places: BTreeMap<&str, u32> =
                kept.map(|(place, text)| (text.as_str(), place as u32)).collect();
            let last = categories.kept.len() as u32;
            places.extend(categories.pooled.iter().map(|text| (text.as_str(), last)));
            let found = input.cells.categories();
            let (codes, texts) = found.ok_or_else(|| wrong_kind(&input, "categories"))?;
            let map: Vec<Option<u32>> = texts
                .iter()
                .map(|text| categories.feature(&places, &input.name, text))
                .collect::<Result<_>>()?;
            let mut rows = SparseRows::new(categories.width());
            for code in codes {
                rows.push(code.and_then(|code| map[code as usize]).map(|feature| (feature, 1.0)));
            }
            input.cells = rows.finish();
            input.maker = None;
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }

    fn names(&self, which: usize, input: &str, width: usize) -> Vec<String> {
        let mine = self.columns.get(which);
        let kept = mine.iter().flat_map(|it| it.kept.iter().map(|text| format!("{input}={text}")));
        let mut names: Vec<String> = kept.collect();
        names.resize(width, format!("{input}=(rare)"));
        names
    }
}
