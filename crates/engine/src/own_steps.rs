//! A worker sees its own steps (Ho et al., 2013: read-my-writes). Where owners send rows by themselves, rows may be on their
//! way that were written before this worker's last pushes arrived: what they miss enters them again when they are placed.

use crate::exchange::ownership::{Ownership, part_of};
use crate::exchange::served::{pick, place};
use crate::rules::Rule;
use starlings_core::{Block, Body, Model, Result, Role, Seat, Tensor, Update};
use starlings_learn::Moment;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The steps of a worker that some owner has not shown it yet. There are no more of them than the gate lets it be ahead, and one.
pub(crate) struct OwnSteps {
    rule: Arc<dyn Rule>,
    steps: VecDeque<OwnStep>,
    /// By owner: how many of this worker's steps are in the rows that it sent last.
    shown: Vec<u64>,
}

struct OwnStep {
    moment: Moment,
    update: Update,
    /// What the optimiser remembered of the rows of this step before it. Owners keep theirs, so nobody sends it.
    before: Vec<Block>,
}

impl OwnSteps {
    /// For a flock of `world`, whose owners do by `rule` what is done here.
    pub(crate) fn new(rule: Arc<dyn Rule>, world: u32) -> OwnSteps {
        OwnSteps { rule, steps: VecDeque::new(), shown: vec![0; world as usize] }
    }

    /// A step enters the own copy as it will enter the owners', and is kept.
    pub(crate) fn take(
        &mut self,
        (moment, update): (&Moment, &Update),
        owners: &Ownership,
        model: &mut Model,
    ) -> Result<()> {
        // Statistics name no tensor, and no owner.
        let owned = |block: &&Block| owners.knows(&block.name);
        let kept = Update { blocks: update.blocks.iter().filter(owned).cloned().collect() };
        let before = remembered(model, &kept);
        self.steps.push_back(OwnStep { moment: *moment, update: kept, before });
        self.rule.apply(model, update, moment)
    }

    /// Rows of an owner were placed that have this worker's steps before `shown`: those since enter them again.
    pub(crate) fn again(
        &mut self,
        (owner, shown): (Seat, u64),
        placed: &[Block],
        model: &mut Model,
    ) -> Result<()> {
        let missing = self.steps.partition_point(|own| own.moment.step.0 < shown);
        // The earliest is restored last: it is what the first of them began from.
        for own in self.steps.iter().skip(missing).rev() {
            own.restore(placed, model);
        }
        for own in self.steps.iter().skip(missing) {
            let blocks = own.update.blocks.iter().map(|block| among(block, placed, model));
            let update = Update { blocks: blocks.collect() };
            if update.blocks.iter().any(has_rows) {
                self.rule.apply(model, &update, &own.moment)?;
            }
        }
        self.shown[owner.index()] = self.shown[owner.index()].max(shown);
        let by_all = self.shown.iter().copied().min().unwrap_or(0);
        while self.steps.front().is_some_and(|own| own.moment.step.0 < by_all) {
            self.steps.pop_front();
        }
        Ok(())
    }
}

impl OwnStep {
    /// The optimiser remembers what it did before this step, of the rows that were placed.
    fn restore(&self, placed: &[Block], model: &mut Model) {
        for state in &self.before {
            let weight = placed.iter().find(|block| is_beside(&state.name, &block.name));
            let Some(Body::Rows(placed)) = weight.map(|block| &block.body) else { continue };
            let rows = part_of(state, placed.total, &ranges(&placed.index));
            let fits = model.get_mut(&state.name).is_some_and(|tensor| place(tensor, &rows));
            assert!(fits, "'{}' has kept its shape", state.name);
        }
    }
}

