//! Missing values filled: by the column's mean, median, most frequent value (the smallest of equals) or a constant. Texts
//! take the most frequent or a constant. An indicator tells where values were missing, for columns that lacked some.

use super::quantiles::Quantiles;
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};
use std::collections::BTreeMap;

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "impute",
    summary: "Missing values filled: mean, median, most frequent or a constant, with an indicator",
    reference: "Little and Rubin (2002), Statistical analysis with missing data",
    params: &[
        Param {
            name: "strategy",
            kind: ParamKind::Choice(&["mean", "median", "most-frequent", "constant"]),
            default: Some("mean"),
            help: "what stands in for a missing value",
        },
        Param {
            name: "value",
            kind: ParamKind::Float { min: -1e30, max: 1e30 },
            default: Some("0.0"),
            help: "the constant for numbers",
        },
        Param {
            name: "text",
            kind: ParamKind::Text,
            default: Some("missing"),
            help: "the constant for texts",
        },
        Param {
            name: "indicator",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "adds a 0/1 column for each column that lacked values in training",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let strategy = match params.text("strategy") {
            "mean" => Strategy::Mean,
            "median" => Strategy::Median,
            "most-frequent" => Strategy::MostFrequent,
            _ => Strategy::Constant,
        };
        let (value, text) = (params.f64("value"), params.text("text").to_string());
        Ok(Box::new(Plan { strategy, value, text, indicator: params.flag("indicator") }))
    },
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Strategy {
    Mean,
    Median,
    MostFrequent,
    Constant,
}

#[derive(Clone, Debug)]
struct Plan {
    strategy: Strategy,
    value: f64,
    text: String,
    indicator: bool,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        match self.strategy {
            Strategy::Mean | Strategy::Median => kind == Kind::Numbers,
            Strategy::MostFrequent | Strategy::Constant => kind != Kind::Block,
        }
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums { plan: self.clone(), columns: vec![Seen::default(); inputs] })
    }
}

#[derive(Clone, Debug, Default)]
struct Seen {
    sum: f64,
    count: u64,
    missing: u64,
    quantiles: Quantiles,
    texts: Option<BTreeMap<String, u64>>,
}

struct Sums {
    plan: Plan,
    columns: Vec<Seen>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        let ranked = matches!(self.plan.strategy, Strategy::Median | Strategy::MostFrequent);
        for (input, seen) in inputs.iter().zip(&mut self.columns) {
            match &input.cells {
                Cells::Numbers(values) => {
                    for value in values {
                        match value.is_nan() {
                            true => seen.missing += 1,
                            false => {
                                (seen.sum, seen.count) =
                                    (seen.sum + f64::from(*value), seen.count + 1);
                                if ranked {
                                    seen.quantiles.add(*value);
                                }
                            }
                        }
                    }
                }
                Cells::Texts { .. }
                    if matches!(self.plan.strategy, Strategy::Mean | Strategy::Median) =>
                {
                    return Err(wrong_kind(input, "numbers"));
                }
                Cells::Texts { codes, texts } => {
                    let counts = seen.texts.get_or_insert_default();
                    for code in codes {
                        match code {
                            None => seen.missing += 1,
                            Some(code) => {
                                *counts.entry(texts[*code as usize].clone()).or_default() += 1;
                            }
                        }
                    }
                }
                Cells::Block(_) => return Err(wrong_kind(input, "numbers or texts")),
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let plan = &self.plan;
        let filled = self.columns.into_iter().map(|mut seen| {
            let nothing = || {
                Fault::caller("a column has no value at all, so none can stand in").hint(
                    "leave the column out with `features = [...]`, or use strategy = \"constant\"",
                )
            };
            let fill = match (plan.strategy, &seen.texts) {
                (Strategy::Constant, None) => Fill::Number(plan.value as f32),
                (Strategy::Constant, Some(_)) => Fill::Text(plan.text.clone()),
                (Strategy::Mean, _) if seen.count > 0 => {
                    Fill::Number((seen.sum / seen.count as f64) as f32)
                }
                (Strategy::Median, _) => {
                    Fill::Number(seen.quantiles.at(0.5).ok_or_else(nothing)? as f32)
                }
                (_, Some(counts)) => {
                    let most = counts.values().max().copied().ok_or_else(nothing)?;
                    let first = counts.iter().find(|(_, count)| **count == most);
                    Fill::Text(first.map(|(text, _)| text.clone()).unwrap_or_default())
                }
                (Strategy::MostFrequent, None) => {
                    let counts = seen.quantiles.counts();
                    let most = counts.iter().map(|it| it.1).max().ok_or_else(nothing)?;
                    let first = counts.iter().find(|it| it.1 == most);
                    Fill::Number(first.map_or(0.0, |it| it.0))
                }
                (Strategy::Mean, _) => return Err(nothing()),
            };
            Ok(Filled { fill, indicator: plan.indicator && seen.missing > 0 })
        });
        Ok(Fitted::Impute(Impute { columns: filled.collect::<Result<_>>()? }))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Fill {
    Number(f32),
    Text(String),
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Filled {
    fill: Fill,
    indicator: bool,
}

/// What stands in for the missing values of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Impute {
    columns: Vec<Filled>,
}

impl Apply for Impute {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for (mut input, filled) in inputs.into_iter().zip(&self.columns) {
            let flag = |missing: bool| if missing { 1.0 } else { 0.0 };
            let flags: Vec<f32> = match (&mut input.cells, &filled.fill) {
                (Cells::Numbers(values), Fill::Number(fill)) => {
                    let flags = values.iter().map(|value| flag(value.is_nan())).collect();
                    values.iter_mut().filter(|it| it.is_nan()).for_each(|it| *it = *fill);
                    flags
                }
                (Cells::Texts { codes, texts }, Fill::Text(fill)) => {
                    let flags = codes.iter().map(|code| flag(code.is_none())).collect();
                    let known = texts.iter().position(|text| text == fill);
                    let code = known.unwrap_or_else(|| {
                        texts.push(fill.clone());
                        texts.len() - 1
                    });
                    codes.iter_mut().for_each(|it| *it = it.or(Some(code as u32)));
                    flags
                }
                (_, Fill::Number(_)) => return Err(wrong_kind(&input, "numbers")),
                (_, Fill::Text(_)) => return Err(wrong_kind(&input, "texts")),
            };
            let name = format!("{} missing", input.name);
            let indicator = filled.indicator.then(|| Series::new(name, Cells::Numbers(flags)));
            outputs.push([input].into_iter().chain(indicator).collect());
        }
        Ok(outputs)
    }
}
