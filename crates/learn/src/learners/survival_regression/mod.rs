//! Survival regression by accelerated failure time: ln T = b + β·x + σ·ε, where ε has a known distribution and some
//! rows are censored: their event had not happened by the time they show (Wei, "The accelerated failure time
//! model", 1992; Kalbfleisch and Prentice, "The statistical analysis of failure time data", 1980). The likelihood is
//! maximised over all rows by L-BFGS.
//!
//! The optimiser's numbers are 1/σ and β/σ, in which the likelihood of these distributions is concave, of features and
//! times in units of their deviation. What is saved is in the data's units.

mod distribution;
mod normal;
mod sums;
mod units;

use super::BuildLearner;
use crate::optimisers::probing::{Limits, Told};
use crate::optimisers::resting;
use crate::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};
use crate::{by_shard, columns, refusals};
use distribution::Distribution;
use starlings_core::{
    Ability, Block, Entry, FEATURES, Fault, Graph, Kind, Model, Op, Param, ParamKind, Params,
    Result, Role, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use std::collections::BTreeMap;
use sums::{Noise, Reading};
use units::Units;

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "survival-regression",
    summary: "Times until an event, some of them censored: accelerated failure time by L-BFGS",
    reference: "Wei, The accelerated failure time model: a useful alternative to the Cox regression model in \
                survival analysis, Statistics in Medicine 11, 1992",
    params: PARAMS,
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Survival::new(params)?)),
};

const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

const PARAMS: &[Param] = &[
    Param {
        name: "event",
        kind: ParamKind::Text,
        default: Some(""),
        help: "the column that is 1 where the event happened and 0 where the row is censored; none: all happened",
    },
    Param {
        name: "distribution",
        kind: ParamKind::Choice(&["weibull", "log-normal", "log-logistic"]),
        default: Some("weibull"),
        help: "of times, given the features",
    },
    Param {
        name: "prediction",
        kind: ParamKind::Choice(&["median", "mean"]),
        default: Some("median"),
        help: "what the first number of a prediction is",
    },
    Param {
        name: "quantiles",
        kind: ParamKind::Text,
        default: Some(""),
        help: "further times to predict, by which these shares of events have happened: \"0.25, 0.75\"",
    },
    Param {
        name: "intercept",
        kind: ParamKind::Flag,
        default: Some("true"),
        help: "whether ln T has a constant term",
    },
    Param {
        name: "max_iterations",
        kind: ParamKind::Integer { min: 0, max: 1_000_000_000 },
        default: Some("1000"),
        help: "iterations at most, unless the job sets epochs",
    },
    Param {
        name: "tolerance",
        kind: ParamKind::Float { min: 0.0, max: 1.0 },
        default: Some("1e-8"),
        help: "done when no slope of the mean log-likelihood is larger",
    },
    Param {
        name: "history",
        kind: ParamKind::Integer { min: 1, max: 1000 },
        default: Some("10"),
        help: "steps that L-BFGS remembers",
    },
];

/// The feature that tells events (−1: none), shards, iterations at most, and whether moments are wanted.
const COUNTERS: &str = "counters";

struct Survival {
    event: String,
    distribution: Distribution,
    mean: bool,
    quantiles: Vec<f64>,
    intercept: bool,
    max_iterations: u64,
    tolerance: f64,
    history: usize,
}

impl Survival {
    fn new(params: &Params) -> Result<Survival> {
        let distribution = match params.text("distribution") {
            "log-normal" => Distribution::LogNormal,
            "log-logistic" => Distribution::LogLogistic,
            _ => Distribution::Weibull,
        };
        let mean = params.text("prediction") == "mean";
        if mean && distribution == Distribution::LogLogistic {
            return Err(Fault::caller("log-logistic times may have no mean")
                .hint("use prediction = \"median\""));
        }
        Ok(Survival {
            event: params.text("event").to_string(),
            distribution,
            mean,
            quantiles: shares(params.text("quantiles"))?,
            intercept: params.flag("intercept"),
            max_iterations: params.size("max_iterations") as u64,
            tolerance: params.f64("tolerance"),
            history: params.size("history"),
        })
    }

    /// What is added to b + β·x to give the logarithm of each prediction.
    fn additions(&self, model: &Model) -> Vec<f64> {
        let scale = model.f64("scale")[0];
        let median = scale * self.distribution.quantile(0.5);
        let mean = if self.mean { self.distribution.ln_mean(scale) } else { None };
        let quantiles =
            self.quantiles.iter().map(|&share| scale * self.distribution.quantile(share));
        [mean.unwrap_or(median)].into_iter().chain(quantiles).collect()
    }

    fn reading(model: &Model) -> Reading {
        let event = usize::try_from(model.i64("event")[0]).ok();
        Reading { features: model.f64("weights").len(), event }
    }

    /// The trained model as the noise of rows.
    fn noise(model: &Model) -> Noise {
        let (weights, scale) = (model.f64("weights"), model.f64("scale")[0]);
        Noise {
            constant: -model.f64("intercept")[0] / scale,
            time: 1.0 / scale,
            slopes: weights.iter().map(|weight| weight / scale).collect(),
        }
    }
}

