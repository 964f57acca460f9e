//! Every source read back: what was written, in whole and in shards, and what is refused with which words.

#![expect(clippy::unwrap_used, reason = "a test's own helpers may fail loudly, as its tests do")]

mod beside;
mod csv;
mod files;
mod golden;
mod known_sets;
mod numbered;
mod parquet;
mod partition;
mod passages;
mod prediction;
mod synthetic;

use starlings_core::{Blame, Fault, Shard};
use starlings_data::{
    DataSpec, Encoding, Features, LabelNeed, Row, Survey, Table, load, load_all, survey,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder for one test's files.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, compressed as its name says.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, packed(name, content.as_ref())).unwrap();
        path
    }

    /// Writes a file and describes it.
    fn spec(&self, name: &str, content: impl AsRef<[u8]>) -> DataSpec {
        DataSpec::new(self.write(name, content).to_string_lossy())
    }
}

fn packed(name: &str, content: &[u8]) -> Vec<u8> {
    if name.ends_with(".gz") {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    } else if name.ends_with(".zst") {
        zstd::encode_all(content, 1).unwrap()
    } else {
        content.to_vec()
    }
}

fn classes(spec: &DataSpec) -> (Survey, Table) {
    all(spec, Encoding::OneHot, LabelNeed::Class)
}

fn plain(spec: &DataSpec) -> (Survey, Table) {
    all(spec, Encoding::OneHot, LabelNeed::None)
}

/// Loads everything, and checks that a survey alone says the same and that shards join to the whole.
fn all(spec: &DataSpec, encoding: Encoding, label: LabelNeed) -> (Survey, Table) {
    let (found, holding) = load_all(spec, encoding, label, 7).unwrap();
    assert_eq!(survey(spec, encoding, label).unwrap(), found);
    let odd: Vec<Shard> = [1, 3, 5].map(Shard).to_vec();
    let even: Vec<Shard> = [6, 0, 2, 4].map(Shard).to_vec();
    for keep in [odd, even] {
        let part = load(spec, &found, &keep, 7).unwrap();
        assert_eq!(part.rows_held() as usize, part.table.rows());
        for (&shard, &start) in &part.starts {
            let whole = holding.starts[&shard];
            for row in 0..holding.shard_rows(shard) as usize {
                let (ours, theirs) = (part.table.row(start + row), holding.table.row(whole + row));
                assert!(same(ours, theirs), "{shard}, row {row}: {ours:?}, {theirs:?}");
                let beside = |table: &Table, row: usize| {
                    (table.weights.get(row).copied(), table.groups.get(row).copied())
                };
                assert_eq!(beside(&part.table, start + row), beside(&holding.table, whole + row));
                if let Some(label) = holding.table.labels.get(whole + row) {
                    assert_eq!(part.table.labels[start + row].to_bits(), label.to_bits());
                }
            }
        }
    }
    let table = (*holding.table).clone();
    assert_eq!(table.rows() as u64, found.rows);
    assert_eq!(table.width(), found.schema.features);
    (found, table)
}

/// Equal to the bit; NaN is NaN.
fn same(ours: Row<'_>, theirs: Row<'_>) -> bool {
    let bits = |a: &[f32], b: &[f32]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
    };
    match (ours, theirs) {
        (Row::Dense(a), Row::Dense(b)) => bits(a, b),
        (Row::Sparse(i, a), Row::Sparse(j, b)) => i == j && bits(a, b),
        _ => false,
    }
}

fn refused(spec: &DataSpec, label: LabelNeed) -> String {
    let fault = load_all(spec, Encoding::OneHot, label, 1).expect_err("must be refused");
    assert_eq!(fault.blame(), Blame::Caller, "{fault}");
    let alone = survey(spec, Encoding::OneHot, label).err().map(|fault: Fault| fault.to_string());
    assert_eq!(alone, Some(fault.to_string()));
    fault.to_string()
}

fn dense(table: &Table) -> &[f32] {
    match &table.features {
        Features::Dense { values, .. } => values,
        Features::Sparse { .. } => panic!("expected dense features"),
    }
}

/// That a message has all these words.
fn says(message: &str, words: &[&str]) {
    for word in words {
        assert!(message.contains(word), "no '{word}' in: {message}");
    }
}
