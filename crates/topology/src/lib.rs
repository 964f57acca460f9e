//! Stop 4 of the walk: who talks to whom, in which order. Pure rank arithmetic: a topology does not know
//! what is summed, nor how bytes travel.

mod owners;
mod topologies;

pub use owners::{moves, owned_rows, owners_to_moves, row_owner};
pub use topologies::{BuildTopology, TOPOLOGIES};

use starlings_core::Seat;

/// One move of one seat. Moves on different chunks are independent of each other; moves on one chunk
/// happen in the order of the list. That order is the fold order, so the bits of a sum are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// Which chunk.
    pub chunk: usize,
    /// With whom.
    pub peer: Seat,
    /// What.
    pub act: Act,
}

/// What a move does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// Send the partial sum held so far (a contribution when nothing was folded yet).
    SendPartial,
    /// Send the final sum.
    SendTotal,
    /// Receive a partial sum and add it onto the own.
    Fold,
    /// Receive the final sum and take it.
    Replace,
}

/// How a sum is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// This seat's moves.
    Moves(Vec<Move>),
    /// Owner of each chunk: everyone sends it there, the owner folds the others onto its own in the order of
    /// seats and answers. [`moves`] spells it out.
    Owners(Vec<Seat>),
}

/// What a sum costs the seat that pays most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// Messages one after another on the longest path: a message comes after those that its sender has
    /// received for the same chunk. Messages that leave one seat side by side count in its bytes instead.
    pub rounds: u64,
    /// Bytes that the busiest seat sends.
    pub bytes_sent_max: f64,
    /// Bytes that all seats send together.
    pub bytes_sent_total: f64,
}

impl Cost {
    /// What a world of one pays.
    pub const NOTHING: Cost = Cost { rounds: 0, bytes_sent_max: 0.0, bytes_sent_total: 0.0 };
}

/// A topology.
///
/// Laws (checked by the conformance suite for worlds of 1 to 17 and for 1,024): every send has its
/// receive; no seat sends to itself; every contribution reaches every seat's total exactly once; a world
/// of one does nothing; blocking sends cannot deadlock when each chunk is played on its own, nor buffered
/// sends when a seat plays its whole list in order; `cost` equals what `pattern` does.
pub trait Topology: Send + Sync {
    /// The moves of `seat` in a flock of `world` for a sum cut into `chunks` equal chunks, or the owners.
    fn pattern(&self, seat: Seat, world: u32, chunks: usize) -> Pattern;

    /// The cost of summing `bytes` in a flock of `world`, when cut into `chunks` equal chunks.
    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost;

    /// The number of chunks should be a multiple of this, so that all seats work alike.
    fn grain(&self, world: u32) -> usize;
}
