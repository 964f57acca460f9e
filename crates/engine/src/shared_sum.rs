//! Sums of updates through shared memory: the shell between a merger and a circle of seats. A contribution is kept until
//! the next sum, because recovery needs it; its memory then serves later sums, for fresh pages cost more than summing.

use crate::spare::Spare;
use starlings_core::{Block, Body, Deadline, Fault, Result, Update, Values, contributing};
use starlings_transport::shared::{Circle, Numbers, NumbersMut, Patience, Turn};

/// Sums over one group of seats of one host, one after another.
#[derive(Debug)]
pub struct SharedSum {
    circle: Circle,
    last: Option<Update>,
    spare: Spare,
}

impl SharedSum {
    pub(crate) fn new(circle: Circle) -> SharedSum {
        SharedSum { circle, last: None, spare: Spare::default() }
    }

    /// Copies contributions into slots even where they could be lent: to measure what that costs.
    pub(crate) fn copying(mut self) -> SharedSum {
        self.circle = self.circle.lending(false);
        self
    }

    /// Whether an update can be summed here: all its blocks are dense. The answer is the same on every seat, for names
    /// and shapes of an update are.
    #[must_use]
    pub fn takes(update: &Update) -> bool {
        update.blocks.iter().all(|block| matches!(block.body, Body::Dense(_)))
    }

    /// Sums an update over the group; all seats get the same bits. Numbers are added as `turns` says for each block, else
    /// the group's first seat first and then the others in order.
    ///
    /// # Errors
    /// A peer that is late or sums something else, or whatever `interrupted` gives while a peer is awaited. The
    /// contribution is then given back by [`SharedSum::contribution`].
    ///
    /// # Panics
    /// If a block is not dense; see [`SharedSum::takes`].
    pub fn sum(
        &mut self,
        update: Update,
        turns: &[Vec<Turn>],
        by: Deadline,
        interrupted: &dyn Fn() -> Option<Fault>,
    ) -> Result<Update> {
        if let Some(old) = self.last.take() {
            self.spare.keep(old);
        }
        let mut totals = contributing(|| self.spare.room_like(&update));
        let sources: Vec<Numbers<'_>> = update.blocks.iter().map(numbers).collect();
        let mut targets: Vec<NumbersMut<'_>> = totals.blocks.iter_mut().map(numbers_mut).collect();
        let patience = Patience { by, interrupted };
        let outcome = self.circle.sum_in_turns(&sources, &mut targets, turns, &patience);
        drop((sources, targets));
        self.last = Some(update);
        outcome.map(|()| totals)
    }

    /// Gives memory in which sums of its shape may be made.
    pub fn offer(&mut self, room: Update) {
        self.spare.keep(room);
    }

    /// What this seat contributed to the last sum, whether that succeeded or not.
    pub fn contribution(&mut self) -> Option<Update> {
        self.last.take()
    }
}

fn dense(block: &Block) -> &Values {
    match &block.body {
        Body::Dense(values) => values,
        _ => panic!("only dense blocks are summed in shared memory"),
    }
}

fn numbers(block: &Block) -> Numbers<'_> {
    match dense(block) {
        Values::F32(values) => Numbers::F32(values),
        Values::F64(values) => Numbers::F64(values),
        Values::I64(values) => Numbers::I64(values),
    }
}

fn numbers_mut(block: &mut Block) -> NumbersMut<'_> {
    match &mut block.body {
        Body::Dense(Values::F32(values)) => NumbersMut::F32(values),
        Body::Dense(Values::F64(values)) => NumbersMut::F64(values),
        Body::Dense(Values::I64(values)) => NumbersMut::I64(values),
        _ => unreachable!("room was made for dense blocks alone"),
    }
}
