//! Against LightGBM, XGBoost and scikit-learn: figures of held-out rows, made by bench/references/trees.py. A figure
//! may be better than all of them, and no worse than the worse of them by more than the stated noise. Where the data
//! sets are not here, only this is said.

use crate::{learner, named, predict, reading, schema, train, train_on};
use starlings_data::Table;
use starlings_learn::metrics;
use starlings_learn::{Learner, Task};
use std::collections::BTreeMap;

/// The figures of a workload, by library.
fn figures(name: &str) -> BTreeMap<String, f64> {
    let text = include_str!("../../../../bench/references/trees.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let found = all[name].as_object().unwrap_or_else(|| panic!("no reference '{name}'"));
    found.iter().map(|(peer, figure)| (peer.clone(), figure.as_f64().unwrap())).collect()
}

/// Larger is better.
fn at_least(name: &str, found: f64, noise: f64) {
    let worst = figures(name).into_values().fold(f64::INFINITY, f64::min);
    assert!(found >= worst - noise, "{name}: {found}, and others have {:?}", figures(name));
}

/// Smaller is better.
fn at_most(name: &str, found: f64, noise: f64) {
    let worst = figures(name).into_values().fold(f64::NEG_INFINITY, f64::max);
    assert!(found <= worst + noise, "{name}: {found}, and others have {:?}", figures(name));
}

fn absent() {
    let _ =
        std::io::Write::write_all(&mut std::io::stderr(), b"the shared data sets are not here\n");
}

fn judged(learner: &dyn Learner, parts: &[Table; 2]) -> BTreeMap<String, f64> {
    let driven = train_on(learner, &parts[0], &schema(learner, &parts[0]), 2).unwrap();
    let said = predict(learner, &driven, &parts[1]);
    metrics::evaluate(learner.task(), &said, learner.outputs(&driven.model), &parts[1].labels)
}

#[test]
fn two_classes_are_told_apart_as_well_as_by_lightgbm_and_xgboost() {
    let Some(parts) = reading::lightgbm("binary") else { return absent() };
    for bits in ["32", "13"] {
        let boosting = learner("gradient-boosting", &format!("gradient_bits = '{bits}'"));
        let found = judged(&*boosting, &parts);
        // 500 test rows: an area's standard error is about 0.02.
        at_least("binary_auc", found["auc"], 0.01);
        at_most("binary_log_loss", found["log_loss"], 0.01);
    }
}

#[test]
fn five_classes_are_told_apart_as_well_as_by_lightgbm_and_xgboost() {
    let Some(parts) = reading::lightgbm("multiclass") else { return absent() };
    let found = judged(&*learner("gradient-boosting", ""), &parts);
    at_most("multiclass_log_loss", found["log_loss"], 0.02);
}

#[test]
fn house_values_are_as_near_as_those_of_lightgbm_and_xgboost() {
    let Some(parts) = reading::housing() else { return absent() };
    let of = |more: &str| judged(&*learner("gradient-boosting", more), &parts);
    at_most("housing_rmse", of("loss = 'squared'")["rmse"], 0.01);
    at_most("housing_rmse_poisson", of("loss = 'poisson'")["rmse"], 0.01);
    at_most("housing_mae_absolute", of("loss = 'absolute'")["mae"], 0.01);
    at_most("housing_mae_huber", of("loss = 'huber'")["mae"], 0.01);
}

#[test]
fn quantiles_of_house_values_are_as_good_as_lightgbms() {
    let Some(parts) = reading::housing() else { return absent() };
    let boosting = learner("gradient-boosting", "loss = 'quantile'\nalpha = 0.9");
    let driven = train_on(&*boosting, &parts[0], &schema(&*boosting, &parts[0]), 2).unwrap();
    let said = predict(&*boosting, &driven, &parts[1]);
    let pinball = said.iter().zip(&parts[1].labels).map(|(said, &label)| {
        let error = f64::from(label) - said;
        (0.9 * error).max(-0.1 * error)
    });
    at_most("housing_pinball_quantile", pinball.sum::<f64>() / said.len() as f64, 0.003);
}

#[test]
fn adults_categories_and_missing_values_are_used_as_well_as_by_lightgbm() {
    let Some((parts, codes)) = reading::adult() else { return absent() };
    let boosting = learner("gradient-boosting", "");
    let columns: Vec<(&str, usize)> = codes.iter().map(|&codes| ("c", codes)).collect();
    let schema = named(schema(&*boosting, &parts[0]), &columns);
    let driven = train_on(&*boosting, &parts[0], &schema, 2).unwrap();
    let said = predict(&*boosting, &driven, &parts[1]);
    let found = metrics::evaluate(Task::Classification, &said, 2, &parts[1].labels);
    at_least("adult_auc", found["auc"], 0.002);
}

#[test]
fn queries_are_ranked_as_well_as_by_lightgbm() {
    let Some(parts) = reading::rank() else { return absent() };
    let boosting = learner("gradient-boosting", "loss = 'lambdarank'");
    let driven = train_on(&*boosting, &parts[0], &schema(&*boosting, &parts[0]), 2).unwrap();
    let scores = predict(&*boosting, &driven, &parts[1]);
    // 50 queries: the standard error of the mean is about 0.03.
    at_least("rank_ndcg", ndcg(&parts[1], &scores), 0.02);
    assert!(driven.grade.metrics["ndcg"] > 0.85, "{:?}", driven.grade);
}

fn ndcg(table: &Table, scores: &[f64]) -> f64 {
    let (mut sum, mut first, mut groups) = (0.0, 0, 0.0);
    for group in table.groups.chunk_by(|a, b| a == b) {
        let rows: Vec<usize> = (first..first + group.len()).collect();
        first += group.len();
        let gain = |mut order: Vec<usize>, by: &dyn Fn(usize) -> f64| -> f64 {
            order.sort_by(|&a, &b| by(b).total_cmp(&by(a)));
            let gains = order.iter().take(10).enumerate();
            gains
                .map(|(at, &row)| {
                    (table.labels[row].exp2() as f64 - 1.0) / (at as f64 + 2.0).log2()
                })
                .sum()
        };
        let ideal = gain(rows.clone(), &|row| f64::from(table.labels[row]));
        sum += if ideal > 0.0 { gain(rows, &|row| scores[row]) / ideal } else { 1.0 };
        groups += 1.0;
    }
    sum / groups
}

#[test]
fn trees_and_forests_are_as_good_as_scikit_learns() {
    let Some(digits) = reading::digits() else { return absent() };
    let accuracy = |name: &str, parts: &[Table; 2]| judged(&*learner(name, ""), parts)["accuracy"];
    at_least("digits_accuracy_tree", accuracy("decision-tree", &digits), 0.03);
    at_least("digits_accuracy_forest", accuracy("random-forest", &digits), 0.01);
    let forest = train("random-forest", "", &digits[0], 2);
    at_least("digits_out_of_bag", forest.grade.metrics["out_of_bag_accuracy"], 0.01);
    let Some(housing) = reading::housing() else { return absent() };
    let tree = learner("decision-tree", "criterion = 'variance'\nmax_depth = 8\nmin_rows_leaf = 5");
    at_most("housing_rmse_tree", judged(&*tree, &housing)["rmse"], 0.01);
}

#[test]
fn pruning_leaves_about_as_many_leaves_as_scikit_learns() {
    let Some(digits) = reading::digits() else { return absent() };
    let pruned = train("decision-tree", "ccp_alpha = 0.005", &digits[0], 1);
    let leaves = pruned.model.f64("nodes").chunks(8).filter(|node| node[0] < 0.0).count() as f64;
    let theirs = figures("digits_leaves_pruned")["scikit-learn"];
    assert!((leaves / theirs - 1.0).abs() < 0.2, "{leaves} {theirs}");
}

#[test]
fn shuttle_is_classified_and_its_anomalies_found_as_by_scikit_learn() {
    let Some(parts) = reading::shuttle() else { return absent() };
    let accuracy = |name: &str, more: &str| judged(&*learner(name, more), &parts)["accuracy"];
    at_least("shuttle_accuracy_tree", accuracy("decision-tree", ""), 0.001);
    at_least("shuttle_accuracy_forest", accuracy("random-forest", "trees = 30"), 0.001);
    let isolation = learner("isolation-forest", "");
    let driven = train_on(&*isolation, &parts[0], &schema(&*isolation, &parts[0]), 2).unwrap();
    let scores = predict(&*isolation, &driven, &parts[0]);
    let both: Vec<f64> = scores.iter().flat_map(|&score| [1.0 - score, score]).collect();
    let found = metrics::evaluate(Task::Classification, &both, 2, &parts[0].labels);
    at_least("shuttle_auc_isolation", found["auc"], 0.005);
}
