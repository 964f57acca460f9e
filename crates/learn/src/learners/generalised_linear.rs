//! Generalised linear models (Nelder and Wedderburn, "Generalized linear models", 1972): the mean of a label is a function
//! of a linear score, and its variance a function of the mean. Minimises half the mean unit deviance + l2/2·‖w‖², the
//! intercept unpenalised, as scikit-learn's `PoissonRegressor`, `GammaRegressor` and `TweedieRegressor` do (their `alpha`
//! is `l2`). Newton's method on it is Fisher scoring.

use crate::Task;
use crate::learners::BuildLearner;
use crate::linear::losses::{Criterion, Deviance, Family, Link};
use crate::linear::{
    Errors, FULL_PASS_NEEDS, Labels, Linear, Penalty, Scored, Setup, Subject, params,
};
use starlings_core::{Entry, Fault, Graph, Op, Param, ParamKind, Params, Result};
use starlings_data::{LabelNeed, Schema};

/// The entry of the catalogue. Its abilities are those of the default solver.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "generalised-linear",
    summary: "A mean that is a function of a linear score: gaussian, poisson, gamma, tweedie and binomial labels",
    reference: "Nelder and Wedderburn, Generalized linear models, 1972; Jørgensen, Exponential dispersion models, 1987",
    params: PARAMS,
    gives: &[],
    needs: FULL_PASS_NEEDS,
    build: |params| {
        let penalty = Penalty { l1: 0.0, l2: params.f64("l2") };
        let setup = Setup::new(params, penalty, "lbfgs", false)?;
        Ok(Box::new(Linear { subject: Means::new(params)?, setup }))
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "family",
        kind: ParamKind::Choice(&["gaussian", "poisson", "gamma", "tweedie", "binomial"]),
        default: Some("gaussian"),
        help: "how labels vary around their mean: variance 1, μ, μ², μ^power or μ(1 − μ)",
    },
    Param {
        name: "link",
        kind: ParamKind::Choice(&[
            "auto", "identity", "log", "logit", "inverse", "probit", "cloglog",
        ]),
        default: Some("auto"),
        help: "what of the mean is linear; auto: identity (gaussian, tweedie of power 0 or less), log (poisson, gamma, tweedie), logit (binomial)",
    },
    params::number("power", (-10.0, 10.0), "1.5", "the variance's power of the mean (tweedie)"),
    Param {
        name: "solver",
        kind: ParamKind::Choice(&[
            "auto",
            "lbfgs",
            "newton",
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
        help: "lbfgs, newton and sandblaster pass over all rows, the others take mini-batches; auto is lbfgs",
    },
    params::l2("1e-4"),
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

/// Labels are numbers of a family, answers their means.
struct Means(Deviance);

impl Means {
    fn new(params: &Params) -> Result<Means> {
        let power = params.f64("power");
        let family = match params.text("family") {
            "poisson" => Family::Poisson,
            "gamma" => Family::Gamma,
            "tweedie" if power > 0.0 && power < 1.0 => {
                return Err(Fault::caller(format!("no distribution has the power {power}"))
                    .hint("use a power of 0 or less, or of 1 or more"));
            }
            "tweedie" => Family::Tweedie(power),
            "binomial" => Family::Binomial,
            _ => Family::Gaussian,
        };
        let automatic = match family {
            Family::Gaussian => Link::Identity,
            Family::Tweedie(power) if power <= 0.0 => Link::Identity,
            Family::Poisson | Family::Gamma | Family::Tweedie(_) => Link::Log,
            Family::Binomial => Link::Logit,
        };
        let link = match params.text("link") {
            "identity" => Link::Identity,
            "log" => Link::Log,
            "logit" => Link::Logit,
            "inverse" => Link::Inverse,
            "probit" => Link::Probit,
            "cloglog" => Link::ComplementaryLogLog,
            _ => automatic,
        };
        let is_share = matches!(link, Link::Logit | Link::Probit | Link::ComplementaryLogLog);
        if is_share && family != Family::Binomial {
            return Err(Fault::caller(format!(
                "link = \"{}\" gives means from 0 to 1",
                params.text("link")
            ))
            .hint("use it with family = \"binomial\", or another link"));
        }
        Ok(Means(Deviance { family, link }))
    }
}

impl Subject for Means {
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
        Criterion::Deviance(self.0)
    }

    fn labels(&self, _: usize) -> Labels {
        Labels::Numbers
    }

    fn refuse(&self, _: usize, label: f32) -> Option<Fault> {
        let Deviance { family, .. } = self.0;
        (!family.allows_label(label.into())).then(|| {
            Fault::caller("the family has no such label")
                .hint(format!("labels of this family are {}", family.labels()))
        })
    }

    fn outputs(&self, _: usize) -> usize {
        1
    }

    fn answer(&self, scores: &mut [f64], out: &mut Vec<f64>) {
        out.push(self.0.link.mean(scores[0]).0);
    }

    fn sums(&self) -> usize {
        Errors::sums()
    }

    fn add(&self, row: Scored<'_>, sums: &mut [f64]) {
        Errors::add(sums, (row.label, self.0.link.mean(row.scores[0]).0, row.weight));
    }

    fn metrics(&self, sums: &[f64], weight: f64) -> Vec<(&'static str, f64)> {
        Errors::metrics(sums, weight)
    }

    fn draw(&self, graph: &mut Graph, scores: &str, _: usize) -> Option<String> {
        Some(match self.0.link {
            Link::Identity => scores.to_string(),
            Link::Log => graph.node(Op::Exp, &[scores]),
            Link::Logit => graph.node(Op::Sigmoid, &[scores]),
            Link::Inverse => {
                let one = graph.constant("one", &[1], vec![1.0]);
                graph.node(Op::Div, &[&one, scores])
            }
            Link::Probit => {
                // Φ(z) = (1 + erf(z/√2))/2.
                let root = graph.constant("root", &[1], vec![std::f64::consts::FRAC_1_SQRT_2]);
                let scaled = graph.node(Op::Mul, &[scores, &root]);
                let error = graph.node(Op::Erf, &[&scaled]);
                let one = graph.constant("one", &[1], vec![1.0]);
                let half = graph.constant("half", &[1], vec![0.5]);
                let sum = graph.node(Op::Add, &[&error, &one]);
                graph.node(Op::Mul, &[&sum, &half])
            }
            Link::ComplementaryLogLog => {
                let power = graph.node(Op::Exp, &[scores]);
                let other = graph.node(Op::Neg, &[&power]);
                let share = graph.node(Op::Exp, &[&other]);
                let one = graph.constant("one", &[1], vec![1.0]);
                graph.node(Op::Sub, &[&one, &share])
            }
        })
    }
}
