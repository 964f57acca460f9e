//! What a job says about one data set: where it is, and what of it is the label and the features. The
//! same words travel to every worker, so they read both from a job file (a bare string or number) and
//! from the wire (where every value names its own shape).

use crate::folds::FoldSpec;
use crate::partition::Partition;
use crate::prepare::StepSpec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use starlings_core::{Fault, Result};
use std::path::{Path, PathBuf};

/// One data set, as `[data]` of a job file describes it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DataSpec {
    /// Where it is.
    pub source: Source,
    /// The label column; without it a column called label, class, target or y serves.
    #[serde(default)]
    pub label: Option<LabelColumn>,
    /// The feature columns; without it all but the label.
    #[serde(default)]
    pub features: Option<Vec<ColumnRef>>,
    /// The column that says how much each row counts.
    #[serde(default)]
    pub weight: Option<ColumnRef>,
    /// The column that says which group (query, session) each row belongs to; rows of a group stand together.
    #[serde(default)]
    pub group: Option<ColumnRef>,
    /// Which rows lie together; without it as the files have them, or by group.
    #[serde(default)]
    pub partition: Option<Partition>,
    /// What is made of the columns before a learner sees them, step by step.
    #[serde(default)]
    pub prepare: Vec<StepSpec>,
    /// The format, an entry of [`SOURCES`](crate::SOURCES); without it the file's name and first bytes tell.
    #[serde(default)]
    pub format: Option<String>,
    /// Whether the first line names the columns; without it the first lines tell.
    #[serde(default)]
    pub header: Option<bool>,
    /// What stands between two fields; without it the first lines tell.
    #[serde(default)]
    pub delimiter: Option<char>,
    /// Bytes of a row, of a text that is cut into passages.
    #[serde(default)]
    pub passage: Option<u64>,
    /// Which rows are meant, where not all are.
    #[serde(default)]
    pub fold: Option<FoldSpec>,
}

/// Where a data set is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// A file, a directory, a pattern such as `part-*.csv`, a built-in such as `digits`, or `synthetic://…`.
    Place(String),
    /// Images and their labels in two idx files.
    Images {
        /// The file of images.
        images: String,
        /// The file of labels.
        labels: String,
    },
    /// Features and their labels in two NumPy arrays.
    Arrays {
        /// The array of features.
        features: String,
        /// The array of labels, if there is one.
        labels: Option<String>,
    },
}

/// A column by its name, or by its number from 0 (from the end when negative: -1 is the last).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ColumnRef {
    /// By name.
    Name(String),
    /// By number.
    Index(i64),
}

/// The label's column.
pub type LabelColumn = ColumnRef;

impl DataSpec {
    /// A data set with everything left to inference.
    ///
    /// ```
    /// use starlings_data::DataSpec;
    /// let spec = DataSpec::new("digits").label("class");
    /// assert_eq!(spec.rooted(std::path::Path::new("/jobs")), spec);
    /// ```
    #[must_use]
    pub fn new(place: impl Into<String>) -> DataSpec {
        DataSpec {
            source: Source::Place(place.into()),
            label: None,
            features: None,
            weight: None,
            group: None,
            partition: None,
            prepare: Vec::new(),
            format: None,
            header: None,
            delimiter: None,
            passage: None,
            fold: None,
        }
    }

    /// The same with a label column.
    #[must_use]
    pub fn label(mut self, label: impl Into<ColumnRef>) -> DataSpec {
        self.label = Some(label.into());
        self
    }

    /// The column whose equal values are a group: rows of a key are one wherever they stand.
    pub(crate) fn grouped_by(&self) -> Option<&ColumnRef> {
        match &self.partition {
            Some(Partition::Key(key)) => Some(key),
            _ => self.group.as_ref(),
        }
    }

    /// Sees that the words about groups and partition make sense together.
    pub(crate) fn check_partition(&self) -> Result<()> {
        match (&self.partition, &self.group) {
            (Some(Partition::Group), None) => {
                Err(Fault::caller("[data] partition = \"group\" needs to know the groups")
                    .hint("name their column: group = \"…\""))
            }
            (Some(Partition::Key(key)), Some(group)) if key != group => {
                Err(Fault::caller("[data] has both a partition by key and a group")
                    .hint("rows of a key are a group: leave out `group`"))
            }
            (Some(Partition::Sort(_)), Some(_)) => {
                Err(Fault::caller("[data] rows cannot be sorted and stay in groups")
                    .hint("leave out `group` or `partition`"))
            }
            _ => Ok(()),
        }
    }

