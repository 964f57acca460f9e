//! Weighted quantiles of many groups of rows by sums alone: descent over the digits of numbers, the highest first
//! (selection by counting, Blum et al., 1973; in base 256). Four exchanges find them exactly, whoever holds the rows.

/// Values of a digit.
pub(crate) const DIGITS: usize = 256;
/// Exchanges until all 32 bits are known.
pub(crate) const LEVELS: usize = 4;

/// A number whose order as an integer is the order of the floats; zeros are equal.
pub(crate) fn key(value: f32) -> u32 {
    let bits = (value + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The float of a key.
fn value(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// One quantile on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Descent {
    /// The digits found so far.
    prefix: u32,
    /// The weight that is left to go among rows of this prefix.
    left: i64,
}

impl Descent {
    /// Descents as words of the model.
    pub(crate) fn save(descents: &[Descent]) -> Vec<i64> {
        descents.iter().flat_map(|descent| [i64::from(descent.prefix), descent.left]).collect()
    }

    /// Descents from words of the model.
    pub(crate) fn load(words: &[i64]) -> Vec<Descent> {
        let read = |pair: &[i64]| Descent { prefix: pair[0] as u32, left: pair[1] };
        words.chunks_exact(2).map(read).collect()
    }

    /// Adds a row's weight to its digit's count, if it still shares the prefix.
    pub(crate) fn count(self, level: usize, key: u32, weight: i64, counts: &mut [i64]) {
        let rest = 32 - 8 * level as u32;
        if level == 0 || key >> rest == self.prefix {
            counts[(key >> (rest - 8)) as usize % DIGITS] += weight;
        }
    }

    /// Finds the next digit: the first at which the weight up to it reaches the share `alpha` of all.
    pub(crate) fn descend(&mut self, level: usize, alpha: f64, counts: &[i64]) {
        if level == 0 {
            let all: i64 = counts.iter().sum();
            self.left = ((alpha * all as f64).ceil() as i64).clamp(1, all.max(1));
        }
        let last = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        let mut digit = 0;
        while digit < last && counts[digit] < self.left {
            self.left -= counts[digit];
            digit += 1;
        }
        self.prefix = self.prefix << 8 | digit as u32;
    }

    /// The quantile, once all digits are known.
    pub(crate) fn found(self) -> f32 {
        value(self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Rng;

    #[test]
    fn the_descent_finds_the_value_at_the_weight() {
        let mut rng = Rng::named(1, "descent", &[]);
        let rows: Vec<(f32, i64)> =
            (0..999).map(|_| (rng.normal() as f32, 1 + rng.below(5) as i64)).collect();
        let mut sorted = rows.clone();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let all: i64 = rows.iter().map(|row| row.1).sum();
        for alpha in [0.01, 0.5, 0.9, 1.0] {
            let mut descent = Descent::default();
            for level in 0..LEVELS {
                let mut counts = vec![0; DIGITS];
                rows.iter().for_each(|row| descent.count(level, key(row.0), row.1, &mut counts));
                descent.descend(level, alpha, &counts);
            }
            let mut sum = 0;
            let wanted = sorted.iter().find(|row| {
                sum += row.1;
                sum as f64 >= alpha * all as f64
            });
            assert_eq!(descent.found(), wanted.unwrap().0, "{alpha}");
        }
    }
}
