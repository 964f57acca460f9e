//! Before a tree: how large its gradients are, so that they can be rounded alike everywhere, and how well the trees
//! so far do on rows held out. For ranking, first the scores of all rows.

use super::losses::{self, Loss};
use super::ranking::Queries;
use super::resident::{Part, Resident};
use super::state::{self, Clock, Phase, Setup};
use crate::trees::columns::whole;
use crate::trees::fixed::{self, EXPONENTS};
use crate::trees::store::each_row;
use crate::trees::tree;
use crate::{Outcome, Work};
use starlings_core::{Block, Model, Role, Update};

/// Buckets of gradients, with goss: exponent and four bits of the mantissa.
const BUCKETS: usize = 4096;
/// Where there are many rows, the loss of one in so many is reported.
const SPARSE_LOSS: u64 = 16;
/// Position up to which a ranking is judged.
pub(super) const NDCG_AT: usize = 10;

/// Emits the bits of this worker's scores.
pub(super) fn scores(resident: Option<&Resident>, work: &mut Work<'_>) {
    let mut scores = vec![0; work.moment.rows as usize];
    if let Some(resident) = resident {
        each_row(&resident.segments, |row, global| {
            if resident.counts(row) {
                scores[global as usize] = resident.scores[row].to_bits() as i64;
            }
        });
    }
    work.outbox.emit(Block::counts("scores", scores));
}

/// Keeps the scores and judges them.
pub(super) fn apply_scores(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    clock: &mut Clock,
    seed: u64,
) -> Outcome {
    model.set("scores", whole(update.i64("scores").to_vec(), Role::State));
    let queries = Queries::load(model);
    let chance = fixed::key(seed, "validation", &[]);
    let holds_out = setup.options.early_stopping > 0;
    let held = |group| holds_out && fixed::uniform(chance, group) < setup.options.validation;
    let ndcg = queries.ndcg(NDCG_AT, |group| !held(group));
    let held_loss = queries.ndcg(NDCG_AT, held).map(|ndcg| 1.0 - ndcg);
    let done = judge(setup, model, clock, held_loss);
    clock.phase = Phase::Scale;
    let iterations = Some(setup.iteration(model) as u64);
    Outcome { objective: ndcg.map(|ndcg| 1.0 - ndcg), done, iterations }
}

/// Emits how large gradients are, losses, and with goss how gradients are spread.
pub(super) fn scale(setup: &Setup<'_>, resident: Option<&Resident>, work: &mut Work<'_>) {
    let output = tree::count(work.model) % setup.outputs;
    let clock = Clock::load(work.model);
    let mut exponents = vec![0; 2 * EXPONENTS];
    let mut losses = vec![0.0; 2];
    let mut held = vec![0; 2];
    let mut buckets = vec![0; if setup.options.goss.is_some() { BUCKETS } else { 0 }];
    if let Some(resident) = resident {
        let rows = resident.store.rows();
        let gradients = &resident.gradients[output * rows..(output + 1) * rows];
        for (at, exponents) in exponents.chunks_exact_mut(EXPONENTS).enumerate() {
            let parts = gradients.iter().zip(&resident.parts);
            let trained = parts.map(|(pair, part)| match part {
                Part::Train => pair[at],
                _ => 0.0,
            });
            fixed::count_largest(trained, exponents);
        }
        if !buckets.is_empty() {
            let trained =
                (0..rows).filter(|&row| resident.parts[row] == Part::Train && resident.counts(row));
            trained.for_each(|row| buckets[bucket(resident.importance(setup.outputs, row))] += 1);
        }
        if output == 0 && setup.loss != Loss::LambdaRank {
            let every = if setup.is_narrow(clock.rows) { SPARSE_LOSS } else { 1 };
            let scales = held_scales(setup, work.model, work.moment.rows);
            sum_losses(setup, resident, every, &mut |part, loss, weight| match part {
                Part::Train => {
                    losses[0] += weight * loss;
                    losses[1] += weight;
                }
                _ => {
                    let most = held_bound(setup, work.model);
                    held[0] += fixed::grid((weight * loss).clamp(-most, most), scales[0]);
                    held[1] += fixed::grid(weight, scales[1]);
                }
            });
        }
    }
    work.outbox.emit(Block::counts("exponents", exponents));
    work.outbox.emit(Block::dense("losses", losses));
    work.outbox.emit(Block::counts("held", held));
    work.outbox.emit(Block::counts("buckets", buckets));
}

fn bucket(importance: f32) -> usize {
    (importance.to_bits() >> 19) as usize
}

