//! The nearest of k centres for sparse rows: x·c for all centres at once costs one scaled addition of k
//! numbers for each entry of the row, whatever the number of columns.

use pulp::{Arch, Simd, WithSimd};

/// Centres with one row a feature, so that an entry of a row meets all centres in one stretch.
pub(crate) struct TransposedCentres {
    count: usize,
    /// Feature after feature, the centres of each.
    columns: Vec<f32>,
    /// −‖c‖²/2.
    bias: Vec<f32>,
    /// ‖c‖².
    norms: Vec<f64>,
}

impl TransposedCentres {
    /// Transposes centres of `width` features, one after the other.
    pub(crate) fn new(centres: &[f64], width: usize) -> TransposedCentres {
        let count = centres.len() / width;
        let mut columns = vec![0.0; centres.len()];
        let mut norms = Vec::with_capacity(count);
        for (place, centre) in centres.chunks_exact(width).enumerate() {
            for (feature, &c) in centre.iter().enumerate() {
                columns[feature * count + place] = c as f32;
            }
            norms.push(centre.iter().map(|c| c * c).sum());
        }
        let bias = norms.iter().map(|norm: &f64| (-0.5 * norm) as f32).collect();
        TransposedCentres { count, columns, bias, norms }
    }

    /// The number of the nearest centre of a row. `scores` is room to work in.
    pub(crate) fn nearest(&self, columns: &[u32], values: &[f32], scores: &mut Vec<f32>) -> u32 {
        scores.clear();
        scores.extend_from_slice(&self.bias);
        Arch::new().dispatch(Scores { centres: self, columns, values, scores });
        let mut best = 0;
        for (place, score) in scores.iter().enumerate() {
            if *score > scores[best] {
                best = place;
            }
        }
        best as u32
    }

    /// ‖x‖² − 2x·c + ‖c‖² in f64, where `centre` is centre number `label`.
    pub(crate) fn squared_distance(
        &self,
        row: (&[u32], &[f32]),
        label: u32,
        centre: &[f64],
    ) -> f64 {
        let (mut norm, mut product) = (0.0, 0.0);
        for (&column, &value) in row.0.iter().zip(row.1) {
            let value = f64::from(value);
            norm += value * value;
            product += value * centre[column as usize];
        }
        (norm - 2.0 * product + self.norms[label as usize]).max(0.0)
    }
}

struct Scores<'a> {
    centres: &'a TransposedCentres,
    columns: &'a [u32],
    values: &'a [f32],
    scores: &'a mut [f32],
}

impl WithSimd for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let count = self.centres.count;
        for (&column, &value) in self.columns.iter().zip(self.values) {
            let from = column as usize * count;
            let stretch = &self.centres.columns[from..from + count];
            self.scores.iter_mut().zip(stretch).for_each(|(score, c)| *score += value * c);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparse_row_finds_its_centre_and_its_distance() {
        let centres = [0.0, 0.0, 0.0, 3.0, 0.0, 4.0, 0.0, 9.0, 0.0];
        let transposed = TransposedCentres::new(&centres, 3);
        let mut room = Vec::new();
        assert_eq!(transposed.nearest(&[], &[], &mut room), 0);
        assert_eq!(transposed.nearest(&[0, 2], &[2.0, 5.0], &mut room), 1);
        assert_eq!(transposed.nearest(&[1], &[8.0], &mut room), 2);
        let distance = transposed.squared_distance((&[0, 2], &[2.0, 5.0]), 1, &centres[3..6]);
        assert!((distance - 2.0).abs() < 1e-12, "{distance}");
    }
}
