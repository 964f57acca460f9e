//! Preparations against scikit-learn's figures (`bench/references/prepare.json`, made by the script beside it), in whole
//! and in shards, for training rows and for new ones; and what is refused with which words.

#![expect(clippy::unwrap_used, reason = "a test's own helpers may fail loudly, as its tests do")]

use serde_json::Value;
use starlings_core::Shard;
use starlings_data::{
    DataSpec, Encoding, Intake, LabelNeed, Row, StepSpec, Survey, Table, load, load_all, load_with,
    survey,
};
use std::path::Path;
use tempfile::TempDir;

fn references() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/references/prepare.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A step from a table of a job file.
fn step(text: &str) -> StepSpec {
    let mut given: toml::Table = text.parse().unwrap();
    let name = given.remove("name").unwrap().as_str().unwrap().to_string();
    let columns = given.remove("columns").map(|columns| columns.try_into().unwrap());
    StepSpec { name, columns, given: given.to_string() }
}

struct Files {
    _folder: TempDir,
    train: DataSpec,
    new: DataSpec,
}

fn files(train: &str, new: &str) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        DataSpec::new(path.to_string_lossy())
    };
    let (train, new) = (write("train.csv", train), write("new.csv", new));
    Files { _folder: folder, train, new }
}

fn dense(table: &Table) -> Vec<Vec<f64>> {
    let row = |row| match table.row(row) {
        Row::Dense(values) => values.iter().map(|value| f64::from(*value)).collect(),
        Row::Sparse(columns, values) => {
            let mut all = vec![0.0; table.width()];
            for (column, value) in columns.iter().zip(values) {
                all[*column as usize] = f64::from(*value);
            }
            all
        }
    };
    (0..table.rows()).map(row).collect()
}

fn compare(case: &str, part: &str, found: &Table, expected: &Value) {
    let (found, expected) = (dense(found), expected.as_array().unwrap());
    assert_eq!(found.len(), expected.len(), "{case}, {part}: rows");
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected.as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{case}, {part}: features");
        for (feature, (found, expected)) in found.iter().zip(expected).enumerate() {
            let near = match expected.as_f64() {
                None => found.is_nan(),
                Some(expected) => (found - expected).abs() <= 2e-6 * expected.abs().max(1.0),
            };
            assert!(near, "{case}, {part}, row {row}, feature {feature}: {found} and {expected}");
        }
    }
}

/// Loads everything, and checks that shards join to the whole.
fn both(spec: &DataSpec, encoding: Encoding, label: LabelNeed) -> (Survey, Table) {
    let (found, whole) = load_all(spec, encoding, label, 5).unwrap();
    assert_eq!(survey(spec, encoding, label).unwrap(), found);
    let (mut rows, all) = (Vec::new(), dense(&whole.table));
    for shard in (0..5).map(Shard) {
        rows.extend(dense(&load(spec, &found, &[shard], 5).unwrap().table));
    }
    let bits =
        |rows: &[Vec<f64>]| -> Vec<u64> { rows.concat().iter().map(|it| it.to_bits()).collect() };
    assert_eq!(bits(&rows), bits(&all));
    (found, (*whole.table).clone())
}

#[test]
fn every_preparation_has_scikit_learns_numbers() {
    let references = references();
    let files = files(references["train"].as_str().unwrap(), references["new"].as_str().unwrap());
    let mut steps_seen = Vec::new();
    for case in references["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let features = case["features"].as_array().unwrap();
        let label = case["label"].as_str().unwrap();
        let steps = case["steps"].as_array().unwrap().iter();
        let steps = steps.map(|it| step(&toml::to_string(it).unwrap()));
        let mut spec = files.train.clone().label(label);
        spec.features = Some(features.iter().map(|it| it.as_str().unwrap().into()).collect());
        spec.prepare = steps.collect();
        steps_seen.extend(spec.prepare.iter().map(|step| step.name.clone()));
        let need = if label == "number" { LabelNeed::Number } else { LabelNeed::Class };
        let (found, table) = both(&spec, Encoding::Codes, need);
        compare(name, "training rows", &table, &case["train"]);
        // As the model file keeps it.
        let intake = serde_json::to_string(&found.intake).unwrap();
        let intake: Intake = serde_json::from_str(&intake).unwrap();
        assert_eq!(intake, found.intake);
        let intake = Intake { prepared: intake.prepared.for_prediction(), ..intake };
        let new = load_with(&files.new, &found.schema, &intake).unwrap();
        compare(name, "new rows", &new, &case["new"]);
        assert_eq!(found.schema.columns.len(), found.schema.features, "{name}");
    }
    for entry in starlings_data::PREPARATIONS {
        assert!(steps_seen.iter().any(|it| it == entry.name), "no figures for '{}'", entry.name);
    }
}

const PEOPLE: &str = "age,town,note,bought\n30,Rome,good buy,yes\n,Oslo,bad,no\n50,Rome,good good,yes\n\
                      20,Lima,,no\n35,Oslo,so so,no\n";

fn people(steps: &[&str]) -> DataSpec {
    let files = files(PEOPLE, "age\n");
    let mut spec = files.train.clone().label("bought");
    spec.prepare = steps.iter().map(|text| step(text)).collect();
    // The folder goes with the test's process.
    std::mem::forget(files);
    spec
}

