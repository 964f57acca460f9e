//! Data files, and rows between workers. Readers of files stream from disk, so an input becomes a file, in memory where the
//! system has such a folder.

use super::Decoder;
use starlings_core::Shard;
use starlings_data::{
    DataSpec, Encoding, Features, Holding, LabelNeed, Parcel, Source, Table, load_all,
};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

pub(super) const CSV: Decoder = Decoder { name: "csv", run: csv, seeds: csv_files };
pub(super) const LIBSVM: Decoder = Decoder { name: "libsvm", run: libsvm, seeds: libsvm_files };
pub(super) const IDX: Decoder = Decoder { name: "idx", run: idx, seeds: idx_files };
pub(super) const PARQUET: Decoder = Decoder { name: "parquet", run: parquet, seeds: parquet_files };
pub(super) const PARCEL: Decoder = Decoder { name: "parcel", run: parcel, seeds: parcels };

thread_local!(static FOLDER: TempDir = folder());

fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a folder for inputs")
}

/// Writes the files and reads them as one data set; whatever was read must be a table.
fn read(files: &[(&str, &[u8])], spec: impl FnOnce(&Path) -> DataSpec, choice: u8) {
    let encoding = [Encoding::OneHot, Encoding::Identity, Encoding::Codes][usize::from(choice % 3)];
    let need = [LabelNeed::None, LabelNeed::Class, LabelNeed::Number][usize::from(choice / 3 % 3)];
    FOLDER.with(|folder| {
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).expect("room for an input");
        }
        if let Ok((survey, holding)) = load_all(&spec(folder.path()), encoding, need, 4) {
            assert_eq!(holding.table.rows() as u64, survey.rows);
            assert!(survey.rows > 0 && survey.schema.features > 0);
        }
    });
}

fn place(folder: &Path, name: &str, format: &str) -> DataSpec {
    let place = folder.join(name).to_string_lossy().into_owned();
    DataSpec { format: Some(format.to_owned()), ..DataSpec::new(place) }
}

fn csv(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else { return };
    read(&[("rows.csv", text)], |folder| place(folder, "rows.csv", "csv"), choice);
}

fn libsvm(bytes: &[u8]) {
    let Some((&choice, text)) = bytes.split_first() else { return };
    let format = if choice < 128 { "libsvm" } else { "libsvm-from-0" };
    read(&[("rows.svm", text)], |folder| place(folder, "rows.svm", format), choice);
}

/// Two files in one input: where the second begins is the first two bytes.
fn idx(bytes: &[u8]) {
    let Some((&[choice, low, high], rest)) = bytes.split_first_chunk::<3>() else { return };
    let at = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
    let (images, labels) = rest.split_at(at);
    let spec = |folder: &Path| {
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let source = Source::Images { images: path("images"), labels: path("labels") };
        DataSpec { source, ..DataSpec::new("") }
    };
    read(&[("images", images), ("labels", labels)], spec, choice);
}

fn parquet(bytes: &[u8]) {
    let Some((&choice, file)) = bytes.split_first() else { return };
    read(&[("rows.parquet", file)], |folder| place(folder, "rows.parquet", "parquet"), choice);
}

/// Rows that another worker gives away.
fn parcel(bytes: &[u8]) {
    if let Ok(parcel) = Parcel::read(bytes) {
        let spelt = parcel.to_bytes();
        let again = Parcel::read(&spelt).expect("its own");
        assert_eq!(again.to_bytes(), spelt, "one spelling");
    }
}

fn parcels() -> Vec<Vec<u8>> {
    let dense = Features::Dense { width: 2, values: vec![1.0, -2.5, 0.0, f32::NAN] };
    let (starts, columns) = (vec![0, 2, 2], vec![0, 5]);
    let sparse = Features::Sparse { width: 6, starts, columns, values: vec![0.5, 3.0] };
    let first = |features: Features| {
        let table = Table::new(features, vec![1.0, 0.0]);
        let held = Holding::whole(Arc::new(table), 1);
        held.parcels(Shard(0)).next().map(|parcel| parcel.to_bytes()).expect("two rows")
    };
    vec![first(dense), first(sparse)]
}

fn csv_files() -> Vec<Vec<u8>> {
    let texts = [
        "\u{3}a,b,label\n1,2.5,x\n-3e4,,y\n",
        "\u{6}a\tb\ty\n1\t2\t3\nnan\tinf\t0\n",
        "\u{0}\"quoted, field\",\"double \"\"\"\n1,\"\n\"\n",
        "\u{4}user;item;label\nann;7;1\r\nbob;8;0\r\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn libsvm_files() -> Vec<Vec<u8>> {
    let texts =
        ["\u{3}1 1:0.5 3:2\n-1 2:1e3 # note\n", "\u{6}2.5 qid:1 1:1 2:2\n", "\u{3}+1\n0 7:1\n"];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn idx_files() -> Vec<Vec<u8>> {
    let mut images = vec![0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2];
    images.extend(0..8);
    let labels = [0, 0, 8, 1, 0, 0, 0, 2, 3, 4];
    let at = (images.len() as u16).to_le_bytes();
    vec![[&[3, at[0], at[1]][..], &images, &labels].concat()]
}

fn parquet_files() -> Vec<Vec<u8>> {
    // Small files with numbers, texts, a dictionary and compression lie in the corpus: nothing here writes Parquet.
    vec![[&[3][..], b"PAR1", &[0; 8], b"PAR1"].concat()]
}
