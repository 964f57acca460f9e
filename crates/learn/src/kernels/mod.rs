//! Hot loops as free functions on slices: no learner, no allocation, vectors chosen when the program runs.

pub(crate) mod distances;
pub(crate) mod gram;
pub(crate) mod nearest;
pub(crate) mod prefetch;
pub(crate) mod products;
pub(crate) mod scatter;
pub(crate) mod sparse_nearest;
pub(crate) mod symmetric_roots;
mod widest;

pub(crate) use widest::widest;