impl Learner for Survival {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let features = facts.schema.features;
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        let event = match self.event.as_str() {
            "" => -1,
            name => columns::feature_of(&facts.schema, "event", name)? as i64,
        };
        let mut model = Model::new();
        let integers = |values: Vec<i64>, role| Tensor {
            shape: vec![values.len()],
            values: Values::I64(values),
            role,
        };
        model.set("weights", Tensor::zeros(Kind::F64, &[features], Role::Weight));
        model.set("intercept", Tensor::zeros(Kind::F64, &[1], Role::Weight));
        model.set("scale", Tensor::of(&[1], vec![1.0], Role::Weight));
        model.set("event", integers(vec![event], Role::Weight));
        let iterations = facts.epochs.unwrap_or(self.max_iterations);
        let iterations = i64::try_from(iterations).unwrap_or(i64::MAX);
        model.set(COUNTERS, integers(vec![i64::from(facts.shards), iterations, 1], Role::State));
        Units::unknown(features).write(&mut model);
        resting::init(&mut model, features + 2, self.history);
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let reading = Survival::reading(work.model);
        refusals::check_width(reading.features, work.batch)?;
        let counters = work.model.i64(COUNTERS);
        let shards = counters[0] as u32;
        let rows = if counters[2] == 1 {
            reading.moments(work.batch, shards)?
        } else {
            let noise = Units::read(work.model).noise(work.model.f64(resting::TRIAL));
            reading.slopes(work.batch, shards, self.distribution, &noise)?
        };
        work.outbox.emit(Block::rows("sums", rows));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let sums = update.rows("sums").map(by_shard::add_up).unwrap_or_default();
        if model.i64(COUNTERS)[2] == 1 {
            let units = Units::from_moments(&sums, Survival::reading(model).event, self.intercept)?;
            units.write(model);
            model.i64_mut(COUNTERS)[2] = 0;
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        let units = Units::read(model);
        let limits = Limits { tolerance: self.tolerance, iterations: model.i64(COUNTERS)[1] };
        let (mut run, mut trial) = resting::take(model);
        let (value, gradient) = units.value_and_gradient(&trial, &sums);
        let told = run.tell(&mut trial, value, &gradient, limits);
        if told != Told::Searching {
            let found = units.leave(&run.point);
            model.f64_mut("weights").copy_from_slice(&found.weights);
            model.f64_mut("intercept")[0] = found.intercept;
            model.f64_mut("scale")[0] = found.scale;
        }
        let outcome = Outcome {
            objective: Some(run.value),
            done: told == Told::Converged,
            iterations: Some(run.iterations as u64),
        };
        resting::put_back(model, run, trial);
        if told == Told::Diverged {
            return Err(Fault::caller(format!("the likelihood is not finite at {}", moment.step))
                .hint("look for features or times that are huge"));
        }
        Ok(outcome)
    }

    /// Sums of the loss, of weights, and of errors of rows whose event happened.
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let (model, batch) = (work.model, work.batch);
        let reading = Survival::reading(model);
        refusals::check_width(reading.features, batch)?;
        let (noise, scale) = (Survival::noise(model), model.f64("scale")[0]);
        let (intercept, addition) = (model.f64("intercept")[0], self.additions(model)[0]);
        let mut sums = vec![0.0; 5];
        for row in batch.rows().filter(|&row| batch.table.weight(row) > 0.0) {
            let weight = batch.table.weight(row);
            let (time, value) = reading.noise(batch, row, &noise);
            sums[1] += weight;
            if !reading.happened(batch, row) {
                sums[0] += weight * self.distribution.censored(value).value;
                continue;
            }
            let loss = self.distribution.happened(value).value + scale.ln() + time;
            let fitted = sums::product(batch.table.row(row), model.f64("weights"));
            let error = (intercept + fitted + addition).exp() - time.exp();
            sums[0] += weight * loss;
            let own = [1.0, error * error, error.abs()];
            sums[2..].iter_mut().zip(own).for_each(|(sum, own)| *sum += weight * own);
        }
        Ok(sums)
    }

    fn grade(&self, _: &Model, sums: &[f64], _: u64) -> Grade {
        let at_least = |weight: f64| if weight > 0.0 { weight } else { 1.0 };
        let (weight, events) = (at_least(sums[1]), at_least(sums[2]));
        let metrics = [
            ("log_likelihood", -sums[0] / weight),
            ("rmse", (sums[3] / events).sqrt()),
            ("mae", sums[4] / events),
        ];
        let metrics = metrics.map(|(name, value)| (name.to_string(), value));
        Grade { objective: sums[0] / weight, metrics: BTreeMap::from(metrics) }
    }

    fn outputs(&self, _: &Model) -> usize {
        1 + self.quantiles.len()
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let weights = model.f64("weights");
        refusals::check_width(weights.len(), batch)?;
        let (intercept, additions) = (model.f64("intercept")[0], self.additions(model));
        for row in batch.rows() {
            let fitted = intercept + sums::product(batch.table.row(row), weights);
            out.extend(additions.iter().map(|addition| (fitted + addition).exp()));
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let weights = model.f64("weights");
        let additions = self.additions(model);
        let mut graph = Graph::new();
        let width = additions.len();
        let added = additions.iter().map(|addition| addition + model.f64("intercept")[0]).collect();
        let weights = graph.constant("weights", &[weights.len(), 1], weights.to_vec());
        let added = graph.constant("additions", &[width], added);
        let fitted = graph.node(Op::MatMul, &[FEATURES, &weights]);
        let logarithms = graph.node(Op::Add, &[&fitted, &added]);
        graph.node(Op::Exp, &[&logarithms]);
        Some(graph)
    }
}

/// Shares between 0 and 1, separated by commas.
fn shares(text: &str) -> Result<Vec<f64>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let share = |part: &str| match part.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(Fault::caller(format!("quantiles: '{part}' is not a share between 0 and 1"))
            .hint("such as quantiles = \"0.25, 0.5, 0.75\"")),
    };
    parts.map(share).collect()
}
