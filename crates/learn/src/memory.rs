//! Memory: what a learner remembers of rows between steps (topic assignments, leaves, scores), keyed by
//! shard of rows and not by worker, so that it can follow its rows when members change.

use starlings_core::{Shard, Values};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;

/// What is remembered of one shard: named vectors.
pub type Cells = BTreeMap<String, Values>;

/// What is remembered of all shards held.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Memory {
    shards: BTreeMap<Shard, Cells>,
    scratch: Scratch,
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
        self.scratch.0.clear();
        self.shards.insert(shard, cells);
    }

    /// Gives away what is remembered of a shard.
    pub fn remove(&mut self, shard: Shard) -> Option<Cells> {
        self.scratch.0.clear();
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

    /// Takes out the scratch that was left for a batch whose first shard is this, if it is of this type.
    ///
    /// Scratch is what a learner can make again from the model and its rows, such as packed bins: it is in no
    /// checkpoint, follows no shard, and is forgotten whenever the shards held change. The learner must check that
    /// it fits the model before it uses it.
    #[must_use]
    pub fn take_scratch<T: Any + Send>(&mut self, first: Shard) -> Option<Box<T>> {
        self.scratch.0.remove(&first)?.downcast().ok()
    }

    /// Leaves scratch for the next step of the batch whose first shard is this.
    pub fn leave_scratch<T: Any + Send>(&mut self, first: Shard, scratch: Box<T>) {
        self.scratch.0.insert(first, scratch);
    }
}

/// What can be made again: copies begin without it, and it makes no two memories differ.
#[derive(Default)]
struct Scratch(BTreeMap<Shard, Box<dyn Any + Send>>);

impl Clone for Scratch {
    fn clone(&self) -> Scratch {
        Scratch::default()
    }
}

impl PartialEq for Scratch {
    fn eq(&self, _: &Scratch) -> bool {
        true
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "scratch of {} batches", self.0.len())
    }
}
