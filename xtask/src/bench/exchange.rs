//! How fast two cores hand numbers to each other: each writes some, the other reads them, again and again, as workers do with
//! gradients in every step. Reading alone is counted. To write again what another core has read costs, too, where nothing else
//! is done meanwhile (five times the reading on some processors), but whoever computes between two numbers it writes can ask
//! for the lines beforehand: a machine allows that it costs nothing.

use super::turns::median;
use pulp::{Arch, Simd, WithSimd};
use std::hint::black_box;
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Exchanges that are timed at a look: they are short, and what they take varies.
const EXCHANGES: usize = 201;
const LOOKS: usize = 11;
/// Sums side by side, so that none waits for the one before.
const SUMS: usize = 8;

/// Bytes a second that each of two threads reads of `numbers` that the other has just written: the median of looks that are
/// `apart`, for virtual processors move, and then it is another figure.
pub(super) fn rate(numbers: usize, apart: Duration) -> f64 {
    let look = |_| {
        std::thread::sleep(apart);
        (numbers * 4) as f64 / seconds(numbers)
    };
    median((0..LOOKS).map(look).collect())
}

/// What it takes to read so many numbers that another thread has just written, while it does the same.
fn seconds(numbers: usize) -> f64 {
    let written = [0; 2].map(|_| RwLock::new(vec![0.0_f32; numbers]));
    let arrivals = AtomicUsize::new(0);
    // Who sleeps at a meeting finds its processor slower for a while.
    let meet = || {
        let before = arrivals.fetch_add(1, Ordering::AcqRel);
        while arrivals.load(Ordering::Acquire) / 2 == before / 2 {
            std::thread::yield_now();
        }
    };
    let times = |me: usize| {
        let once = |round: usize| {
            meet();
            written[me].write().expect("nobody panics").fill(round as f32);
            meet();
            let theirs = written[1 - me].read().expect("nobody panics");
            let start = Instant::now();
            black_box(Arch::new().dispatch(Read(black_box(&theirs))));
            start.elapsed().as_secs_f64()
        };
        (0..EXCHANGES).map(once).collect::<Vec<f64>>()
    };
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| times(1));
        let mine = times(0);
        mine.into_iter().chain(other.join().expect("nobody panics")).collect()
    });
    median(both)
}

/// Reads numbers with the widest vectors there are.
struct Read<'a>(&'a [f32]);

impl WithSimd for Read<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (vectors, _) = S::as_simd_f32s(self.0);
        let mut sums = [simd.splat_f32s(0.0); SUMS];
        for some in vectors.chunks_exact(SUMS) {
            for (sum, &vector) in sums.iter_mut().zip(some) {
                *sum = simd.add_f32s(*sum, vector);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_hand_each_other_something() {
        let bytes_a_second = rate(1 << 12, Duration::ZERO);
        assert!(bytes_a_second > 0.0 && bytes_a_second.is_finite(), "{bytes_a_second}");
    }

    #[test]
    fn every_number_is_read() {
        let numbers = 16 * SUMS * 3;
        let values: Vec<f32> = (0..numbers).map(|at| at as f32).collect();
        let sum = Arch::new().dispatch(Read(&values));
        assert_eq!(sum, (numbers * (numbers - 1) / 2) as f32);
    }
}
