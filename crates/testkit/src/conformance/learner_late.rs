//! The law of sums that are made where they are used: a learner that takes them ends in the bits of a sum that was there, and
//! asks for each number once.

use super::{Verdict, ensure};
use starlings_core::{Block, Body, Model, Update, Values};
use starlings_learn::{Late, Learner, Moment};
use std::cell::RefCell;

/// A sum whose f32 blocks are handed out some numbers at a time.
struct Awaited<'a> {
    told: Update,
    late: Vec<(&'a str, &'a [f32])>,
    /// How often each number has been asked for.
    asked: RefCell<Vec<Vec<u32>>>,
}

impl<'a> Awaited<'a> {
    /// Every `nth` block of f32 and those after it by as many come late.
    fn of(update: &'a Update, nth: usize) -> Awaited<'a> {
        let (mut told, mut late) = (Update { blocks: Vec::new() }, Vec::new());
        for (at, block) in update.blocks.iter().enumerate() {
            match &block.body {
                Body::Dense(Values::F32(values)) if at % nth == 0 => {
                    late.push((block.name.as_str(), &values[..]));
                }
                _ => told.blocks.push(Block::clone(block)),
            }
        }
        let asked = late.iter().map(|(_, values)| vec![0; values.len()]).collect();
        Awaited { told, late, asked: RefCell::new(asked) }
    }
}

impl Late for Awaited<'_> {
    fn told(&self) -> &Update {
        &self.told
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.late.iter().position(|(known, _)| *known == name)
    }

    fn sums(&self, block: usize, from: usize, into: &mut [f32]) {
        into.copy_from_slice(&self.late[block].1[from..from + into.len()]);
        let mut asked = self.asked.borrow_mut();
        asked[block][from..from + into.len()].iter_mut().for_each(|times| *times += 1);
    }
}

/// Applies an update both ways.
pub(super) fn sums_may_come_late(
    learner: &dyn Learner,
    (before, update): (&Model, &Update),
    moment: &Moment,
) -> Verdict {
    let mut wanted = before.clone();
    let told = learner.apply(&mut wanted, update, moment).map_err(|fault| fault.to_string())?;
    for nth in [1, 2] {
        let awaited = Awaited::of(update, nth);
        let mut found = before.clone();
        let outcome = learner.apply_late(&mut found, &awaited, moment);
        let outcome = outcome.map_err(|fault| fault.to_string())?;
        ensure!(outcome == told, "a late sum ends as {outcome:?}, another as {told:?}");
        for (name, tensor) in wanted.iter() {
            let other = found.get(name).map(|tensor| &tensor.values);
            ensure!(other == Some(&tensor.values), "a late sum gives '{name}' other bits");
        }
        let once = awaited.asked.borrow().iter().flatten().all(|&times| times == 1);
        ensure!(once, "a number of a late sum is not asked for once");
    }
    Ok(())
}
