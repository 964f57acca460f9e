//! Rows as documents: how often each word occurs, and where a document's tokens lie among those that are
//! remembered of its shard. Tokens are ordered by document, then by word.

use starlings_core::{Fault, Result};
use starlings_data::{Batch, Row, Slice, Table};

/// More of one word in one document is taken for damage: it would not fit memory either.
const COUNT_MAX: f32 = 1e6;

/// Calls with each word of a document and how often it occurs there.
pub(super) fn each_word(row: Row<'_>, mut each: impl FnMut(usize, usize)) {
    let mut see = |word: usize, count: f32| {
        // What is no count was refused in the first step; here it must only do no harm.
        let count = count.clamp(0.0, COUNT_MAX) as usize;
        if count > 0 {
            each(word, count);
        }
    };
    match row {
        Row::Dense(counts) => counts.iter().enumerate().for_each(|(word, &n)| see(word, n)),
        Row::Sparse(words, counts) => {
            words.iter().zip(counts).for_each(|(&word, &n)| see(word as usize, n));
        }
    }
}

/// How many tokens a document has.
pub(super) fn length(row: Row<'_>) -> usize {
    let mut length = 0;
    each_word(row, |_, count| length += count);
    length
}

/// The documents of a shard with the place of their tokens: (row in the table, first token, past the last).
pub(super) fn placed<'a>(
    table: &'a Table,
    slice: &'a Slice,
) -> impl Iterator<Item = (usize, usize, usize)> + 'a {
    slice.rows().scan(0, move |next, row| {
        let first = *next;
        *next += length(table.row(row));
        Some((row, first, *next))
    })
}

/// The words of all documents of a batch, increasing.
pub(super) fn vocabulary(batch: &Batch<'_>) -> Vec<u32> {
    let mut seen = vec![false; batch.table.width()];
    for row in batch.rows() {
        each_word(batch.table.row(row), |word, _| seen[word] = true);
    }
    (0..).zip(&seen).filter(|(_, seen)| **seen).map(|(word, _)| word).collect()
}

/// Refuses documents whose numbers are not counts.
pub(super) fn check(batch: &Batch<'_>) -> Result<()> {
    for slice in &batch.slices {
        for row in slice.rows() {
            let (Row::Dense(counts) | Row::Sparse(_, counts)) = batch.table.row(row);
            let wrong = |n: &f32| !(0.0..=COUNT_MAX).contains(n) || n.fract() != 0.0;
            if let Some(wrong) = counts.iter().copied().find(wrong) {
                let row = slice.origin + (row - slice.start) as u64;
                return Err(Fault::caller(format!(
                    "row {row} says that a word occurs {wrong} times, which is no count"
                ))
                .hint("a row is a document: give whole numbers from 0 to 1000000"));
            }
        }
    }
    Ok(())
}
