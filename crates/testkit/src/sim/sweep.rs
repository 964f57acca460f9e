//! Many seeds, one after another, on as many threads as wanted: the first that fails, and how to play it again.

use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A simulation: panics when an invariant does not hold for a seed.
#[derive(Clone, Copy)]
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Runs one seed.
    pub check: fn(u64),
}

/// Which seeds, and on how many threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The first.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// Threads.
    pub threads: usize,
}

/// A seed that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failing {
    /// Which.
    pub seed: u64,
    /// What did not hold.
    pub why: String,
    /// The command that plays it again.
    pub replay: String,
}

/// Seeds that a thread takes at a time.
const SHARE: u64 = 32;

/// Runs seeds until one fails; of several it is the lowest, however many threads there are. `told` hears how many seeds
/// have been taken up, now and then.
///
/// # Errors
/// The seed that failed.
///
/// # Panics
/// Only if `told` does.
pub fn sweep(machine: Machine, seeds: Seeds, told: &(dyn Fn(u64) + Sync)) -> Result<(), Failing> {
    let (taken, found) = (AtomicU64::new(0), Mutex::new(None::<(u64, String)>));
    let lowest = || found.lock().expect("nobody panics with this lock held");
    let work = || {
        while lowest().is_none() {
            let first = taken.fetch_add(SHARE, Ordering::Relaxed);
            if first >= seeds.count {
                return;
            }
            told(first);
            // Shares are taken in order: whoever took a lower one finishes it.
            for at in first..(first + SHARE).min(seeds.count) {
                let seed = seeds.from + at;
                if let Err(panic) = catch_unwind(|| (machine.check)(seed)) {
                    let mut found = lowest();
                    if found.as_ref().is_none_or(|(other, _)| seed < *other) {
                        *found = Some((seed, words(&*panic)));
                    }
                    return;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..seeds.threads.max(1) {
            scope.spawn(work);
        }
    });
    let found = lowest().take();
    found.map_or(Ok(()), |(seed, why)| {
        let replay =
            format!("cargo xtask simulate --machine {} --from {seed} --seeds 1", machine.name);
        Err(Failing { seed, why, replay })
    })
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_failing_seed_is_found_whoever_comes_first() {
        let odd = Machine { name: "odd", check: |seed| assert!(seed % 100 != 77, "I0: {seed}") };
        for threads in [1, 2, 5] {
            let seeds = Seeds { from: 100, count: 1_000, threads };
            let failing = sweep(odd, seeds, &|_| {}).unwrap_err();
            assert_eq!((failing.seed, failing.why.as_str()), (177, "I0: 177"));
            assert!(failing.replay.ends_with("--machine odd --from 177 --seeds 1"));
        }
        assert_eq!(sweep(odd, Seeds { from: 0, count: 77, threads: 2 }, &|_| {}), Ok(()));
    }
}
