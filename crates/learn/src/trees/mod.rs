//! What all tree learners share: features cut into at most 255 bins, rows as bytes, histograms of whole numbers,
//! the best split of a histogram, trees as tensors, and prediction.
//!
//! Everything that is summed over workers is a whole number, so that a tree is the same bits for any number of
//! workers. What a worker keeps of its rows (bins, scores, which leaf) is scratch: it follows from model and rows.

pub(crate) mod columns;
pub(crate) mod dealing;
pub(crate) mod dealt;
pub(crate) mod descent;
pub(crate) mod describe;
pub(crate) mod fixed;
pub(crate) mod graph;
pub(crate) mod grower;
pub(crate) mod histogram;
pub(crate) mod impurity;
pub(crate) mod partition;
pub(crate) mod predict;
pub(crate) mod pruning;
pub(crate) mod sample;
pub(crate) mod split;
pub(crate) mod store;
pub(crate) mod tree;
