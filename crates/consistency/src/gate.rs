//! Gates: when a worker may read the model and go on.

use starlings_core::Step;

/// A consistency gate. The clock of a worker is the number of steps whose contribution it has pushed.
///
/// Laws: progress never revokes an admission (if `fresh` holds, it holds for every larger `slowest`); the
/// slowest worker is always admitted (`fresh(step, clock)` when the reader is itself the slowest, that is
/// `slowest == step`); `lead_max` is the largest `step - slowest` that is admitted; SSP with bound 0 answers
/// exactly as BSP; a quorum is at least one worker and at most all, and never shrinks when the world grows.
pub trait Gate: Send + Sync {
    /// May a worker read the model for `step` when the slowest worker's clock is `slowest`? Where the quorum is
    /// smaller than the world, `slowest` is the number of completed steps: those that a quorum has pushed.
    fn fresh(&self, step: Step, slowest: u64) -> bool;

    /// The largest lead, in steps, that a worker may have over the slowest when it reads; `None` without a
    /// bound.
    fn lead_max(&self) -> Option<u64>;

    /// How many contributions complete a step in a world. Those that come later are dropped.
    fn quorum(&self, world: u32) -> u32 {
        world
    }

    /// Whether owners send fresh rows by themselves when a clock advances, instead of waiting to be asked.
    fn pushes(&self) -> bool {
        false
    }
}
