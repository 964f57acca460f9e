//! What learners over rows of numbers ask of a batch before they use it, and the products they form with a row.

use starlings_core::{Fault, Result};
use starlings_data::{Batch, Row};

/// Refuses rows of another width than the model's.
pub(crate) fn check_width(features: usize, batch: &Batch<'_>) -> Result<()> {
    let width = batch.table.width();
    if width == features || batch.is_empty() {
        return Ok(());
    }
    Err(Fault::caller(format!("rows have {width} features, the model has {features}"))
        .hint("use data with the columns that the model was trained on"))
}

/// Refuses features and labels that are not finite, naming the first of them.
pub(crate) fn check_finite(batch: &Batch<'_>) -> Result<()> {
    for slice in &batch.slices {
        for (place, row) in slice.rows().enumerate() {
            let number = slice.origin + place as u64;
            let (entries, values) = match batch.table.row(row) {
                Row::Dense(values) => (None, values),
                Row::Sparse(entries, values) => (Some(entries), values),
            };
            // One sum tells whether any is infinite or not a number.
            let sum: f32 = values.iter().map(|x| x * 0.0).sum();
            if sum.is_nan() {
                let at = values.iter().position(|x| !x.is_finite()).unwrap_or(0);
                let column = entries.map_or(at, |entries| entries[at] as usize);
                return Err(Fault::caller(format!(
                    "row {number} has {} in feature {column}",
                    values[at]
                ))
                .at_feature(column)
                .hint("fill or leave out numbers that are not finite before training"));
            }
            if let Some(label) = batch.table.labels.get(row).filter(|label| !label.is_finite()) {
                return Err(Fault::caller(format!("row {number} has the label {label}"))
                    .hint("leave out rows without a finite label"));
            }
        }
    }
    Ok(())
}

/// Refuses rows without a label.
pub(crate) fn check_labelled(batch: &Batch<'_>) -> Result<()> {
    match batch.rows().find(|&row| batch.table.labels.get(row).is_none()) {
        Some(row) => Err(Fault::caller(format!("row {row} has no label"))
            .hint("name the label column with [data] label")),
        None => Ok(()),
    }
}

/// The product of a row with a vector of weights, which may go on beyond the row's width.
#[inline(always)]
pub(crate) fn product(row: Row<'_>, weights: &[f64]) -> f64 {
    match row {
        Row::Dense(x) => crate::kernels::products::dots([x], &weights[..x.len()])[0],
        Row::Sparse(entries, x) => {
            entries.iter().zip(x).map(|(&entry, &x)| f64::from(x) * weights[entry as usize]).sum()
        }
    }
}

/// Adds a multiple of a row to a vector, which may go on beyond the row's width.
#[inline(always)]
pub(crate) fn add_row(row: Row<'_>, by: f64, into: &mut [f64]) {
    match row {
        Row::Dense(x) => into.iter_mut().zip(x).for_each(|(into, &x)| *into += by * f64::from(x)),
        Row::Sparse(entries, x) => {
            entries.iter().zip(x).for_each(|(&e, &x)| into[e as usize] += by * f64::from(x));
        }
    }
}
