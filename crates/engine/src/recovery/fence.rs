//! The fence between epochs: what belongs to an epoch that is over counts for nothing, also when it comes from a member
//! that was taken for dead and was not. Whoever is ahead waits until this member has heard of its epoch.

use starlings_core::{Epoch, planted};

/// What becomes of something that belongs to an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passage {
    /// Its epoch is over: it counts for nothing.
    Refused,
    /// It is of this epoch.
    Passes,
    /// Its epoch is still to come.
    Waits,
}

/// Whether something of epoch `of` counts for a member that is in epoch `now`.
#[must_use]
pub fn passage(of: Epoch, now: Epoch) -> Passage {
    match of.cmp(&now) {
        std::cmp::Ordering::Less if planted!("fence-open") => Passage::Passes,
        std::cmp::Ordering::Less => Passage::Refused,
        std::cmp::Ordering::Equal => Passage::Passes,
        std::cmp::Ordering::Greater => Passage::Waits,
    }
}
