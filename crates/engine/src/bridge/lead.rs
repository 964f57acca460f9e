//! How far others run ahead of a seat that nobody waits for, where no owner counts steps. A message says which step its
//! sender has taken; when that step began, this seat had finished no more steps than it has now. So what the slow
//! see is a lead that somebody really had, never more: at most what was on its way, or came during a step, is missed.

use starlings_core::Step;

/// What a seat has seen of those ahead of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Lead {
    /// Steps that this seat has finished.
    finished: u64,
    max: u64,
}

impl Lead {
    /// This seat is about to take a step, and has finished all before it.
    pub(super) fn at(&mut self, step: Step) {
        self.finished = step.0;
    }

    /// Somebody has begun a step.
    pub(super) fn heard(&mut self, of: Step) {
        self.max = self.max.max(of.0.saturating_sub(self.finished));
    }

    /// The largest lead over this seat.
    pub(super) fn max(&self) -> u64 {
        self.max
    }
}
