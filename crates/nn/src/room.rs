//! What a network takes of memory on a worker: numbers of four bytes for weights (in the model and as tensors), their
//! gradients and the optimiser's state, and for what every layer gives for the rows of a step and the gradient of that, and
//! what it leaves inside for the way back. It is less than is needed, so that what is refused for it could not have run.

use crate::cut;
use crate::learner::Network;
use crate::solver::Solver;
use crate::stack::Stack;
use crate::stage::{Parameter, Stage};
use crate::unfold::unfolded;
use starlings_core::Turn;
use starlings_learn::{Footprint, Place};

const BYTES: u64 = 4;
/// Rows that answer at once, at most.
const ANSWERED_MAX: usize = 256;
/// Numbers that the largest layer may hold for all rows that answer at once: 1 GiB.
const ANSWERING_MAX: u64 = 1 << 28;

/// How many rows answer at once: fewer where a layer holds much for each.
pub(crate) fn answered(stack: &Stack) -> usize {
    let of = |stage: &dyn Stage| stage.inside().saturating_add(stage.output().len() as u64);
    let most = stack.each().map(|(_, _, stage)| of(stage)).max().unwrap_or(1);
    ((ANSWERING_MAX / most.max(1)) as usize).clamp(1, ANSWERED_MAX)
}

impl Network {
    /// The bytes of a place's part of a network for so many rows of a step.
    pub(crate) fn footprint_at(
        &self,
        stack: &Stack,
        place: &Place,
        rows: u64,
    ) -> Option<Footprint> {
        let solver = &self.recipe.solver;
        let layers = cut::section(stack, place).ok()?;
        let rows = match place.depths() {
            1 => rows.div_ceil(self.recipe.parts.max(1) as u64),
            _ => rows_held(&place.turns, rows),
        };
        let mut tally = Tally::default();
        if !place.splits() {
            let chosen = (1..).zip(stack.each()).skip(layers.start).take(layers.len());
            for (number, (_, line, stage)) in chosen {
                let told = format!("layer {number} '{line}'");
                tally.add(solver, (&told, stage), &stage.parameters(), rows);
            }
            return Some(tally.found);
        }
        let part = (place.part() as usize, place.parts as usize);
        let own = stack.part(&self.split(stack, part).ok()?).ok()?;
        let pieces = unfolded(stack);
        let (chosen, mut drawn) = (pieces.of_layers(&layers), 0);
        for ((_, _, stage), piece) in
            own.each().zip(&pieces.pieces).skip(chosen.start).take(chosen.len())
        {
            let told = format!("layer {} '{}'", piece.number, piece.listed);
            tally.add(solver, (&told, stage), &stage.parameters(), rows);
            // Every part draws the whole of a matrix and keeps its own of it.
            drawn = drawn.max(piece.stage.parameters().iter().map(len).max().unwrap_or(0));
        }
        tally.found.model = tally.found.model.saturating_add(drawn.saturating_mul(BYTES));
        Some(tally.found)
    }
}

/// Of how many rows a stage holds something at once: of as many micro-batches as have gone forward and not back.
fn rows_held(turns: &[Turn], rows: u64) -> u64 {
    let count = turns.iter().map(|turn| u64::from(turn.micro_batch()) + 1).max().unwrap_or(1);
    let (mut held, mut most) = (0u64, 1);
    for turn in turns {
        held = match turn {
            Turn::Forward(_) => held + 1,
            Turn::Backward(_) => held.saturating_sub(1),
        };
        most = most.max(held);
    }
    (rows / count).max(1).saturating_mul(most).min(rows)
}

/// The bytes of networks that a worker has beside each other, each with a word before the numbers of its layers.
pub(crate) fn footprint(networks: &[(&str, &Stack)], solver: &Solver, rows: u64) -> Footprint {
    let mut tally = Tally::default();
    for (whose, stack) in networks {
        for (number, (_, line, stage)) in (1..).zip(stack.each()) {
            let told = format!("{whose} layer {number} '{line}'");
            tally.add(solver, (&told, stage), &stage.parameters(), rows);
        }
    }
    tally.found
}

struct Tally {
    found: Footprint,
    /// The bytes of the largest layer.
    most: u64,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { found: Footprint { model: 0, step: 0, largest: String::new() }, most: 0 }
    }
}

impl Tally {
    fn add(
        &mut self,
        solver: &Solver,
        (told, stage): (&str, &dyn Stage),
        parameters: &[Parameter],
        rows: u64,
    ) {
        let mut weights = 0u64;
        for parameter in parameters {
            let len = len(parameter);
            weights = weights.saturating_add(len);
            let copies = 3 + solver.states(parameter) as u64;
            self.found.model = self.found.model.saturating_add(len.saturating_mul(BYTES * copies));
        }
        let (outputs, inside) = (stage.output().len() as u64, stage.inside());
        let numbers = outputs.saturating_mul(2).saturating_add(inside);
        let passing = rows.saturating_mul(numbers).saturating_mul(BYTES);
        self.found.step = self.found.step.saturating_add(passing);
        let size = weights.saturating_mul(BYTES).saturating_add(passing);
        if size > self.most {
            let inside = match inside {
                0 => String::new(),
                inside => format!(", and {inside} numbers inside for each row"),
            };
            self.most = size;
            self.found.largest =
                format!("{told} with {weights} weights and {outputs} outputs{inside}");
        }
    }
}

fn len(parameter: &Parameter) -> u64 {
    parameter.shape.iter().map(|&size| size as u64).fold(1, u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Form;

    #[test]
    fn stages_hold_what_has_gone_forward_and_not_back() {
        use Turn::{Backward as B, Forward as F};
        assert_eq!(rows_held(&[F(0), F(1), F(2), F(3), B(0), B(1), B(2), B(3)], 64), 64);
        assert_eq!(rows_held(&[F(0), F(1), B(0), F(2), B(1), F(3), B(2), B(3)], 64), 32);
        assert_eq!(rows_held(&[F(0), B(0), F(1), B(1)], 64), 32);
        assert_eq!(rows_held(&[], 64), 64);
    }

    #[test]
    fn fewer_rows_answer_at_once_where_each_takes_much() {
        let of = |steps: usize| {
            let lines = ["linear 8".to_string(), "transformer 4".to_string()];
            answered(&Stack::build(Form::Sequence { steps, width: 1 }, &lines).unwrap())
        };
        assert_eq!((of(16), of(1024), of(20_000)), (256, 62, 1));
    }
}
