//! The steps: rows are gathered, degrees are counted (spreading), and beliefs are exchanged until they rest.

use super::edges::{Edges, Kept, distance, nearest};
use super::options::{Kernel, Method, Options};
use crate::{Learner, Outcome, Work, refusals};
use starlings_core::{Block, Body, Fault, Model, Result, Update, Values};
use starlings_data::{Batch, Row};

/// What a step does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Stage {
    Gather,
    Degrees,
    Iterate,
}

impl Stage {
    pub(super) fn of(model: &Model) -> Stage {
        match model.i64("stage")[0] {
            0 => Stage::Gather,
            1 => Stage::Degrees,
            _ => Stage::Iterate,
        }
    }

    pub(super) fn set(self, model: &mut Model) {
        model.i64_mut("stage")[0] = self as i64;
    }
}

impl Options {
    /// This worker's rows and labels in their places, zeros elsewhere.
    pub(super) fn gather(&self, work: &mut Work<'_>) -> Result<()> {
        let (width, classes) = (width(work.model), self.outputs(work.model));
        refusals::check_width(width, work.batch)?;
        let finite = |x: f32| x.is_finite();
        if let Some(fault) = refusals::find_number(work.batch, "which is not finite", finite) {
            return Err(fault.hint("fill or leave out numbers that are not finite before training"));
        }
        let rows = work.moment.rows as usize;
        let (mut numbers, mut known) = (vec![0.0f32; rows * width], vec![0.0; rows * classes]);
        for slice in &work.batch.slices {
            for (at, row) in slice.rows().enumerate() {
                let number = (slice.origin + at as u64) as usize;
                write(work.batch.table.row(row), &mut numbers[number * width..][..width]);
                match work.batch.table.labels.get(row) {
                    Some(label) if label.is_nan() => {}
                    Some(&label) if label >= 0.0 && (label as usize) < classes => {
                        known[number * classes + label as usize] = 1.0;
                    }
                    _ => return Err(Fault::caller(format!("row {number} has no class"))),
                }
            }
        }
        let body = Body::Dense(Values::F32(numbers));
        work.outbox.emit(Block { name: "rows".to_string(), body });
        work.outbox.emit(Block::dense("known", known));
        Ok(())
    }

    pub(super) fn gathered(&self, model: &mut Model, update: &Update) -> Result<Outcome> {
        let known = update.f64("known").to_vec();
        if known.iter().all(|label| *label == 0.0) {
            return Err(Fault::caller(format!("{}: no row has a label", self.name()))
                .hint("a few rows of every class need one"));
        }
        if let Some(Body::Dense(values)) = update.get("rows").map(|block| &block.body)
            && let Some(rows) = model.get_mut("rows")
        {
            rows.values = values.clone();
        }
        *model.f64_mut("beliefs") = known.clone();
        *model.f64_mut("known") = known;
        match self.method {
            Method::Propagation => Stage::Iterate.set(model),
            Method::Spreading { .. } => Stage::Degrees.set(model),
        }
        Ok(Outcome { iterations: Some(0), ..Outcome::default() })
    }

    /// How strongly all rows of this worker point at each row; a row does not point at itself.
    pub(super) fn count_degrees(&self, work: &mut Work<'_>) -> Result<()> {
        let rows = work.moment.rows as usize;
        // The graph of the kernel is symmetric, so that a row's own edges say the same, and in one worker's sum; the
        // nearest are counted, and counts add up exactly.
        let symmetric = matches!(self.kernel, Kernel::Rbf { .. });
        let mut degrees = vec![0.0; rows];
        self.with_edges(work, |edges, at, own| {
            edges.each(at, rows, |other, weight| {
                if other != own {
                    degrees[if symmetric { own } else { other }] += weight;
                }
            });
        });
        work.outbox.emit(Block::dense("degrees", degrees));
        Ok(())
    }

    /// What this worker's rows believe next.
    pub(super) fn iterate(&self, work: &mut Work<'_>) -> Result<()> {
        let (rows, classes) = (work.moment.rows as usize, self.outputs(work.model));
        let model = work.model;
        let (beliefs, known) = (model.f64("beliefs"), model.f64("known"));
        let roots: Vec<f64> = model
            .f64("degrees")
            .iter()
            .map(|degree| if *degree > 0.0 { degree.sqrt() } else { 1.0 })
            .collect();
        let mut next = vec![0.0; rows * classes];
        self.with_edges(work, |edges, at, own| {
            let mut sums = vec![0.0; classes];
            let told = &known[own * classes..(own + 1) * classes];
            edges.each(at, rows, |other, weight| {
                let weight = match self.method {
                    Method::Propagation => weight,
                    Method::Spreading { .. } if other == own => 0.0,
                    Method::Spreading { .. } => weight / (roots[own] * roots[other]),
                };
                let belief = &beliefs[other * classes..(other + 1) * classes];
                sums.iter_mut().zip(belief).for_each(|(sum, belief)| *sum += weight * belief);
            });
            match self.method {
                Method::Propagation if told.iter().any(|label| *label > 0.0) => {
                    sums.copy_from_slice(told);
                }
                Method::Propagation => share_out(&mut sums),
                Method::Spreading { alpha } => {
                    let pairs = sums.iter_mut().zip(told);
                    pairs.for_each(|(sum, told)| *sum = alpha * *sum + (1.0 - alpha) * told);
                }
            }
            next[own * classes..(own + 1) * classes].copy_from_slice(&sums);
        });
        work.outbox.emit(Block::dense("beliefs", next));
        Ok(())
    }