/// The state beside the tensors of an update, of the rows that it changes.
fn remembered(model: &Model, update: &Update) -> Vec<Block> {
    let rows_of = |name: &str, tensor: &Tensor| {
        let weight = update.blocks.iter().find(|block| is_beside(name, &block.name))?;
        let index = match &weight.body {
            Body::Rows(rows) => rows.index.clone(),
            Body::Dense(_) | Body::Factors(_) => (0..tensor.rows() as u32).collect(),
        };
        Some(Block::rows(name, pick(tensor, index)))
    };
    let states = model.iter().filter(|(_, tensor)| tensor.role == Role::State);
    states.filter_map(|(name, tensor)| rows_of(name, tensor)).collect()
}

/// Whether a tensor of this name is what an optimiser keeps beside a weight, with a row for each of its rows.
fn is_beside(state: &str, weight: &str) -> bool {
    state.strip_prefix(weight).is_some_and(|rest| rest.starts_with('.'))
}

/// Those rows of a block that were placed. An owner is sent every block of an update, too, be it without rows.
fn among(block: &Block, placed: &[Block], model: &Model) -> Block {
    let same = placed.iter().find(|placed| placed.name == block.name);
    let index = match same.map(|placed| &placed.body) {
        Some(Body::Rows(rows)) => ranges(&rows.index),
        _ => Vec::new(),
    };
    let total = model.get(&block.name).map_or(0, Tensor::rows) as u32;
    Block::rows(block.name.clone(), part_of(block, total, &index))
}

fn has_rows(block: &Block) -> bool {
    matches!(&block.body, Body::Rows(rows) if !rows.index.is_empty())
}

/// Increasing numbers as ranges.
fn ranges(index: &[u32]) -> Vec<Range<u32>> {
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for &row in index {
        match ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => ranges.push(row..row + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::rule;
    use starlings_core::{Rows, Step, Values};

    const ROWS: u32 = 6;

    fn table(rule: &dyn Rule) -> Model {
        let mut model = Model::new();
        let weights = (0..2 * ROWS).map(|it| f64::from(it) / 7.0).collect();
        model.set("t", Tensor::of(&[ROWS as usize, 2], weights, Role::Weight));
        rule.prepare(&mut model);
        model
    }

    /// A step of the first three rows, or of all.
    fn step(number: u64) -> (Moment, Update) {
        let count = if number.is_multiple_of(2) { 3 } else { ROWS };
        let numbers = (0..2 * count).map(|it| f64::from(it + 1) / (number + 3) as f64);
        let values = Values::F64(numbers.collect());
        let rows = Rows { total: ROWS, width: 2, index: (0..count).collect(), values };
        let moment = Moment { step: Step(number), pass: 0, seed: 0, rows: 1 };
        (moment, Update { blocks: vec![Block::rows("t", rows)] })
    }

    #[test]
    fn what_an_owner_misses_enters_its_rows_again_and_to_the_bit() {
        for name in ["sum", "sgd", "adagrad", "adam"] {
            let rule = rule(name, "").unwrap();
            let owners = Ownership::of(&table(&*rule), 1);
            for shown in 0..=5 {
                let mut own_steps = OwnSteps::new(rule.clone(), 1);
                let (mut owner, mut model) = (table(&*rule), table(&*rule));
                for number in 0..5 {
                    let (moment, update) = step(number);
                    if number < shown {
                        rule.apply(&mut owner, &update, &moment).unwrap();
                    }
                    own_steps.take((&moment, &update), &owners, &mut model).unwrap();
                }
                let alone = model.clone();
                // Some rows arrive as they were, without what the owner's rule remembers of them.
                let rows = pick(owner.get("t").unwrap(), vec![0, 2, 3]);
                assert!(place(model.get_mut("t").unwrap(), &rows));
                own_steps.again((Seat(0), shown), &[Block::rows("t", rows)], &mut model).unwrap();
                assert_eq!(model, alone, "{name}: {shown} steps were shown");
                assert_eq!(own_steps.steps.len() as u64, 5 - shown, "what was shown is forgotten");
            }
        }
    }
}
