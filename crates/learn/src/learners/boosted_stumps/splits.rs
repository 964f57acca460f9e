//! Histograms of gradients and the best split of them (Chen and Guestrin, 2016, algorithm 1 for the
//! logistic loss; leaves by one Newton step as in Friedman, 2001, algorithm 5).
//!
//! Gradients are summed as whole multiples of a power of two: such sums do not depend on their order, so
//! the trees are the same bits on any number of workers, also where two splits are equally good.

use super::rows::PACK;

/// A leaf lighter than this (sum of second derivatives) is no leaf: its step would be noise.
const HESSIAN_MIN: f64 = 1e-3;

/// How gradients become whole numbers: the largest power of two for which `rows` of them fit, and no finer
/// than an f64's own digits.
pub(super) fn scale(rows: u64) -> f64 {
    let bits = 62 - (64 - rows.max(1).leading_zeros());
    2f64.powi(bits.min(52) as i32)
}

/// The probability of class 1.
pub(super) fn logistic(score: f64) -> f64 {
    1.0 / (1.0 + (-score).exp())
}

/// The logistic loss of one row.
pub(super) fn loss(score: f64, label: f64) -> f64 {
    score.max(0.0) - label * score + (-score.abs()).exp().ln_1p()
}

/// Adds one row's gradient to the histogram of every feature. `histogram` has (gradient, hessian) for each
/// bin of each feature; a word has the bins of eight features.
pub(super) fn add(words: &[i64], width: usize, gradient: [i64; 2], histogram: &mut [i64]) {
    for (features, word) in histogram.chunks_mut(2 * width * PACK).zip(words) {
        for (feature, bin) in features.chunks_exact_mut(2 * width).zip(word.to_le_bytes()) {
            let at = 2 * usize::from(bin);
            feature[at] += gradient[0];
            feature[at + 1] += gradient[1];
        }
    }
}

/// A depth-1 tree: rows whose feature lies in a bin up to `bin` go left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Split {
    pub(super) feature: usize,
    pub(super) bin: usize,
    pub(super) left: f64,
    pub(super) right: f64,
}

/// The split with the largest gain; among equals the first. None when nothing gains.
pub(super) fn best(histogram: &[i64], width: usize, scale: f64, l2: f64) -> Option<Split> {
    let mut found: Option<(f64, Split)> = None;
    for (feature, bins) in histogram.chunks_exact(2 * width).enumerate() {
        let (gradient, hessian) = totals(bins);
        let (gradient, hessian) = (gradient as f64 / scale, hessian as f64 / scale);
        let parent = gradient * gradient / (hessian + l2);
        let mut left = (0, 0);
        for bin in 0..width - 1 {
            left = (left.0 + bins[2 * bin], left.1 + bins[2 * bin + 1]);
            let (g, h) = (left.0 as f64 / scale, left.1 as f64 / scale);
            let (gr, hr) = (gradient - g, hessian - h);
            if h < HESSIAN_MIN || hr < HESSIAN_MIN {
                continue;
            }
            let gain = g * g / (h + l2) + gr * gr / (hr + l2) - parent;
            if gain > found.map_or(0.0, |(gain, _)| gain) {
                let split = Split { feature, bin, left: -g / (h + l2), right: -gr / (hr + l2) };
                found = Some((gain, split));
            }
        }
    }
    found.map(|(_, split)| split)
}

fn totals(bins: &[i64]) -> (i64, i64) {
    bins.chunks_exact(2).fold((0, 0), |sum, pair| (sum.0 + pair[0], sum.1 + pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_rows_as_there_are_fit_the_sums() {
        for rows in [1u64, 2, 1000, 1 << 20, 1 << 40] {
            assert!(rows as f64 * scale(rows) < i64::MAX as f64, "{rows}");
        }
        assert!(scale(1_000_000) >= 2f64.powi(40));
    }

    #[test]
    fn the_best_split_is_the_one_that_separates() {
        // Two features of three bins; only the second separates negative from positive gradients.
        let unit = scale(4);
        let of = |x: f64| (x * unit) as i64;
        let histogram =
            [of(0.5), of(0.5), of(-0.5), of(0.5), 0, 0, of(1.0), of(0.5), 0, 0, of(-1.0), of(0.5)];
        let split = best(&histogram, 3, unit, 0.0).unwrap();
        assert_eq!(split, Split { feature: 1, bin: 0, left: -2.0, right: 2.0 });
        let shrunk = best(&histogram, 3, unit, 0.5).unwrap();
        assert_eq!((shrunk.left, shrunk.right), (-1.0, 1.0));
        assert_eq!(best(&[0; 12], 3, unit, 0.0), None);
    }
}
