//! Sums between workers of one host through shared memory (`memfd` and `mmap`; futex with a short adaptive spin).
//! Links still carry everything else, and carry this too where shared memory cannot be had.
//!
//! Rules that make it safe: a segment has one writer, and all others map it for reading only; a new epoch uses new
//! segments; readers check a slot's sequence before and after they fold it; sums go from the contribution to another
//! place, so that the contribution is still there when a sum fails, or are made where they are used, and then nobody's contribution
//! changes before all have done with it (`late.rs`). No length is ever taken from a peer, and
//! offsets of lent vectors are checked. Read [`circle`] first.

mod circle;
mod heap;
mod kernels;
mod late;
mod layout;
mod leaving;
mod lenders;
mod mapping;
mod parts;
mod segment;
mod slices;
#[cfg(test)]
mod tests;
mod waiting;

pub use circle::{Circle, Tuning};
pub use heap::{HeapOffer, NearbyAllocator};
pub use kernels::Number;
pub use late::LateSum;
pub use layout::PORTS;
pub use parts::{Numbers, NumbersMut, Turn};
pub use segment::{Identity, Offer, Segment, View};
pub use slices::{add, add_to, put_around, sum_around, sum_beside};
pub use waiting::Patience;

use crate::TransportKind;
use starlings_core::Entry;

/// The catalogue's entry.
pub(super) const ENTRY: Entry<TransportKind> = Entry {
    name: "shared",
    summary: "Shared memory between workers of one host, for sums; links carry the rest",
    reference: "Graham and Shipman, MPI Support for Multi-core Architectures: Optimized Shared Memory Collectives, EuroPVM/MPI 2008",
    params: &[],
    gives: &[],
    needs: &[],
    build: TransportKind::Shared,
};
