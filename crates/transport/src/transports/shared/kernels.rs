//! The hot loops: sums of numbers from several places into one or two others. Sources are folded from left to right,
//! number by number, so the bits depend on the order of the sources alone and not on the vectors' width.
//!
//! Unsafe, because sources lie in memory that other processes may write meanwhile. No Rust reference to such memory is
//! ever made: numbers are loaded through raw pointers, every bit pattern is a number, and a slot whose sequence changed
//! during the fold is thrown away by the caller.

#![allow(
    unsafe_code,
    reason = "raw pointers into shared memory, and vector instructions chosen at run time"
)]

use super::layout::LINE;

/// A number that can be summed, alone and by the line of 64 bytes.
pub trait Number: Copy {
    /// As many as fill a line.
    type Line: Copy;
    /// The sum of two; integers wrap around, as everywhere in Starlings.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// The sum of two lines.
    #[must_use]
    fn plus_line(left: Self::Line, right: Self::Line) -> Self::Line;
}

macro_rules! number {
    ($name:ty, $plus:expr) => {
        impl Number for $name {
            type Line = [$name; LINE / size_of::<$name>()];
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $plus(self, other)
            }
            #[inline(always)]
            fn plus_line(mut left: Self::Line, right: Self::Line) -> Self::Line {
                for (left, right) in left.iter_mut().zip(right) {
                    *left = $plus(*left, right);
                }
                left
            }
        }
    };
}

number!(f32, |a: f32, b: f32| a + b);
number!(f64, |a: f64, b: f64| a + b);
number!(i64, i64::wrapping_add);

/// Where sums go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target<T> {
    /// The place.
    pub(super) first: *mut T,
    /// Write around the caches: for a large result that nobody reads soon, it saves reading the old numbers.
    pub(super) is_streamed: bool,
    /// A second place for the same sums, or null.
    pub(super) second: *mut T,
}

/// How far ahead of the sums lines are asked for. Lines that another core has written come slowly and are not foreseen
/// by the hardware; asking early nearly halves the time of a sum that fits the caches.
const AHEAD_BYTES: usize = 2048;
/// Sources folded at once; more are folded in turns through a tile.
const AT_ONCE: usize = 4;
const TILE_BYTES: usize = 4096;

#[repr(C, align(64))]
struct Tile([u8; TILE_BYTES]);

/// Folds `len` numbers of each source, in the order of the sources, into the target. One source is copied.
///
/// # Safety
/// Every source holds `len` readable numbers and every place of the target `len` writable ones; targets overlap
/// nothing. All are aligned for `T`.
pub(super) unsafe fn fold<T: Number>(sources: &[*const T], target: Target<T>, len: usize) {
    assert!(!sources.is_empty(), "a sum has at least one source");
    if sources.len() <= AT_ONCE {
        // SAFETY: as the caller promised.
        return unsafe { fold_few(sources, target, len) };
    }
    let mut tile = Tile([0; TILE_BYTES]);
    let partial: *mut T = tile.0.as_mut_ptr().cast();
    let inner = Target { first: partial, is_streamed: false, second: std::ptr::null_mut() };
    let step = TILE_BYTES / size_of::<T>();
    for from in (0..len).step_by(step) {
        let many = step.min(len - from);
        // SAFETY: `from + many <= len`, and the tile has room for `step` numbers. The tile is both source and
        // target of later turns, which `fold_few` allows when they are the same place.
        unsafe {
            let at = |source: &*const T| source.add(from);
            let mut four = [std::ptr::null(); AT_ONCE];
            four.iter_mut().zip(sources).for_each(|(to, source)| *to = at(source));
            fold_few(&four, inner, many);
            let mut rest = &sources[AT_ONCE..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(AT_ONCE - 1));
                four[0] = partial;
                four[1..].iter_mut().zip(now).for_each(|(to, source)| *to = at(source));
                let second =
                    if target.second.is_null() { target.second } else { target.second.add(from) };
                let outer = Target { first: target.first.add(from), second, ..target };
                let into = if later.is_empty() { outer } else { inner };
                fold_few(&four[..=now.len()], into, many);
                rest = later;
            }
        }
    }
}

