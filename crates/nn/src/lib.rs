//! Stop 2 of the walk, for networks: batch → update → model, computed by Burn. A network is a sequence of stages
//! (`stage.rs`), each one line of a job file (`layers/`); `learner.rs` makes a learner of a sequence, a goal and a recipe
//! for training; `networks/` has the entries of the catalogue, one file each.
//!
//! Burn gives tensors and gradients. Weights, masks and noise are drawn from the job's own generators, and a worker
//! computes on one thread, so that the same seed gives the same bits.

mod applying;
mod biases;
mod chain;
mod cut;
mod device;
mod factors;
mod flow;
mod gan;
mod goal;
mod kernels;
mod layers;
mod learner;
mod lent;
mod measure;
#[cfg(feature = "modules")]
pub mod modules;
mod muon;
mod networks;
mod own;
mod parts;
mod pass;
mod places;
mod precision;
mod recipe;
mod recurrence;
mod room;
mod schedule;
mod section;
mod solver;
mod split;
mod stack;
mod stage;
mod staged;
mod sums;
mod together;
mod tracking;
mod unfold;
mod vocabulary;

pub use layers::{Layer, layers};
pub use networks::NETWORKS;
