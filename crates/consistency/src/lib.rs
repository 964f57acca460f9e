//! Stop 5 of the walk: when may a worker go on, and what may it read. A gate answers questions about
//! counters and holds no data.

mod gates;

pub use gates::{BuildGate, GATES};

use starlings_core::Step;

/// A consistency gate. The clock of a worker is the number of steps whose contribution it has pushed.
///
/// Laws: progress never revokes an admission (if `fresh` holds, it holds for every larger `slowest`); the
/// slowest worker is always admitted (`fresh(step, clock)` when the reader is itself the slowest, that is
/// `slowest == step`); `lead_max` is the largest `step - slowest` that is admitted; SSP with bound 0 answers
/// exactly as BSP.
pub trait Gate: Send + Sync {
    /// May a worker read the model for `step` when the slowest worker's clock is `slowest`?
    fn fresh(&self, step: Step, slowest: u64) -> bool;

    /// The largest lead, in steps, that a worker may have over the slowest when it reads; `None` without a
    /// bound.
    fn lead_max(&self) -> Option<u64>;
}
