//! What a second worker can bring on this machine: two cores share memory and often more, so that twice as fast is not
//! what to compare with. Two things may bind, and both are measured in the same run: reading memory that no cache holds,
//! and arithmetic on what a cache holds. A case is held against the one it comes nearer to.
//!
//! A network is held against a second figure, too: each worker steps all weights, and for the sum of gradients it takes
//! over at least as many numbers that the other has just written as there are weights. That no second worker takes off
//! its shoulders; what is left of the time is arithmetic. The bytes are what must move, not what we move. How fast cores
//! hand numbers to each other depends on where they are (`exchange.rs`), so it is measured in the same run.
//!
//! Arithmetic in registers leaves out that two cores share caches and memory. So a network of linear layers is held against a
//! third figure: the same, with the rate at which products of its layers' matrices are made by a library that is not ours
//! (`products.rs`), on one core and on two at once.

use super::turns::{Figures, Measured};
use super::{exchange, products};
use pulp::{Arch, Simd, WithSimd};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Numbers that no cache holds, each thread.
const FAR: usize = 1 << 25;
/// Sums that are worked on at once, and terms of each.
const SUMS: usize = 16;
const TERMS: usize = 1 << 16;
/// Weights of a network: with their gradients and velocities more than a core's own caches hold.
const WEIGHTS: usize = 1 << 19;
const ROUNDS: usize = 7;
/// Bytes of a weight's step with momentum: gradient, weight and velocity in, weight and velocity out.
const STEP_BYTES: f64 = 20.0;
/// Bytes of a weight's sum over two: a number of the other's.
const SUM_BYTES: f64 = 4.0;

/// What a case moves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Traffic {
    /// What a row has in memory.
    pub(super) row_bytes: f64,
    pub(super) network: Option<Network>,
}

/// What a network's workers move besides rows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Network {
    /// Weights that every worker steps with momentum in each step.
    pub(super) weights: f64,
    /// Numbers between its layers, first to last, where all are linear.
    pub(super) layers: &'static [usize],
    /// Rows of each of two workers in a step.
    pub(super) rows: usize,
}

/// What the machine allows, with one thread and with two.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Limits {
    /// Bytes read a second.
    bandwidth: [f64; 2],
    /// Multiplications and additions a second.
    arithmetic: [f64; 2],
    /// Bytes a second of steps of an optimiser.
    steps: [f64; 2],
    /// Bytes a second that each of two threads takes over of what the other writes again and again.
    exchange: f64,
}

/// How much faster two workers of one thread were than one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Scaling {
    pub(super) case: String,
    /// One worker's seconds divided by two workers'.
    pub(super) speedup: f64,
    /// What binds: `bandwidth`, `arithmetic`, `arithmetic and weights`, or `products and weights`.
    pub(super) bound: &'static str,
    /// The speed-up that it allows.
    pub(super) allowed: f64,
    /// What it follows from: rates of one thread and of two.
    pub(super) rates: [f64; 2],
    /// The share of the bandwidth that one worker used, by the bytes of the rows it passed over.
    pub(super) bandwidth_share: f64,
}

impl Limits {
    /// Measures; the medians of a few rounds, in which one thread and two take turns.
    pub(super) fn measure() -> Limits {
        let far: Vec<f32> = vec![1.0; FAR];
        let read = || {
            black_box(sum(black_box(&far)));
        };
        // Long enough that starting threads does not count.
        let (turns, passes) = (1_usize << 7, 256_usize);
        let computed = || {
            for _ in 0..turns {
                black_box(Arch::new().dispatch(Sums(black_box(0.5))));
            }
        };
        let stepped = || {
            let [mut weights, mut velocity, gradient] = [0; 3].map(|_| vec![1.0; WEIGHTS]);
            for _ in 0..passes {
                roll(black_box(&mut weights), &mut velocity, black_box(&gradient));
            }
            black_box(weights);
        };
        let (_, lanes) = Arch::new().dispatch(Sums(0.5));
        Limits {
            bandwidth: rates((FAR * 4) as f64, &read),
            arithmetic: rates((turns * TERMS * SUMS * lanes * 2) as f64, &computed),
            steps: rates(passes as f64 * WEIGHTS as f64 * STEP_BYTES, &stepped),
            exchange: exchange::rate(WEIGHTS, Duration::from_secs(1)),
        }
    }

