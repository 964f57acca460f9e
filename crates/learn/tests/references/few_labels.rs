//! Few labels, many rows: self-training, label propagation and label spreading, against scikit-learn.

use crate::world::{
    close, dense, digits, figures, iris, learner, numbers, predict, schema, train, try_train,
};
use serde_json::Value;
use starlings_data::{Features, Table};
use starlings_testkit::drive::Drive;
use std::sync::Arc;

/// The rows of a case with few labels, and all labels.
fn rows_of(case: &Value) -> (Arc<Table>, Vec<f32>, usize) {
    let (table, classes) = match case["data"].as_str().unwrap() {
        "iris" => (iris(), 3),
        _ => (digits(false), 10),
    };
    let keep = case["keep"].as_u64().unwrap() as usize;
    let labels = table.labels.clone();
    let few = labels.iter().enumerate();
    let few = few.map(|(row, label)| if row % keep == 0 { *label } else { f32::NAN }).collect();
    (Arc::new(Table { labels: few, ..(*table).clone() }), labels, classes)
}

fn accuracy(said: &[f64], labels: &[f32]) -> f64 {
    let width = said.len() / labels.len();
    let best = |row: &[f64]| (1..width).fold(0, |a, b| if row[b] > row[a] { b } else { a });
    let hits = said.chunks(width).zip(labels).filter(|(row, label)| best(row) == **label as usize);
    hits.count() as f64 / labels.len() as f64
}

#[test]
fn self_training_labels_the_rows_that_scikit_learn_labels() {
    for case in figures("ensembles")["self_training"].as_array().unwrap() {
        let (table, labels, classes) = rows_of(case);
        let text = format!("threshold = {}\nbase = {{ name = 'naive-bayes' }}", case["threshold"]);
        let own = learner("self-training", &text);
        let driven = train(&*own, &table, &schema(table.width(), classes));
        let mut rounds = vec![0.0; numbers(&case["rounds"]).len()];
        let mut unlabelled = 0.0;
        for (_, cells) in driven.memory.iter() {
            for &round in cells["given"].as_i64().unwrap() {
                match round {
                    -1 => unlabelled += 1.0,
                    0 => {}
                    round => rounds[round as usize - 1] += 1.0,
                }
            }
        }
        assert_eq!(rounds, numbers(&case["rounds"]), "{}", case["data"]);
        assert_eq!(unlabelled, case["unlabelled"].as_f64().unwrap());
        assert_eq!(unlabelled, driven.grade.metrics["rows_unlabelled"]);
        assert_eq!(rounds.iter().sum::<f64>(), driven.grade.metrics["rows_self_labelled"]);
        let found = accuracy(&predict(&*own, &driven.model, &table), &labels);
        close("accuracy", &[found], &[case["accuracy"].as_f64().unwrap()], 0.005);
    }
}

#[test]
fn k_best_labels_as_many_rows_a_round_and_the_surest_first() {
    let case = &figures("ensembles")["self_training"][0];
    let (table, labels, classes) = rows_of(case);
    let text =
        "criterion = 'k-best'\nk_best = 7\nmax_iterations = 3\nbase = { name = 'naive-bayes' }";
    let own = learner("self-training", text);
    let one = try_train(&*own, &table, &schema(4, classes), &Drive::default()).unwrap();
    let three = train(&*own, &table, &schema(4, classes));
    assert_eq!(one.grade.metrics["rows_self_labelled"], 21.0);
    assert_eq!(one.model.digest(), three.model.digest(), "the same rows, whoever holds them");
    assert!(accuracy(&predict(&*own, &one.model, &table), &labels) > 0.9);
}

#[test]
fn rows_without_labels_help() {
    let case = &figures("ensembles")["self_training"][1];
    let (table, labels, classes) = rows_of(case);
    let labelled: Vec<usize> =
        (0..table.rows()).filter(|&row| !table.labels[row].is_nan()).collect();
    let Features::Dense { width, values } = &table.features else { panic!("dense") };
    let few = dense(
        *width,
        labelled.iter().flat_map(|&row| values[row * width..(row + 1) * width].to_vec()).collect(),
        labelled.iter().map(|&row| table.labels[row]).collect(),
    );
    let alone = learner("label-propagation", "kernel = 'knn'");
    let model = train(&*alone, &few, &schema(*width, classes)).model;
    let without = accuracy(&predict(&*alone, &model, &table), &labels);
    let model = train(&*alone, &table, &schema(*width, classes)).model;
    let with = accuracy(&predict(&*alone, &model, &table), &labels);
    assert!(with > without + 0.01, "{without} without them, {with} with them");
}

