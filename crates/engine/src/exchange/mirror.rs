//! A shard's backup (chain replication with a chain of two: van Renesse and Schneider, 2004; Li et al., 2014: the
//! parameter server's replicas). The owner at seat s sends the rows that a step has changed, with the optimiser's state
//! beside them, to the next seat, which puts them into its own copy of the model: its rows of seat s are otherwise those
//! of the epoch's start, so that there is no second copy.
//!
//! Under a barrier nothing is shown to a worker before the backup has it, and each shard remembers what its newest step
//! and the newest mirror have overwritten: owners differ by at most one step, and whoever is ahead can go back. Without a
//! barrier nobody waits for a backup: one mirror is under way at a time, and what changes meanwhile goes with the next.

use super::ownership::{Ownership, first_word};
use super::pick::{pick, place};
use starlings_core::{Block, Body, Model, Seat, Update, planted};
use std::collections::BTreeMap;

/// Row numbers, increasing, by tensor.
pub(super) type Touched = BTreeMap<String, Vec<u32>>;

/// What a shard knows of its backup, and of the seat that it is the backup of.
pub(super) struct Mirroring {
    /// Who has a copy of this shard's rows.
    backup: Seat,
    /// Whose rows this shard has a copy of.
    ward: Seat,
    /// Whether mirrors are counted by steps, each shown to nobody before the backup has it.
    barrier: bool,
    /// Rows that have changed since the newest mirror left.
    touched: Touched,
    /// The newest mirror that has left.
    sent: u64,
    /// The newest that the backup has.
    had: u64,
    /// The newest that has come from the ward.
    kept: u64,
    /// This shard's rows as they were before its newest step.
    own_before: Vec<Block>,
    /// The ward's rows as they were before the newest mirror.
    ward_before: Vec<Block>,
}

impl Mirroring {
    /// For a seat of a flock of at least two, from `start` on.
    pub(super) fn new(seat: Seat, world: u32, (start, barrier): (u64, bool)) -> Mirroring {
        let start = if barrier { start } else { 0 };
        Mirroring {
            backup: Seat((seat.0 + 1) % world),
            ward: Seat((seat.0 + world - 1) % world),
            barrier,
            touched: Touched::new(),
            sent: start,
            had: start,
            kept: start,
            own_before: Vec::new(),
            ward_before: Vec::new(),
        }
    }

    /// An update is about to be applied.
    pub(super) fn before(&mut self, model: &Model, update: &Update) {
        let touched = touched(model, update);
        if self.barrier {
            self.own_before = rows_of(model, &touched);
        }
        for (name, rows) in touched {
            join(self.touched.entry(name).or_default(), rows);
        }
    }

    /// Whether the backup has everything that the model shows, where that matters.
    pub(super) fn shows(&self, complete: u64) -> bool {
        !self.barrier || self.had >= complete
    }

    /// The mirror that is due, if one is and none is under way: to whom, its number and its rows.
    pub(super) fn next(&mut self, model: &Model, complete: u64) -> Option<(Seat, u64, Vec<Block>)> {
        let due = if self.barrier { complete > self.sent } else { !self.touched.is_empty() };
        if !due || self.had < self.sent {
            return None;
        }
        self.sent = if self.barrier { complete } else { self.sent + 1 };
        let touched = std::mem::take(&mut self.touched);
        Some((self.backup, self.sent, rows_of(model, &touched)))
    }

    /// The backup has a mirror.
    pub(super) fn acknowledged(&mut self, from: Seat, number: u64) -> Result<(), String> {
        if from != self.backup || number > self.sent {
            return Err(format!("{from} has a mirror that was never sent to it"));
        }
        self.had = self.had.max(number);
        Ok(())
    }

    /// A mirror has come: its rows enter the model.
    pub(super) fn keep(
        &mut self,
        model: &mut Model,
        owners: &Ownership,
        (from, number): (Seat, u64),
        blocks: &[Block],
    ) -> Result<(), String> {
        if from != self.ward || number != self.kept + 1 {
            return Err(format!("{from} sent a mirror out of turn"));
        }
        let mut before = Vec::new();
        for Block { name, body } in blocks {
            let wrong = || format!("{from} mirrored rows of '{name}' that are not its own");
            let Body::Rows(rows) = body else { return Err(wrong()) };
            let tensor = model.get_mut(name).ok_or_else(wrong)?;
            if !rows.is_sound() || rows.index.iter().any(|&row| !owners.owns(name, from, row)) {
                return Err(wrong());
            }
            if self.barrier {
                let body = Body::Rows(pick(tensor, rows.index.clone()));
                before.push(Block { name: name.clone(), body });
            }
            if !place(tensor, rows) {
                return Err(wrong());
            }
        }
        (self.kept, self.ward_before) = (number, before);
        Ok(())
    }

    /// Steps of the ward that are in this shard's copy of its rows, under a barrier.
    pub(super) fn kept(&self) -> u64 {
        self.kept
    }

    /// Brings a model back to a step that is at most one before those of this shard (`complete`) and its ward.
    pub(super) fn go_back(&self, model: &mut Model, complete: u64, step: u64) -> bool {
        let kept = if planted!("ward-not-undone") { step } else { self.kept };
        let pairs = [(complete, &self.own_before), (kept, &self.ward_before)];
        pairs.into_iter().all(|(at, before)| match at.checked_sub(step) {
            // A copy of fewer steps is not what is asked for: the ward lives.
            None | Some(0) => true,
            Some(1) => put_back(model, before),
            Some(_) => false,
        })
    }
}

/// The rows that an update may change: those that it names, in its tensor and in the optimiser's state beside it.
fn touched(model: &Model, update: &Update) -> Touched {
    let mut touched = Touched::new();
    for block in &update.blocks {
        let Body::Rows(rows) = &block.body else { continue };
        let beside = model.iter().filter(|(name, tensor)| {
            first_word(name) == first_word(&block.name) && tensor.rows() == rows.total as usize
        });
        for (name, _) in beside {
            join(touched.entry(name.to_string()).or_default(), rows.index.clone());
        }
    }
    touched
}

/// Adds increasing numbers to others.
fn join(into: &mut Vec<u32>, more: Vec<u32>) {
    if into.is_empty() {
        *into = more;
    } else if *into != more {
        into.extend(more);
        into.sort_unstable();
        into.dedup();
    }
}

fn rows_of(model: &Model, touched: &Touched) -> Vec<Block> {
    let tensors = touched.iter().filter_map(|(name, rows)| Some((name, model.get(name)?, rows)));
    tensors.map(|(name, tensor, rows)| Block::rows(name, pick(tensor, rows.clone()))).collect()
}

fn put_back(model: &mut Model, before: &[Block]) -> bool {
    before.iter().all(|Block { name, body }| match (model.get_mut(name), body) {
        (Some(tensor), Body::Rows(rows)) => place(tensor, rows),
        _ => false,
    })
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
