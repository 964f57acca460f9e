//! The corners of the input: what is refused, with whose fault, and what is learned all the same.

use crate::{build, dense, learner, named, predict, schema, train, train_on};
use starlings_core::{Blame, Rng};
use starlings_data::{Table, Target};

const ALL: [&str; 3] = ["gradient-boosting", "decision-tree", "random-forest"];

fn mean_said(name: &str, table: &Table) -> f64 {
    let driven = train(name, "", table, 2);
    let said = predict(&*learner(name, ""), &driven, table);
    assert!(said.iter().all(|x| x.is_finite()), "{name}: {said:?}");
    said.chunks(2).map(|said| said[1]).sum::<f64>() / table.rows() as f64
}

#[test]
fn features_that_say_nothing_leave_the_share_of_the_classes() {
    let labels: Vec<f32> = (0..60).map(|row| f32::from(u8::from(row % 4 == 0))).collect();
    let constant = dense(2, vec![3.5; 120], labels.clone());
    let missing = dense(2, vec![f32::NAN; 120], labels.clone());
    let copies = dense(1, vec![1.0; 60], labels);
    for name in ["gradient-boosting", "decision-tree"] {
        for table in [&constant, &missing, &copies] {
            let mean = mean_said(name, table);
            assert!((mean - 0.25).abs() < 1e-6, "{name}: {mean}");
        }
    }
    assert!((mean_said("random-forest", &constant) - 0.25).abs() < 0.05);
}

#[test]
fn one_row_is_learned_by_heart() {
    let table = dense(2, vec![1.0, 2.0], vec![7.0]);
    for (name, more) in [
        ("gradient-boosting", "loss = 'squared'"),
        ("gradient-boosting", "loss = 'absolute'"),
        ("decision-tree", "criterion = 'variance'"),
        ("random-forest", "criterion = 'variance'"),
    ] {
        let said = predict(&*learner(name, more), &train(name, more, &table, 3), &table);
        assert!((said[0] - 7.0).abs() < 1e-6, "{name} {more}: {said:?}");
    }
}

#[test]
fn extreme_values_are_just_values() {
    let extremes = [f32::MIN, -1e-40, 0.0, 1e-40, f32::MAX, f32::INFINITY, f32::NEG_INFINITY];
    let values: Vec<f32> = extremes.iter().copied().cycle().take(140).collect();
    let labels: Vec<f32> = values.iter().map(|&x| f32::from(u8::from(x > 0.0))).collect();
    let table = dense(1, values, labels.clone());
    for name in ALL {
        let more = if name == "gradient-boosting" { "min_rows_leaf = 1" } else { "" };
        let driven = train(name, more, &table, 2);
        assert_eq!(driven.grade.metrics["accuracy"], 1.0, "{name}");
    }
    let huge: Vec<f32> = labels.iter().map(|&y| (y - 0.5) * 3e38).collect();
    let table = dense(1, (0..140).map(|x| x as f32).collect(), huge);
    let driven = train("gradient-boosting", "loss = 'squared'\ntrees = 3", &table, 2);
    assert!(driven.grade.objective.is_finite());
}

#[test]
fn a_hundred_thousand_categories_are_the_frequent_ones_and_the_rest() {
    let mut rng = Rng::named(8, "categories", &[]);
    // Half of the rows have one of 20 codes, whose oddness is the label; the others a code of their own.
    let codes: Vec<f32> = (0..4000)
        .map(
            |row| {
                if row % 2 == 0 { rng.below(20) as f32 } else { 100.0 + rng.below(99_900) as f32 }
            },
        )
        .collect();
    let labels: Vec<f32> = codes
        .iter()
        .map(|&code| if code < 20.0 { code % 2.0 } else { rng.below(2) as f32 })
        .collect();
    let table = dense(1, codes, labels);
    for name in ALL {
        let learner = learner(name, "");
        let schema = named(schema(&*learner, &table), &[("code", 100_000)]);
        let driven = train_on(&*learner, &table, &schema, 2).unwrap();
        let unseen = dense(1, vec![3.0, 4.0, 77.0, f32::NAN], vec![0.0; 4]);
        let said = predict(&*learner, &driven, &unseen);
        assert!(said[1] > 0.9 && said[3] < 0.1, "{name}: {said:?}");
        assert!((said[5] - 0.5).abs() < 0.25 && said[5] == said[7], "{name}: {said:?}");
    }
}

#[test]
fn rows_without_weight_are_not_there_and_all_of_them_are_refused() {
    let labels: Vec<f32> = (0..80).map(|row| f32::from(u8::from(row >= 40))).collect();
    let mut table = dense(1, (0..80).map(|x| x as f32).collect(), labels);
    let clean = train("gradient-boosting", "min_rows_leaf = 2", &table, 2);
    let mut values: Vec<f32> = (0..80).map(|x| x as f32).collect();
    values.extend([1e9, -1e9]);
    let mut labels = table.labels.clone();
    labels.extend([0.0, 1.0]);
    let mut more = dense(1, values, labels);
    more.weights = vec![1.0; 82];
    (more.weights[80], more.weights[81]) = (0.0, 0.0);
    let with_mute = train("gradient-boosting", "min_rows_leaf = 2", &more, 2);
    assert_eq!(clean.model.f64("nodes"), with_mute.model.f64("nodes"));
    table.weights = vec![0.0; 80];
    for name in ALL {
        let learner = learner(name, "");
        let fault = train_on(&*learner, &table, &schema(&*learner, &table), 2).unwrap_err();
        assert_eq!(fault.blame(), Blame::Caller);
        assert!(fault.to_string().contains("no row is left"), "{fault}");
    }
}

