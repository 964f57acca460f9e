//! Sandblaster L-BFGS (Dean et al., "Large scale distributed deep networks", 2012): no process holds the whole history.
//! Coordinates are cut into ranges, one for each shard of rows; whoever has the shard has the steps and changes of its
//! range, in the shard's memory, which moves with the shard. All that L-BFGS's two loops need are dot products, and
//! those are sums over ranges (Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce", 2014).
//!
//! An iteration is three exchanges: loss and gradient over rows; dot products of the newest vectors with the history;
//! the direction's parts. The model itself has weights, gradient and direction, not the 2m vectors of the history.
//! A range whose memory is lost starts an empty history, which is still a descent's: its pairs are zero there.

use super::descent::{Descent, dot};
use super::state::{self, Counters, Phase};
use super::{FullPass, zeros};
use crate::linear::exact::{self, Collector, Fold};
use crate::linear::problem::Problem;
use crate::optimisers::lbfgs::is_curved;
use crate::{Cells, Work};
use starlings_core::{Kind, Model, Update, Values};

/// Dot products of all vectors of the basis: steps, changes, then the gradient.
const DOTS: &str = "sandblaster.dots";
/// How much of each vector of the basis is in the direction.
const SHARES: &str = "sandblaster.shares";
/// The memory of a range: steps and changes, and the point and the gradient before.
const STEPS: &str = "history.steps";
const CHANGES: &str = "history.changes";
const POINT: &str = "history.point";
const GRADIENT: &str = "history.gradient";
/// Passes before the newest pair was stored: a step that is begun again finds it there.
const STORED: &str = "history.stored";

pub(super) fn init(model: &mut Model, pairs: usize) {
    let basis = 2 * pairs + 1;
    model.set(DOTS, zeros(&[basis, basis]));
    model.set(SHARES, zeros(&[basis]));
}

/// An empty history for a range.
pub(super) fn adopt(model: &Model, shard: u32, shards: u32, cells: &mut Cells) {
    let pairs = model.f64(SHARES).len() / 2;
    let range = range(model.f64(state::VECTORS[0]).len(), shard, shards);
    for name in [STEPS, CHANGES] {
        cells.insert(name.to_string(), Values::zeros(Kind::F64, pairs * range.len()));
    }
    for (name, vector) in [(POINT, state::VECTORS[0]), (GRADIENT, state::VECTORS[1])] {
        let part = model.f64(vector)[range.clone()].to_vec();
        cells.insert(name.to_string(), Values::F64(part));
    }
}

/// Stores the newest pair and emits its dot products, and the gradient's, with the whole basis.
pub(super) fn emit_dots(work: &mut Work<'_>, counters: &Counters) {
    let (point, gradient) = (work.model.f64(state::VECTORS[0]), work.model.f64(state::VECTORS[1]));
    let pairs = work.model.f64(SHARES).len() / 2;
    let slot = counters.pairs as usize % pairs;
    let fold = Fold::Shards(counters.shards);
    let mut collector = Collector::new(&fold, 3 * (2 * pairs + 1));
    for slice in &work.batch.slices {
        let range = range(point.len(), slice.shard.0, counters.shards);
        let cells = work.memory.shard(slice.shard);
        let (point, gradient) = (&point[range.clone()], &gradient[range.clone()]);
        let stored = Values::I64(vec![counters.passes]);
        if cells.get(STORED) != Some(&stored) {
            store(cells, slot, point, gradient);
            cells.insert(STORED.to_string(), stored);
        }
        let (steps, changes) = (numbers(cells, STEPS).clone(), numbers(cells, CHANGES));
        let basis: Vec<&[f64]> = (0..pairs)
            .map(|pair| &steps[pair * range.len()..][..range.len()])
            .chain((0..pairs).map(|pair| &changes[pair * range.len()..][..range.len()]))
            .chain([gradient])
            .collect();
        let newest = [slot, pairs + slot, 2 * pairs];
        let dots: Vec<f64> = newest
            .iter()
            .flat_map(|&new| basis.iter().map(move |other| (new, *other)))
            .map(|(new, other)| dot(basis[new], other))
            .collect();
        collector.add(slice.shard, &dots);
    }
    work.outbox.emit(collector.block("dots"));
}

/// Puts the newest step and change of a range into their slot.
fn store(cells: &mut Cells, slot: usize, point: &[f64], gradient: &[f64]) {
    for (name, before, now) in [(STEPS, POINT, point), (CHANGES, GRADIENT, gradient)] {
        let last = std::mem::replace(numbers(cells, before), now.to_vec());
        let stored = &mut numbers(cells, name)[slot * now.len()..][..now.len()];
        let differences = now.iter().zip(&last).map(|(now, last)| now - last);
        stored.iter_mut().zip(differences).for_each(|(stored, new)| *stored = new);
    }
}