unsafe fn fold_few<T: Number>(sources: &[*const T], target: Target<T>, len: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        match *sources {
            [a] => dispatch([a], target, len),
            [a, b] => dispatch([a, b], target, len),
            [a, b, c] => dispatch([a, b, c], target, len),
            [a, b, c, d] => dispatch([a, b, c, d], target, len),
            _ => unreachable!("at most {AT_ONCE} sources"),
        }
    }
}

/// How a line is written around the caches, at each level of vector instructions.
trait Stream {
    /// # Safety
    /// The place has room for a line and is aligned to it; the processor has the level's instructions.
    unsafe fn line<L: Copy>(place: *mut L, line: L);
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn done();
    /// Asks for a line that will be read. The place need not exist.
    fn will_read(place: *const u8);
    /// Asks for a line that will be written. The place need not exist.
    fn will_write(place: *const u8);
}

#[cfg(target_arch = "x86_64")]
mod levels {
    use super::{Number, Stream, Target, run};
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm_stream_si128,
        _mm256_stream_si256, _mm512_stream_si512,
    };

    macro_rules! level {
        ($name:ident, $vector:ty, $stream:ident, $many:literal) => {
            pub(super) struct $name;
            impl Stream for $name {
                #[inline(always)]
                unsafe fn line<L: Copy>(place: *mut L, line: L) {
                    // SAFETY: a line is as long as the vectors together and has no invalid bits.
                    unsafe {
                        let vectors: [$vector; $many] = std::mem::transmute_copy(&line);
                        for (index, vector) in vectors.into_iter().enumerate() {
                            $stream(place.cast::<$vector>().add(index), vector);
                        }
                    }
                }
                #[inline(always)]
                unsafe fn done() {
                    // Stores around the caches are ordered with later ones by nothing else.
                    // SAFETY: every processor of this kind has it.
                    unsafe { _mm_sfence() };
                }
                #[inline(always)]
                fn will_read(place: *const u8) {
                    // SAFETY: a hint, harmless for any address.
                    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
                }
                #[inline(always)]
                fn will_write(place: *const u8) {
                    // SAFETY: a hint, harmless for any address; the compiler's own does without the request to
                    // own the line unless the whole program is built for processors that know it.
                    unsafe {
                        asm!("prefetchw [{0}]", in(reg) place, options(nostack, preserves_flags));
                    }
                }
            }
        };
    }

    level!(Narrow, __m128i, _mm_stream_si128, 4);
    level!(Middle, __m256i, _mm256_stream_si256, 2);
    level!(Wide, __m512i, _mm512_stream_si512, 1);

    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn middle<T: Number, const N: usize>(
        sources: [*const T; N],
        target: Target<T>,
        len: usize,
    ) {
        // SAFETY: as the caller promised, and it asked the processor.
        unsafe { run::<T, Middle, N>(sources, target, len) }
    }

    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn wide<T: Number, const N: usize>(
        sources: [*const T; N],
        target: Target<T>,
        len: usize,
    ) {
        // SAFETY: as the caller promised, and it asked the processor.
        unsafe { run::<T, Wide, N>(sources, target, len) }
    }
}

