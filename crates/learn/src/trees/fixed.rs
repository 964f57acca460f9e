//! Whole multiples of a power of two: sums of them do not depend on order, and so not on who holds which rows.
//!
//! The power must be agreed before anything is summed. Workers count how large their numbers are, by exponent; from
//! the sum of these counts all know the largest, and so the finest grid on which the sum of all still fits.

use starlings_core::Rng;

/// Exponents that are told apart: those of f32.
pub(crate) const EXPONENTS: usize = 256;

/// Counts the exponent of a magnitude. Zeros are not counted.
pub(crate) fn count(value: f32, counts: &mut [i64]) {
    let bits = value.to_bits() & 0x7fff_ffff;
    if bits != 0 {
        counts[(bits >> 23) as usize] += 1;
    }
}

/// Counts the exponent of the largest of some magnitudes, which is all that [`bound`] asks for.
pub(crate) fn count_largest(values: impl Iterator<Item = f32>, counts: &mut [i64]) {
    let largest = values.fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff));
    count(f32::from_bits(largest), counts);
}

/// A power of two above all magnitudes counted; 1 when there are none.
pub(crate) fn bound(counts: &[i64]) -> f64 {
    match counts.iter().rposition(|&count| count > 0) {
        Some(exponent) => 2f64.powi(exponent as i32 - 126),
        None => 1.0,
    }
}

/// The scale with which `rows` numbers below `bound` become whole numbers whose sum fits an i64.
pub(crate) fn scale(bound: f64, rows: u64) -> f64 {
    let bits = 61 - (64 - rows.max(1).leading_zeros()) as i32;
    2f64.powi(bits.min(52)) / bound
}

/// A number on the grid.
pub(crate) fn grid(value: f64, scale: f64) -> i64 {
    let exact = value * scale;
    (exact + 0.5f64.copysign(exact)) as i64
}

/// A well-mixed function of a key and a row: chance that belongs to the row, whoever holds it (Steele et al., 2014).
pub(crate) fn mix(key: u64, row: u64) -> u64 {
    let mut z = key.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in [0, 1) for a key and a row.
pub(crate) fn uniform(key: u64, row: u64) -> f64 {
    (mix(key, row) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The key of a purpose.
pub(crate) fn key(seed: u64, purpose: &str, parts: &[u64]) -> u64 {
    Rng::named(seed, purpose, parts).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_the_largest_fit() {
        for (value, rows) in [(1.0f32, 1u64), (3e38, 1 << 30), (1e-40, 1000), (0.25, 1 << 40)] {
            let mut counts = vec![0; EXPONENTS];
            count(value, &mut counts);
            let bound = bound(&counts);
            assert!(f64::from(value) < bound, "{value} {bound}");
            assert!(
                grid(f64::from(value), scale(bound, rows)) as f64 * (rows as f64) < 2f64.powi(62)
            );
        }
    }

    #[test]
    fn chance_is_even() {
        let share = (0..10_000).filter(|&row| uniform(7, row) < 0.3).count();
        assert!((2800..3200).contains(&share), "{share}");
    }
}
