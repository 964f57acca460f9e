//! Well-known data sets, where they are at hand (`../shared/data` beside the project): the counts that their
//! publishers state.

use crate::{all, classes, plain};
use starlings_data::{DataSpec, Encoding, Features, LabelNeed, load_with};
use std::path::{Path, PathBuf};

/// The set's path, if it is there.
fn set(name: &str) -> Option<DataSpec> {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = folder.join(name);
    path.exists().then(|| DataSpec::new(path.to_string_lossy()))
}

#[test]
fn adult_has_its_rows_columns_and_gaps() {
    let (Some(train), Some(test)) = (set("adult.data.gz"), set("adult.test.gz")) else { return };
    let (survey, table) = classes(&train.label(-1));
    assert_eq!((survey.rows, survey.schema.columns.len()), (32_561, 14));
    let missing: Vec<u64> = survey.schema.columns.iter().map(|c| c.missing).collect();
    // Work class, occupation and native country have gaps (UCI's adult.names).
    assert_eq!(missing, [0, 1836, 0, 0, 0, 0, 1843, 0, 0, 0, 0, 0, 0, 583]);
    assert_eq!(survey.class_rows, [24_720, 7_841]);
    // 6 numbers and 8 + 16 + 7 + 14 + 6 + 5 + 2 + 41 categories.
    assert_eq!(survey.schema.features, 105);
    assert!(matches!(table.features, Features::Sparse { .. }));
    let (survey, _) = classes(&test.label(-1));
    assert_eq!(survey.rows, 16_281);
}

#[test]
fn a9a_has_its_entries_and_its_test_part_fits() {
    let (Some(train), Some(test)) = (set("a9a.gz"), set("a9a.t")) else { return };
    let (survey, _) = classes(&train);
    assert_eq!((survey.rows, survey.schema.features, survey.entries), (32_561, 123, Some(451_592)));
    assert_eq!((survey.format.as_str(), &survey.class_rows[..]), ("libsvm", &[24_720, 7_841][..]));
    let table = load_with(&test, &survey.schema, &survey.intake).unwrap();
    assert_eq!((table.rows(), table.width()), (16_281, 123));
    let Features::Sparse { values, .. } = &table.features else { panic!("libsvm is sparse") };
    assert_eq!(values.len(), 225_731);
    assert_eq!(table.labels.iter().sum::<f32>(), 3_846.0);
}

#[test]
fn agaricus_has_its_rows() {
    let (Some(train), Some(test)) = (set("agaricus.txt.train"), set("agaricus.txt.test")) else {
        return;
    };
    let (survey, _) = classes(&train);
    assert_eq!((survey.rows, survey.schema.features), (6_513, 126));
    assert_eq!(load_with(&test, &survey.schema, &survey.intake).unwrap().rows(), 1_611);
}

#[test]
fn movielens_has_its_users_and_items() {
    let Some(mut spec) = set("movielens_latest_small_ratings.csv.gz") else { return };
    spec.features = Some(vec!["userId".into(), "movieId".into()]);
    let (survey, _) = all(&spec.label("rating"), Encoding::Identity, LabelNeed::Number);
    let identities = (survey.schema.identities(0), survey.schema.identities(1));
    assert_eq!((survey.rows, identities), (100_836, (610, 9_724)));
}

#[test]
fn other_sets_have_their_shapes() {
    for (name, rows, columns) in [
        ("cal_housing.data.gz", 20_640, 9),
        ("shuttle.csv.gz", 49_097, 10),
        ("lightgbm_binary.train", 7_000, 29),
        ("sklearn_digits.csv.gz", 1_797, 65),
        ("sklearn_diabetes_data_raw.csv.gz", 442, 10),
        ("movielens_latest_small_movies.csv", 9_742, 3),
    ] {
        let Some(spec) = set(name) else { return };
        let (survey, _) = plain(&spec);
        assert_eq!((survey.rows, survey.schema.columns.len()), (rows, columns), "{name}");
    }
}
