//! Naive Bayes against scikit-learn, and what it refuses.

use crate::world::{
    close, dense, digits, figures, iris, learner, numbers, predict, schema, shared, sparse, train,
    try_train,
};
use starlings_data::Table;
use starlings_testkit::drive::Drive;
use std::sync::Arc;

/// Counts of words; the row's number modulo 4 stands in for a class.
fn reuters() -> Option<Arc<Table>> {
    let text = shared("reuters.ldac")?;
    let entries: Vec<Vec<(usize, f32)>> = text
        .lines()
        .map(|line| {
            let pairs = line.split_whitespace().skip(1).map(|pair| pair.split_once(':').unwrap());
            pairs.map(|(word, count)| (word.parse().unwrap(), count.parse().unwrap())).collect()
        })
        .collect();
    let width = 1 + entries.iter().flatten().map(|(word, _)| *word).max().unwrap();
    let mut values = vec![0.0; entries.len() * width];
    for (row, entries) in entries.iter().enumerate() {
        entries.iter().for_each(|(word, count)| values[row * width + word] = *count);
    }
    let labels = (0..entries.len()).map(|row| (row % 4) as f32).collect();
    Some(dense(width, values, labels))
}

#[test]
fn every_kind_gives_what_scikit_learn_gives() {
    let found = figures("naive_bayes");
    for case in found["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (table, classes) = match case["data"].as_str().unwrap() {
            "iris" => (iris(), 3),
            "digits" => (digits(false), 10),
            _ => match reuters() {
                Some(table) => (table, 4),
                None => continue,
            },
        };
        let weighted = case["weighted"].as_bool().unwrap();
        let mut table = (*table).clone();
        if weighted {
            table.weights = (0..table.rows()).map(|row| 0.5 + (row % 3) as f32 / 2.0).collect();
        }
        for table in [sparse(&table), Arc::new(table)] {
            let learner = learner("naive-bayes", case["params"].as_str().unwrap());
            let trained = train(&*learner, &table, &schema(table.width(), classes));
            let model = &trained.model;
            close(name, model.f64("log_prior"), &numbers(&case["prior"]), 1e-12);
            let every = case["every"].as_u64().unwrap() as usize;
            let sample = |tensor: &str| -> Vec<f64> {
                model.f64(tensor).iter().step_by(every).copied().collect()
            };
            if case["variances"].is_null() {
                close(name, &sample("feature_log_probability"), &numbers(&case["table"]), 1e-11);
            } else {
                close(name, &sample("means"), &numbers(&case["table"]), 1e-11);
                close(name, &sample("variances"), &numbers(&case["variances"]), 1e-9);
            }
            let probabilities = predict(&*learner, model, &table);
            let rows = numbers(&case["rows"]);
            let some: Vec<f64> = rows
                .iter()
                .flat_map(|&row| probabilities[row as usize * classes..][..classes].to_vec())
                .collect();
            close(name, &some, &numbers(&case["probabilities"]), 1e-6);
            if !weighted {
                let accuracy = case["accuracy"].as_f64().unwrap();
                close(name, &[trained.grade.metrics["accuracy"]], &[accuracy], 1e-12);
            }
        }
    }
}

/// Whole counts are summed exactly: the same bits, whoever adds them up.
#[test]
fn models_of_counts_have_the_same_bits_on_every_flock() {
    let table = digits(false);
    let learner = learner("naive-bayes", "kind = 'multinomial'");
    let digest = |workers| {
        let options = Drive { workers, ..Drive::default() };
        let trained = try_train(&*learner, &table, &schema(64, 10), &options).unwrap();
        trained.model.digest()
    };
    assert!([2, 3, 7, 16].iter().all(|&workers| digest(workers) == digest(1)));
}

/// A second pass is taken where numbers lie far from what the schema says of them, and only there.
#[test]
fn variances_are_right_far_from_zero() {
    let near = iris();
    let Some(values) = near.dense_rows(0, near.rows()) else { panic!("dense") };
    let far = values.iter().map(|x| x + 4096.0).collect();
    let far = dense(4, far, near.labels.clone());
    let learner = learner("naive-bayes", "");
    let (near, far) =
        (train(&*learner, &near, &schema(4, 3)), train(&*learner, &far, &schema(4, 3)));
    assert_eq!((near.steps, far.steps), (1, 2));
    // What is left is the rounding of x + 4096 to f32.
    close("variances", far.model.f64("variances"), near.model.f64("variances"), 1e-4);
}

#[test]
fn kinds_differ_in_what_they_take_a_feature_for() {
    // The number of occurrences tells the classes apart, their presence does not.
    let table = dense(2, vec![9., 1., 8., 1., 1., 9., 1., 8.], vec![0., 0., 1., 1.]);
    let sure = |kind: &str| {
        let learner = learner("naive-bayes", &format!("kind = '{kind}'"));
        let trained = train(&*learner, &table, &schema(2, 2));
        predict(&*learner, &trained.model, &table)[0]
    };
    assert!(sure("multinomial") > 0.99 && sure("complement") > 0.99 && sure("gaussian") > 0.99);
    assert!((sure("bernoulli") - 0.5).abs() < 1e-12);
}

#[test]
fn rows_that_cannot_be_counted_are_refused_by_name() {
    let options = Drive::default();
    let refusal = |params: &str, values: Vec<f32>, labels: Vec<f32>| {
        let (learner, table) = (learner("naive-bayes", params), dense(2, values, labels));
        let refused = try_train(&*learner, &table, &schema(2, 2), &options).unwrap_err();
        assert_eq!(refused.blame(), starlings_core::Blame::Caller);
        refused.to_string()
    };
    for kind in ["kind = 'multinomial'", "kind = 'complement'"] {
        let text = refusal(kind, vec![1., 2., 3., -4.], vec![0., 1.]);
        assert!(text.contains("feature 1 of row 1 is -4") && text.contains("gaussian"), "{text}");
    }
    for kind in ["kind = 'multinomial'", "kind = 'gaussian'"] {
        let text = refusal(kind, vec![1., f32::INFINITY, 3., 4.], vec![0., 1.]);
        assert!(text.contains("feature 1 of row 0 is inf"), "{text}");
    }
    let text = refusal("var_smoothing = 0", vec![1., 2., 3., 4.], vec![0., 1.]);
    assert!(text.contains("var_smoothing"), "{text}");
    let one_class = learner("naive-bayes", "");
    let table = dense(1, vec![1., 2.], vec![0., 0.]);
    let refused = try_train(&*one_class, &table, &schema(1, 1), &options).unwrap_err();
    assert!(refused.to_string().contains("1 classes"), "{refused}");
}

#[test]
fn constant_columns_extreme_scales_and_absent_classes_are_survived() {
    let learner = learner("naive-bayes", "");
    let table = dense(3, vec![1e30, 5., 1e-30, 2e30, 5., 2e-30, 9e30, 5., 0.], vec![0., 0., 1.]);
    let trained = train(&*learner, &table, &schema(3, 3));
    let probabilities = predict(&*learner, &trained.model, &table);
    assert!(probabilities.iter().all(|p| p.is_finite()), "{probabilities:?}");
    assert!(probabilities[2] == 0.0, "a class that no row has: {probabilities:?}");
    // Nothing varies: the priors decide.
    let table = dense(1, vec![3.0; 4], vec![0., 0., 0., 1.]);
    let trained = train(&*learner, &table, &schema(1, 2));
    close("priors", &predict(&*learner, &trained.model, &table)[..2], &[0.75, 0.25], 1e-12);
}
