//! Waiting for a counter of another seat: a short spin, then yielding, then sleeping on a futex. The spin adapts to
//! how long waits have been, and is a handful of turns where workers outnumber the cores: there the awaited one may
//! be waiting for this very core.
//!
//! A sleeper cannot mark the counter it sleeps on (peers read it only), so it raises a flag in its own segment; who
//! publishes looks at the flags of all peers and calls the kernel only when someone sleeps. (Franke, Russell and
//! Kirkwood, Fuss, Futexes and Furwocks, OLS 2002; the adaptive spin is Karlin et al., SOSP 1991.)

use rustix::fs::Timespec;
use rustix::thread::{futex, sched_yield};
use starlings_core::{Deadline, Fault, Result, Seat};
use std::sync::atomic::{AtomicU32, Ordering};

/// How long to wait, and what may end the wait before.
pub struct Patience<'a> {
    /// The latest moment.
    pub by: Deadline,
    /// Looked at while waiting, some fifty times a second: an abort, or a peer that is lost.
    pub interrupted: &'a dyn Fn() -> Option<Fault>,
}

/// Longest sleep before the interruption is looked at again.
const NAP_NANOSECONDS: i64 = 20_000_000;
/// Turns of the spin, at most and at least; a turn is some 50 ns.
const SPINS_MAX: u32 = 2_000;
const SPINS_MIN: u32 = 32;
/// Times that the core is offered to others before sleeping, where every worker has a core and where not. To be woken takes
/// longer than many waits do: workers of equal share are seldom a millisecond apart.
const YIELDS: u32 = 2_000;
const YIELDS_CROWDED: u32 = 100;

/// One seat's way of waiting.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    spins: u32,
    spins_max: u32,
    yields: u32,
}

impl Waiter {
    /// `is_crowded` where workers outnumber cores.
    pub(super) fn new(is_crowded: bool) -> Waiter {
        let (spins_max, yields) =
            if is_crowded { (SPINS_MIN, YIELDS_CROWDED) } else { (SPINS_MAX, YIELDS) };
        Waiter { spins: spins_max, spins_max, yields }
    }

    /// Waits until the counter has reached a value. Counters wrap around; they are never half their range apart.
    pub(super) fn until(
        &mut self,
        counter: &AtomicU32,
        wanted: u32,
        asleep: &AtomicU32,
        patience: &Patience<'_>,
    ) -> Result<(), Awaited> {
        let reached = || has_reached(counter.load(Ordering::Acquire), wanted);
        if reached() {
            return Ok(());
        }
        for turn in 0..self.spins {
            std::hint::spin_loop();
            if reached() {
                // Twice what was needed is worth waiting for next time.
                let wish = (2 * turn + SPINS_MIN).min(self.spins_max);
                self.spins = self.spins - self.spins / 8 + wish / 8;
                return Ok(());
            }
        }
        self.spins = (self.spins - self.spins / 8).max(SPINS_MIN);
        for _ in 0..self.yields {
            sched_yield();
            if reached() {
                return Ok(());
            }
        }
        asleep.store(1, Ordering::SeqCst);
        let outcome = sleep(counter, wanted, patience);
        asleep.store(0, Ordering::SeqCst);
        outcome
    }
}

/// Why a wait ended in vain.
#[derive(Debug)]
pub(super) enum Awaited {
    /// Something else ended it.
    Interrupted(Fault),
    /// Nothing happened in time.
    Late,
}

impl Awaited {
    /// With the name of the one that was awaited.
    pub(super) fn fault(self, seat: Seat, what: &str) -> Fault {
        match self {
            Awaited::Interrupted(fault) => fault,
            Awaited::Late => Fault::peer(Some(seat), "nothing arrived before the deadline"),
        }
        .during(format!("waiting for {what} of {seat} in shared memory"))
    }
}

fn sleep(counter: &AtomicU32, wanted: u32, patience: &Patience<'_>) -> Result<(), Awaited> {
    loop {
        let seen = counter.load(Ordering::SeqCst);
        if has_reached(seen, wanted) {
            return Ok(());
        }
        // What has arrived counts more than news of a loss, so these come second.
        if let Some(fault) = (patience.interrupted)() {
            return Err(Awaited::Interrupted(fault));
        }
        let Some(left) = patience.by.left() else { return Err(Awaited::Late) };
        let nap =
            i64::try_from(left.as_nanos()).map_or(NAP_NANOSECONDS, |n| n.min(NAP_NANOSECONDS));
        let nap = Timespec { tv_sec: 0, tv_nsec: nap };
        // Returning early for whatever reason is fine: the loop looks again.
        let _ = futex::wait(counter, futex::Flags::empty(), seen, Some(&nap));
    }
}

/// Publishes a counter, and wakes those who sleep.
pub(super) fn publish<'a>(
    counter: &AtomicU32,
    value: u32,
    mut sleepers: impl Iterator<Item = &'a AtomicU32>,
) {
    // Both sides first write, then read what the other wrote; the total order makes one of them see it.
    counter.store(value, Ordering::SeqCst);
    if sleepers.any(|asleep| asleep.load(Ordering::SeqCst) != 0) {
        // A wake that fails is made good by the sleeper's next look.
        let _ = futex::wake(counter, futex::Flags::empty(), i32::MAX as u32);
    }
}

fn has_reached(seen: u32, wanted: u32) -> bool {
    seen.wrapping_sub(wanted) <= u32::MAX / 2
}