#[cfg(target_arch = "x86_64")]
unsafe fn dispatch<T: Number, const N: usize>(
    sources: [*const T; N],
    target: Target<T>,
    len: usize,
) {
    // SAFETY: the processor was asked; the rest is as the caller promised.
    unsafe {
        if is_x86_feature_detected!("avx512f") {
            levels::wide(sources, target, len);
        } else if is_x86_feature_detected!("avx2") {
            levels::middle(sources, target, len);
        } else {
            run::<T, levels::Narrow, N>(sources, target, len);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn dispatch<T: Number, const N: usize>(
    sources: [*const T; N],
    target: Target<T>,
    len: usize,
) {
    struct Plain;
    impl Stream for Plain {
        unsafe fn line<L: Copy>(place: *mut L, line: L) {
            // SAFETY: as the caller promised.
            unsafe { place.write(line) }
        }
        unsafe fn done() {}
        fn will_read(_place: *const u8) {}
        fn will_write(_place: *const u8) {}
    }
    // SAFETY: as the caller promised.
    unsafe { run::<T, Plain, N>(sources, target, len) }
}

#[inline(always)]
unsafe fn run<T: Number, S: Stream, const N: usize>(
    sources: [*const T; N],
    target: Target<T>,
    len: usize,
) {
    let per_line = LINE / size_of::<T>();
    // SAFETY: every index is below `len`.
    unsafe {
        let one = |at: usize| {
            let mut sum = sources[0].add(at).read();
            for source in &sources[1..] {
                sum = sum.plus(source.add(at).read());
            }
            target.first.add(at).write(sum);
            if !target.second.is_null() {
                target.second.add(at).write(sum);
            }
        };
        // Lines of a streamed target begin at its first aligned number.
        let head = target.first.align_offset(LINE).min(len);
        let head = if target.is_streamed { head } else { 0 };
        (0..head).for_each(one);
        let lines = (len - head) / per_line;
        let ahead = |place: *const T, at: usize| {
            place.wrapping_add(at).cast::<u8>().wrapping_add(AHEAD_BYTES)
        };
        let body = |at: usize| {
            sources.iter().for_each(|&source| S::will_read(ahead(source, at)));
            let mut sum = sources[0].add(at).cast::<T::Line>().read_unaligned();
            for source in &sources[1..] {
                sum = T::plus_line(sum, source.add(at).cast::<T::Line>().read_unaligned());
            }
            sum
        };
        match (target.is_streamed, target.second.is_null()) {
            (false, true) => {
                for line in 0..lines {
                    let at = head + line * per_line;
                    S::will_write(ahead(target.first, at));
                    target.first.add(at).cast::<T::Line>().write_unaligned(body(at));
                }
            }
            (true, true) => {
                for line in 0..lines {
                    let at = head + line * per_line;
                    S::line(target.first.add(at).cast::<T::Line>(), body(at));
                }
            }
            (false, false) => {
                for line in 0..lines {
                    let at = head + line * per_line;
                    S::will_write(ahead(target.first, at));
                    S::will_write(ahead(target.second, at));
                    let sum = body(at);
                    target.first.add(at).cast::<T::Line>().write_unaligned(sum);
                    target.second.add(at).cast::<T::Line>().write_unaligned(sum);
                }
            }
            (true, false) => {
                for line in 0..lines {
                    let at = head + line * per_line;
                    S::will_write(ahead(target.second, at));
                    let sum = body(at);
                    S::line(target.first.add(at).cast::<T::Line>(), sum);
                    target.second.add(at).cast::<T::Line>().write_unaligned(sum);
                }
            }
        }
        (head + lines * per_line..len).for_each(one);
        if target.is_streamed {
            S::done();
        }
    }
}

/// Writes the lines of a place back to memory and out of all caches, where the processor can; see `leaving.rs`.
///
/// # Safety
/// The place has so many readable bytes.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn let_go(place: *const u8, bytes: usize) {
    let mut line = place.wrapping_sub(place as usize % LINE);
    while line < place.wrapping_add(bytes) {
        // SAFETY: a line of readable memory; it changes no numbers, and only those who can come here.
        unsafe {
            std::arch::asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags));
        }
        line = line.wrapping_add(LINE);
    }
}

/// Whether the processor can let lines go, and tells time.
#[cfg(target_arch = "x86_64")]
pub(super) fn can_let_go() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0
}

/// Turns of the processor's clock, to compare times with each other.
#[cfg(target_arch = "x86_64")]
pub(super) fn ticks() -> u64 {
    // SAFETY: every processor of this kind has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn let_go(_place: *const u8, _bytes: usize) {}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn can_let_go() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn ticks() -> u64 {
    0
}