#[test]
fn what_is_left_is_encoded_as_the_learner_wants_it() {
    let spec =
        people(&["name = 'tf-idf'\ncolumns = ['note']", "name = 'impute'\ncolumns = ['age']"]);
    let (found, table) = both(&spec, Encoding::OneHot, LabelNeed::Class);
    let names: Vec<&str> = found.schema.columns.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["age", "town", "note: bad", "note: buy", "note: good", "note: so"]);
    assert_eq!((found.schema.features, table.width()), (8, 8));
    assert_eq!(dense(&table)[1][..4], [33.75, 0.0, 1.0, 0.0]);
    let (coded, _) = both(&spec, Encoding::Codes, LabelNeed::Class);
    assert_eq!(coded.schema.features, 6);
    assert_eq!(coded.schema.identities(1), 3);
}

#[test]
fn steps_work_on_what_steps_before_them_made() {
    let steps = [
        "name = 'impute'\nstrategy = 'median'\nindicator = true\ncolumns = ['age']",
        "name = 'scale'\nkind = 'min-max'\ncolumns = ['age']",
        "name = 'polynomial'\ncolumns = ['age', 'age missing']",
        "name = 'one-hot'\ncolumns = ['town']",
        "name = 'hashed-n-grams'\nfeatures = 64\ncolumns = ['note']",
    ];
    let (found, table) = both(&people(&steps), Encoding::OneHot, LabelNeed::Class);
    assert_eq!(found.schema.features, 5 + 3 + 64);
    let row = &dense(&table)[1];
    // The median 32.5 lies at 12.5 / 30 of the range; it was missing, so that its product is itself.
    let age = 12.5 / 30.0;
    let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
    assert!([age, 1.0, age * age, age, 1.0].iter().zip(row).all(|(a, b)| close(*a, *b)), "{row:?}");
    assert!(matches!(table.features, starlings_data::Features::Sparse { .. }));
}

#[test]
fn sparse_rows_without_columns_are_scaled_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svm");
    std::fs::write(&path, "1 1:2 3:-8\n0 2:4\n1 1:1 3:4\n").unwrap();
    let mut spec = DataSpec::new(path.to_string_lossy());
    spec.prepare = vec![step("name = 'scale'\nkind = 'max-abs'")];
    let (found, table) = both(&spec, Encoding::OneHot, LabelNeed::Class);
    let expected = [[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]];
    assert_eq!(dense(&table), expected);
    let new = folder.path().join("b.svm");
    std::fs::write(&new, "1 2:2 9:5\n").unwrap();
    let new = DataSpec::new(new.to_string_lossy());
    let new = load_with(&new, &found.schema, &found.intake).unwrap();
    assert_eq!(dense(&new), [[0.0, 0.5, 0.0]]);
    // By hand: the mean of (2, 0, 1) is 1, its deviation √(2/3).
    spec.prepare = vec![step("name = 'scale'\ncenter = false")];
    let (_, table) = both(&spec, Encoding::OneHot, LabelNeed::Class);
    assert!((dense(&table)[0][0] - 2.0 / (2.0f64 / 3.0).sqrt()).abs() < 1e-6);
    spec.prepare = vec![step("name = 'scale'")];
    let fault = survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap_err().to_string();
    assert!(fault.contains("sparse") && fault.contains("max-abs"), "{fault}");
}

#[test]
fn steps_that_cannot_be_are_refused_with_names() {
    for (text, words) in [
        ("name = 'scael'", ["unknown preparation 'scael'", "'scale'"]),
        ("name = 'scale'\ncolumns = ['agee']", ["no column 'agee'", "'age'"]),
        ("name = 'scale'\ncolumns = ['town']", ["column 'town' holds texts", "wants numbers"]),
        ("name = 'tf-idf'\ncolumns = ['age']", ["column 'age' holds numbers", "wants texts"]),
        ("name = 'scale'\nkind = 'min-max'\nlow = 2", ["low must be below high", "scale"]),
        ("name = 'tf-idf'\nmin_df = 9\ncolumns = ['note']", ["no term is left", "min_df"]),
        ("name = 'bin'\nbins = 1", ["bins = 1", "from 2"]),
        ("name = 'tf-idf'\nn_gram_min = 3", ["n_gram_min", "n_gram_max"]),
        ("name = 'scale'\ncentre = true", ["unknown key 'centre'", "'center'"]),
    ] {
        let fault = survey(&people(&[text]), Encoding::OneHot, LabelNeed::Class);
        let fault = fault.unwrap_err().to_string();
        assert!(words.iter().all(|word| fault.contains(word)), "{text}: {fault}");
    }
    let spec = people(&["name = 'target-encoding'\ncolumns = ['town']"]);
    let fault = survey(&spec, Encoding::OneHot, LabelNeed::None).unwrap_err().to_string();
    assert!(fault.contains("needs labels"), "{fault}");
}

#[test]
fn unseen_categories_are_no_feature_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new.csv");
    std::fs::write(&path, "age,town,note\n30,Mars,x\n").unwrap();
    let new = DataSpec::new(path.to_string_lossy());
    for (unseen, refused) in [("none", false), ("error", true)] {
        let text = format!("name = 'one-hot'\nunseen = '{unseen}'\ncolumns = ['town']");
        let (found, _) = both(
            &people(&[&text, "name = 'hashed-n-grams'\nfeatures = 2\ncolumns = ['note']"]),
            Encoding::OneHot,
            LabelNeed::Class,
        );
        match (load_with(&new, &found.schema, &found.intake), refused) {
            (Ok(table), false) => assert_eq!(dense(&table)[0][1..4], [0.0; 3]),
            (Err(fault), true) => {
                let fault = fault.to_string();
                assert!(fault.contains("column 'town': category 'Mars'"), "{fault}");
            }
            (outcome, _) => panic!("{outcome:?}"),
        }
    }
}
