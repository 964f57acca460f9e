//! Wires: channels that the plan names, for learners whose stages sit on different workers. A stage
//! speaks to a stage; which worker that is, the learner does not know.

use starlings_core::{Fault, Result, Values};

/// Channels between the stages of one pipeline. Messages between two stages arrive in order, and every
/// wait has the engine's deadline.
pub trait Wires {
    /// Sends numbers to a stage of the same pipeline.
    ///
    /// # Errors
    /// When the plan has no such stage or the peer is lost.
    fn send(&mut self, stage: u32, values: Values) -> Result<()>;

    /// Receives the next numbers from a stage of the same pipeline.
    ///
    /// # Errors
    /// When the plan has no such stage, the peer is lost or the deadline passes.
    fn receive(&mut self, stage: u32) -> Result<Values>;
}

/// The wires of a plan without stages: there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoWires;

impl Wires for NoWires {
    fn send(&mut self, stage: u32, _: Values) -> Result<()> {
        Err(Fault::caller(format!("this plan has no wire to stage {stage}")))
    }

    fn receive(&mut self, stage: u32) -> Result<Values> {
        Err(Fault::caller(format!("this plan has no wire from stage {stage}")))
    }
}
