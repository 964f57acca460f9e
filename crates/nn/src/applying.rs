//! The sum of a step's gradients becomes the next weights: of a sum that is there, or of one that is made where it is used, to
//! the same bits.

use crate::learner::{COUNT, Network};
use crate::solver::f32s_mut;
use crate::sums::LOSS;
use crate::tracking::track;
use starlings_core::{Block, Body, Model, Result, Rows, Update, Values};
use starlings_learn::{Late, Moment, Outcome};
use std::ops::Range;

/// The sum of all contributions to a step.
#[derive(Clone, Copy)]
pub(crate) enum Total<'a> {
    There(&'a Update),
    Late(&'a dyn Late),
}

/// The sums of consecutive numbers of a parameter.
#[derive(Clone, Copy)]
pub(crate) enum Slopes<'a> {
    There(&'a [f32]),
    /// Of the block of this number, as many as the parameter has.
    Late(&'a dyn Late, usize),
}

impl Slopes<'_> {
    /// Some of them: `at` counts from the first of them. What is made late is put into `room`.
    pub(crate) fn some<'b>(&'b self, at: Range<usize>, room: &'b mut Vec<f32>) -> &'b [f32] {
        match self {
            Slopes::There(sums) => &sums[at],
            Slopes::Late(late, block) => {
                room.resize(at.len(), 0.0);
                late.sums(*block, at.start, room);
                room
            }
        }
    }
}

impl Network {
    /// One step of the optimiser on all parameters.
    pub(crate) fn apply_total(
        &self,
        model: &mut Model,
        total: Total<'_>,
        moment: &Moment,
    ) -> Result<Outcome> {
        let (sizes, stack) = self.stack_of(model)?;
        let (update, late) = match total {
            Total::There(update) => (update, None),
            Total::Late(late) => (late.told(), Some(late)),
        };
        let told = update.get(LOSS).map(Block::f64s);
        let loss = told.map(|told| told[0] / told[1].max(f64::MIN_POSITIVE));
        if loss.is_some_and(|loss| !loss.is_finite()) {
            return Err(self.diverged("the loss is not finite", moment));
        }
        let parameters = stack.parameters();
        let stride = self.stride((sizes, parameters), update, moment);
        let solver = &self.recipe.solver;
        let mut finite = true;
        for parameter in parameters {
            let name = parameter.block();
            let awaited = late.and_then(|late| Some((late, late.find(&name)?)));
            if let Some((late, block)) = awaited {
                let all = 0..parameter.len();
                finite &= solver.step(model, parameter, (all, Slopes::Late(late, block)), stride);
                continue;
            }
            let Some(block) = update.get(&name) else { continue };
            if !parameter.care.learns() {
                let rows = update.get(COUNT).map_or(0.0, |block| block.f64s()[0]);
                track(f32s_mut(model, &parameter.name), parameter.care, (block, rows));
                continue;
            }
            each_run(&block.body, |from, sums| {
                let run = (from..from + sums.len(), Slopes::There(sums));
                finite &= solver.step(model, parameter, run, stride);
            });
        }
        if !finite {
            return Err(self.diverged("weights are not finite", moment));
        }
        let done = match (self.recipe.patience, told) {
            (1.., Some(told)) => self.is_stale(model, told[0], told[1], moment),
            _ => false,
        };
        Ok(Outcome { objective: loss, done, iterations: None })
    }
}

/// Shows runs of consecutive numbers of a parameter with the sums that the update has for them.
pub(crate) fn each_run(body: &Body, mut visit: impl FnMut(usize, &[f32])) {
    match body {
        Body::Dense(Values::F32(sums)) => visit(0, sums),
        // Factors add up in f64.
        Body::Dense(Values::F64(sums)) => {
            visit(0, &sums.iter().map(|&sum| sum as f32).collect::<Vec<_>>());
        }
        Body::Rows(Rows { index, width, values: Values::F32(sums), .. }) => {
            let width = *width as usize;
            let mut at = 0;
            for run in index.chunk_by(|a, b| a + 1 == *b) {
                let end = at + run.len() * width;
                visit(run[0] as usize * width, &sums[at..end]);
                at = end;
            }
        }
        _ => panic!("gradients of networks are f32"),
    }
}
