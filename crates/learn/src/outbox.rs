//! Where a learner emits its blocks. The engine reads them in the order of emission.

use starlings_core::{Block, Update};

/// The blocks of one step so far.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    update: Update,
    factors: bool,
}

impl Outbox {
    /// Empty.
    #[must_use]
    pub fn new() -> Outbox {
        Outbox::default()
    }

    /// Whether matrices are wanted as the factors they are made of, where the learner has them.
    pub fn want_factors(&mut self, wanted: bool) {
        self.factors = wanted;
    }

    /// Whether matrices are wanted as the factors they are made of.
    #[must_use]
    pub fn wants_factors(&self) -> bool {
        self.factors
    }

    /// Emits a block. Its name must be new in this step.
    ///
    /// # Panics
    /// If a block of this name was emitted before: a bug in the learner.
    pub fn emit(&mut self, block: Block) {
        assert!(self.update.get(&block.name).is_none(), "'{}' was emitted twice", block.name);
        self.update.blocks.push(block);
    }

    /// Everything emitted.
    #[must_use]
    pub fn take(&mut self) -> Update {
        std::mem::take(&mut self.update)
    }
}
