//! Places: directories, patterns, missing and damaged files, changes under a survey.

use crate::{Folder, classes, dense, packed, plain, refused, says};
use starlings_core::Shard;
use starlings_data::{DataSpec, Encoding, LabelNeed, SOURCES, load, survey};

fn spec_of(folder: &Folder, name: &str) -> DataSpec {
    DataSpec::new(folder.path().join(name).to_string_lossy())
}

#[test]
fn directories_and_patterns_join_files_by_name() {
    let folder = Folder::new();
    folder.write("b.csv.gz", "x,y\n3,4\n5,6\n");
    folder.write("a.csv", "x,y\n1,2\n");
    folder.write("c.csv.zst", "x,y\n7,8\n");
    folder.write(".hidden", "not data");
    folder.write("_SUCCESS", "");
    let expected = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    for place in ["", "*.csv*", "[abc].csv*"] {
        let (survey, table) = plain(&spec_of(&folder, place));
        assert_eq!((dense(&table), survey.files.len()), (&expected[..], 3), "{place}");
    }
    folder.write("d.csv", "x,z\n1,2\n");
    says(
        &refused(&spec_of(&folder, ""), LabelNeed::None),
        &["d.csv differs", "'z' instead of 'y'"],
    );
    folder.write("d.csv", "x,y,z\n1,2,3\n");
    says(&refused(&spec_of(&folder, ""), LabelNeed::None), &["3 columns instead of 2"]);
    std::fs::rename(folder.path().join("d.csv"), folder.path().join("d.svm")).unwrap();
    says(&refused(&spec_of(&folder, ""), LabelNeed::None), &["mixes formats", "d.svm", "libsvm"]);
    says(&refused(&spec_of(&folder, "*.json"), LabelNeed::None), &["there are no files"]);
}

#[test]
fn categories_and_digests_span_files() {
    let folder = Folder::new();
    folder.write("a.csv", "x,class\n1,b\n");
    folder.write("b.csv", "x,class\nred,a\n");
    let (first, table) = classes(&spec_of(&folder, ""));
    assert_eq!(table.labels, [1.0, 0.0]);
    assert_eq!(first.schema.identities(0), 2);
    folder.write("b.csv", "x,class\nred,c\n");
    assert_ne!(classes(&spec_of(&folder, "")).0.digest, first.digest);
    let one = spec_of(&folder, "a.csv");
    let bytes = std::fs::read(folder.path().join("a.csv")).unwrap();
    assert_eq!(plain(&one).0.digest, blake3::hash(&bytes).to_hex().to_string());
}

#[test]
fn a_missing_file_gets_the_nearest_name() {
    let folder = Folder::new();
    folder.write("train.csv", "1\n");
    let message = refused(&spec_of(&folder, "trian.csv"), LabelNeed::None);
    says(&message, &["there is no file", "trian.csv", "did you mean 'train.csv'"]);
    says(&refused(&DataSpec::new("digit"), LabelNeed::None), &["the built-in 'digits'"]);
    says(
        &refused(&DataSpec::new("ftp://host/x"), LabelNeed::None),
        &["s3://", "does not read ftp://"],
    );
    let unknown = DataSpec { format: Some("cvs".into()), ..spec_of(&folder, "train.csv") };
    says(&refused(&unknown, LabelNeed::None), &["unknown format 'cvs'", "'csv'"]);
}

#[test]
fn damaged_compression_is_the_callers_fault() {
    let folder = Folder::new();
    let text: String = (0..5000).map(|row| format!("{row},{}\n", row * 7919 % 1000)).collect();
    for name in ["a.csv.gz", "a.csv.zst"] {
        let mut bytes = packed(name, text.as_bytes());
        let middle = bytes.len() / 2;
        let cut = bytes[..middle].to_vec();
        bytes[middle] ^= 0x55;
        bytes[middle + 1] ^= 0xaa;
        for damaged in [bytes, cut] {
            let path = folder.path().join(name);
            std::fs::write(&path, damaged).unwrap();
            let spec = DataSpec::new(path.to_string_lossy());
            let fault = survey(&spec, Encoding::OneHot, LabelNeed::None).unwrap_err();
            assert_eq!(fault.blame(), starlings_core::Blame::Caller, "{fault}");
        }
    }
}

#[test]
fn a_file_that_changed_since_the_survey_is_refused() {
    let folder = Folder::new();
    let spec = folder.spec("a.csv", "x,y\n1,2\n3,4\n");
    let found = survey(&spec, Encoding::OneHot, LabelNeed::None).unwrap();
    assert_eq!(load(&spec, &found, &[Shard(1)], 2).unwrap().table.rows(), 1);
    assert!(load(&spec, &found, &[Shard(2)], 2).is_err(), "there is no such shard");
    folder.write("a.csv", "x,y\n1,2\n3,4\n5,6\n");
    let fault = load(&spec, &found, &[Shard(0)], 2).unwrap_err().to_string();
    says(&fault, &["has changed since it was surveyed", "16 bytes instead of 12"]);
}

#[test]
fn a_survey_travels() {
    let (survey, _) = classes(&DataSpec::new("digits:test"));
    let wired = postcard::to_allocvec(&survey).unwrap();
    assert_eq!(postcard::from_bytes::<starlings_data::Survey>(&wired).unwrap(), survey);
}

#[test]
fn every_source_has_a_name_a_summary_and_a_reference() {
    for entry in SOURCES {
        assert!(!entry.name.is_empty() && !entry.summary.is_empty() && !entry.reference.is_empty());
        let same = SOURCES.iter().filter(|other| other.name == entry.name).count();
        assert_eq!(same, 1, "{}", entry.name);
    }
}

#[test]
fn builtin_digits_are_split_and_labelled() {
    let (train, table) = classes(&DataSpec::new("digits"));
    let (test, _) = classes(&DataSpec::new("digits:test").label("class"));
    assert_eq!((train.rows, test.rows), (1438, 359));
    assert_eq!((train.schema.features, train.schema.classes()), (64, 10));
    assert_eq!(train.schema.label.as_deref(), Some("class"));
    // The first image of the set is a zero whose first line is 0 0 5 13 9 1 0 0.
    assert_eq!(dense(&table)[..8], [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0]);
    assert_eq!(table.labels[0], 0.0);
    // Rows of both parts add up to the class counts of scikit-learn's load_digits().
    let both: Vec<u64> =
        train.class_rows.iter().zip(&test.class_rows).map(|(a, b)| a + b).collect();
    assert_eq!(both, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
    // Without need of labels they are still no feature.
    assert_eq!(plain(&DataSpec::new("digits")).0.schema.features, 64);
}
