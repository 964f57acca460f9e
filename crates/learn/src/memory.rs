//! Memory: what a learner remembers of rows between steps (topic assignments, leaves, scores), keyed by
//! shard of rows and not by worker, so that it can follow its rows when members change.

use starlings_core::{Shard, Values};
use std::collections::BTreeMap;

/// What is remembered of one shard: named vectors.
pub type Cells = BTreeMap<String, Values>;

/// What is remembered of all shards held.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    shards: BTreeMap<Shard, Cells>,
}

impl Memory {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Memory {
        Memory::default()
    }

    /// Whether a shard is known.
    #[must_use]
    pub fn knows(&self, shard: Shard) -> bool {
        self.shards.contains_key(&shard)
    }

    /// Takes over what is remembered of a shard.
    pub fn insert(&mut self, shard: Shard, cells: Cells) {
        self.shards.insert(shard, cells);
    }

    /// Gives away what is remembered of a shard.
    pub fn remove(&mut self, shard: Shard) -> Option<Cells> {
        self.shards.remove(&shard)
    }

    /// What is remembered of a shard, to read and change.
    ///
    /// # Panics
    /// If the shard was never adopted: the engine adopts every shard before its first use.
    pub fn shard(&mut self, shard: Shard) -> &mut Cells {
        self.shards.get_mut(&shard).unwrap_or_else(|| panic!("{shard} was never adopted"))
    }

    /// All shards in order.
    pub fn iter(&self) -> impl Iterator<Item = (Shard, &Cells)> {
        self.shards.iter().map(|(shard, cells)| (*shard, cells))
    }
}