/// Whole numbers have many neighbours at the same distance, of which anyone takes any; the reference adds the same.
fn without_ties(table: &Table) -> Arc<Table> {
    let Features::Dense { width, values } = &table.features else { panic!("dense") };
    let jitter = |at: usize| ((at / width * 7 + at % width * 13) % 101) as f32 * 0.001;
    let values = values.iter().enumerate().map(|(at, x)| x + jitter(at)).collect();
    dense(*width, values, table.labels.clone())
}

#[test]
fn propagation_and_spreading_are_those_of_scikit_learn() {
    for case in figures("ensembles")["propagation"].as_array().unwrap() {
        let (table, labels, classes) = rows_of(case);
        let table = without_ties(&table);
        let params = case["params"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key} = {}\n", value.to_string().replace('"', "'")));
        let own = learner(case["learner"].as_str().unwrap(), &params.collect::<String>());
        let driven = train(&*own, &table, &schema(table.width(), classes));
        let wanted = case["iterations"].as_f64().unwrap();
        let found = driven.outcome.iterations.unwrap() as f64;
        assert!((found - wanted).abs() <= 1.0, "{found} iterations, scikit-learn {wanted}");
        let beliefs = driven.model.f64("beliefs");
        let rows = numbers(&case["rows"]);
        let some: Vec<f64> = rows
            .iter()
            .flat_map(|&row| beliefs[row as usize * classes..(row as usize + 1) * classes].to_vec())
            .collect();
        close("beliefs", &some, &numbers(&case["chances"]), 2e-3);
        let found = accuracy(beliefs, &labels);
        close("accuracy", &[found], &[case["accuracy"].as_f64().unwrap()], 1e-9);
        let Features::Dense { width, values } = &table.features else { panic!("dense") };
        let near: Vec<f32> =
            values.chunks(*width).step_by(7).flat_map(|row| row.iter().map(|x| x + 0.01)).collect();
        let elsewhere = dense(*width, near, vec![]);
        let said = predict(&*own, &driven.model, &elsewhere);
        let wanted = numbers(&case["elsewhere"]);
        close("elsewhere", &said[..wanted.len()], &wanted, 5e-3);
    }
}

/// What tells the two apart: propagation holds a wrong label fast, spreading lets the neighbours mend it.
#[test]
fn spreading_may_change_a_known_label_and_propagation_may_not() {
    let values: Vec<f32> =
        (0..20).map(|row| if row < 10 { 0.0 } else { 5.0 } + row as f32 * 0.01).collect();
    let mut labels: Vec<f32> = (0..20).map(|row| if row < 10 { 0.0 } else { 1.0 }).collect();
    labels[3] = 1.0;
    let table = dense(1, values, labels);
    let belief = |name: &str, more: &str| {
        let own = learner(name, &format!("gamma = 1.0\n{more}"));
        let model = train(&*own, &table, &schema(1, 2)).model;
        model.f64("beliefs")[6..8].to_vec()
    };
    assert_eq!(belief("label-propagation", ""), [0.0, 1.0]);
    let mended = belief("label-spreading", "alpha = 0.9\nmax_iterations = 500");
    assert!(mended[0] > mended[1], "{mended:?}");
}

#[test]
fn too_large_a_graph_is_refused_with_its_size() {
    let table = dense(1, vec![0.5; 20_000], vec![0.0; 20_000]);
    let own = learner("label-propagation", "");
    let fault = try_train(&*own, &table, &schema(1, 2), &Drive::default()).unwrap_err().to_string();
    assert!(fault.contains("20000 rows takes 3.2 GB") && fault.contains("knn"), "{fault}");
    let none = dense(1, vec![0.5; 10], vec![f32::NAN; 10]);
    for name in ["label-propagation", "label-spreading"] {
        let own = learner(name, "");
        let fault = try_train(&*own, &none, &schema(1, 2), &Drive::default()).unwrap_err();
        assert!(fault.to_string().contains("no row has a label"), "{fault}");
    }
}
