//! What a second worker can bring on this machine: two cores share memory and often more, so that twice as fast is not
//! what to compare with. Two things may bind, and both are measured in the same run: reading memory that no cache holds,
//! and arithmetic on what a cache holds. A case is held against the one it comes nearer to.

use super::turns::{Figures, Measured};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;

/// Numbers that no cache holds, each thread.
const FAR: usize = 1 << 25;
/// Numbers that the first cache holds.
const NEAR: usize = 1 << 10;
const ROUNDS: usize = 5;

/// What the machine allows, with one thread and with two.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limits {
    /// Bytes read a second.
    bandwidth: [f64; 2],
    /// Multiplications and additions a second.
    arithmetic: [f64; 2],
}

/// How much faster two workers of one thread were than one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scaling {
    pub(super) case: String,
    /// One worker's seconds divided by two workers'.
    pub(super) speedup: f64,
    /// What binds: `bandwidth` or `arithmetic`.
    pub(super) bound: &'static str,
    /// The speed-up that it allows.
    pub(super) allowed: f64,
    /// The share of the bandwidth that one worker used, by the bytes of the rows it passed over.
    pub(super) bandwidth_share: f64,
}

impl Limits {
    /// Measures; the median of a few rounds each.
    pub(super) fn measure() -> Limits {
        let far: Vec<f32> = vec![1.0; FAR];
        let near: Vec<f32> = vec![1.0; NEAR];
        let read = |threads: usize| {
            let work = || {
                black_box(sum(black_box(&far)));
            };
            let seconds = timed(threads, &work);
            (threads * FAR * 4) as f64 / seconds
        };
        let computed = |threads: usize| {
            let turns = 1 << 14;
            let work = || {
                for _ in 0..turns {
                    black_box(dot(black_box(&near)));
                }
            };
            (threads * turns * NEAR * 2) as f64 / timed(threads, &work)
        };
        Limits { bandwidth: [1, 2].map(read), arithmetic: [1, 2].map(computed) }
    }

    /// Compares one worker with two. `row_bytes` is what a row has in memory.
    pub(super) fn compare(&self, case: &str, ours: &[Measured], row_bytes: f64) -> Option<Scaling> {
        let [one, two] = ours else { return None };
        let (one, two) = (one.result.as_ref().ok()?, two.result.as_ref().ok()?);
        let bandwidth_share = bytes_a_second(one, row_bytes)? / self.bandwidth[0];
        // Rows that are read at half of what memory gives cannot be read twice as fast by two.
        let (bound, limit) = match bandwidth_share > 0.5 {
            true => ("bandwidth", self.bandwidth),
            false => ("arithmetic", self.arithmetic),
        };
        let (speedup, allowed) = (one.seconds / two.seconds, limit[1] / limit[0]);
        Some(Scaling { case: case.to_string(), speedup, bound, allowed, bandwidth_share })
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "bandwidth_bytes_a_second": self.bandwidth,
            "arithmetic_operations_a_second": self.arithmetic,
        })
    }

    pub(super) fn sentence(&self) -> String {
        let both = |of: [f64; 2]| format!("{:.1} and {:.1}", of[0] / 1e9, of[1] / 1e9);
        format!(
            "One and two threads read {} GB/s and compute {} GFLOP/s here.",
            both(self.bandwidth),
            both(self.arithmetic)
        )
    }
}

impl Scaling {
    /// A row of the table.
    pub(super) fn line(&self) -> String {
        format!(
            "| {} | {:.2} | {:.2} | {} | {:.2} | {:.0} % |",
            self.case,
            self.speedup,
            self.allowed,
            self.bound,
            self.speedup / self.allowed,
            100.0 * self.bandwidth_share
        )
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "case": self.case,
            "speedup": self.speedup,
            "allowed": self.allowed,
            "bound": self.bound,
            "share_of_allowed": self.speedup / self.allowed,
            "bandwidth_share": self.bandwidth_share,
        })
    }
}

/// Bytes of rows that were passed over in a second.
fn bytes_a_second(figures: &Figures, row_bytes: f64) -> Option<f64> {
    let rows = figures.detail["samples"].as_f64()?;
    Some(rows * row_bytes / figures.seconds)
}

/// Median seconds until all threads have done the work.
fn timed(threads: usize, work: &(dyn Fn() + Sync)) -> f64 {
    let once = || {
        let start = Instant::now();
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        start.elapsed().as_secs_f64()
    };
    super::turns::median((0..ROUNDS).map(|_| once()).collect())
}

/// Sixteen sums side by side, so that no addition waits for the one before.
fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for chunk in values.chunks_exact(16) {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum()
}

fn dot(values: &[f32]) -> f32 {
    let mut sums = [0.0; 64];
    for chunk in values.chunks_exact(64) {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value * value);
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64, samples: f64) -> Measured {
        let detail = json!({"seconds": seconds, "samples": samples});
        let (seconds_min, wall_seconds) = (seconds, seconds);
        let (rounds, megabytes) = (1, None);
        let figures = Figures { seconds, seconds_min, wall_seconds, rounds, detail, megabytes };
        Measured { name: "starlings".to_string(), result: Ok(figures) }
    }

    #[test]
    fn what_binds_is_told_by_the_bytes_that_were_read() {
        let limits = Limits { bandwidth: [10e9, 15e9], arithmetic: [5e9, 10e9] };
        let ours = [measured(2.0, 1e8), measured(1.0, 1e8)];
        let fast = limits.compare("a", &ours, 160.0).unwrap();
        assert_eq!((fast.bound, fast.allowed, fast.speedup), ("bandwidth", 1.5, 2.0));
        let slow = limits.compare("b", &ours, 4.0).unwrap();
        assert_eq!((slow.bound, slow.allowed), ("arithmetic", 2.0));
        assert!(slow.line().contains("| b | 2.00 | 2.00 | arithmetic | 1.00 | 2 % |"));
        assert!(limits.compare("c", &ours[..1], 4.0).is_none());
    }
}
