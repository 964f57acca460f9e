//! Which feature a column became: parameters name columns as users do, learners read encoded rows.

use starlings_core::{Fault, Result, suggestion};
use starlings_data::{ColumnKind, Row, Schema, Table};

/// The feature that a numeric column became. `wanted` is a column's name, or the number of a feature.
///
/// # Errors
/// When there is no such column, or it is made of categories, which become several features.
pub(crate) fn feature_of(schema: &Schema, param: &str, wanted: &str) -> Result<usize> {
    let mut at = 0;
    for column in &schema.columns {
        if column.name == wanted {
            return match column.kind {
                ColumnKind::Numeric { .. } => Ok(at),
                ColumnKind::Categorical { .. } => Err(Fault::caller(format!(
                    "{param} = \"{wanted}\": the column holds texts, and numbers are needed"
                ))),
            };
        }
        at += column.features(schema.encoding);
    }
    match wanted.parse::<usize>() {
        Ok(number) if number < schema.features => Ok(number),
        Ok(number) => Err(Fault::caller(format!(
            "{param} = \"{number}\": there are {} features, numbered from 0",
            schema.features
        ))),
        Err(_) => {
            let known: Vec<&str> = schema.columns.iter().map(|c| c.name.as_str()).collect();
            let fault = Fault::caller(format!("{param} = \"{wanted}\": there is no such column"));
            Err(match known.is_empty() {
                true => fault.hint("the data has no names of columns: give the feature's number"),
                false => fault.hint(suggestion(wanted, &known)),
            })
        }
    }
}

/// One feature of a row; a number that a sparse row does not store is zero.
#[inline]
pub(crate) fn number_at(table: &Table, row: usize, feature: usize) -> f32 {
    match table.row(row) {
        Row::Dense(values) => values[feature],
        Row::Sparse(columns, values) => {
            columns.binary_search(&(feature as u32)).map_or(0.0, |at| values[at])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_data::{Column, Encoding, Target};

    #[test]
    fn columns_behind_categories_are_found_where_encoding_put_them() {
        let column = |name: &str, kind| Column { name: name.into(), position: 0, kind, missing: 0 };
        let codes = vec!["a".to_string(), "b".to_string()];
        let schema = Schema {
            columns: vec![
                column("city", ColumnKind::Categorical { codes }),
                column("age", ColumnKind::Numeric { mean: 0.0 }),
            ],
            encoding: Encoding::OneHot,
            features: 3,
            target: Target::Number,
            label: None,
        };
        assert_eq!(feature_of(&schema, "feature", "age").unwrap(), 2);
        assert_eq!(feature_of(&schema, "feature", "1").unwrap(), 1);
        let say = |wanted: &str| feature_of(&schema, "feature", wanted).unwrap_err().to_string();
        assert!(say("city").contains("texts"));
        assert!(say("3").contains("3 features"));
        assert!(say("agee").contains("'age'"), "{}", say("agee"));
    }
}
