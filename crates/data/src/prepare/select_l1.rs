//! Keeps the columns that a lasso needs (Tibshirani, 1996): least squares with an l1 penalty, ½·mean (y − w·x − b)² +
//! l1·‖w‖₁, makes the weights of the others zero. What is summed over rows is the Gram matrix; coordinate descent on it
//! needs no further reading (Friedman, Hastie and Tibshirani, 2010). Classes are fitted one against the rest, and a column
//! stays if any class needs it. As scikit-learn's `SelectFromModel(Lasso(alpha))`.

use super::{
    Apply, BuildPreparation, Cells, Fitted, Kind, Labels, Preparation, Series, Statistics,
    wrong_kind,
};
use serde::{Deserialize, Serialize};
use starlings_core::{Entry, Fault, Param, ParamKind, Result};

pub(super) const ENTRY: Entry<BuildPreparation> = Entry {
    name: "select-l1",
    summary: "The columns that least squares with an l1 penalty needs",
    reference: "Tibshirani (1996), Regression shrinkage and selection via the lasso",
    params: &[
        Param {
            name: "l1",
            kind: ParamKind::Float { min: 0.0, max: 1e300 },
            default: Some("0.01"),
            help: "the penalty, scikit-learn's alpha; it asks for columns on a common scale",
        },
        Param {
            name: "threshold",
            kind: ParamKind::Float { min: 0.0, max: 1e300 },
            default: Some("1e-5"),
            help: "columns whose weight is not above it, up to the sign, are dropped",
        },
    ],
    gives: &[],
    needs: &[],
    build: |params| Ok(Box::new(Plan { l1: params.f64("l1"), threshold: params.f64("threshold") })),
};

/// Most columns: their Gram matrix has that many squared.
const COLUMNS_MAX: usize = 4096;
const SWEEPS_MAX: usize = 10_000;
/// A sweep that moves no fit by more than this share of the spread of the labels is the last.
const TOLERANCE: f64 = 1e-9;

#[derive(Clone, Copy, Debug)]
struct Plan {
    l1: f64,
    threshold: f64,
}

impl Preparation for Plan {
    fn takes(&self, kind: Kind) -> bool {
        kind == Kind::Numbers
    }

    fn begin(&self, inputs: usize) -> Box<dyn Statistics> {
        let nothing = |len: usize| vec![0.0; len];
        Box::new(Sums {
            plan: *self,
            inputs,
            rows: 0.0,
            shift: Vec::new(),
            columns: nothing(inputs),
            gram: nothing(if inputs > COLUMNS_MAX { 0 } else { inputs * inputs }),
            targets: Vec::new(),
        })
    }
}

/// Sums over the rows so far; columns are counted from their first values, so that no digits are lost.
struct Sums {
    plan: Plan,
    inputs: usize,
    rows: f64,
    shift: Vec<f64>,
    columns: Vec<f64>,
    gram: Vec<f64>,
    /// For each target its sum, its sum of squares and its products with the columns.
    targets: Vec<Target>,
}

#[derive(Clone, Default)]
struct Target {
    sum: f64,
    square: f64,
    products: Vec<f64>,
}

