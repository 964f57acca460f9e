//! Leaving politely. Whoever is asked to leave goes at once, unless its codec has held something back of what it contributed:
//! then it takes a few more steps, in which everything travels as it is, and goes when the others have all of it. It does
//! not stay for ever: a worker whose steps take long goes without.

use crate::stop::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a worker was asked to leave, and whether it still has something to give. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Parting {
    asked: Stop,
    holds_back: Arc<AtomicBool>,
    lost: Arc<AtomicBool>,
}

impl Parting {
    /// Of a worker that is asked so.
    #[must_use]
    pub fn new(asked: Stop) -> Parting {
        Parting { asked, ..Parting::default() }
    }

    /// Whether it was asked to leave.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.asked.asked()
    }

    /// Whether it still has something to give.
    pub fn hold(&self, holds_back: bool) {
        self.holds_back.store(holds_back, Ordering::Relaxed);
    }

    /// Whether it may go: it was asked to, and has nothing to give, or has taken too long.
    pub(crate) fn goes(&self, is_late: bool) -> bool {
        let holds_back = self.holds_back.load(Ordering::Relaxed);
        let goes = self.asked() && (is_late || !holds_back);
        if goes && holds_back {
            self.lost.store(true, Ordering::Relaxed);
        }
        goes
    }

    /// Whether it went without giving what it held back.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_holds_nothing_back_goes_at_once_and_others_when_they_have_given_it_or_are_late() {
        let asked = Stop::new();
        let parting = Parting::new(asked.clone());
        assert!(!parting.goes(true), "nobody asked");
        asked.ask();
        assert!(parting.goes(false));
        parting.hold(true);
        assert!(!parting.goes(false) && !parting.has_lost());
        parting.hold(false);
        assert!(parting.goes(false) && !parting.has_lost());
        parting.hold(true);
        assert!(parting.goes(true) && parting.has_lost());
    }
}
