//! Which codec carries which block of a sum: a lossy one is for tensors of the model alone. Losses, counts and running
//! means of normalisation are wanted as they are, and no gradient would make good what they lost.

use crate::choices::raw;
use starlings_codec::{Codec, Law, Shapes};
use starlings_core::Update;
use std::sync::Arc;

/// The codec of a sum, and the blocks that it leaves alone.
pub(super) struct Coding {
    codec: Arc<dyn Codec>,
    raw: Arc<dyn Codec>,
    /// Whether a block goes through the codec.
    coded: Vec<bool>,
}

impl Coding {
    /// All blocks go through the codec.
    pub(super) fn all(codec: Arc<dyn Codec>, blocks: usize) -> Coding {
        Coding { codec, raw: raw(), coded: vec![true; blocks] }
    }

    /// Blocks that are not named here travel as they are.
    pub(super) fn only(&mut self, update: &Update, named: &Shapes) {
        let is_named = update.blocks.iter().map(|block| named.contains_key(&block.name));
        self.coded = is_named.collect();
    }

    /// What carries a block.
    pub(super) fn of(&self, block: usize) -> &dyn Codec {
        if self.coded[block] { &*self.codec } else { &*self.raw }
    }

    /// What the codec promises of the blocks that go through it.
    pub(super) fn law(&self) -> Law {
        self.codec.law()
    }

    /// Whether all blocks travel as they lie in memory.
    pub(super) fn is_memory(&self) -> bool {
        self.codec.is_memory()
    }
}
