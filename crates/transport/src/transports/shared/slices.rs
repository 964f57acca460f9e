//! The same sums for whoever holds plain slices, with the same vectors and prefetches; and, around the caches, sums and
//! copies: a large result that nobody reads soon would first be read from memory only to be overwritten, and would drive
//! out of the caches what is needed next.
//!
//! Unsafe, because it hands slices to the kernels as pointers.

#![allow(unsafe_code, reason = "slices of equal length become the kernels' sources and targets")]

use super::kernels::{Number, Target, fold};

/// Puts `base + theirs` into `into`, around the caches, and over `theirs`, which stays in them.
///
/// # Panics
/// If lengths differ.
pub fn sum_around<T: Number>(base: &[T], theirs: &mut [T], into: &mut [T]) {
    assert!(base.len() == into.len() && theirs.len() == into.len(), "a sum for every pair");
    let second = theirs.as_mut_ptr();
    let target = Target { first: into.as_mut_ptr(), is_streamed: true, second };
    // SAFETY: all have as many numbers. The second place is also a source: each line of it is read before it is written,
    // and no other is ever read after that.
    unsafe { fold(&[base.as_ptr(), second.cast_const()], target, into.len()) }
}

/// Puts `base + theirs` into `into`.
///
/// # Panics
/// If lengths differ.
pub fn sum_beside<T: Number>(base: &[T], theirs: &[T], into: &mut [T]) {
    assert!(base.len() == into.len() && theirs.len() == into.len(), "a sum for every pair");
    let second = std::ptr::null_mut();
    let target = Target { first: into.as_mut_ptr(), is_streamed: false, second };
    // SAFETY: all have as many numbers, and a mutable slice overlaps nothing.
    unsafe { fold(&[base.as_ptr(), theirs.as_ptr()], target, into.len()) }
}

/// Adds `theirs` to `into`.
///
/// # Panics
/// If lengths differ.
pub fn add<T: Number>(into: &mut [T], theirs: &[T]) {
    assert_eq!(into.len(), theirs.len(), "a number for every number");
    let (first, second) = (into.as_mut_ptr(), std::ptr::null_mut());
    let target = Target { first, is_streamed: false, second };
    // SAFETY: both have as many numbers. The first source is the target: each line of it is read before it is written, and
    // no other is ever read after that.
    unsafe { fold(&[first.cast_const(), theirs.as_ptr()], target, into.len()) }
}

/// Puts `base + into` into `into`.
///
/// # Panics
/// If lengths differ.
pub fn add_to<T: Number>(base: &[T], into: &mut [T]) {
    assert_eq!(into.len(), base.len(), "a number for every number");
    let (first, second) = (into.as_mut_ptr(), std::ptr::null_mut());
    let target = Target { first, is_streamed: false, second };
    // SAFETY: both have as many numbers. The second source is the target: each line of it is read before it is written, and
    // no other is ever read after that.
    unsafe { fold(&[base.as_ptr(), first.cast_const()], target, into.len()) }
}

/// Copies `from` into `into`, around the caches.
///
/// # Panics
/// If lengths differ.
pub fn put_around<T: Number>(from: &[T], into: &mut [T]) {
    assert_eq!(from.len(), into.len(), "a place for every number");
    let second = std::ptr::null_mut();
    let target = Target { first: into.as_mut_ptr(), is_streamed: true, second };
    // SAFETY: both have as many numbers, and a mutable slice overlaps nothing.
    unsafe { fold(&[from.as_ptr()], target, into.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_copies_are_those_of_plain_loops_at_any_length_and_alignment() {
        for (from, len) in [(0, 0), (1, 1), (3, 15), (0, 16), (5, 1000), (7, 4099)] {
            let base: Vec<f32> = (0..from + len).map(|at| at as f32 * 0.37).collect();
            let mut theirs: Vec<f32> = (0..from + len).map(|at| 1e6 / (at + 1) as f32).collect();
            let wanted: Vec<f32> = base.iter().zip(&theirs).map(|(a, b)| a + b).collect();
            let mut into = vec![-1.0; from + len + 1];
            sum_beside(&base[from..], &theirs[from..], &mut into[from..from + len]);
            assert_eq!(into[from..from + len], wanted[from..], "{len} numbers from {from}");
            into.copy_from_slice(&[&base[..], &[-1.0]].concat());
            add(&mut into[from..from + len], &theirs[from..]);
            assert_eq!(into[from..from + len], wanted[from..], "{len} numbers from {from}");
            into[from..from + len].copy_from_slice(&theirs[from..]);
            add_to(&base[from..], &mut into[from..from + len]);
            assert_eq!(into[from..from + len], wanted[from..], "{len} numbers from {from}");
            sum_around(&base[from..], &mut theirs[from..], &mut into[from..from + len]);
            assert_eq!(into[from..from + len], wanted[from..], "{len} numbers from {from}");
            assert_eq!(theirs[from..], wanted[from..], "{len} numbers from {from}");
            assert_eq!(into[from + len], -1.0);
            let mut copy = vec![-1_i64; from + len + 1];
            let whole: Vec<i64> = (0..len as i64).collect();
            put_around(&whole, &mut copy[from..from + len]);
            assert_eq!(copy[from..from + len], whole[..]);
            assert!(copy[..from].iter().chain(&copy[from + len..]).all(|&number| number == -1));
        }
    }
}
