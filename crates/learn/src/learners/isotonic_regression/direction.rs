//! Whether labels rise with the feature: the sign of Spearman's correlation, as scikit-learn decides (Spearman, "The
//! proof and measurement of association between two things", 1904). Two exchanges: how many rows have each value
//! and each label, from which ranks follow (ties have their mean rank), then the sum of products of ranks. All of
//! it in integers, so that a correlation of zero is zero on every flock.

use super::order;
use crate::{Work, columns};
use starlings_core::{Block, Fault, Model, Result, Role, Rows, Tensor, Update, Values};
use starlings_data::Batch;

/// More values than this would not fit the exchange.
const VALUES_MAX: usize = 1 << 24;
const NAMES: [&str; 2] = ["ranks.x", "ranks.y"];
/// Products of ranks travel as high and low digits in this base.
const BASE: i128 = 1 << 40;

/// Which way labels go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    /// They rise with the feature, or neither rise nor fall.
    Rising,
    /// They fall.
    Falling,
}

/// Emits how many rows have each value and each label.
pub(super) fn count(work: &mut Work<'_>, feature: usize) {
    for (name, of_labels) in NAMES.into_iter().zip([false, true]) {
        let mut keys: Vec<u32> =
            pairs(work.batch, feature).map(|(x, y)| if of_labels { y } else { x }).collect();
        keys.sort_unstable();
        let (mut index, mut counts) = (Vec::new(), Vec::new());
        for equal in keys.chunk_by(|a, b| a == b) {
            index.push(equal[0]);
            counts.push(equal.len() as i64);
        }
        let rows = Rows { total: u32::MAX, width: 1, index, values: Values::I64(counts) };
        work.outbox.emit(Block::rows(name, rows));
    }
}

/// Turns counts into ranks: for each key twice its mean rank less the mean of all ranks.
pub(super) fn rank(model: &mut Model, update: &Update) -> Result<()> {
    for name in NAMES {
        let Some(rows) = update.rows(name) else { continue };
        if rows.index.len() > VALUES_MAX {
            return Err(Fault::caller(format!(
                "increasing = \"auto\" ranks at most {VALUES_MAX} different values, there are {}",
                rows.index.len()
            ))
            .hint("say increasing = \"true\" or \"false\""));
        }
        let counts = rows.values.as_i64().unwrap_or(&[]);
        let total: i64 = counts.iter().sum();
        let (mut table, mut before) = (Vec::with_capacity(2 * counts.len()), 0);
        for (&key, &count) in rows.index.iter().zip(counts) {
            table.extend([i64::from(key), 2 * before + count - total]);
            before += count;
        }
        let shape = vec![counts.len(), 2];
        model.set(name, Tensor { shape, values: Values::I64(table), role: Role::State });
    }
    Ok(())
}

/// Emits the sum of products of ranks.
pub(super) fn correlate(work: &mut Work<'_>, feature: usize) {
    let [of_x, of_y] = NAMES.map(|name| work.model.i64(name));
    let rank = |table: &[i64], key: u32| {
        let (pairs, _) = table.as_chunks::<2>();
        let at = pairs.partition_point(|pair| pair[0] < i64::from(key));
        i128::from(pairs.get(at).map_or(0, |pair| pair[1]))
    };
    let products = pairs(work.batch, feature).map(|(x, y)| rank(of_x, x) * rank(of_y, y));
    let sum: i128 = products.sum();
    let digits = [sum.div_euclid(BASE), sum.rem_euclid(BASE)];
    let digits = digits.map(|digit| i64::try_from(digit).expect("2⁴⁸ rows at most"));
    work.outbox.emit(Block::counts("correlation", digits.to_vec()));
}

/// The sign of the correlation; zero counts as rising, as in scikit-learn.
pub(super) fn decide(digits: &[i64]) -> Direction {
    let sum = i128::from(digits[0]) * BASE + i128::from(digits[1]);
    if sum >= 0 { Direction::Rising } else { Direction::Falling }
}

/// Drops the tables of ranks.
pub(super) fn forget(model: &mut Model) {
    NAMES.iter().for_each(|name| drop(model.remove(name)));
}

/// The keys of value and label of every row that counts.
fn pairs<'a>(batch: &'a Batch<'_>, feature: usize) -> impl Iterator<Item = (u32, u32)> + 'a {
    let table = batch.table;
    batch.rows().filter(|&row| table.weight(row) > 0.0).map(move |row| {
        let x = columns::number_at(table, row, feature);
        (order::key(x), order::key(table.labels[row]))
    })
}
