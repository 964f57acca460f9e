//! Which rows a fit does not see: the folds of cross-validation. A fold is a function of the seed and the row's own
//! number, so that all workers agree and nobody need be told.

use crate::trees::fixed;
use starlings_data::{Batch, Picked, Slice};

/// How rows are dealt to folds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Folds {
    /// This many; every so many consecutive rows are dealt one to each, in an order drawn anew (`shuffle`) or as they
    /// stand. Folds are as even as can be, also of rows sorted by label.
    Cross {
        /// How many.
        count: usize,
        /// Whether the order is drawn.
        shuffle: bool,
    },
    /// One: this share of the rows is held out, and all others are seen.
    Held {
        /// The share.
        share: f64,
    },
}

impl Folds {
    /// How many.
    pub(super) fn count(self) -> usize {
        match self {
            Folds::Cross { count, .. } => count,
            Folds::Held { .. } => 1,
        }
    }

    /// The fold that a row belongs to; beyond the last where it belongs to none.
    pub(super) fn of(self, seed: u64, row: u64) -> usize {
        match self {
            Folds::Cross { count, shuffle: false } => (row % count as u64) as usize,
            Folds::Cross { count, .. } => {
                let (block, place) = (row / count as u64, (row % count as u64) as usize);
                place_in_block(fixed::key(seed, "folds", &[block]), place, count)
            }
            Folds::Held { share } => {
                let key = fixed::key(seed, "held out", &[]);
                usize::from(fixed::uniform(key, row) >= share)
            }
        }
    }
}

/// Where a place goes when `count` of them are shuffled (Fisher and Yates).
fn place_in_block(key: u64, place: usize, count: usize) -> usize {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let chosen = (fixed::mix(key, last as u64) % (last as u64 + 1)) as usize;
        order.swap(last, chosen);
    }
    order[place]
}

/// The rows of a fold as a batch of the same table, and where they stand among the batch's rows.
pub(super) fn rows_of<'a>(
    (folds, seed): (Folds, u64),
    batch: &Batch<'a>,
    fold: usize,
) -> (Batch<'a>, Vec<usize>) {
    let (mut places, mut slices, mut before) = (Vec::new(), Vec::new(), 0);
    for slice in &batch.slices {
        let mine = (0..slice.len()).filter(|&at| folds.of(seed, slice.origin + at as u64) == fold);
        let mine: Vec<u32> = mine.map(|at| at as u32).collect();
        places.extend(mine.iter().map(|&at| before + at as usize));
        before += slice.len();
        slices.push(Slice { picked: Picked::Some(mine), ..slice.clone() });
    }
    (Batch { slices, ..batch.clone() }, places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_even_and_drawn_anew_for_every_block() {
        let folds = Folds::Cross { count: 5, shuffle: true };
        let all: Vec<usize> = (0..1000).map(|row| folds.of(3, row)).collect();
        for fold in 0..5 {
            assert_eq!(all.iter().filter(|of| **of == fold).count(), 200);
        }
        assert!(all.chunks(5).any(|block| block != &all[..5]));
        let plain = Folds::Cross { count: 4, shuffle: false };
        assert_eq!((0..6).map(|row| plain.of(3, row)).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn a_share_is_held_out() {
        let folds = Folds::Held { share: 0.25 };
        let held = (0..10_000).filter(|&row| folds.of(3, row) == 0).count();
        assert!((2300..2700).contains(&held), "{held}");
    }
}
