//! What the leaves of a grown tree say. A Newton step from sums of all bits of the gradients, where histograms had
//! few; or the quantile of the residuals, exactly, digit by digit, for losses whose best constant is one.

use super::growing::Growing;
use super::resident::Resident;
use super::start::first_phase;
use super::state::{self, Clock, Phase, Setup};
use crate::trees::columns::{Columns, whole};
use crate::trees::descent::{DIGITS, Descent, LEVELS, key};
use crate::trees::fixed;
use crate::trees::split;
use crate::trees::tree::{self, Node};
use crate::{Outcome, Work};
use starlings_core::{Block, Model, Role, Tensor, Update};

/// Emits sums over the rows of each leaf.
pub(super) fn contribute(setup: &Setup<'_>, resident: Option<&mut Resident>, work: &mut Work<'_>) {
    let (model, clock) = (work.model, Clock::load(work.model));
    let leaves = Growing::load(model).leaves();
    let quantile = setup.loss.quantile().is_some();
    let mut block = vec![0; leaves.len() * if quantile { DIGITS } else { 2 }];
    if let Some(resident) = resident {
        let output = tree::count(model) % setup.outputs;
        let first = output * resident.store.rows();
        if quantile {
            let weights = fixed::scale(model.f64("label_bounds")[1], work.moment.rows);
            let descents = Descent::load(model.i64("descent"));
            for ((&leaf, counts), descent) in
                leaves.iter().zip(block.chunks_exact_mut(DIGITS)).zip(descents)
            {
                for row in counted(resident, leaf) {
                    let residual = f64::from(resident.labels[row]) - resident.scores[row];
                    let weight = fixed::grid(resident.weight(row), weights);
                    descent.count(clock.level, key(residual as f32), weight, counts);
                }
            }
        } else {
            let scales = leaf_scales(setup, model, work.moment.rows);
            for (&leaf, sums) in leaves.iter().zip(block.chunks_exact_mut(2)) {
                for row in counted(resident, leaf) {
                    let gradient = resident.gradients[first + row];
                    let factor = resident.factor(row);
                    for (sum, (&derivative, scale)) in
                        sums.iter_mut().zip(gradient.iter().zip(scales))
                    {
                        *sum += fixed::grid(f64::from(derivative) * factor, scale);
                    }
                }
            }
        }
    }
    work.outbox.emit(Block::counts("leaves", block));
}

/// The rows of a leaf that this worker counts.
fn counted(resident: &Resident, leaf: usize) -> impl Iterator<Item = usize> + '_ {
    let rows = resident.partition.rows(leaf).iter().map(|&row| row as usize);
    rows.filter(|&row| resident.counts(row))
}

fn leaf_scales(setup: &Setup<'_>, model: &Model, rows: u64) -> [f64; 2] {
    let factor = setup.amplification().max(1.0);
    state::bounds(model).map(|bound| fixed::scale(bound * factor, rows))
}

/// Begins to renew the leaves, or finishes the tree with what histograms say.
pub(super) fn begin(setup: &Setup<'_>, model: &mut Model, clock: &mut Clock) -> Outcome {
    let growing = Growing::load(model);
    if setup.renews(clock.rows) {
        let none = vec![Descent::default(); growing.leaves().len()];
        model.set("descent", whole(Descent::save(&none), Role::State));
        (clock.phase, clock.level) = (Phase::Renew, 0);
        return Outcome { iterations: Some(setup.iteration(model) as u64), ..Outcome::default() };
    }
    let rules = setup.rules(model, clock.rows);
    let say = |leaf: usize| {
        let twig = &growing.twigs[leaf];
        let gradient = twig.sums.gradient as f64 * rules.units[0];
        let hessian = twig.sums.hessian as f64 * rules.units[1];
        split::value(gradient, hessian, [rules.l1, rules.l2], twig.bounds)
    };
    let values: Vec<f64> = growing.leaves().into_iter().map(say).collect();
    finish(setup, model, clock, (&growing, &values))
}