    /// Compares one worker with two; a network a second time, with the bytes of its weights, and one of linear layers a third
    /// time, with the products of its layers.
    pub(super) fn compare(&self, case: &str, ours: &[Measured], traffic: Traffic) -> Vec<Scaling> {
        let [one, two] = ours else { return Vec::new() };
        let (Ok(one), Ok(two)) = (one.result.as_ref(), two.result.as_ref()) else {
            return Vec::new();
        };
        let Some(read) = bytes_a_second(one, traffic.row_bytes) else { return Vec::new() };
        let bandwidth_share = read / self.bandwidth[0];
        // Rows that are read at half of what memory gives cannot be read twice as fast by two.
        let (bound, limit) = match bandwidth_share > 0.5 {
            true => ("bandwidth", self.bandwidth),
            false => ("arithmetic", self.arithmetic),
        };
        let (speedup, allowed) = (one.seconds / two.seconds, limit[1] / limit[0]);
        let case = case.to_string();
        let plain = Scaling { case, speedup, bound, allowed, rates: limit, bandwidth_share };
        let Some(network) = traffic.network else { return vec![plain] };
        let weighed = |(bound, rates): (&'static str, [f64; 2])| {
            let allowed = self.weighed(one, network.weights, rates)?;
            Some(Scaling { bound, allowed, rates, ..plain.clone() })
        };
        let multiplied = (!network.layers.is_empty())
            .then(|| ("products and weights", products::rates(network.layers, network.rows)));
        let bounds = [Some(("arithmetic and weights", self.arithmetic)), multiplied];
        let others = bounds.into_iter().flatten().filter_map(weighed).collect::<Vec<_>>();
        std::iter::once(plain).chain(others).collect()
    }

    /// The speed-up that is left where every worker steps all weights and their gradients are summed, and the rest goes at these
    /// rates with one thread and with two.
    fn weighed(&self, one: &Figures, weights: f64, rates: [f64; 2]) -> Option<f64> {
        let numbers = one.detail["steps"].as_f64()? * weights;
        let alone = numbers * STEP_BYTES / self.steps[0];
        // Two threads share what both move a second.
        let together = numbers * (STEP_BYTES / (self.steps[1] / 2.0) + SUM_BYTES / self.exchange);
        let rest = (one.seconds - alone) * rates[0] / rates[1];
        (numbers > 0.0 && rest > 0.0).then(|| one.seconds / (rest + together))
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "bandwidth_bytes_a_second": self.bandwidth,
            "arithmetic_operations_a_second": self.arithmetic,
            "optimiser_bytes_a_second": self.steps,
            "exchange_bytes_a_second": self.exchange,
        })
    }

    pub(super) fn sentence(&self) -> String {
        let both = |of: [f64; 2]| format!("{:.1} and {:.1}", of[0] / 1e9, of[1] / 1e9);
        format!(
            "One and two threads read {} GB/s, compute {} GFLOP/s and step weights at {} GB/s here; each of two takes over \
             what the other writes at {:.1} GB/s.",
            both(self.bandwidth),
            both(self.arithmetic),
            both(self.steps),
            self.exchange / 1e9
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
            "rates": self.rates,
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

/// What one thread and two do of so much work each a second: medians of rounds in turns.
pub(super) fn rates(each: f64, work: &(dyn Fn() + Sync)) -> [f64; 2] {
    let once = |threads: usize| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(work)));
        });
        threads as f64 * each / start.elapsed().as_secs_f64()
    };
    // The first round warms caches and clocks.
    once(2);
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [once(1), once(2)]).collect();
    [0, 1].map(|at| super::turns::median(rounds.iter().map(|round| round[at]).collect()))
}

