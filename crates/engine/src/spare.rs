//! Memory of earlier contributions, which serves the sums to come: fresh pages cost more than summing.

use starlings_core::{Block, Body, Update, Values};

/// Vectors that are kept beyond as many as the last contribution had.
const SPARE_MAX: usize = 4;

/// Vectors that nobody needs any more, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    vectors: Vec<Values>,
}

impl Spare {
    /// Keeps the vectors of an update that is no longer needed.
    pub(crate) fn keep(&mut self, old: Update) {
        let most = old.blocks.len() + SPARE_MAX;
        self.vectors.extend(old.blocks.into_iter().filter_map(|block| match block.body {
            Body::Dense(values) => Some(values),
            _ => None,
        }));
        let surplus = self.vectors.len().saturating_sub(most);
        self.vectors.drain(..surplus);
    }

    /// Room for the sum of an update: of dense blocks the shape alone, with whatever numbers; all else as it is.
    pub(crate) fn room_like(&mut self, update: &Update) -> Update {
        let room = |block: &Block| {
            let body = match &block.body {
                Body::Dense(values) => Body::Dense(self.vector_like(values)),
                other => other.clone(),
            };
            Block { name: block.name.clone(), body }
        };
        Update { blocks: update.blocks.iter().map(room).collect() }
    }

    /// A copy of an update.
    pub(crate) fn copied(&mut self, update: &Update) -> Update {
        let mut copy = self.room_like(update);
        for (copy, block) in copy.blocks.iter_mut().zip(&update.blocks) {
            if let (Body::Dense(copy), Body::Dense(values)) = (&mut copy.body, &block.body) {
                copy.copy_range(values, 0..values.len());
            }
        }
        copy
    }

    fn vector_like(&mut self, values: &Values) -> Values {
        let fits = |old: &Values| old.kind() == values.kind() && old.len() == values.len();
        match self.vectors.iter().position(fits) {
            Some(found) => self.vectors.remove(found),
            None => Values::zeros(values.kind(), values.len()),
        }
    }
}