impl Statistics for Sums {
    fn add(&mut self, inputs: &[&Series], labels: &Labels<'_>) -> Result<()> {
        if labels.values.is_empty() {
            return Err(Fault::caller("there are no labels to select columns by")
                .hint("name the label column, and choose a learner that has one"));
        }
        if self.inputs > COLUMNS_MAX {
            return Err(Fault::caller(format!(
                "it takes at most {COLUMNS_MAX} columns, not {}",
                self.inputs
            ))
            .hint("name fewer with columns = [\"…\"]"));
        }
        let columns = inputs.iter().map(|input| numbers(input)).collect::<Result<Vec<&[f32]>>>()?;
        let count = if labels.classes > 2 { labels.classes } else { 1 };
        let nothing = Target { products: vec![0.0; self.inputs], ..Target::default() };
        self.targets.resize(count, nothing);
        if self.shift.is_empty() && !labels.values.is_empty() {
            self.shift = columns.iter().map(|column| f64::from(column[0])).collect();
        }
        let mut row = vec![0.0; self.inputs];
        for (at, &label) in labels.values.iter().enumerate() {
            for (value, (column, shift)) in row.iter_mut().zip(columns.iter().zip(&self.shift)) {
                *value = f64::from(column[at]) - shift;
            }
            self.add_row(&row, label);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Fitted> {
        let mut kept = vec![false; self.inputs];
        let quadratic = self.centred();
        for target in &self.targets {
            let weights = self.weights(&quadratic, target);
            for (kept, weight) in kept.iter_mut().zip(weights) {
                *kept |= weight.abs() > self.plan.threshold;
            }
        }
        match kept.contains(&true) {
            true => Ok(Fitted::SelectL1(SelectL1 { kept })),
            false => Err(Fault::caller(format!("with l1 = {} no column is left", self.plan.l1))
                .hint("lower l1, or scale the columns first")),
        }
    }
}

impl Sums {
    fn add_row(&mut self, row: &[f64], label: f32) {
        self.rows += 1.0;
        for (i, &value) in row.iter().enumerate() {
            self.columns[i] += value;
            let line = &mut self.gram[i * self.inputs..i * self.inputs + i + 1];
            line.iter_mut().zip(row).for_each(|(sum, other)| *sum += value * other);
        }
        let several = self.targets.len() > 1;
        for (class, target) in self.targets.iter_mut().enumerate() {
            let y = match several {
                true => f64::from(u8::from(label as usize == class)),
                false => f64::from(label),
            };
            target.sum += y;
            target.square += y * y;
            target.products.iter_mut().zip(row).for_each(|(sum, value)| *sum += y * value);
        }
    }

    /// The covariances of all columns, both halves.
    fn centred(&self) -> Vec<f64> {
        let width = self.inputs;
        let mut all = vec![0.0; width * width];
        for i in 0..width {
            for j in 0..=i {
                let product = self.columns[i] * self.columns[j] / self.rows;
                let value = (self.gram[i * width + j] - product) / self.rows;
                (all[i * width + j], all[j * width + i]) = (value, value);
            }
        }
        all
    }

    /// The lasso's weights, by cyclic coordinate descent on the covariances.
    fn weights(&self, covariances: &[f64], target: &Target) -> Vec<f64> {
        let (width, rows) = (self.inputs, self.rows);
        let spread = (target.square - target.sum * target.sum / rows) / rows;
        // What each column still has in common with what is not explained.
        let mut slopes: Vec<f64> = (0..width)
            .map(|i| (target.products[i] - target.sum * self.columns[i] / rows) / rows)
            .collect();
        let mut weights = vec![0.0; width];
        for _ in 0..SWEEPS_MAX {
            let mut moved: f64 = 0.0;
            for i in 0..width {
                let own = covariances[i * width + i];
                if own <= 0.0 {
                    continue;
                }
                let pull = slopes[i] + own * weights[i];
                let next = pull.signum() * (pull.abs() - self.plan.l1).max(0.0) / own;
                let step = next - weights[i];
                if step != 0.0 {
                    let line = &covariances[i * width..(i + 1) * width];
                    slopes.iter_mut().zip(line).for_each(|(slope, with)| *slope -= step * with);
                    weights[i] = next;
                    moved = moved.max(step * step * own);
                }
            }
            if moved <= TOLERANCE * TOLERANCE * spread {
                break;
            }
        }
        weights
    }
}

fn numbers(input: &Series) -> Result<&[f32]> {
    let Cells::Numbers(values) = &input.cells else { return Err(wrong_kind(input, "numbers")) };
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => {
            let what = if value.is_nan() { "a missing value" } else { "an infinite value" };
            Err(Fault::caller(format!("column '{}' has {what}", input.name))
                .hint("fill it first with [[prepare]] name = \"impute\""))
        }
    }
}

/// Which columns stay.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SelectL1 {
    kept: Vec<bool>,
}

impl Apply for SelectL1 {
    fn apply(&self, inputs: Vec<Series>, _: Option<u64>) -> Result<Vec<Vec<Series>>> {
        let stay = |(input, kept): (Series, &bool)| if *kept { vec![input] } else { Vec::new() };
        Ok(inputs.into_iter().zip(&self.kept).map(stay).collect())
    }
}