/// A step with momentum.
fn roll(weights: &mut [f32], velocity: &mut [f32], gradient: &[f32]) {
    for ((weight, speed), slope) in weights.iter_mut().zip(velocity).zip(gradient) {
        *speed = 0.9 * *speed + slope * 0.01;
        *weight -= 0.1 * *speed;
    }
}

/// Sixteen sums side by side, so that no addition waits for the one before.
fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for chunk in values.chunks_exact(16) {
        sums.iter_mut().zip(chunk).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum()
}

/// Multiplications and additions with the widest vectors there are, which products of matrices are made of: a processor may
/// run slower while several of its cores use them. Sixteen sums side by side, so that none waits for the one before: two
/// additions a turn that take four turns each need eight. All is in registers, as nearly all of a product's tile is.
struct Sums(f32);

impl WithSimd for Sums {
    /// What came out, and how many numbers a vector has.
    type Output = (f32, usize);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f32, usize) {
        let (keep, add) = (simd.splat_f32s(self.0), simd.splat_f32s(1.0 - self.0));
        let mut sums = [simd.splat_f32s(1.0); SUMS];
        for _ in 0..TERMS {
            for sum in &mut sums {
                *sum = simd.mul_add_f32s(*sum, keep, add);
            }
        }
        let sum = sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum();
        (sum, S::F32_LANES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(seconds: f64, samples: f64) -> Measured {
        let detail = json!({"seconds": seconds, "samples": samples, "steps": 100});
        let (seconds_min, wall_seconds) = (seconds, seconds);
        let (rounds, megabytes) = (1, None);
        let seconds_each = vec![seconds];
        let figures =
            Figures { seconds, seconds_each, seconds_min, wall_seconds, rounds, detail, megabytes };
        Measured { name: "starlings".to_string(), result: Ok(figures) }
    }

    const LIMITS: Limits = Limits {
        bandwidth: [10e9, 15e9],
        arithmetic: [5e9, 10e9],
        steps: [20e9, 40e9],
        exchange: 10e9,
    };

    #[test]
    fn what_binds_is_told_by_the_bytes_that_were_read() {
        let ours = [measured(2.0, 1e8), measured(1.0, 1e8)];
        let traffic = |row_bytes: f64| Traffic { row_bytes, network: None };
        let found = LIMITS.compare("a", &ours, traffic(160.0));
        let [fast] = &found[..] else { panic!("one figure") };
        assert_eq!((fast.bound, fast.allowed, fast.speedup), ("bandwidth", 1.5, 2.0));
        let found = LIMITS.compare("b", &ours, traffic(4.0));
        let [slow] = &found[..] else { panic!("one figure") };
        assert_eq!((slow.bound, slow.allowed), ("arithmetic", 2.0));
        assert!(slow.line().contains("| b | 2.00 | 2.00 | arithmetic | 1.00 | 2 % |"));
        assert!(LIMITS.compare("c", &ours[..1], traffic(4.0)).is_empty());
    }

    #[test]
    fn weights_are_stepped_by_both_and_their_gradients_summed() {
        let ours = [measured(2.0, 1e6), measured(1.25, 1e6)];
        let network = Some(Network { weights: 1e7, layers: &[], rows: 1 });
        // 1e7 weights in 100 steps: 20e9 bytes, a second for one and for each of two; 4e9 are exchanged at 10e9.
        let found = LIMITS.compare("d", &ours, Traffic { row_bytes: 4.0, network });
        let [plain, weighed] = &found[..] else { panic!("two figures") };
        assert_eq!((plain.allowed, plain.speedup), (2.0, 1.6));
        assert!((weighed.allowed - 2.0 / (0.5 + 1.4)).abs() < 1e-12, "{weighed:?}");
        assert_eq!((weighed.bound, weighed.speedup), ("arithmetic and weights", 1.6));
        // Where two threads make products at one and a half times the rate of one, the rest takes 1/1.5 of a second.
        let Measured { result: Ok(one), .. } = &ours[0] else { panic!("it was measured") };
        let slower = LIMITS.weighed(one, 1e7, [2e9, 3e9]).unwrap();
        assert!((slower - 2.0 / (1.0 / 1.5 + 1.4)).abs() < 1e-12, "{slower}");
    }
}
