//! Statistics of rows that a model keeps and no gradient leads: running means and variances of batch normalisation, and what
//! a user's own layers move. They travel as sums over rows under names of their own (`Parameter::block`).

use crate::solver::all_finite;
use crate::stage::Care;
use starlings_core::{Block, Body, Values};

/// How much of a tracked mean a step replaces, as in PyTorch.
const FRESH: f32 = 0.1;

/// Moves running means towards those of a step, or by what its rows have moved them on average.
pub(crate) fn track(means: &mut [f32], care: Care, (block, rows): (&Block, f64)) {
    let Body::Dense(Values::F32(sums)) = &block.body else {
        panic!("'{}' is a dense sum of f32, as it was emitted", block.name);
    };
    if rows == 0.0 || !all_finite(sums) {
        return;
    }
    let share = (1.0 / rows) as f32;
    for (mean, sum) in means.iter_mut().zip(sums) {
        *mean += match care {
            Care::Moved => sum * share,
            _ => FRESH * (sum * share - *mean),
        };
    }
}
