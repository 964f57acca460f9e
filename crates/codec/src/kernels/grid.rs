//! Fixed point: floats as whole multiples of a power of two, which add up to the same bits in every order. Numbers change
//! where they lie, for fresh memory costs more than the arithmetic.

use super::widest;

/// Added to a number below 2^51 it leaves the nearest whole number, ties to even, in the last bits.
const ROUNDER: f64 = 6_755_399_441_055_744.0; // 1.5 · 2^52

/// The largest size among some numbers; `None` where one of them is not finite.
#[must_use]
pub fn largest_size(values: &[f64]) -> Option<f64> {
    widest(
        #[inline(always)]
        || largest(values),
    )
}

#[inline(always)]
fn largest(values: &[f64]) -> Option<f64> {
    // Sixteen lanes of comparisons and sums; NaN and infinity spoil the sum of zeros.
    let (mut largest, mut zeros) = ([0.0f64; 16], [0.0f64; 16]);
    let (sixteens, rest) = values.as_chunks::<16>();
    for sixteen in sixteens {
        ask_ahead(sixteen);
        for lane in 0..16 {
            let size = sixteen[lane].abs();
            largest[lane] = if size > largest[lane] { size } else { largest[lane] };
            zeros[lane] += sixteen[lane] * 0.0;
        }
    }
    for &value in rest {
        largest[0] = largest[0].max(value.abs());
        zeros[0] += value * 0.0;
    }
    let finite = zeros.iter().all(|zero| *zero == 0.0);
    finite.then(|| largest.into_iter().fold(0.0, f64::max))
}

/// Puts the bits of floats onto the grid: x · scale, which must be below 2^51, to the nearest whole number.
pub fn settle(bits: &mut [i64], scale: f64) {
    widest(
        #[inline(always)]
        || each(bits, |bits| rounded(f64::from_bits(bits as u64) * scale)),
    );
}

/// Adds floats, put onto the grid, to numbers that are there already.
pub fn settle_onto(sums: &mut [i64], values: &[f64], scale: f64) {
    widest(
        #[inline(always)]
        || {
            let pairs = sums.iter_mut().zip(values);
            pairs.for_each(|(sum, value)| *sum = sum.wrapping_add(rounded(value * scale)));
        },
    );
}

/// Numbers of the grid become the bits of floats again, times `scale`.
pub fn lift(whole: &mut [i64], scale: f64) {
    widest(
        #[inline(always)]
        || each(whole, |whole| (wide(whole) * scale).to_bits() as i64),
    );
}

#[inline(always)]
fn each(numbers: &mut [i64], to: impl Fn(i64) -> i64) {
    let (sixteens, rest) = numbers.as_chunks_mut::<16>();
    for sixteen in sixteens {
        ask_ahead(sixteen);
        for number in sixteen {
            *number = to(*number);
        }
    }
    for number in rest {
        *number = to(*number);
    }
}

/// How far ahead of the arithmetic lines are asked for: the hardware foresees them only up to the end of a page.
const AHEAD_BYTES: usize = 2048;

/// Asks for the two lines that are as far ahead of sixteen numbers.
#[inline(always)]
fn ask_ahead<T>(sixteen: &[T; 16]) {
    #[cfg(target_arch = "x86_64")]
    for line in [0, 64] {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let place = sixteen.as_ptr().wrapping_byte_add(AHEAD_BYTES + line);
        #[expect(unsafe_code, reason = "a hint, harmless for any address")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(place.cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = sixteen;
}

#[inline(always)]
fn rounded(value: f64) -> i64 {
    (value + ROUNDER).to_bits() as i64 - ROUNDER.to_bits() as i64
}

/// `whole as f64`, out of halves that vectors can convert: both are exact, so that only their sum rounds.
#[inline(always)]
fn wide(whole: i64) -> f64 {
    const TWO_52: f64 = 4_503_599_627_370_496.0;
    let upper = f64::from((whole >> 32) as i32) * 4_294_967_296.0;
    let lower = f64::from_bits(u64::from(whole as u32) | TWO_52.to_bits()) - TWO_52;
    upper + lower
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    fn numbers(len: usize) -> Vec<f64> {
        let mut rng = Rng::named(3, "grid", &[]);
        (0..len).map(|_| rng.normal() * 1e9).collect()
    }

    #[test]
    fn numbers_land_on_the_nearest_multiple_and_come_back() {
        let values = numbers(37);
        let mut bits: Vec<i64> = values.iter().map(|value| value.to_bits() as i64).collect();
        settle(&mut bits, 8.0);
        let nearest: Vec<i64> =
            values.iter().map(|value| (value * 8.0).round_ties_even() as i64).collect();
        assert_eq!(bits, nearest);
        let mut twice = bits.clone();
        settle_onto(&mut twice, &values, 8.0);
        assert_eq!(twice, nearest.iter().map(|whole| 2 * whole).collect::<Vec<_>>());
        lift(&mut bits, 0.125);
        for (bits, whole) in bits.iter().zip(nearest) {
            assert_eq!(f64::from_bits(*bits as u64), whole as f64 * 0.125);
        }
    }

    #[test]
    fn whole_numbers_become_the_nearest_floats_also_beyond_two_to_the_53() {
        let mut rng = Rng::named(4, "grid", &[]);
        let near_ties = [(1i64 << 53) + 1, (1 << 54) + 2, (1 << 62) - 1, -(1 << 62) + 257, -1, 0];
        let drawn = (0..10_000).map(|_| rng.below(1 << 62) as i64 - (1 << 61));
        for whole in near_ties.into_iter().chain(drawn) {
            assert_eq!(wide(whole).to_bits(), (whole as f64).to_bits(), "{whole}");
        }
    }

    #[test]
    fn the_largest_size_is_found_in_every_lane_and_what_is_not_finite_shows() {
        for len in [1, 7, 8, 9, 40] {
            for at in 0..len {
                let mut values = vec![0.5; len];
                values[at] = -3.0;
                assert_eq!(largest_size(&values), Some(3.0));
                for broken in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    values[at] = broken;
                    assert_eq!(largest_size(&values), None);
                }
            }
        }
        assert_eq!(largest_size(&[]), Some(0.0));
    }
}
