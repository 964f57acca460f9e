//! Codecs that turn one sum into a few sums of smaller blocks, each of which any topology can fold on the way.

use starlings_core::{Update, Values};
use std::collections::BTreeMap;

/// Rows and columns of the matrices that blocks stand for, by name. Blocks that are not named are statistics,
/// and travel as they are.
pub type Shapes = BTreeMap<String, (usize, usize)>;

/// What comes after a sum.
pub enum Next {
    /// Another sum.
    Sum(Update),
    /// The decoded total.
    Done(Update),
}

/// A codec of several sums (Vogels et al., 2019), each of which can be folded on the way. Has the state of a
/// seat: residuals and whatever warms its start.
///
/// Laws: what all seats were given is what they are told, plus what their residuals gained; all seats ask for sums
/// of the same blocks, and are told the same total, for their answers depend on the sums alone; the state changes
/// when [`Next::Done`] is returned and at no other time, so that a step that broke off can begin again with
/// `first`. Saved losses have the names that [`Residuals`](crate::Residuals) gives them: it can take them over, add those
/// of seats that are gone, and flush them.
pub trait Rounds: Send + Sync {
    /// A fresh copy for a seat.
    fn begin_seat(&self, shapes: &Shapes) -> Box<dyn Rounds>;

    /// The first thing to sum for this contribution. `draw` is the same on all seats, and
    /// another for each contribution: what is drawn at random is drawn from it.
    fn first(&mut self, update: Update, draw: u64, world: u32) -> Update;

    /// What comes after that sum.
    fn next(&mut self, sum: Update) -> Next;

    /// Its state, by names that stay the same.
    fn save(&self) -> BTreeMap<String, Values>;

    /// Takes the state back.
    fn restore(&mut self, state: BTreeMap<String, Values>);
}