    pub(super) fn iterated(&self, model: &mut Model, update: &Update) -> Outcome {
        let next = update.f64("beliefs");
        let pairs = next.iter().zip(model.f64("beliefs"));
        let change: f64 = pairs.map(|(next, before)| (next - before).abs()).sum();
        *model.f64_mut("beliefs") = next.to_vec();
        model.i64_mut("stage")[1] += 1;
        let iterations = model.i64("stage")[1];
        let done = change < self.tolerance || iterations >= self.max_iterations;
        if done {
            let classes = self.outputs(model);
            model.f64_mut("beliefs").chunks_mut(classes).for_each(share_out);
        }
        Outcome { objective: Some(change), done, iterations: Some(iterations as u64) }
    }

    /// Calls with the edges, the place and the number of every row of the batch.
    fn with_edges(&self, work: &mut Work<'_>, mut each: impl FnMut(&Edges, usize, usize)) {
        let Some(first) = work.batch.slices.first().map(|slice| slice.shard) else { return };
        let (all, width) = (rows_of(work.model), width(work.model));
        let shape: Vec<_> =
            work.batch.slices.iter().map(|slice| (slice.shard, slice.len())).collect();
        let numbers = || {
            work.batch
                .slices
                .iter()
                .flat_map(|slice| (0..slice.len() as u64).map(|at| (slice.origin + at) as usize))
        };
        let left = work.memory.take_scratch::<Kept>(first);
        let kept = left.filter(|kept| kept.shape == shape).unwrap_or_else(|| {
            let own: Vec<f32> = numbers()
                .flat_map(|number| all[number * width..(number + 1) * width].iter().copied())
                .collect();
            Box::new(Kept { shape, edges: Edges::new(self.kernel, &own, all, width) })
        });
        numbers().enumerate().for_each(|(at, own)| each(&kept.edges, at, own));
        work.memory.leave_scratch(first, kept);
    }

    /// What rows are told by those they are near.
    pub(super) fn answer(
        &self,
        model: &Model,
        batch: &Batch<'_>,
        out: &mut Vec<f64>,
    ) -> Result<()> {
        let (all, width, classes) = (rows_of(model), width(model), self.outputs(model));
        refusals::check_width(width, batch)?;
        let beliefs = model.f64("beliefs");
        let belief = |other: usize| &beliefs[other * classes..(other + 1) * classes];
        let mut own = vec![0.0f32; width];
        for row in batch.rows() {
            write(batch.table.row(row), &mut own);
            let mut sums = vec![0.0; classes];
            let mut add = |other: usize, weight: f64| {
                let pairs = sums.iter_mut().zip(belief(other));
                pairs.for_each(|(sum, belief)| *sum += weight * belief);
            };
            match self.kernel {
                Kernel::Nearest { count } => {
                    nearest(&own, all, count).iter().for_each(|&other| add(other as usize, 1.0));
                }
                Kernel::Rbf { gamma } => {
                    let far: Vec<f64> =
                        all.chunks_exact(width.max(1)).map(|other| distance(&own, other)).collect();
                    // Only ratios count: from the nearest on, so that not all vanish.
                    let near = far.iter().copied().fold(f64::INFINITY, f64::min);
                    let weights = far.iter().map(|far| (-gamma * (far - near)).exp());
                    weights.enumerate().for_each(|(other, weight)| add(other, weight));
                }
            }
            if sums.iter().all(|sum| *sum == 0.0) {
                sums.fill(1.0);
            }
            share_out(&mut sums);
            out.extend(sums);
        }
        Ok(())
    }
}

fn rows_of(model: &Model) -> &[f32] {
    model.get("rows").and_then(|rows| rows.values.as_f32()).unwrap_or(&[])
}

fn width(model: &Model) -> usize {
    model.get("rows").map_or(0, |rows| rows.width())
}

/// Divides numbers by their sum, unless that is zero.
fn share_out(numbers: &mut [f64]) {
    let sum: f64 = numbers.iter().sum();
    if sum > 0.0 {
        numbers.iter_mut().for_each(|number| *number /= sum);
    }
}

/// A row as numbers.
fn write(row: Row<'_>, into: &mut [f32]) {
    match row {
        Row::Dense(numbers) => into.copy_from_slice(numbers),
        Row::Sparse(entries, numbers) => {
            into.fill(0.0);
            entries.iter().zip(numbers).for_each(|(&at, &x)| into[at as usize] = x);
        }
    }
}
