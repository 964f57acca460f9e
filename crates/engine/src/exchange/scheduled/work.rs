//! Work on the numbers of a sum that is done chunk by chunk, while the chunk is in the caches anyway: before it is first sent
//! or added to, and when it is complete. A pass over all numbers before the sum and one after it would cost as much as
//! half a sum.

use super::Scheduled;
use starlings_core::{Body, Update, Values};
use std::ops::Range;
use std::sync::Arc;

/// What is done to the dense numbers of a sum, piece by piece, in any order, each piece once.
pub trait Work: Send + Sync {
    /// Before these numbers of a block are first sent or added to.
    fn before(&self, block: usize, range: Range<usize>, values: &mut Values);

    /// When their sum is complete.
    fn after(&self, block: usize, range: Range<usize>, values: &mut Values);
}

/// Does all work before a sum that is not made chunk by chunk.
pub(crate) fn before_all(work: &dyn Work, update: &mut Update) {
    for (block, values) in dense(update) {
        work.before(block, 0..values.len(), values);
    }
}

/// Does all work after such a sum.
pub(crate) fn after_all(work: &dyn Work, update: &mut Update) {
    for (block, values) in dense(update) {
        work.after(block, 0..values.len(), values);
    }
}

fn dense(update: &mut Update) -> impl Iterator<Item = (usize, &mut Values)> {
    update.blocks.iter_mut().enumerate().filter_map(|(at, block)| match &mut block.body {
        Body::Dense(values) => Some((at, values)),
        _ => None,
    })
}

/// How far a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Fresh,
    Begun,
    Complete,
}

/// The work of a sum, and how far each chunk is.
pub(super) struct Working {
    work: Arc<dyn Work>,
    stages: Vec<Stage>,
}

impl Scheduled {
    /// Has work done on the numbers. Not beside a contribution that is kept, which must stay as it is.
    ///
    /// # Panics
    /// If a contribution is kept.
    #[must_use]
    pub fn working(mut self, work: Arc<dyn Work>) -> Scheduled {
        assert!(self.contribution.is_none(), "work changes the contribution");
        self.working = Some(Working { work, stages: vec![Stage::Fresh; self.chunks.len()] });
        // What is written around the caches would have to be fetched to be worked on.
        self.around(super::Around { sums_from: usize::MAX, totals_from: usize::MAX })
    }

    /// A chunk is about to be sent or added to.
    pub(super) fn work_before(&mut self, chunk: usize) {
        if self.is_now(chunk, Stage::Fresh, Stage::Begun) {
            self.work_on(chunk, |work, block, range, values| work.before(block, range, values));
        }
    }

    /// A total is about to replace a chunk, whatever it was.
    pub(super) fn work_replaced(&mut self, chunk: usize) {
        let _ = self.is_now(chunk, Stage::Fresh, Stage::Begun);
    }

    /// Works on a chunk if it is complete, and has left for everyone who waits for it.
    pub(super) fn work_after(&mut self, chunk: usize) {
        let is_complete = self.next[chunk] == self.moves[chunk].len() && self.owed[chunk] == 0;
        if is_complete && self.is_now(chunk, Stage::Begun, Stage::Complete) {
            self.work_on(chunk, |work, block, range, values| work.after(block, range, values));
        }
    }

    /// Works on what is left, when all has been sent.
    pub(super) fn work_out(&mut self) {
        for chunk in 0..self.chunks.len() {
            self.work_before(chunk);
            self.owed[chunk] = 0;
            self.work_after(chunk);
        }
    }

    /// Moves a chunk on, if it is there.
    fn is_now(&mut self, chunk: usize, from: Stage, to: Stage) -> bool {
        match &mut self.working {
            Some(Working { stages, .. }) if stages[chunk] == from => {
                stages[chunk] = to;
                true
            }
            _ => false,
        }
    }

    fn work_on(&mut self, chunk: usize, on: impl Fn(&dyn Work, usize, Range<usize>, &mut Values)) {
        let Some(Working { work, .. }) = &self.working else { return };
        for part in &self.chunks[chunk] {
            if let Body::Dense(values) = &mut self.update.blocks[part.block].body {
                on(&**work, part.block, part.from..part.to, values);
            }
        }
    }
}