/// Takes the dot products and finds the direction's shares by the two loops.
pub(super) fn dotted(model: &mut Model, update: &Update, counters: &mut Counters) {
    let sums = exact::read(&Fold::Shards(counters.shards), update, "dots");
    let basis = model.f64(SHARES).len();
    let pairs = basis / 2;
    let slot = counters.pairs as usize % pairs;
    let dots = model.f64_mut(DOTS);
    for (new, row) in [slot, pairs + slot, 2 * pairs].into_iter().zip(sums.chunks_exact(basis)) {
        for (other, &value) in row.iter().enumerate() {
            dots[new * basis + other] = value;
            dots[other * basis + new] = value;
        }
    }
    let of = |a: usize, b: usize| dots[a * basis + b];
    // At the first point there is no step yet: its pair is zero.
    if is_curved(of(slot, pairs + slot), of(pairs + slot, pairs + slot)) {
        counters.pairs += 1;
    }
    let mut shares = two_loops(dots, pairs, counters.pairs);
    let slope: f64 = (0..basis).map(|at| shares[at] * dots[at * basis + 2 * pairs]).sum();
    if slope.is_nan() || slope >= 0.0 {
        // Rounding has spoilt the memory: the gradient itself always descends.
        counters.pairs = 0;
        shares = two_loops(dots, pairs, 0);
    }
    *model.f64_mut(SHARES) = shares;
    counters.phase = Phase::Parts;
}

/// The two loops of L-BFGS on shares of the basis instead of on vectors.
fn two_loops(dots: &[f64], room: usize, pairs: i64) -> Vec<f64> {
    let basis = 2 * room + 1;
    let product = |shares: &[f64], with: usize| -> f64 {
        shares.iter().enumerate().map(|(at, share)| share * dots[at * basis + with]).sum()
    };
    let newest_first: Vec<usize> = (0..pairs.min(room as i64))
        .map(|back| ((pairs - 1 - back) % room as i64) as usize)
        .collect();
    let mut shares = vec![0.0; basis];
    shares[2 * room] = -1.0;
    let mut taken = Vec::with_capacity(newest_first.len());
    for &pair in &newest_first {
        let share = product(&shares, pair) / dots[pair * basis + room + pair];
        shares[room + pair] -= share;
        taken.push(share);
    }
    if let Some(&pair) = newest_first.first() {
        let change = room + pair;
        let scale = dots[pair * basis + change] / dots[change * basis + change];
        shares.iter_mut().for_each(|share| *share *= scale);
    }
    for (&pair, share) in newest_first.iter().zip(taken).rev() {
        let back = product(&shares, room + pair) / dots[pair * basis + room + pair];
        shares[pair] += share - back;
    }
    shares
}

/// Emits the parts of the direction, one row for each shard's range.
pub(super) fn emit_parts(work: &mut Work<'_>, counters: &Counters) {
    let shares = work.model.f64(SHARES);
    let pairs = shares.len() / 2;
    let gradient = work.model.f64(state::VECTORS[1]);
    let fold = Fold::Shards(counters.shards);
    let width = width(gradient.len(), counters.shards);
    let mut collector = Collector::new(&fold, width);
    for slice in &work.batch.slices {
        let range = range(gradient.len(), slice.shard.0, counters.shards);
        let cells = work.memory.shard(slice.shard);
        let mut part = vec![0.0; width];
        let mut add = |share: f64, vector: &[f64]| {
            part.iter_mut().zip(vector).for_each(|(part, value)| *part += share * value);
        };
        add(shares[2 * pairs], &gradient[range.clone()]);
        for (name, shares) in [(STEPS, &shares[..pairs]), (CHANGES, &shares[pairs..2 * pairs])] {
            let vectors = numbers(cells, name).chunks_exact(range.len().max(1));
            vectors.zip(shares).for_each(|(vector, share)| add(*share, vector));
        }
        collector.add(slice.shard, &part);
    }
    work.outbox.emit(collector.block("direction"));
}

/// Puts the direction together and sets out along it.
pub(super) fn assembled(
    solver: &FullPass,
    model: &mut Model,
    update: &Update,
    problem: &Problem,
    counters: &mut Counters,
) {
    let mut descent = Descent::take(model);
    let width = width(descent.direction.len(), counters.shards).max(1);
    descent.direction.fill(0.0);
    if let Some(rows) = update.rows("direction") {
        let parts = rows.values.as_f64().unwrap_or(&[]).chunks_exact(width);
        for (&shard, part) in rows.index.iter().zip(parts) {
            let range = range(descent.direction.len(), shard, counters.shards);
            let len = range.len();
            descent.direction[range].copy_from_slice(&part[..len]);
        }
    }
    let slope = dot(&descent.gradient, &descent.direction);
    descent.launch(slope, solver.first_length(model, slope, counters));
    descent.put_back(model);
    solver.show_trial(model, problem);
    counters.phase = Phase::Evaluate;
}

/// Once more along the gradient, without a history.
pub(super) fn forget(model: &mut Model, counters: &mut Counters) {
    let pairs = model.f64(SHARES).len() / 2;
    *model.f64_mut(SHARES) = two_loops(model.f64(DOTS), pairs, 0);
    counters.phase = Phase::Parts;
}

/// Coordinates in a range; the last ranges may be shorter or empty.
fn width(len: usize, shards: u32) -> usize {
    len.div_ceil(shards.max(1) as usize)
}

fn range(len: usize, shard: u32, shards: u32) -> std::ops::Range<usize> {
    let width = width(len, shards);
    let at = |shard: usize| (shard * width).min(len);
    at(shard as usize)..at(shard as usize + 1)
}

fn numbers<'a>(cells: &'a mut Cells, name: &str) -> &'a mut Vec<f64> {
    match cells.get_mut(name) {
        Some(Values::F64(values)) => values,
        _ => panic!("adopted with '{name}'"),
    }
}
