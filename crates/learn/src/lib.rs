//! Stop 2 of the walk: batch → update → model. The trait is in `learner.rs`; each algorithm is one file
//! or folder under `learners/`, on top of `optimisers/` and `kernels/`.

mod algebra;
mod by_shard;
mod columns;
mod footprint;
mod importance;
mod kernels;
mod learner;
mod learners;
mod linear;
mod margin;
mod memory;
pub mod metrics;
pub mod onnx;
pub mod optimisers;
mod outbox;
mod portrait;
mod projection;
pub mod refusals;
mod rows;
mod samples;
mod sparse_regression;
mod trees;
mod wires;

pub use footprint::Footprint;
pub use importance::permutation_importance;
pub use learner::{
    ACROSS, Appetite, DIVERGED, Facts, Grade, Late, Learner, Moment, Needs, Outcome, Place,
    Rebuilds, Task, Work,
};
pub use learners::{BuildLearner, LEARNERS};
pub use learners::{gaussian_mixture, k_means, matrix_factorisation};
pub use memory::{Cells, Memory};
pub use outbox::{Outbox, Sink};
pub use portrait::{Branch, Importance, partial_dependence};
pub use samples::Samples;
pub use wires::{NoWires, Wires};
