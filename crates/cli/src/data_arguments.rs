//! The arguments by which several commands name a data set.

use clap::Args;
use starlings::{ColumnRef, DataSpec, Source};

/// A data set.
#[derive(Args)]
pub(crate) struct DataArguments {
    /// A file, directory or pattern (csv, tsv, libsvm, parquet, arrow, npy, jsonl, text, idx; .gz and .zst too), a built-in such as
    /// digits:test, or synthetic://…
    #[arg(long, value_name = "DATA")]
    pub(crate) data: String,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// How to read it, where the file itself does not tell.
#[derive(Args)]
pub(crate) struct Reading {
    /// The label column, by name or by number from 0 (-1 is the last)
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    label: Option<String>,
    /// The column that says how much each row counts, by name or number
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    weight: Option<String>,
    /// The column that says which group (query) each row belongs to, by name or number
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    group: Option<String>,
    /// The file of labels that belongs to a file of images (idx) or to an array (npy)
    #[arg(long, value_name = "FILE")]
    labels: Option<String>,
    /// The format, an entry of `starlings list sources`; otherwise name and first bytes tell
    #[arg(long)]
    format: Option<String>,
    /// Whether the first line names the columns; otherwise the first lines tell
    #[arg(long, value_name = "true|false")]
    header: Option<bool>,
    /// What stands between two fields; otherwise the first lines tell
    #[arg(long, value_name = "CHARACTER")]
    delimiter: Option<char>,
    /// Bytes of a row, of a text in the format `passages`
    #[arg(long, value_name = "BYTES")]
    passage: Option<u64>,
}

impl DataArguments {
    /// The data set they name.
    pub(crate) fn spec(&self) -> DataSpec {
        self.reading.spec(&self.data)
    }
}

impl Reading {
    /// The data set at a place, read this way.
    pub(crate) fn spec(&self, place: &str) -> DataSpec {
        let mut spec = DataSpec::new(place);
        if let Some(labels) = &self.labels {
            let (place, labels) = (place.to_string(), labels.clone());
            spec.source =
                match place.trim_end_matches(".gz").trim_end_matches(".zst").ends_with(".npy") {
                    true => Source::Arrays { features: place, labels: Some(labels) },
                    false => Source::Images { images: place, labels },
                };
        }
        spec.label = self.label.as_deref().map(column);
        spec.weight = self.weight.as_deref().map(column);
        spec.group = self.group.as_deref().map(column);
        spec.format.clone_from(&self.format);
        (spec.header, spec.delimiter) = (self.header, self.delimiter);
        spec.passage = self.passage;
        spec
    }
}

fn column(text: &str) -> ColumnRef {
    match text.parse() {
        Ok(index) => ColumnRef::Index(index),
        Err(_) => ColumnRef::Name(text.to_string()),
    }
}
