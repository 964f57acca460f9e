//! The edges of rows: how much each has to do with all others. Made once, and kept as scratch from step to step.

use super::options::Kernel;
use starlings_core::Shard;

/// The edges of some rows to all rows.
pub(super) enum Edges {
    /// A number for every pair.
    All(Vec<f64>),
    /// The nearest of each row, the nearest first.
    Nearest(Vec<u32>, usize),
}

/// The edges of a batch, and whose rows they are.
pub(super) struct Kept {
    pub(super) shape: Vec<(Shard, usize)>,
    pub(super) edges: Edges,
}

impl Edges {
    /// Of rows `own` to `all`; both have `width` numbers a row.
    pub(super) fn new(kernel: Kernel, own: &[f32], all: &[f32], width: usize) -> Edges {
        match kernel {
            Kernel::Rbf { gamma } => {
                let rows = own.chunks_exact(width);
                let edge = |row| {
                    all.chunks_exact(width).map(move |other| (-gamma * distance(row, other)).exp())
                };
                Edges::All(rows.flat_map(edge).collect())
            }
            Kernel::Nearest { count } => {
                let count = count.min(all.len() / width.max(1));
                let rows = own.chunks_exact(width);
                Edges::Nearest(rows.flat_map(|row| nearest(row, all, count)).collect(), count)
            }
        }
    }

    /// Calls with every edge of the row at `at`: the other row and how strong it is.
    pub(super) fn each(&self, at: usize, rows: usize, mut each: impl FnMut(usize, f64)) {
        match self {
            Edges::All(weights) => {
                let weights = &weights[at * rows..(at + 1) * rows];
                weights.iter().enumerate().for_each(|(other, &weight)| each(other, weight));
            }
            Edges::Nearest(found, count) => {
                let found = &found[at * count..(at + 1) * count];
                found.iter().for_each(|&other| each(other as usize, 1.0));
            }
        }
    }
}

/// The squared distance.
pub(super) fn distance(one: &[f32], other: &[f32]) -> f64 {
    let pairs = one.iter().zip(other);
    pairs.map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}

/// The nearest rows, the nearest first; of equals those that come first.
pub(super) fn nearest(row: &[f32], all: &[f32], count: usize) -> Vec<u32> {
    let width = row.len().max(1);
    let mut found: Vec<(f64, u32)> = all
        .chunks_exact(width)
        .enumerate()
        .map(|(at, other)| (distance(row, other), at as u32))
        .collect();
    let order = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let count = count.min(found.len());
    if count > 0 && count < found.len() {
        found.select_nth_unstable_by(count - 1, order);
    }
    found.truncate(count);
    found.sort_by(order);
    found.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_in_order_and_the_row_itself_first() {
        let all = [0.0, 10.0, 1.0, 3.0, 1.0];
        assert_eq!(nearest(&[1.0], &all, 3), [2, 4, 0]);
        assert_eq!(nearest(&[1.0], &all, 9), [2, 4, 0, 3, 1]);
    }
}
