//! Quantiles of numbers as they pass: exact up to 262,144 different values of a column; beyond that neighbours are
//! pooled in pairs, so that a quantile's rank errs by less than one in 100,000. Quantiles between two values are
//! interpolated linearly (Hyndman and Fan, 1996, type 7; NumPy's default).

/// Different values that are kept.
const KEPT_MAX: usize = 1 << 18;
/// Numbers that wait to be sorted in.
const WAITING_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles {
    waiting: Vec<f32>,
    /// Different values in order, and how often each came.
    kept: Vec<(f32, u64)>,
}

impl Quantiles {
    pub(crate) fn add(&mut self, value: f32) {
        if value.is_nan() {
            return;
        }
        self.waiting.push(value + 0.0);
        if self.waiting.len() >= WAITING_MAX {
            self.settle();
        }
    }

    /// Different values in order, and how often each came.
    pub(crate) fn counts(&mut self) -> &[(f32, u64)] {
        self.settle();
        &self.kept
    }

    /// The value below which this share of the numbers lies; `None` of no numbers.
    pub(crate) fn at(&mut self, share: f64) -> Option<f64> {
        self.all_at(&[share]).map(|found| found[0])
    }

    /// The same for several shares.
    pub(crate) fn all_at(&mut self, shares: &[f64]) -> Option<Vec<f64>> {
        self.settle();
        let mut total = 0;
        let ends = self.kept.iter().map(|(_, count)| {
            total += count;
            total
        });
        let ends: Vec<u64> = ends.collect();
        let last = total.checked_sub(1)?;
        let ranked = |rank: u64| {
            let place = ends.partition_point(|end| *end <= rank.min(last));
            f64::from(self.kept[place].0)
        };
        let between = |share: &f64| {
            let place = share * last as f64;
            let (low, high) = (ranked(place.floor() as u64), ranked(place.ceil() as u64));
            low + (high - low) * (place - place.floor())
        };
        Some(shares.iter().map(between).collect())
    }

    fn settle(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.waiting.sort_by(f32::total_cmp);
        let mut merged: Vec<(f32, u64)> = Vec::with_capacity(self.kept.len() + self.waiting.len());
        let mut put = |value: f32, count: u64| match merged.last_mut() {
            Some(last) if last.0 == value => last.1 += count,
            _ => merged.push((value, count)),
        };
        let mut kept = self.kept.iter().peekable();
        for value in self.waiting.drain(..) {
            while let Some((before, count)) = kept.next_if(|(it, _)| *it <= value) {
                put(*before, *count);
            }
            put(value, 1);
        }
        kept.for_each(|(value, count)| put(*value, *count));
        if merged.len() > KEPT_MAX {
            // The ends stay as they are: a smallest and a largest value are never pooled away.
            let last = merged.len() - 1;
            let inner: Vec<(f32, u64)> = merged[1..last]
                .chunks(2)
                .map(|it| (it[0].0, it.iter().map(|one| one.1).sum()))
                .collect();
            merged = [vec![merged[0]], inner, vec![merged[last]]].concat();
        }
        self.kept = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated_as_numpy_does() {
        let mut quantiles = Quantiles::default();
        for value in [7.0, 1.0, 3.0, 3.0, f32::NAN] {
            quantiles.add(value);
        }
        assert_eq!(quantiles.at(0.5), Some(3.0));
        assert_eq!(quantiles.at(0.25), Some(2.5));
        assert!((quantiles.at(0.9).unwrap() - 5.8).abs() < 1e-12);
        assert_eq!(Quantiles::default().at(0.5), None);
    }

    #[test]
    fn a_million_different_values_keep_their_ranks() {
        let mut quantiles = Quantiles::default();
        let rows = 1_000_000u32;
        for row in 0..rows {
            quantiles.add((row.wrapping_mul(2_654_435_761) >> 8) as f32);
        }
        let mut all: Vec<u32> = (0..rows).map(|row| row.wrapping_mul(2_654_435_761) >> 8).collect();
        all.sort_unstable();
        for share in [0.0, 0.01, 0.25, 0.5, 0.75, 0.999, 1.0] {
            let found = quantiles.at(share).unwrap();
            let rank = all.partition_point(|it| f64::from(*it) < found) as f64 / f64::from(rows);
            assert!((rank - share).abs() < 2e-5, "{share}: {rank}");
        }
    }
}
