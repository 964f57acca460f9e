//! What a worker will need of memory, as far as it can be foreseen: so that a job that cannot fit is refused before it
//! starts instead of being ended by the system on its way.

/// Bytes that a worker needs, about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Footprint {
    /// For the model: weights, gradients and the optimiser's state.
    pub model: u64,
    /// For the rows of a step on their way through the model.
    pub step: u64,
    /// The largest part of the model, in words.
    pub largest: String,
}