/// Takes the sums of leaves.
pub(super) fn apply(
    setup: &Setup<'_>,
    model: &mut Model,
    update: &Update,
    clock: &mut Clock,
    rows: u64,
) -> Outcome {
    let growing = Growing::load(model);
    let leaves = growing.leaves();
    let block = update.i64("leaves");
    if let Some(alpha) = setup.loss.quantile() {
        let mut descents = Descent::load(model.i64("descent"));
        for (descent, counts) in descents.iter_mut().zip(block.chunks_exact(DIGITS)) {
            descent.descend(clock.level, alpha, counts);
        }
        model.set("descent", whole(Descent::save(&descents), Role::State));
        clock.level += 1;
        if clock.level < LEVELS {
            return Outcome {
                iterations: Some(setup.iteration(model) as u64),
                ..Outcome::default()
            };
        }
        clock.level = 0;
        let bounded = |(descent, leaf): (&Descent, &usize)| {
            let [low, high] = growing.twigs[*leaf].bounds;
            f64::from(descent.found()).clamp(low, high)
        };
        let values: Vec<f64> = descents.iter().zip(&leaves).map(bounded).collect();
        return finish(setup, model, clock, (&growing, &values));
    }
    let (scales, rules) = (leaf_scales(setup, model, rows), &setup.options.rules);
    let say = |(sums, leaf): (&[i64], &usize)| {
        let [gradient, hessian] = [0, 1].map(|at| sums[at] as f64 / scales[at]);
        split::value(gradient, hessian, [rules.l1, rules.l2], growing.twigs[*leaf].bounds)
    };
    let values: Vec<f64> = block.chunks_exact(2).zip(&leaves).map(say).collect();
    finish(setup, model, clock, (&growing, &values))
}

/// Puts the grown tree into the model.
fn finish(
    setup: &Setup<'_>,
    model: &mut Model,
    clock: &mut Clock,
    (growing, values): (&Growing, &[f64]),
) -> Outcome {
    let columns = Columns::load(model);
    let leaves = growing.leaves();
    let values: Vec<f64> = values.iter().map(|value| setup.options.learning_rate * value).collect();
    let mut nodes = Vec::new();
    let mut open = vec![(0, None)];
    while let Some((twig, from)) = open.pop() {
        let place = nodes.len();
        if let Some((parent, side)) = from {
            let parent: &mut Node = &mut nodes[parent];
            parent.children[side] = place as u32;
        }
        let rows = growing.twigs[twig].sums.rows as f64;
        let child = growing.twigs[twig].child.filter(|_| growing.twigs[twig].committed);
        match (child, &growing.twigs[twig].split) {
            (Some(left), Some(split)) => {
                nodes.push(tree::inner(model, &columns, split, rows));
                open.extend([(left + 1, Some((place, 1))), (left, Some((place, 0)))]);
            }
            _ => {
                let at = leaves.binary_search(&twig).expect("it is a leaf");
                nodes.push(Node::leaf(values[at], rows));
            }
        }
    }
    tree::push(model, &nodes);
    let twigs = leaves.iter().map(|&leaf| leaf as i64).collect();
    model.set("last_leaves", whole(twigs, Role::State));
    model.set("last_values", Tensor::of(&[values.len()], values, Role::State));
    conclude(setup, model, clock)
}

/// What comes after a tree: the next, a last look at all scores, or the end.
fn conclude(setup: &Setup<'_>, model: &Model, clock: &mut Clock) -> Outcome {
    let (trees, iteration) = (tree::count(model), setup.iteration(model));
    let complete = trees.is_multiple_of(setup.outputs);
    clock.phase = if complete { first_phase(setup) } else { Phase::Scale };
    let last =
        (trees - setup.outputs.min(trees)..trees).all(|tree| tree::read(model, tree).len() == 1);
    if complete && last && !setup.options.draws() {
        // No class of this iteration has a split, so none of the next will.
        clock.iterations = iteration;
    }
    let looks_again = setup.options.early_stopping > 0 || clock.phase == Phase::Scores;
    let done = complete && iteration == clock.iterations && !looks_again;
    Outcome { objective: None, done, iterations: Some(iteration as u64) }
}
