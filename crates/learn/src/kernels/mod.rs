//! Hot loops as free functions on slices: no learner, no allocation, vectors chosen when the program runs.

pub(crate) mod distances;
pub(crate) mod nearest;
pub(crate) mod prefetch;
pub(crate) mod products;
pub(crate) mod sparse_nearest;
