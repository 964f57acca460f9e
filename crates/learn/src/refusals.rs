//! What learners of tables refuse alike, in the same words: rows of another width, labels that are no codes of
//! classes, numbers that are not finite. Rows are named by their number in the whole data set, features by
//! their number after encoding.

use starlings_core::{Fault, Result};
use starlings_data::{Batch, Row, Slice};

/// Refuses rows that do not have as many features as the model.
///
/// # Errors
/// When they do not.
pub fn check_width(features: usize, batch: &Batch<'_>) -> Result<()> {
    let width = batch.table.width();
    if width == features || batch.is_empty() {
        return Ok(());
    }
    Err(Fault::caller(format!("rows have {width} features, the model has {features}"))
        .hint("use data with the columns that the model was trained on"))
}

/// Refuses rows whose labels are not codes of classes.
///
/// # Errors
/// The first such row.
pub fn check_classes(classes: usize, batch: &Batch<'_>) -> Result<()> {
    each_label(
        batch,
        |label| label >= 0.0 && label < classes as f32,
        || format!("codes of classes are 0 to {}", classes.saturating_sub(1)),
    )
}

/// Refuses rows whose labels are not finite numbers.
///
/// # Errors
/// The first such row.
pub fn check_numbers(batch: &Batch<'_>) -> Result<()> {
    each_label(batch, f32::is_finite, || "labels must be finite numbers".to_string())
}

/// Refuses rows whose labels are not what `fine` says; `hint` says what they should be.
pub(crate) fn each_label(
    batch: &Batch<'_>,
    fine: impl Fn(f32) -> bool,
    hint: impl Fn() -> String,
) -> Result<()> {
    for slice in &batch.slices {
        for row in slice.rows() {
            match batch.table.labels.get(row) {
                Some(&label) if fine(label) => {}
                Some(label) => {
                    let row = global(slice, row);
                    return Err(
                        Fault::caller(format!("row {row} has the label {label}")).hint(hint())
                    );
                }
                None => {
                    let row = global(slice, row);
                    return Err(Fault::caller(format!("row {row} has no label")));
                }
            }
        }
    }
    Ok(())
}

/// Names the first number of a batch that `fine` does not allow, and calls it `what`. Rows of weight zero are not
/// looked at. For use after a sum has shown that there is one: it passes over all numbers.
#[must_use]
pub fn find_number(batch: &Batch<'_>, what: &str, fine: impl Fn(f32) -> bool) -> Option<Fault> {
    for slice in &batch.slices {
        for row in slice.rows().filter(|&row| batch.table.weight(row) > 0.0) {
            let found = match batch.table.row(row) {
                Row::Dense(values) => {
                    values.iter().position(|&x| !fine(x)).map(|at| (at, values[at]))
                }
                Row::Sparse(columns, values) => values
                    .iter()
                    .position(|&x| !fine(x))
                    .map(|at| (columns[at] as usize, values[at])),
            };
            if let Some((feature, value)) = found {
                let row = global(slice, row);
                let text = format!("feature {feature} of row {row} is {value}, {what}");
                return Some(Fault::caller(text).at_feature(feature));
            }
        }
    }
    None
}

/// The rows of a batch: each one's global number and its number in the table.
pub(crate) fn numbered<'a>(batch: &'a Batch<'_>) -> impl Iterator<Item = (u64, usize)> + 'a {
    batch.slices.iter().flat_map(|slice| slice.rows().map(|row| (global(slice, row), row)))
}

/// The global number of a row of a slice, given its number in the table.
pub(crate) fn global(slice: &Slice, row: usize) -> u64 {
    slice.origin + (row - slice.start) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Shard;
    use starlings_data::{Features, Picked, Table};

    fn batch(table: &Table) -> Batch<'_> {
        let picked = Picked::All(table.rows() - 1);
        let slice = Slice { shard: Shard(3), start: 1, origin: 40, picked };
        Batch { table, slices: vec![slice], rows_step: 50 }
    }

    #[test]
    fn refusals_name_the_row_of_the_data_set_and_the_feature() {
        let values = vec![f32::NAN, 0.0, 1.0, 2.0, 3.0, f32::INFINITY];
        let table = Table::new(Features::Dense { width: 2, values }, vec![9.0, 1.0, 2.0]);
        let batch = batch(&table);
        let fault = find_number(&batch, "which is not finite", f32::is_finite).unwrap();
        assert_eq!(fault.message(), "feature 1 of row 41 is inf, which is not finite");
        let fault = check_classes(2, &batch).unwrap_err();
        assert_eq!(fault.message(), "row 41 has the label 2");
        check_classes(3, &batch).unwrap();
        check_width(3, &batch).unwrap_err();
    }
}
