//! Conformance: the laws that each trait states, as functions that take any implementation. The suite runs
//! them for every entry of every catalogue, so a new choice is checked without a new test. A verdict names the
//! broken law and the smallest case at hand.

pub mod blend;
pub mod codec;
pub mod gate;
pub mod learner;
mod learner_data;
mod learner_late;
pub mod plan;
pub mod topology;
mod variants;

pub use variants::variants;

/// Nothing, or the broken law in a sentence.
pub type Verdict = Result<(), String>;

/// Returns the message as the verdict unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {{
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($message)+));
        }
    }};
}
pub(crate) use ensure;
