//! Linear models against scikit-learn's optima on real data, recorded in `bench/references/linear.json`.

use super::{Job, dense};
use starlings_data::{Features, Table};
use std::io::Read;
use std::sync::Arc;

/// The reference's name, the learner, its parameters (standardised and tight unless they say so), the data and the
/// number of classes.
type Case = (&'static str, &'static str, &'static str, &'static str, usize);

const LOGISTIC: &str = "logistic-regression";
const GENERALISED: &str = "generalised-linear";
const CASES: [Case; 13] = [
    ("breast cancer, logistic, l2 = 1e-3", LOGISTIC, "l2 = 1e-3", "cancer", 2),
    ("breast cancer, logistic, l2 = 1e-3", LOGISTIC, "l2 = 1e-3\nsolver = 'newton'", "cancer", 2),
    (
        "breast cancer, logistic, l2 = 1e-3, balanced",
        LOGISTIC,
        "l2 = 1e-3\nclass_weight = 'balanced'",
        "cancer",
        2,
    ),
    ("breast cancer, logistic, l1 = 0.01", LOGISTIC, "l2 = 0.0\nl1 = 0.01", "cancer", 2),
    (
        "breast cancer, binomial, probit, l2 = 0.01",
        GENERALISED,
        "family = 'binomial'\nlink = 'probit'\nl2 = 0.01",
        "cancer",
        0,
    ),
    ("diabetes, poisson, l2 = 0.01", GENERALISED, "family = 'poisson'\nl2 = 0.01", "diabetes", 0),
    ("diabetes, gamma, l2 = 0.01", GENERALISED, "family = 'gamma'\nl2 = 0.01", "diabetes", 0),
    (
        "diabetes, tweedie 1.5, l2 = 0.01",
        GENERALISED,
        "family = 'tweedie'\npower = 1.5\nl2 = 0.01",
        "diabetes",
        0,
    ),
    ("diabetes, squares", "linear-regression", "standardise = false", "diabetes", 0),
    ("diabetes, squares, l2 = 0.01", "ridge", "l2 = 0.01\nstandardise = false", "diabetes", 0),
    (
        "diabetes, squares, l2 = 0.01, weights 1 2 3",
        "ridge",
        "l2 = 0.01\nstandardise = false",
        "uneven diabetes",
        0,
    ),
    ("digits, softmax, l2 = 0.01", LOGISTIC, "l2 = 0.01\nstandardise = false", "digits", 10),
    ("a9a, logistic, l2 = 1e-4", LOGISTIC, "l2 = 1e-4\nstandardise = false", "a9a", 2),
];

/// Without the data there is nothing to compare with here; the closed forms beside this stand alone.
#[test]
fn real_data_reach_the_optima_of_scikit_learn() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/references/linear.json");
    let references: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for (case, name, params, data, classes) in CASES {
        let reference = &references[case];
        let objective = reference["objective"].as_f64().unwrap();
        let Some(table) = table(data) else {
            eprintln!("skipped: {data} is not beside the project");
            continue;
        };
        let params = match params.contains("standardise") {
            true => params.to_string(),
            false => format!("standardise = true\ntolerance = 1e-9\n{params}"),
        };
        let found = Job { name, params: &params, table: &table, classes }.train();
        let off = found.grade.objective / objective - 1.0;
        // Where we are lower, the peer stopped earlier.
        assert!(
            (-1e-4..1e-6).contains(&off),
            "{case}: {} is not {objective}",
            found.grade.objective
        );
        let Some(weights) = reference["weights"].as_array() else { continue };
        let wanted: Vec<f64> = weights.iter().map(|w| w.as_f64().unwrap()).collect();
        let size = wanted.iter().fold(0.0, |a: f64, w| a.max(w.abs()));
        for (found, wanted) in found.model.f64("weights").iter().zip(&wanted) {
            let off = (found - wanted).abs() / wanted.abs().max(1e-3 * size);
            assert!(off < 1e-4, "{case}: {found} is not {wanted}");
        }
    }
}

fn table(name: &str) -> Option<Arc<Table>> {
    match name {
        "cancer" => {
            let text = real("sklearn_breast_cancer.csv")?;
            Some(with_last_column(text.split_once('\n')?.1))
        }
        "digits" => Some(with_last_column(&real("sklearn_digits.csv.gz")?)),
        "diabetes" => diabetes(),
        "uneven diabetes" => {
            let even = diabetes()?;
            let weights = (0..even.rows()).map(|row| (1 + row % 3) as f32).collect();
            Some(Arc::new(Table { weights, ..Table::clone(&even) }))
        }
        _ => a9a(),
    }
}

/// The folder with real data, where it is there.
fn real(file: &str) -> Option<String> {
    let path = format!("{}/../../../shared/data/{file}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).ok()?;
    if !file.ends_with(".gz") {
        return String::from_utf8(bytes).ok();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Features and, unless they are elsewhere, labels in the last column.
fn numbers(text: &str, separator: char) -> Vec<Vec<f32>> {
    let row = |line: &str| line.split(separator).map(|x| x.trim().parse().unwrap()).collect();
    text.lines().filter(|line| !line.is_empty()).map(row).collect()
}

fn with_last_column(text: &str) -> Arc<Table> {
    let rows = numbers(text, ',');
    let width = rows[0].len() - 1;
    let labels = rows.iter().map(|row| row[width]).collect();
    dense(width, rows.iter().flat_map(|row| row[..width].to_vec()).collect(), labels)
}

fn diabetes() -> Option<Arc<Table>> {
    let (data, target) =
        (real("sklearn_diabetes_data_raw.csv.gz")?, real("sklearn_diabetes_target.csv.gz")?);
    let rows = numbers(&data, ' ');
    let labels = numbers(&target, ' ').iter().map(|row| row[0]).collect();
    Some(dense(rows[0].len(), rows.concat(), labels))
}

fn a9a() -> Option<Arc<Table>> {
    let (mut starts, mut columns, mut values, mut labels) =
        (vec![0], Vec::new(), Vec::new(), Vec::new());
    for line in real("a9a.gz")?.lines() {
        let mut parts = line.split_whitespace();
        labels.push(f32::from(u8::from(parts.next()?.parse::<f32>().ok()? > 0.0)));
        for entry in parts {
            let (column, value) = entry.split_once(':')?;
            columns.push(column.parse::<u32>().ok()? - 1);
            values.push(value.parse().ok()?);
        }
        starts.push(values.len());
    }
    Some(Arc::new(Table::new(Features::Sparse { width: 123, starts, columns, values }, labels)))
}
