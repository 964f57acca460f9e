//! How fast two cores hand numbers to each other: each writes some, the other takes them over, again and again, as workers do
//! with gradients in every step. Two things cost: to take over what another core has just written, and to write again what
//! another core has read, as far as that takes longer than to write what nobody else reads. Where two cores share no cache
//! the second can cost ten times the first, unless who has read lets the lines go. The faster manner counts: it is what the
//! machine allows.

#![allow(unsafe_code, reason = "lines are let go by an instruction")]

use super::turns::median;
use std::hint::black_box;
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

/// Exchanges of each manner that are timed: they are short, and what they take varies.
const EXCHANGES: usize = 201;
const LOOKS: usize = 11;

/// What becomes of what a thread has written.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Manner {
    /// Nobody else reads it.
    Private,
    /// The other takes it over.
    Kept,
    /// The other takes it over, and lets its lines go.
    LetGo,
}

/// Bytes a second that each of two threads takes over of `numbers` that the other has just written: the median of looks that
/// are `apart`, for virtual processors move, and then it is another figure.
pub(super) fn rate(numbers: usize, apart: Duration) -> f64 {
    let look = |_| {
        std::thread::sleep(apart);
        rate_now(numbers)
    };
    median((0..LOOKS).map(look).collect())
}

fn rate_now(numbers: usize) -> f64 {
    let private = seconds(numbers, Manner::Private);
    let kept = seconds(numbers, Manner::Kept);
    let let_go = if can_let_go() { seconds(numbers, Manner::LetGo) } else { kept };
    (numbers * 4) as f64 / (kept.min(let_go) - private).max(f64::MIN_POSITIVE)
}

/// What it takes to write so many numbers and to take over as many, at the same time as another thread does.
fn seconds(numbers: usize, manner: Manner) -> f64 {
    let written = [0; 2].map(|_| RwLock::new(vec![0.0_f32; numbers]));
    let meeting = Barrier::new(2);
    let times = |me: usize| {
        let mut taken = vec![0.0; numbers];
        let once = |round: usize| {
            meeting.wait();
            let mut mine = written[me].write().expect("nobody panics");
            let start = Instant::now();
            mine.fill(round as f32);
            let writing = start.elapsed();
            drop(mine);
            meeting.wait();
            if manner == Manner::Private {
                return writing.as_secs_f64();
            }
            let theirs = written[1 - me].read().expect("nobody panics");
            let start = Instant::now();
            taken.copy_from_slice(black_box(&theirs));
            if manner == Manner::LetGo {
                let_go(&theirs);
            }
            let reading = start.elapsed();
            black_box(&mut taken);
            (writing + reading).as_secs_f64()
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

#[cfg(target_arch = "x86_64")]
fn can_let_go() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0
}

#[cfg(target_arch = "x86_64")]
fn let_go(numbers: &[f32]) {
    for line in numbers.chunks(16) {
        // SAFETY: a line of readable memory; only those whose processor has the instruction come here.
        unsafe {
            std::arch::asm!("clflushopt [{0}]", in(reg) line.as_ptr(), options(nostack, preserves_flags));
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn can_let_go() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn let_go(_numbers: &[f32]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_hand_each_other_something() {
        let bytes_a_second = rate(1 << 12, Duration::ZERO);
        assert!(bytes_a_second > 0.0 && !bytes_a_second.is_nan(), "{bytes_a_second}");
    }
}
