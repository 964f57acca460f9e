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
        self.scratch.clear();
        self.shards.insert(shard, cells);
    }

    /// Gives away what is remembered of a shard.
    pub fn remove(&mut self, shard: Shard) -> Option<Cells> {
        self.scratch.clear();
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

    /// What a member of an ensemble remembers: the cells whose names begin with its prefix, and its scratch. Every
    /// shard is known to the part. They are moved, not copied, until [`join`](Memory::join).
    pub(crate) fn part(&mut self, prefix: &str) -> Memory {
        let mut part = Memory {
            shards: BTreeMap::new(),
            scratch: self.scratch.parts.remove(prefix).unwrap_or_default(),
        };
        for (shard, cells) in &mut self.shards {
            let names: Vec<String> =
                cells.keys().filter(|name| name.starts_with(prefix)).cloned().collect();
            let own = names.into_iter().filter_map(|name| {
                cells.remove(&name).map(|values| (name[prefix.len()..].to_string(), values))
            });
            part.shards.insert(*shard, own.collect());
        }
        part
    }

    /// Takes back what a member remembers.
    pub(crate) fn join(&mut self, prefix: &str, part: Memory) {
        for (shard, own) in part.shards {
            let cells = self.shards.entry(shard).or_default();
            cells.extend(own.into_iter().map(|(name, values)| (format!("{prefix}{name}"), values)));
        }
        self.scratch.parts.insert(prefix.to_string(), part.scratch);
    }

    /// Forgets what a member remembers.
    pub(crate) fn forget(&mut self, prefix: &str) {
        self.scratch.parts.remove(prefix);
        for cells in self.shards.values_mut() {
            cells.retain(|name, _| !name.starts_with(prefix));
        }
    }

    /// Takes out the scratch that was left for a batch whose first shard is this, if it is of this type.
    ///
    /// Scratch is what a learner can make again from the model and its rows, such as packed bins: it is in no
    /// checkpoint, follows no shard, and is forgotten whenever the shards held change. The learner must check that
    /// it fits the model before it uses it.
    #[must_use]
    pub fn take_scratch<T: Any + Send>(&mut self, first: Shard) -> Option<Box<T>> {
        self.scratch.own.remove(&first)?.downcast().ok()
    }

    /// Leaves scratch for the next step of the batch whose first shard is this.
    pub fn leave_scratch<T: Any + Send>(&mut self, first: Shard, scratch: Box<T>) {
        self.scratch.own.insert(first, scratch);
    }
}

/// What can be made again: copies begin without it, and it makes no two memories differ.
#[derive(Default)]
struct Scratch {
    own: BTreeMap<Shard, Box<dyn Any + Send>>,
    /// That of an ensemble's members, by their prefix.
    parts: BTreeMap<String, Scratch>,
}

impl Scratch {
    fn clear(&mut self) {
        self.own.clear();
        self.parts.clear();
    }
}

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
        write!(f, "scratch of {} batches", self.own.len())
    }
}
