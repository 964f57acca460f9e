//! Linear regression by least squares: ½·mean (y − w·x − b)². With up to 4,096 features the normal equations are solved by
//! Cholesky's factor and refined on the rows themselves; beyond, by conjugate gradients (Hestenes and Stiefel, 1952).
//! Where features repeat each other, of all best weights those are found that are shortest in units of the features'
//! deviations.

use crate::Task;
use crate::learners::BuildLearner;
use crate::linear::losses::{Criterion, Squared};
use crate::linear::{
    Errors, FULL_PASS_NEEDS, Labels, Linear, Penalty, Scored, Setup, Subject, params,
};
use starlings_core::{Entry, Fault, Graph, Param, ParamKind, Result};
use starlings_data::{LabelNeed, Schema};

/// The entry of the catalogue. Its abilities are those of the default solver.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "linear-regression",
    summary: "A number by least squares: Cholesky on the features' products, conjugate gradients for many features",
    reference: "Legendre, Nouvelles méthodes pour la détermination des orbites des comètes, 1805; Hestenes and \
                Stiefel, Methods of conjugate gradients for solving linear systems, 1952",
    params: PARAMS,
    gives: &[],
    needs: FULL_PASS_NEEDS,
    build: |params| {
        let setup = Setup::new(params, Penalty::default(), "cholesky", false)?;
        Ok(Box::new(Linear { subject: Numbers, setup }))
    },
};

/// How squared errors are minimised.
pub(super) const SOLVER: Param = Param {
    name: "solver",
    kind: ParamKind::Choice(&[
        "auto",
        "cholesky",
        "conjugate-gradient",
        "lbfgs",
        "sandblaster",
        "sgd",
        "momentum",
        "nesterov",
        "adagrad",
        "rmsprop",
        "adam",
        "adamw",
        "lamb",
    ]),
    default: Some("auto"),
    help: "cholesky, conjugate-gradient, lbfgs and sandblaster pass over all rows, the others take mini-batches; auto is cholesky up to 4096 features, conjugate-gradient beyond",
};

const PARAMS: &[Param] = &[
    SOLVER,
    params::LEARNING_RATE,
    params::DECAY,
    params::MOMENTUM,
    params::RHO,
    params::BETA1,
    params::BETA2,
    params::EPSILON,
    params::HISTORY,
    params::TOLERANCE,
    params::MAX_ITERATIONS,
    params::INTERCEPT,
    params::STANDARDISE,
];

/// Labels and answers are numbers.
pub(super) struct Numbers;

impl Subject for Numbers {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn scores(&self, _: &Schema) -> Result<usize> {
        Ok(1)
    }

    fn criterion(&self, _: usize) -> Criterion {
        Criterion::Squared(Squared)
    }

    fn labels(&self, _: usize) -> Labels {
        Labels::Numbers
    }

    fn refuse(&self, _: usize, label: f32) -> Option<Fault> {
        let hint = "leave out rows without a finite label";
        (!label.is_finite()).then(|| Fault::caller("that is no number").hint(hint))
    }

    fn outputs(&self, _: usize) -> usize {
        1
    }

    fn answer(&self, scores: &mut [f64], out: &mut Vec<f64>) {
        out.push(scores[0]);
    }

    fn sums(&self) -> usize {
        Errors::sums()
    }

    fn add(&self, row: Scored<'_>, sums: &mut [f64]) {
        Errors::add(sums, (row.label, row.scores[0], row.weight));
    }

    fn metrics(&self, sums: &[f64], weight: f64) -> Vec<(&'static str, f64)> {
        Errors::metrics(sums, weight)
    }

    fn draw(&self, _: &mut Graph, scores: &str, _: usize) -> Option<String> {
        Some(scores.to_string())
    }
}
