//! Weights of rows in k-means.

use super::{built, close, dense, figures, fit, iris, numbers, refused, sparse};
use starlings_data::Table;
use starlings_learn::k_means::{Algorithm, KMeans};

fn start(table: &Table, algorithm: Algorithm) -> KMeans {
    let rows = [0, 50, 100].map(|row| table.dense_rows(row, row + 1).unwrap().to_vec());
    let centres = rows.concat().into_iter().map(f64::from).collect();
    KMeans { algorithm, ..KMeans::with_centres(3, centres) }
}

#[test]
fn weighted_clusters_are_those_of_scikit_learn() {
    let weights: Vec<f32> = (0..150).map(|row| (1 + row % 4) as f32).collect();
    let table = Table { weights, ..iris() };
    let wanted = &figures()["weighted_k_means"];
    for algorithm in [Algorithm::Lloyd, Algorithm::Hamerly, Algorithm::Elkan] {
        for table in [table.clone(), sparse(&table)] {
            let driven = fit(&start(&iris(), algorithm), &table, 3);
            close(&[driven.grade.objective], &numbers(&wanted["inertia"]), 1e-6);
            close(driven.model.f64("centres"), &numbers(&wanted["centres"]), 1e-6);
        }
    }
}

#[test]
fn rows_that_weigh_nothing_are_never_centres() {
    // Two clouds that count, and between them one that does not.
    let values: Vec<f32> =
        (0..90).map(|row| (row % 3) as f32 * 10.0 + (row / 3) as f32 * 0.01).collect();
    let weights: Vec<f32> = (0..90).map(|row| if row % 3 == 1 { 0.0 } else { 2.0 }).collect();
    let table = Table { weights, ..dense(1, values) };
    for seeding in ["k-means||", "random"] {
        for seed in 1..6 {
            let learner = built("k-means", &format!("k = 2\nseeding = '{seeding}'"));
            let options =
                starlings_testkit::drive::Drive { seed, workers: 2, ..Default::default() };
            let driven = super::fitted(&*learner, &table, &options).unwrap();
            let mut centres = driven.model.f64("centres").to_vec();
            centres.sort_by(f64::total_cmp);
            close(&centres, &[0.145, 20.145], 1e-3);
        }
    }
    let fault = refused(&*built("k-means", "k = 61\nseeding = 'random'"), &table);
    assert!(fault.to_string().contains("60 rows that weigh something"), "{fault}");
}
