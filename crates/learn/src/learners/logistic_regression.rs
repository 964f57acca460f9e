//! Logistic regression: mean log-loss + l1·‖w‖₁ + l2/2·‖w‖², the intercept unpenalised. Two classes have one vector of
//! weights, more have one each (softmax). Solved over all rows by L-BFGS (Liu and Nocedal, 1989), OWL-QN (Andrew and Gao,
//! 2007), Newton's method or Sandblaster L-BFGS, or over mini-batches.

use crate::Task;
use crate::learners::BuildLearner;
use crate::linear::losses::{Criterion, Logistic, Softmax};
use crate::linear::{FULL_PASS_NEEDS, Labels, Linear, Penalty, Scored, Setup, Subject, params};
use starlings_core::{Entry, Fault, Graph, Op, Param, ParamKind, Result};
use starlings_data::{LabelNeed, Schema};

/// The entry of the catalogue. Its abilities are those of the default solver.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "logistic-regression",
    summary: "Classes by a linear score: binary or softmax, by L-BFGS, OWL-QN, Newton or mini-batches",
    reference: "Cox, The regression analysis of binary sequences, 1958; Liu and Nocedal, On the limited \
                memory BFGS method for large scale optimization, 1989; Andrew and Gao, Scalable training of \
                L1-regularized log-linear models, 2007",
    params: PARAMS,
    gives: &[],
    needs: FULL_PASS_NEEDS,
    build: |params| {
        let penalty = Penalty { l1: params.f64("l1"), l2: params.f64("l2") };
        let automatic = if penalty.l1 > 0.0 { "owlqn" } else { "lbfgs" };
        let balanced = params.text("class_weight") == "balanced";
        let setup = Setup::new(params, penalty, automatic, balanced)?;
        Ok(Box::new(Linear { subject: Classes, setup }))
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "solver",
        kind: ParamKind::Choice(&[
            "auto",
            "lbfgs",
            "owlqn",
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
        help: "how the objective is minimised: lbfgs, owlqn, newton and sandblaster pass over all rows, the others take mini-batches; auto is lbfgs, or owlqn with l1",
    },
    params::L1,
    params::l2("1e-4"),
    Param {
        name: "class_weight",
        kind: ParamKind::Choice(&["none", "balanced"]),
        default: Some("none"),
        help: "balanced: all classes weigh the same, however many rows they have (full-pass solvers)",
    },
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

/// Labels are classes, answers their probabilities.
struct Classes;

impl Subject for Classes {
    fn task(&self) -> Task {
        Task::Classification
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Class
    }

    fn scores(&self, schema: &Schema) -> Result<usize> {
        match schema.classes() {
            classes @ (0 | 1) => {
                Err(Fault::caller(format!("labels have {classes} classes, two are needed"))
                    .hint("name the label column that tells classes apart"))
            }
            2 => Ok(1),
            classes => Ok(classes),
        }
    }

    fn criterion(&self, scores: usize) -> Criterion {
        if scores == 1 { Criterion::Logistic(Logistic) } else { Criterion::Softmax(Softmax) }
    }

    fn labels(&self, scores: usize) -> Labels {
        Labels::Classes(scores.max(2))
    }

    fn refuse(&self, scores: usize, label: f32) -> Option<Fault> {
        let classes = scores.max(2);
        let fits = label >= 0.0 && label < classes as f32;
        (!fits).then(|| {
            Fault::caller("that is no class")
                .hint(format!("codes of classes are 0 to {}", classes - 1))
        })
    }

    fn outputs(&self, scores: usize) -> usize {
        scores.max(2)
    }

    fn answer(&self, scores: &mut [f64], out: &mut Vec<f64>) {
        if let [score] = *scores {
            let small = (-score.abs()).exp();
            let (less, more) = (small / (1.0 + small), 1.0 / (1.0 + small));
            out.extend(if score > 0.0 { [less, more] } else { [more, less] });
            return;
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
        let sum: f64 = scores.iter().sum();
        out.extend(scores.iter().map(|score| score / sum));
    }

    fn sums(&self) -> usize {
        2
    }

    fn add(&self, row: Scored<'_>, sums: &mut [f64]) {
        let guess = match row.scores {
            [score] => usize::from(*score > 0.0),
            scores => {
                let better = |best: usize, class: usize| scores[class] > scores[best];
                (1..scores.len()).fold(0, |best, c| if better(best, c) { c } else { best })
            }
        };
        sums[0] += row.weight * row.loss;
        sums[1] += row.weight * f64::from(u8::from(guess == row.label as usize));
    }

    fn metrics(&self, sums: &[f64], weight: f64) -> Vec<(&'static str, f64)> {
        vec![("accuracy", sums[1] / weight), ("log_loss", sums[0] / weight)]
    }

    fn draw(&self, graph: &mut Graph, scores: &str, width: usize) -> Option<String> {
        if width > 1 {
            return Some(graph.node(Op::Softmax, &[scores]));
        }
        let other = graph.node(Op::Neg, &[scores]);
        let [less, more] = [other.as_str(), scores].map(|score| graph.node(Op::Sigmoid, &[score]));
        Some(graph.node(Op::Concat, &[&less, &more]))
    }
}
