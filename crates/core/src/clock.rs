//! A moment by which a wait must end. Every blocking call of ours takes one; the clock itself is read
//! only in shells (`Deadline::after` is the one door for it).

use std::time::{Duration, Instant};

/// A moment by which a wait must end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// This long from now.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which shells read the clock"
    )]
    pub fn after(wait: Duration) -> Deadline {
        Deadline(Instant::now() + wait)
    }

    /// Milliseconds from now, for brevity at call sites.
    #[must_use]
    pub fn after_ms(wait_ms: u64) -> Deadline {
        Deadline::after(Duration::from_millis(wait_ms))
    }

    /// What is left; `None` when it has passed.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the one door through which shells read the clock"
    )]
    pub fn left(self) -> Option<Duration> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// Whether it has passed.
    #[must_use]
    pub fn passed(self) -> bool {
        self.left().is_none()
    }
}
