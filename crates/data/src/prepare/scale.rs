//! Numbers on a common scale: by mean and deviation (`standard`), to an interval (`min-max`), by the largest magnitude
//! (`max-abs`, which keeps zeros) or by median and quantiles (`robust`, which outliers do not move). A column that is
//! constant is only shifted. Missing numbers stay missing. Means and squares are summed as Chan, Golub and LeVeque
//! (1983) do, so that large means cost no digits.

use super::quantiles::Quantiles;
use super::wrong_kind;
use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
};
use crate::Features;
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Params, Result};

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "scale",
    summary: "Numbers on a common scale: standard, min-max, max-abs or robust",
    reference: "Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance",
    params: &[
        Param {
            name: "kind",
            kind: ParamKind::Choice(&["standard", "min-max", "max-abs", "robust"]),
            default: Some("standard"),
            help: "what is made alike: deviation, range, largest magnitude or quantile range",
        },
        Param {
            name: "center",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "standard and robust: whether the mean or median becomes 0",
        },
        number("low", "0.0", "min-max: what the smallest becomes"),
        number("high", "1.0", "min-max: what the largest becomes"),
        share("quantile_low", "25.0", "robust: lower quantile, in per cent"),
        share("quantile_high", "75.0", "robust: upper quantile, in per cent"),
    ],
    gives: &[],
    needs: &[],
    build: |params| {
        let plan = Plan::of(params)?;
        Ok(Box::new(plan))
    },
};

const fn number(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Float { min: -1e9, max: 1e9 }, default: Some(default), help }
}

const fn share(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, kind: ParamKind::Float { min: 0.0, max: 100.0 }, default: Some(default), help }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Plan {
    Standard { center: bool },
    MinMax { low: f64, high: f64 },
    MaxAbs,
    Robust { center: bool, low: f64, high: f64 },
}

impl Plan {
    fn of(params: &Params) -> Result<Plan> {
        let center = params.flag("center");
        let ordered = |low: &str, high: &str| match (params.f64(low), params.f64(high)) {
            (from, to) if from < to => Ok((from, to)),
            _ => Err(Fault::caller(format!("preparation 'scale': {low} must be below {high}"))),
        };
        Ok(match params.text("kind") {
            "standard" => Plan::Standard { center },
            "min-max" => {
                let (low, high) = ordered("low", "high")?;
                Plan::MinMax { low, high }
            }
            "max-abs" => Plan::MaxAbs,
            _ => {
                let (low, high) = ordered("quantile_low", "quantile_high")?;
                Plan::Robust { center, low: low / 100.0, high: high / 100.0 }
            }
        })
    }

    /// Whether zero stays zero whatever the numbers.
    fn keeps_zeros(self) -> bool {
        matches!(self, Plan::MaxAbs | Plan::Standard { center: false })
    }
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Numbers || (kind == Kind::Block && !matches!(self, Plan::Robust { .. }))
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        Box::new(Sums { plan: *self, columns: vec![vec![]; inputs], rows: 0 })
    }
}

/// How the numbers of one feature lie.
#[derive(Clone, Debug)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
    quantiles: Option<Quantiles>,
}

impl Moments {
    fn new(plan: Plan) -> Moments {
        let quantiles = matches!(plan, Plan::Robust { .. }).then(Quantiles::default);
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        Moments { count: 0.0, mean: 0.0, squares: 0.0, min, max, quantiles }
    }

    fn add(&mut self, value: f32) {
        if value.is_nan() {
            return;
        }
        let wide = f64::from(value);
        self.count += 1.0;
        let step = wide - self.mean;
        self.mean += step / self.count;
        self.squares += step * (wide - self.mean);
        (self.min, self.max) = (self.min.min(wide), self.max.max(wide));
        if let Some(quantiles) = &mut self.quantiles {
            quantiles.add(value);
        }
    }

    /// Counts zeros that sparse rows leave out.
    fn add_zeros(&mut self, zeros: f64) {
        if zeros > 0.0 {
            let count = self.count + zeros;
            self.squares += self.mean * self.mean * self.count * zeros / count;
            self.mean *= self.count / count;
            self.count = count;
            (self.min, self.max) = (self.min.min(0.0), self.max.max(0.0));
        }
    }