#[test]
fn more_leaves_than_rows_are_as_many_as_there_can_be() {
    let table =
        dense(1, (0..9).map(|x| x as f32).collect(), (0..9).map(|x| (x * x) as f32).collect());
    let more = "loss = 'squared'\nleaves = 5000\nmin_rows_leaf = 1\ntrees = 1\nlearning_rate = 1.0";
    let driven = train("gradient-boosting", more, &table, 2);
    assert_eq!(driven.model.f64("nodes").chunks(8).filter(|node| node[0] < 0.0).count(), 9);
    assert!(driven.grade.metrics["rmse"] < 1e-4, "{:?}", driven.grade);
}

#[test]
fn predictions_rise_with_a_feature_that_is_said_to() {
    let mut rng = Rng::named(6, "monotone", &[]);
    let values: Vec<f32> = (0..1200).map(|_| rng.uniform() as f32).collect();
    let label = |row: &[f32], rng: &mut Rng| {
        (9.0 * row[0]).sin() + row[0] + row[1] + 0.3 * rng.normal() as f32
    };
    let labels = values.chunks(2).map(|row| label(row, &mut rng)).collect();
    let table = dense(2, values, labels);
    let rises = |more: &str| {
        let boosting = learner("gradient-boosting", more);
        let schema = named(schema(&*boosting, &table), &[("age", 0), ("other", 0)]);
        let driven = train_on(&*boosting, &table, &schema, 2).unwrap();
        let line: Vec<f32> = (0..200).flat_map(|x| [x as f32 / 200.0, 0.4]).collect();
        predict(&*boosting, &driven, &dense(2, line, vec![0.0; 200])).is_sorted()
    };
    assert!(!rises("loss = 'squared'\ntrees = 30"));
    assert!(rises("loss = 'squared'\ntrees = 30\nmonotone = 'age:+1'"));
    assert!(rises("loss = 'squared'\ntrees = 30\nmonotone = 'age:+1'\ngradient_bits = '13'"));
}

#[test]
fn early_stopping_stops_early() {
    let mut rng = Rng::named(5, "early", &[]);
    let values: Vec<f32> = (0..3000).map(|_| rng.normal() as f32).collect();
    let labels = values.chunks(3).map(|row| row[0] + 3.0 * rng.normal() as f32).collect();
    let table = dense(3, values, labels);
    let more =
        "loss = 'squared'\ntrees = 500\nearly_stopping = 5\nvalidation = 0.3\nlearning_rate = 0.3";
    let trees = train("gradient-boosting", more, &table, 2).model.i64("tree_starts").len() - 1;
    assert!((1..100).contains(&trees), "{trees} trees");
}

#[test]
fn bad_input_is_the_callers_fault_and_says_what_to_do() {
    let labels: Vec<f32> = (0..30).map(|row| (row % 3) as f32 - 1.0).collect();
    let table = dense(1, (0..30).map(|x| x as f32).collect(), labels);
    for (more, wanted) in [
        ("loss = 'poisson'", "not a count"),
        ("loss = 'lambdarank'", "not a grade"),
        ("loss = 'squared'\nmonotone = 'height:+1'", "monotone names 'height'"),
        ("loss = 'squared'\nmonotone = 'kind:+1'", "a category"),
        ("loss = 'squared'\nmonotone = 'kind'", "write name:+1"),
    ] {
        let boosting = learner("gradient-boosting", more);
        let schema = named(schema(&*boosting, &table), &[("kind", 5)]);
        let fault = train_on(&*boosting, &table, &schema, 2).map(|_| ()).unwrap_err();
        assert_eq!(fault.blame(), Blame::Caller);
        assert!(fault.to_string().contains(wanted), "{fault}");
    }
    let grades = dense(1, vec![0.0; 30], vec![1.0; 30]);
    let ranking = learner("gradient-boosting", "loss = 'lambdarank'");
    let fault =
        train_on(&*ranking, &grades, &schema(&*ranking, &grades), 2).map(|_| ()).unwrap_err();
    assert!(fault.to_string().contains("[data] group"), "{fault}");
    let logistic = learner("gradient-boosting", "loss = 'logistic'");
    let mut three = schema(&*logistic, &grades);
    three.target = Target::Classes(vec!["a".into(), "b".into(), "c".into()]);
    let fault = train_on(&*logistic, &grades, &three, 2).map(|_| ()).unwrap_err();
    assert!(fault.to_string().contains("softmax"), "{fault}");
    assert!(build("random-forest", "max_features = 'many'").is_err());
    assert!(build("gradient-boosting", "loss = 'quantile'\nalpha = 2.0").is_err());
}
