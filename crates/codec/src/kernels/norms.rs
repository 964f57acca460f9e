//! Sizes of the numbers in a bucket.

/// Partial sums side by side: enough for the widest vectors, and a fixed order of additions.
const LANES: usize = 8;

/// The largest magnitude: infinite or NaN if one of the numbers is.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    // The bits of magnitudes are in the order of the magnitudes, then infinity, then NaN.
    let bits = values.iter().fold(0, |most: u32, value| most.max(value.to_bits() & 0x7fff_ffff));
    f32::from_bits(bits)
}

/// The sum of squares, in f64: that of f32 cannot overflow.
#[inline(always)]
pub(crate) fn sum_of_squares(values: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = f64::from(chunk[lane]);
            lanes[lane] += value * value;
        }
    }
    let rest: f64 = rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    lanes.iter().sum::<f64>() + rest
}

/// The mean of the numbers from 0 up, and that of the others; 0 where there are none.
#[inline(always)]
pub(crate) fn two_means(values: &[f32]) -> (f32, f32) {
    let (mut upper, mut lower, mut count) = ([0.0f64; LANES], [0.0f64; LANES], [0u32; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    let mut take = |lane: usize, value: f32| {
        let up = value >= 0.0;
        upper[lane] += if up { f64::from(value) } else { 0.0 };
        lower[lane] += if up { 0.0 } else { f64::from(value) };
        count[lane] += u32::from(up);
    };
    for chunk in chunks {
        (0..LANES).for_each(|lane| take(lane, chunk[lane]));
    }
    rest.iter().enumerate().for_each(|(lane, &value)| take(lane, value));
    let count: u32 = count.iter().sum();
    let mean = |sum: [f64; LANES], count: usize| {
        let sum: f64 = sum.iter().sum();
        if count == 0 { 0.0 } else { (sum / count as f64) as f32 }
    };
    (mean(upper, count as usize), mean(lower, values.len() - count as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_larger_than_everything() {
        assert_eq!(largest(&[1.0, -3.0, 2.0]), 3.0);
        assert_eq!(largest(&[f32::NEG_INFINITY, f32::MAX]), f32::INFINITY);
        assert!(largest(&[f32::INFINITY, -f32::NAN, 1.0]).is_nan());
        assert_eq!(largest(&[]), 0.0);
    }

    #[test]
    fn squares_do_not_overflow() {
        assert_eq!(sum_of_squares(&[3e38; 9]), 9.0 * f64::from(3e38f32).powi(2));
    }

    #[test]
    fn two_means_are_of_the_two_sides() {
        assert_eq!(
            two_means(&[1.0, 0.0, -4.0, 5.0, -2.0, 2.0, 0.0, -0.0, -6.0]),
            (8.0 / 6.0, -4.0)
        );
        assert_eq!(two_means(&[-1.0; 3]), (0.0, -1.0));
        assert_eq!(two_means(&[]), (0.0, 0.0));
    }
}