    /// x becomes x · factor + shift.
    fn line(mut self, plan: Plan) -> Line {
        if self.count == 0.0 {
            return Line { factor: 1.0, shift: 0.0 };
        }
        // Rounding leaves a constant column with a deviation of a few units in the last place.
        let constant = |width: f64, size: f64| width <= 10.0 * f64::EPSILON * size.abs();
        let by = |width: f64, size: f64| if constant(width, size) { 1.0 } else { 1.0 / width };
        match plan {
            Plan::Standard { center } => {
                let deviation = (self.squares / self.count).sqrt();
                let factor = by(deviation, self.mean);
                Line { factor, shift: if center { -self.mean * factor } else { 0.0 } }
            }
            Plan::MinMax { low, high } => {
                let factor = (high - low) * by(self.max - self.min, self.max);
                Line { factor, shift: low - self.min * factor }
            }
            Plan::MaxAbs => {
                let largest = self.max.abs().max(self.min.abs());
                Line { factor: by(largest, 0.0), shift: 0.0 }
            }
            Plan::Robust { center, low, high } => {
                let quantiles = self.quantiles.as_mut().expect("made for this plan");
                let mut at = |share| quantiles.at(share).unwrap_or(0.0);
                let (low, middle, high) = (at(low), at(0.5), at(high));
                let factor = by(high - low, high);
                Line { factor, shift: if center { -middle * factor } else { 0.0 } }
            }
        }
    }
}

struct Sums {
    plan: Plan,
    /// The features of each column.
    columns: Vec<Vec<Moments>>,
    rows: u64,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], _: &Labels<'_>) -> Result<()> {
        for (input, moments) in inputs.iter().zip(&mut self.columns) {
            let mut room = |width: usize| {
                while moments.len() < width {
                    moments.push(Moments::new(self.plan));
                }
            };
            match &input.cells {
                Cells::Numbers(values) => {
                    room(1);
                    values.iter().for_each(|value| moments[0].add(*value));
                }
                Cells::Block(Features::Dense { width, values }) => {
                    room(*width);
                    for row in values.chunks_exact((*width).max(1)) {
                        moments.iter_mut().zip(row).for_each(|(it, value)| it.add(*value));
                    }
                }
                Cells::Block(Features::Sparse { .. }) if !self.plan.keeps_zeros() => {
                    return Err(Fault::caller(format!(
                        "'{}' is sparse, and this scaling would make its zeros other numbers",
                        input.name
                    ))
                    .hint("use kind = \"max-abs\", or kind = \"standard\" with center = false"));
                }
                Cells::Block(Features::Sparse { width, columns, values, .. }) => {
                    room(*width);
                    for (column, value) in columns.iter().zip(values) {
                        moments[*column as usize].add(*value);
                    }
                }
                Cells::Texts { .. } => return Err(wrong_kind(input, "numbers")),
            }
            self.rows += match &input.cells {
                Cells::Block(Features::Sparse { starts, .. }) => starts.len() as u64 - 1,
                _ => 0,
            };
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let (plan, rows) = (self.plan, self.rows);
        let line = |mut moments: Moments| {
            moments.add_zeros(rows as f64 - moments.count);
            moments.line(plan)
        };
        let lines = self.columns.into_iter().map(|it| it.into_iter().map(line).collect());
        Ok(Fitted::Scale(Scale { lines: lines.collect() }))
    }
}

/// x · factor + shift.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Line {
    factor: f64,
    shift: f64,
}

/// Fitted scales, one for each feature of each column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scale {
    lines: Vec<Vec<Line>>,
}

impl Apply for Scale {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let still = Line { factor: 1.0, shift: 0.0 };
        let mut outputs = Vec::with_capacity(inputs.len());
        for (mut input, lines) in inputs.into_iter().zip(&self.lines) {
            let scaled = |value: &mut f32, feature: usize| {
                let line = lines.get(feature).unwrap_or(&still);
                *value = (f64::from(*value) * line.factor + line.shift) as f32;
            };
            match &mut input.cells {
                Cells::Numbers(values) => values.iter_mut().for_each(|value| scaled(value, 0)),
                Cells::Block(Features::Dense { width, values }) => {
                    let width = (*width).max(1);
                    values.iter_mut().enumerate().for_each(|(at, it)| scaled(it, at % width));
                }
                Cells::Block(Features::Sparse { columns, values, .. }) => {
                    let places = columns.iter().map(|column| *column as usize);
                    values
                        .iter_mut()
                        .zip(places)
                        .for_each(|(value, feature)| scaled(value, feature));
                }
                Cells::Texts { .. } => return Err(wrong_kind(&input, "numbers")),
            }
            outputs.push(vec![input]);
        }
        Ok(outputs)
    }
}
