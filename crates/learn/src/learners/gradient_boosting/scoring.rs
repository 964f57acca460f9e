//! Scores of rows, what they mean, and how good they are.

use super::losses::{self, Loss};
use super::ranking::Queries;
use super::scale::NDCG_AT;
use super::state::Setup;
use crate::trees::predict::Forest;
use crate::{Grade, Work};
use starlings_core::{Graph, Model, Op, Result};
use starlings_data::Batch;
use std::collections::BTreeMap;

/// Raw scores of all rows, row after row.
pub(super) fn scores(forest: &Forest, base: &[f64], batch: &Batch<'_>) -> Vec<f64> {
    let outputs = base.len();
    let mut scores = base.repeat(batch.len());
    forest.each(batch, |row, tree, value| scores[row * outputs + tree % outputs] += value);
    scores
}

/// What `predict` says for raw scores.
pub(super) fn answers(setup: &Setup<'_>, scores: &[f64], out: &mut Vec<f64>) {
    match setup.loss {
        Loss::Logistic => out.extend(scores.iter().flat_map(|&score| {
            let chance = losses::logistic(score);
            [1.0 - chance, chance]
        })),
        Loss::Softmax => {
            let from = out.len();
            out.extend_from_slice(scores);
            out[from..].chunks_exact_mut(setup.outputs).for_each(losses::softmax);
        }
        loss => out.extend(scores.iter().map(|&score| loss.answer(score))),
    }
}

/// Sums over rows: loss, weight, then hits or squared and absolute errors.
pub(super) fn score(setup: &Setup<'_>, work: &mut Work<'_>) -> Result<Vec<f64>> {
    let scores = scores(&Forest::new(work.model), work.model.f64("base"), work.batch);
    let mut sums = vec![0.0; 4];
    for (row, scores) in work.batch.rows().zip(scores.chunks_exact(setup.outputs)) {
        let (label, weight) = (work.batch.table.labels[row], work.batch.table.weight(row));
        let (loss, first, second) = match setup.loss {
            Loss::Softmax => {
                let best =
                    (1..scores.len()).fold(0, |a, b| if scores[b] > scores[a] { b } else { a });
                let hit = f64::from(u8::from(best == label as usize));
                (losses::softmax_loss(scores, label as usize), hit, 0.0)
            }
            Loss::Logistic => {
                let hit = f64::from(u8::from((scores[0] > 0.0) == (label > 0.5)));
                (setup.loss.value(scores[0], f64::from(label)), hit, 0.0)
            }
            loss => {
                let error = loss.answer(scores[0]) - f64::from(label);
                (loss.value(scores[0], f64::from(label)), error * error, error.abs())
            }
        };
        for (sum, value) in sums.iter_mut().zip([loss, 1.0, first, second]) {
            *sum += weight * value;
        }
    }
    Ok(sums)
}

/// Objective and metrics from the sums.
pub(super) fn grade(setup: &Setup<'_>, model: &Model, sums: &[f64]) -> Grade {
    let weight = if sums[1] > 0.0 { sums[1] } else { 1.0 };
    let [loss, first, second] = [sums[0], sums[2], sums[3]].map(|sum| sum / weight);
    let metrics = match setup.loss {
        Loss::Logistic | Loss::Softmax => vec![("log_loss", loss), ("accuracy", first)],
        Loss::LambdaRank => {
            let queries = model.get("queries").map(|_| Queries::load(model));
            let ndcg = queries.and_then(|queries| queries.ndcg(NDCG_AT, |_| true));
            let objective = ndcg.map_or(loss, |ndcg| 1.0 - ndcg);
            let metrics = ndcg.map(|ndcg| ("ndcg".to_string(), ndcg));
            return Grade { objective, metrics: metrics.into_iter().collect() };
        }
        _ => vec![("rmse", first.sqrt()), ("mae", second)],
    };
    let metrics: BTreeMap<String, f64> =
        metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Grade { objective: loss, metrics }
}

/// The last nodes of the graph: from raw scores to answers.
pub(super) fn graph(setup: &Setup<'_>, graph: &mut Graph, scores: &str) {
    match setup.loss {
        Loss::Logistic => {
            let chance = graph.node(Op::Sigmoid, &[scores]);
            let one = graph.constant("one", &[1], vec![1.0]);
            let other = graph.node(Op::Sub, &[&one, &chance]);
            graph.node(Op::Concat, &[&other, &chance]);
        }
        Loss::Softmax => {
            graph.node(Op::Softmax, &[scores]);
        }
        Loss::Poisson => {
            graph.node(Op::Exp, &[scores]);
        }
        _ => {}
    }
}
