//! What tells forests apart from trees, and isolation from both.

use crate::{dense, learner, predict, schema, train, train_on};
use starlings_core::Rng;
use starlings_data::Table;
use starlings_learn::permutation_importance;

fn noisy(rows: usize) -> Table {
    let mut rng = Rng::named(21, "noisy", &[]);
    let values: Vec<f32> = (0..rows * 6).map(|_| rng.normal() as f32).collect();
    let label = |row: &[f32], rng: &mut Rng| {
        f32::from(u8::from(row[0] + row[1] * row[2] + rng.normal() as f32 > 0.0))
    };
    let labels = values.chunks(6).map(|row| label(row, &mut rng)).collect();
    dense(6, values, labels)
}

#[test]
fn a_forest_beats_a_tree_and_its_out_of_bag_estimate_is_honest() {
    let all = noisy(1600);
    let starlings_data::Features::Dense { values, .. } = &all.features else { panic!() };
    let part = |from: usize, to: usize| {
        dense(6, values[from * 6..to * 6].to_vec(), all.labels[from..to].to_vec())
    };
    let (seen, unseen) = (part(0, 800), part(800, 1600));
    let accuracy = |name: &str| {
        let driven = train(name, "", &seen, 2);
        let said = predict(&*learner(name, ""), &driven, &unseen);
        let right =
            said.chunks(2).zip(&unseen.labels).filter(|(said, y)| (said[1] > 0.5) == (**y > 0.5));
        (right.count() as f64 / 800.0, driven.grade)
    };
    let ((tree, _), (forest, grade)) = (accuracy("decision-tree"), accuracy("random-forest"));
    assert!(forest > tree + 0.03, "{forest} {tree}");
    assert!(grade.metrics["accuracy"] > 0.97, "{grade:?}");
    let estimate = grade.metrics["out_of_bag_accuracy"];
    assert!((estimate - forest).abs() < 0.05, "{estimate} {forest}");
}

#[test]
fn bootstrap_samples_have_the_share_of_poissons_law() {
    let table = noisy(2000);
    let driven = train("random-forest", "trees = 20\nmax_depth = 1", &table, 2);
    let roots: Vec<f64> = driven
        .model
        .i64("tree_starts")
        .iter()
        .take(20)
        .map(|&start| driven.model.f64("nodes")[start as usize * 8 + 7])
        .collect();
    let share = roots.iter().sum::<f64>() / 20.0 / 2000.0;
    assert!((share - (1.0 - (-1f64).exp())).abs() < 0.01, "{share}");
    assert!(roots.windows(2).any(|pair| pair[0] != pair[1]));
}

#[test]
fn pruning_grows_with_alpha_and_ends_in_one_leaf() {
    let table = noisy(500);
    let leaves = |alpha: f64| {
        let driven = train("decision-tree", &format!("ccp_alpha = {alpha:?}"), &table, 1);
        driven.model.f64("nodes").chunks(8).filter(|node| node[0] < 0.0).count()
    };
    let counts = [0.0, 0.002, 0.01, 0.9].map(leaves);
    assert!(counts.is_sorted_by(|a, b| a > b), "{counts:?}");
    assert_eq!(counts[3], 1);
}

#[test]
fn what_lies_far_out_is_soon_isolated() {
    let mut rng = Rng::named(4, "far", &[]);
    let mut values: Vec<f32> = (0..1000).map(|_| rng.normal() as f32).collect();
    values.extend([8.0, 8.0]);
    let table = dense(2, values, vec![]);
    let isolation = learner("isolation-forest", "");
    let driven = train_on(&*isolation, &table, &schema(&*isolation, &table), 3).unwrap();
    let scores = predict(&*isolation, &driven, &table);
    let (far, others) = scores.split_last().unwrap();
    assert!(others.iter().all(|other| other < far), "{far}");
    assert!(*far > 0.65, "{far}");
    let mean = others.iter().sum::<f64>() / others.len() as f64;
    assert!((0.35..0.55).contains(&mean), "{mean}");
    let said = isolation.describe(&driven.model, &schema(&*isolation, &table)).unwrap();
    assert!(said.contains("tree 0") && said.contains("feature 1"), "{said}");
}

#[test]
fn shuffling_a_feature_hurts_as_much_as_it_mattered() {
    let table = noisy(800);
    let more = "min_rows_leaf = 10\ntrees = 30";
    let boosting = learner("gradient-boosting", more);
    let driven = train("gradient-boosting", more, &table, 2);
    let found = permutation_importance(&*boosting, &driven.model, &table, (2, 1)).unwrap();
    assert!(found[0] > 0.1 && found[0] > 2.0 * found[5], "{found:?}");
    let isolation = learner("isolation-forest", "");
    assert!(permutation_importance(&*isolation, &driven.model, &table, (1, 1)).is_err());
}
