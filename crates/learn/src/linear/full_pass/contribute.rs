//! A worker's part of a full-pass step: what its shards' rows say.

use super::state::{Counters, Phase, TRIAL};
use super::{FullPass, Method, newton, sandblaster};
use crate::linear::exact::{Collector, Fold};
use crate::linear::losses::with_loss;
use crate::linear::losses::{RowLoss, Told};
use crate::linear::pass::{self, alone};
use crate::linear::problem::Problem;
use crate::linear::visitors::{Curve, Evaluate, Keep, Rows, rows};
use crate::linear::{gram, moments};
use crate::{Cells, Rebuilds, Work};
use starlings_core::{Model, Result, Values};
use starlings_data::{Batch, Slice};

/// The rows' scores at the last evaluation, and at the last accepted point.
const SCORES: &str = "scores";
const BASE: &str = "base";
/// Which evaluation the scores are of: passes before it.
const PASS: &str = "pass";

impl FullPass {
    /// Emits what the phase wants.
    pub(crate) fn contribute(&self, work: &mut Work<'_>, problem: &Problem) -> Result<()> {
        let counters = Counters::read(work.model);
        match counters.phase {
            Phase::Moments => {
                let shards = counters.shards;
                let block = moments::block(problem.layout, problem.labels, work.batch, shards)?;
                work.outbox.emit(block);
            }
            Phase::Products => {
                let scaling = self.scaling(work.model, problem);
                work.outbox.emit(gram::block(&scaling, work.batch));
            }
            Phase::Evaluate => self.evaluate(work, problem, &counters),
            Phase::Probe => self.probe(work, problem, &counters),
            Phase::Curve => self.curve(work, problem, &counters),
            Phase::Dots => sandblaster::emit_dots(work, &counters),
            Phase::Parts => sandblaster::emit_parts(work, &counters),
        }
        Ok(())
    }

    /// What a worker that always had the shard would remember of it.
    pub(crate) fn adopt(
        &self,
        model: &Model,
        problem: &Problem,
        (batch, slice): (&Batch<'_>, &Slice),
        cells: &mut Cells,
    ) {
        let counters = Counters::read(model);
        if self.method == Method::Sandblaster {
            sandblaster::adopt(model, slice.shard.0, counters.shards, cells);
        }
        let started = counters.passes > 1 && self.remembers();
        if !started || problem.layout.check(batch).is_err() {
            return;
        }
        // Once the trial point is accepted its scores are those of the weights, and the trial is elsewhere.
        let last = if counters.arrived { "weights" } else { TRIAL };
        for (name, weights) in [(SCORES, last), (BASE, "weights")] {
            let mut kept = vec![0.0; slice.len() * problem.layout.scores];
            let batch = alone(batch, slice);
            pass::scores(problem.layout, model.f64(weights), &batch, &mut Keep(&mut kept));
            cells.insert(name.to_string(), Values::F64(kept));
        }
        // The evaluation that is to come has not been made with these.
        cells.insert(PASS.to_string(), Values::I64(vec![counters.passes - 1]));
    }

    /// Scores are what rows and weights make them; a range of Sandblaster's history is in no other place.
    pub(crate) fn rebuilds(&self) -> Rebuilds {
        match self.method {
            Method::Sandblaster => Rebuilds::Nearly,
            _ => Rebuilds::Exactly,
        }
    }

    /// Whether scores are of use between steps.
    fn remembers(&self) -> bool {
        self.method != Method::Owlqn
    }

    /// Loss and gradient at the trial point.
    fn evaluate(&self, work: &mut Work<'_>, problem: &Problem, counters: &Counters) {
        let layout = problem.layout;
        let fold = self.fold(work.model, problem, counters);
        let by_shard = Fold::Shards(counters.shards);
        let mut gradients = Collector::new(&fold, layout.len());
        let mut losses = Collector::new(&by_shard, 1);
        let mut gradient = vec![0.0; layout.len()];
        let rows = rows(work.model, work.batch);
        for slice in &work.batch.slices {
            let cells = work.memory.shard(slice.shard);
            let mut kept =
                if self.remembers() { room(cells, slice, problem, counters) } else { Vec::new() };
            let batch = alone(work.batch, slice);
            let loss = with_loss!(problem.criterion, criterion => {
                let mut visitor = Evaluate { criterion, rows, kept: &mut kept, loss: 0.0 };
                pass::sums(layout, work.model.f64(TRIAL), &batch, &mut visitor, &mut gradient);
                visitor.loss
            });
            if self.remembers() {
                cells.insert(SCORES.to_string(), Values::F64(kept));
                cells.insert(PASS.to_string(), Values::I64(vec![counters.passes]));
            }
            losses.add(slice.shard, &[loss]);
            gradients.add(slice.shard, &gradient);
        }
        work.outbox.emit(losses.block("loss"));
        work.outbox.emit(gradients.block("gradient"));
    }

    /// Loss and slope at another length, from the scores at the point and at the first length.
    fn probe(&self, work: &mut Work<'_>, problem: &Problem, counters: &Counters) {
        let line = super::state::Line::read(work.model);
        let share = line.search.map_or(0.0, |search| search.length()) / line.first;
        let by_shard = Fold::Shards(counters.shards);
        let mut sums = Collector::new(&by_shard, 2);
        let rows = rows(work.model, work.batch);
        for slice in &work.batch.slices {
            let cells = work.memory.shard(slice.shard);
            let (base, there) = (remembered(cells, BASE), remembered(cells, SCORES));
            let width = problem.layout.scores;
            let walk = Walk { base, there, share, first: line.first };
            let sum = with_loss!(problem.criterion, criterion => {
                walk.sums(criterion, rows, slice, width)
            });
            sums.add(slice.shard, &sum);
        }
        work.outbox.emit(sums.block("probe"));
    }

    /// The product of the curvature at the point with a direction.
    fn curve(&self, work: &mut Work<'_>, problem: &Problem, counters: &Counters) {
        let layout = problem.layout;
        let by_shard = Fold::Shards(counters.shards);
        let mut sums = Collector::new(&by_shard, layout.len());
        let mut product = vec![0.0; layout.len()];
        let rows = rows(work.model, work.batch);
        for slice in &work.batch.slices {
            let cells = work.memory.shard(slice.shard);
            let base = remembered(cells, if counters.arrived { SCORES } else { BASE });
            let batch = alone(work.batch, slice);
            let along = work.model.f64(newton::ALONG);
            with_loss!(problem.criterion, criterion => {
                let room = vec![0.0; 4 * layout.scores];
                let mut visitor = Curve { criterion, rows, base, room };
                pass::sums(layout, along, &batch, &mut visitor, &mut product);
            });
            sums.add(slice.shard, &product);
        }
        work.outbox.emit(sums.block("product"));
    }
}

/// A walk between remembered scores.
struct Walk<'a> {
    base: &'a [f64],
    there: &'a [f64],
    /// How far, as a share of the way to `there`.
    share: f64,
    /// The length of that way.
    first: f64,
}

