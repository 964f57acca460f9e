//! Numbers as the interval they fall into: intervals of equal width (`uniform`) or with equally many training rows
//! (`quantile`). The outer intervals are open, so that every number falls into one; edges that coincide are one. The
//! result is the interval's number (`ordinal`) or a 0/1 feature for each (`one-hot`). Missing stays missing.

use super::frame::SparseRows;
use super::quantiles::Quantiles;
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Param, ParamKind, Result};

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "bin",
    summary: "Numbers as the interval they fall into, of equal width or of equally many rows",
    reference: "Dougherty, Kohavi and Sahami (1995), Supervised and unsupervised discretization of continuous features",
    params: &[
        Param {
            name: "bins",
            kind: ParamKind::Integer { min: 2, max: 65_536 },
            default: Some("5"),
            help: "how many intervals",
        },
        Param {
            name: "strategy",
            kind: ParamKind::Choice(&["quantile", "uniform"]),
            default: Some("quantile"),
            help: "equally many rows, or equal width",
        },
        Param {
            name: "encode",
            kind: ParamKind::Choice(&["ordinal", "one-hot"]),
            default: Some("one-hot"),
            help: "the interval's number, or a 0/1 feature for each",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        Ok(Box::new(Plan {
            bins: params.size("bins"),
            quantile: params.text("strategy") == "quantile",
            ordinal: params.text("encode") == "ordinal",
        }))
    },
};

/// Edges nearer than this are one.
const WIDTH_MIN: f64 = 1e-8;

#[derive(Clone, Copy, Debug)]
struct Plan {
    bins: usize,
    quantile: bool,
    ordinal: bool,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Numbers
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums { plan: *self, columns: vec![Quantiles::default(); inputs] })
    }
}

struct Sums {
    plan: Plan,
    columns: Vec<Quantiles>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        for (input, quantiles) in inputs.iter().zip(&mut self.columns) {
            let Cells::Numbers(values) = &input.cells else {
                return Err(wrong_kind(input, "numbers"));
            };
            values.iter().for_each(|value| quantiles.add(*value));
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let plan = self.plan;
        let inner = |mut quantiles: Quantiles| {
            let shares: Vec<f64> =
                (0..=plan.bins).map(|edge| edge as f64 / plan.bins as f64).collect();
            let found = quantiles.all_at(&shares).unwrap_or_else(|| vec![0.0; shares.len()]);
            let (low, high) = (found[0], found[plan.bins]);
            let edges = match plan.quantile {
                true => found,
                false => shares.iter().map(|share| low + (high - low) * share).collect(),
            };
            let mut kept = vec![edges[0]];
            for edge in &edges[1..] {
                if edge - kept[kept.len() - 1] > WIDTH_MIN {
                    kept.push(*edge);
                }
            }
            // The outer edges bound nothing: numbers beyond them fall into the outer intervals.
            kept[1..kept.len().max(2) - 1].to_vec()
        };
        let edges = self.columns.into_iter().map(inner).collect();
        Ok(Fitted::Bin(Bin { edges, ordinal: plan.ordinal }))
    }
}

/// The inner edges of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bin {
    edges: Vec<Vec<f64>>,
    ordinal: bool,
}

impl Apply for Bin {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let mut outputs = Vec::with_capacity(inputs.len());
        for (mut input, edges) in inputs.into_iter().zip(&self.edges) {
            let Cells::Numbers(values) = &input.cells else {
                return Err(wrong_kind(&input, "numbers"));
            };
            let bin = |value: &f32| {
                let value = f64::from(*value);
                (!value.is_nan()).then(|| edges.partition_point(|edge| *edge <= value) as u32)
            };
            let bins = values.iter().map(bin);
            input.cells = match self.ordinal {
                true => {
                    Cells::Numbers(bins.map(|it| it.map_or(f32::NAN, |bin| bin as f32)).collect())
                }
                false => {
                    let mut rows = SparseRows::new(edges.len() + 1);
                    bins.for_each(|bin| rows.push(bin.map(|bin| (bin, 1.0))));
                    rows.finish()
                }
            };
            input.maker = None;
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }

    fn names(&self, which: usize, input: &str, _: usize) -> Vec<String> {
        let edges = self.edges.get(which).map_or(&[][..], Vec::as_slice);
        let bounds =
            [f64::NEG_INFINITY].iter().chain(edges).zip(edges.iter().chain(&[f64::INFINITY]));
        bounds.map(|(low, high)| format!("{input} in [{low}, {high})")).collect()
    }
}
