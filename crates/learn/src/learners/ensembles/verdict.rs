//! How good an ensemble's answers are on the rows it was trained on: sums over rows, and what they come to.

use crate::{Grade, Task};
use starlings_data::Batch;
use std::collections::BTreeMap;

/// Sums that [`judge`] makes: the loss, the weight, hits or squared errors, absolute errors.
pub(super) const SUMS: usize = 4;

/// Adds up the answers for rows with these labels and weights. Rows without a label, and rows of weight zero, are not
/// judged.
pub(super) fn judge<'a>(
    task: Task,
    answers: impl Iterator<Item = (&'a [f64], f32, f64)>,
) -> [f64; SUMS] {
    let mut sums = [0.0; SUMS];
    for (said, label, weight) in
        answers.filter(|(_, label, weight)| !label.is_nan() && *weight > 0.0)
    {
        let parts = match task {
            Task::Classification => {
                let truth = label as usize;
                let chance = said.get(truth).copied().unwrap_or(0.0).clamp(f64::EPSILON, 1.0);
                [-chance.ln(), 1.0, f64::from(u8::from(largest(said) == truth)), 0.0]
            }
            _ => {
                let error = said[0] - f64::from(label);
                [error * error, 1.0, error * error, error.abs()]
            }
        };
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += weight * part);
    }
    sums
}

/// The same for the rows of a batch.
pub(super) fn judge_batch(task: Task, batch: &Batch<'_>, said: &[f64], width: usize) -> Vec<f64> {
    let rows = batch.rows().zip(said.chunks_exact(width.max(1)));
    let rows = rows.map(|(row, said)| {
        let label = batch.table.labels.get(row).copied().unwrap_or(f32::NAN);
        (said, label, batch.table.weight(row))
    });
    judge(task, rows).to_vec()
}

/// Metrics by their names, each with `before` in front, and the mean loss.
pub(super) fn metrics(task: Task, sums: &[f64], before: &str) -> (BTreeMap<String, f64>, f64) {
    let weight = if sums[1] > 0.0 { sums[1] } else { 1.0 };
    let [loss, first, second] = [sums[0], sums[2], sums[3]].map(|sum| sum / weight);
    let named = match task {
        Task::Classification => [("log_loss", loss), ("accuracy", first)],
        _ => [("rmse", first.sqrt()), ("mae", second)],
    };
    let named = named.map(|(name, value)| (format!("{before}{name}"), value));
    (BTreeMap::from(named), loss)
}

/// The grade of the answers on training rows.
pub(super) fn grade(task: Task, sums: &[f64]) -> Grade {
    let (metrics, objective) = metrics(task, sums, "");
    Grade { objective, metrics }
}

/// Where the largest stands first.
pub(super) fn largest(said: &[f64]) -> usize {
    (1..said.len()).fold(0, |best, at| if said[at] > said[best] { at } else { best })
}