/// Calls with part, loss and weight of training rows (one in `every`) and of rows held out.
fn sum_losses(
    setup: &Setup<'_>,
    resident: &Resident,
    every: u64,
    each: &mut impl FnMut(Part, f64, f64),
) {
    let rows = resident.store.rows();
    let mut all = vec![0.0; setup.outputs];
    each_row(&resident.segments, |row, global| {
        match resident.parts[row] {
            _ if !resident.counts(row) => return,
            Part::Train if global % every == 0 => {}
            Part::HeldOut => {}
            _ => return,
        }
        let (weight, label) = (resident.weight(row), resident.labels[row]);
        let loss = match setup.loss {
            Loss::Softmax => {
                let scores = (0..setup.outputs).map(|class| resident.scores[class * rows + row]);
                all.iter_mut().zip(scores).for_each(|(all, score)| *all = score);
                losses::softmax_loss(&all, label as usize)
            }
            loss => loss.value(resident.scores[row], f64::from(label)),
        };
        each(resident.parts[row], loss, weight);
    });
}

/// More than any row's weighted loss, as long as predictions stay near the labels: what is beyond counts as this. It
/// makes the sums over held-out rows whole numbers, so that all flocks stop at the same tree.
fn held_bound(setup: &Setup<'_>, model: &Model) -> f64 {
    let [labels, weights] = [0, 1].map(|at| model.f64("label_bounds")[at]);
    let largest = labels.max(labels / weights);
    let loss = match setup.loss {
        Loss::Squared => 16.0 * largest * largest,
        Loss::Huber { alpha } => 16.0 * largest * largest.max(alpha),
        Loss::Absolute | Loss::Quantile { .. } => 8.0 * largest,
        Loss::Poisson => 64.0 * largest + 64.0,
        Loss::Logistic | Loss::Softmax | Loss::LambdaRank => 64.0,
    };
    loss * weights
}

fn held_scales(setup: &Setup<'_>, model: &Model, rows: u64) -> [f64; 2] {
    [held_bound(setup, model), model.f64("label_bounds")[1]].map(|bound| fixed::scale(bound, rows))
}

/// Agrees on the grids of the next tree; judges the trees so far at the beginning of an iteration.
pub(super) fn apply_scale(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    clock: &mut Clock,
    rows: u64,
) -> Outcome {
    let (losses, held, exponents) =
        (update.f64("losses"), update.i64("held"), update.i64("exponents"));
    let first = tree::count(model).is_multiple_of(setup.outputs);
    let mean = (losses[1] > 0.0).then(|| losses[0] / losses[1]);
    let scales = held_scales(setup, model, rows);
    let held = (held[1] > 0).then(|| (held[0] as f64 / scales[0]) / (held[1] as f64 / scales[1]));
    let mut done = false;
    if first && setup.loss != Loss::LambdaRank {
        done = judge(setup, model, clock, held);
    }
    let bounds = [&exponents[..EXPONENTS], &exponents[EXPONENTS..]].map(fixed::bound);
    let threshold = match setup.options.goss {
        Some([top, _]) if first => goss_threshold(update.i64("buckets"), top),
        _ => state::threshold(model),
    };
    state::set_bounds(model, bounds, threshold);
    let iterations = Some(setup.iteration(model) as u64);
    Outcome { objective: mean.filter(|_| first), done, iterations }
}

/// Where the share `top` of the largest gradients begins, at the nearest bucket that has at least so many.
fn goss_threshold(buckets: &[i64], top: f64) -> f64 {
    let all: i64 = buckets.iter().sum();
    let mut left = (top * all as f64).ceil() as i64;
    for (bucket, &count) in buckets.iter().enumerate().rev() {
        left -= count;
        if left <= 0 {
            return f64::from(f32::from_bits((bucket as u32) << 19));
        }
    }
    0.0
}

/// Remembers the best iteration by the held-out loss. When it is long ago, or all trees are grown, later trees are
/// taken away and training is done.
fn judge(setup: &Setup<'_>, model: &mut Model, clock: &mut Clock, held: Option<f64>) -> bool {
    let iteration = setup.iteration(model);
    let rounds = setup.options.early_stopping;
    if rounds > 0
        && let Some(loss) = held
    {
        if loss < clock.best_loss {
            (clock.best, clock.best_loss) = (iteration, loss);
        }
        if iteration - clock.best >= rounds || iteration == clock.iterations {
            tree::truncate(model, clock.best * setup.outputs);
            return true;
        }
    }
    iteration == clock.iterations
}
