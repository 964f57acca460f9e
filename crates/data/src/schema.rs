//! What the columns mean. The schema is inferred once, travels with the job to every worker and is stored
//! in the model, codes included, so that prediction takes raw files.

use serde::{Deserialize, Serialize};

/// How a learner wants its features encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Encoding {
    /// Numbers as they are, a categorical column as one 0/1 feature for each of its codes. Missing numbers
    /// become the column's mean, a missing category no feature at all.
    OneHot,
    /// Every feature column is an identity (user, item): a feature is the code of its text.
    Identity,
    /// Numbers as they are, a missing one as NaN; a categorical column is one feature, the code of its text,
    /// NaN when it is missing or was never seen. The schema's columns tell which are which. Trees want this.
    Codes,
}

/// What a learner wants of labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LabelNeed {
    /// It learns without labels; a label column, if named, is kept out of the features.
    None,
    /// Classes: labels become codes 0, 1, 2 …
    Class,
    /// Numbers.
    Number,
    /// Classes, and a row may have none: its label is NaN.
    SomeClasses,
}

impl LabelNeed {
    /// Whether labels become codes.
    #[must_use]
    pub fn is_class(self) -> bool {
        matches!(self, LabelNeed::Class | LabelNeed::SomeClasses)
    }
}

/// What a column holds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ColumnKind {
    /// Numbers; the mean of those present stands in for the missing.
    Numeric {
        /// Mean of the numbers present.
        mean: f64,
    },
    /// Categories: `codes[c]` is the text with code c. Sorted, so that codes do not depend on row order.
    Categorical {
        /// The texts in the order of their codes.
        codes: Vec<String>,
    },
}

/// One feature column.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the header, or `c0`, `c1` … without one.
    pub name: String,
    /// Where it stands in the file, from 0.
    pub position: usize,
    /// What it holds.
    pub kind: ColumnKind,
    /// How many of its values were missing.
    pub missing: u64,
}

impl Column {
    /// How many features it becomes.
    #[must_use]
    pub fn features(&self, encoding: Encoding) -> usize {
        match (&self.kind, encoding) {
            (ColumnKind::Categorical { codes }, Encoding::OneHot) => codes.len(),
            _ => 1,
        }
    }
}

/// What labels are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Target {
    /// There are none, or they are not used.
    None,
    /// Classes: the text of code c is `classes[c]` (sorted: as numbers when all are numbers).
    Classes(Vec<String>),
    /// Numbers.
    Number,
}

/// What the columns mean.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Schema {
    /// Feature columns. Empty for files whose features have numbers instead of names (libsvm, idx).
    pub columns: Vec<Column>,
    /// How columns become features.
    pub encoding: Encoding,
    /// How many features there are after encoding.
    pub features: usize,
    /// What labels are.
    pub target: Target,
    /// The label column's name, where there is one.
    pub label: Option<String>,
}

impl Schema {
    /// Number of classes; 0 when labels are not classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        match &self.target {
            Target::Classes(classes) => classes.len(),
            _ => 0,
        }
    }

    /// A feature in the words of the file: a column, or one of a column's categories. `None` where features have
    /// numbers only.
    #[must_use]
    pub fn feature_name(&self, feature: usize) -> Option<String> {
        let mut before = 0;
        for column in &self.columns {
            let wide = column.features(self.encoding);
            if feature < before + wide {
                let name = &column.name;
                return Some(match &column.kind {
                    ColumnKind::Categorical { codes } if wide > 1 => {
                        format!("'{}' of column '{name}'", codes[feature - before])
                    }
                    _ => format!("column '{name}'"),
                });
            }
            before += wide;
        }
        None
    }

    /// Number of codes of an identity column.
    #[must_use]
    pub fn identities(&self, column: usize) -> usize {
        match self.columns.get(column).map(|column| &column.kind) {
            Some(ColumnKind::Categorical { codes }) => codes.len(),
            _ => 0,
        }
    }
}
