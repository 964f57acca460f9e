//! What a stage of a pipeline does with its micro-batches, and in which order: the plan says it, the learner does it.

/// One thing that a stage does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Takes a micro-batch forward.
    Forward(u32),
    /// Takes the gradient of a micro-batch back, and need not keep anything of it any more.
    Backward(u32),
}

impl Turn {
    /// Which micro-batch.
    #[must_use]
    pub fn micro_batch(self) -> u32 {
        match self {
            Turn::Forward(number) | Turn::Backward(number) => number,
        }
    }
}
