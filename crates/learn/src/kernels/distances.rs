//! Squared distances and sums of dense rows in f64. Rows are f32, centres f64: the difference is taken
//! first, so that nothing cancels however far the data lie from the origin.

use pulp::{Arch, Simd, WithSimd};

/// Partial sums side by side: enough for the widest vectors, and a fixed order of additions.
const LANES: usize = 8;

/// Adds every row of `rows` onto the row of `sums` that its label names.
pub(crate) fn add_rows(width: usize, rows: &[f32], labels: &[u32], sums: &mut [f64]) {
    Arch::new().dispatch(AddRows { width, rows, labels, sums });
}

/// Writes for each row the squared distance to the centre that its label names.
pub(crate) fn squared_distances(rows: &[f32], labels: &[u32], centres: &[f64], out: &mut [f64]) {
    Arch::new().dispatch(SquaredDistances { rows, labels, centres, out });
}

struct AddRows<'a> {
    width: usize,
    rows: &'a [f32],
    labels: &'a [u32],
    sums: &'a mut [f64],
}

impl WithSimd for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (row, &label) in self.rows.chunks_exact(self.width).zip(self.labels) {
            let from = label as usize * self.width;
            let sum = &mut self.sums[from..from + self.width];
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
    }
}

struct SquaredDistances<'a> {
    rows: &'a [f32],
    labels: &'a [u32],
    centres: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for SquaredDistances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.rows.len() / self.labels.len().max(1);
        for ((row, &label), out) in
            self.rows.chunks_exact(width.max(1)).zip(self.labels).zip(self.out)
        {
            let from = label as usize * width;
            *out = squared_distance(row, &self.centres[from..from + width]);
        }
    }
}

/// ‖x − c‖² in f64.
#[inline(always)]
fn squared_distance(row: &[f32], centre: &[f64]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (row_chunks, row_rest) = row.as_chunks::<LANES>();
    let (centre_chunks, centre_rest) = centre.as_chunks::<LANES>();
    for (x, c) in row_chunks.iter().zip(centre_chunks) {
        for lane in 0..LANES {
            let difference = f64::from(x[lane]) - c[lane];
            lanes[lane] += difference * difference;
        }
    }
    let rest: f64 =
        row_rest.iter().zip(centre_rest).map(|(x, c)| (f64::from(*x) - c).powi(2)).sum();
    lanes.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_do_not_cancel_far_from_the_origin() {
        let rows: Vec<f32> = (0..22).map(|i| 1e6 + i as f32).collect();
        let centres: Vec<f64> = (0..22).map(|i| 1e6 + f64::from(i) + 0.25).collect();
        let mut out = [0.0; 2];
        squared_distances(&rows, &[0, 1], &centres, &mut out);
        assert_eq!(out, [11.0 * 0.0625; 2]);
        squared_distances(&rows, &[1, 0], &centres, &mut out);
        assert_eq!(out, [11.0 * 11.25 * 11.25, 11.0 * 10.75 * 10.75]);
    }

    #[test]
    fn rows_are_added_to_their_label() {
        let mut sums = vec![1.0; 6];
        add_rows(3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 10.0, 20.0, 30.0], &[1, 0, 1], &mut sums);
        assert_eq!(sums, [5.0, 6.0, 7.0, 12.0, 23.0, 34.0]);
    }
}