impl Walk<'_> {
    /// Loss, and its slope by length.
    fn sums<L: RowLoss>(
        &self,
        criterion: L,
        rows: Rows<'_>,
        slice: &Slice,
        width: usize,
    ) -> [f64; 2] {
        let (mut loss, mut slope) = (0.0, 0.0);
        let mut scores = vec![0.0; width];
        let pairs = self.base.chunks_exact(width).zip(self.there.chunks_exact(width));
        for (row, (base, there)) in slice.rows().zip(pairs) {
            for ((score, base), there) in scores.iter_mut().zip(base).zip(there) {
                *score = base + self.share * (there - base);
            }
            let told: Told<1> = rows.told([row]);
            loss += criterion.residuals(&mut scores, told);
            let changes = there.iter().zip(base).map(|(there, base)| there - base);
            slope += changes.zip(&scores).map(|(change, residual)| change * residual).sum::<f64>();
        }
        [loss, slope / self.first]
    }
}

/// Room for the scores of a shard's rows; those of the point that was just accepted become the base, once: a step may be
/// begun again.
fn room(cells: &mut Cells, slice: &Slice, problem: &Problem, counters: &Counters) -> Vec<f64> {
    let len = slice.len() * problem.layout.scores;
    let mut kept = match cells.remove(SCORES) {
        Some(Values::F64(kept)) if kept.len() == len => kept,
        _ => vec![0.0; len],
    };
    let begun = cells.get(PASS) == Some(&Values::I64(vec![counters.passes]));
    if counters.arrived && !begun {
        let old = cells.insert(BASE.to_string(), Values::F64(kept));
        kept = match old {
            Some(Values::F64(old)) if old.len() == len => old,
            _ => vec![0.0; len],
        };
    }
    kept
}

fn remembered<'a>(cells: &'a Cells, name: &str) -> &'a [f64] {
    match cells.get(name) {
        Some(Values::F64(values)) => values,
        _ => panic!("'{name}' is remembered since the last evaluation"),
    }
}