    /// All columns that the words name.
    pub(crate) fn columns_named(&self) -> impl Iterator<Item = &ColumnRef> {
        let apart = [self.label.as_ref(), self.weight.as_ref(), self.grouped_by()];
        let apart = apart.into_iter().flatten();
        apart.chain(self.features.iter().flatten())
    }

    /// The same with relative paths made absolute against `dir`, the folder of the job file. Built-ins and
    /// addresses with a scheme stay as they are.
    #[must_use]
    pub fn rooted(&self, dir: &Path) -> DataSpec {
        let root = |place: &String| match is_path(place) {
            true => dir.join(place).to_string_lossy().into_owned(),
            false => place.clone(),
        };
        let source = match &self.source {
            Source::Place(place) => Source::Place(root(place)),
            Source::Images { images, labels } => {
                Source::Images { images: root(images), labels: root(labels) }
            }
            Source::Arrays { features, labels } => {
                Source::Arrays { features: root(features), labels: labels.as_ref().map(root) }
            }
        };
        DataSpec { source, ..self.clone() }
    }
}

fn is_path(place: &str) -> bool {
    !place.contains("://") && !crate::sources::builtin::NAMES.contains(&place)
}

impl Source {
    /// As people write it.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Source::Place(place) => place.clone(),
            Source::Images { images, labels } => format!("{images} with {labels}"),
            Source::Arrays { features, labels: None } => features.clone(),
            Source::Arrays { features, labels: Some(labels) } => {
                format!("{features} with {labels}")
            }
        }
    }
}

impl From<&str> for ColumnRef {
    fn from(name: &str) -> ColumnRef {
        ColumnRef::Name(name.to_string())
    }
}

impl From<i64> for ColumnRef {
    fn from(index: i64) -> ColumnRef {
        ColumnRef::Index(index)
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source::Place(path.to_string_lossy().into_owned())
    }
}

/// People write a string or a table and mean one of several shapes; a wire format cannot guess shapes and
/// needs them tagged. `Written` and `Wired` are the two faces of one type.
macro_rules! two_faces {
    ($type:ident, $written:ident, $wired:ident) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match serializer.is_human_readable() {
                    true => $written::serialize(self, serializer),
                    false => $wired::serialize(self, serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                match deserializer.is_human_readable() {
                    true => $written::deserialize(deserializer),
                    false => $wired::deserialize(deserializer),
                }
            }
        }
    };
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Source", untagged)]
enum SourceWritten {
    Place(String),
    Images {
        images: String,
        labels: String,
    },
    Arrays {
        features: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        labels: Option<String>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Source")]
enum SourceWired {
    Place(String),
    Images { images: String, labels: String },
    Arrays { features: String, labels: Option<String> },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ColumnRef", untagged)]
enum ColumnWritten {
    Name(String),
    Index(i64),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ColumnRef")]
enum ColumnWired {
    Name(String),
    Index(i64),
}

two_faces!(Source, SourceWritten, SourceWired);
two_faces!(ColumnRef, ColumnWritten, ColumnWired);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_from_a_job_file_and_from_the_wire() {
        let text = "source = { images = 'a', labels = 'b' }\nlabel = -1\nfeatures = ['x', 3]";
        let spec: DataSpec = toml::from_str(text).unwrap();
        assert_eq!(spec.label, Some(ColumnRef::Index(-1)));
        assert_eq!(spec.features, Some(vec!["x".into(), 3.into()]));
        let wired = postcard::to_allocvec(&spec).unwrap();
        assert_eq!(postcard::from_bytes::<DataSpec>(&wired).unwrap(), spec);
        let written = toml::to_string(&spec).unwrap();
        assert_eq!(toml::from_str::<DataSpec>(&written).unwrap(), spec);
    }

    #[test]
    fn only_paths_are_rooted() {
        let rooted = |place: &str| DataSpec::new(place).rooted(Path::new("/jobs")).source.text();
        assert_eq!(rooted("a.csv"), "/jobs/a.csv");
        assert_eq!(rooted("/b/a.csv"), "/b/a.csv");
        assert_eq!(rooted("digits:test"), "digits:test");
        assert_eq!(rooted("synthetic://blobs?rows=5"), "synthetic://blobs?rows=5");
    }
}
