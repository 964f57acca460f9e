//! Bisecting k-means.

use super::{built, close, dense, digits, fit, iris, predictions, refused, sparse};
use starlings_data::Table;

/// Four clouds on a line: two near each other at each end.
fn clouds() -> Table {
    let centres = [0.0f32, 10.0, 100.0, 130.0];
    dense(1, (0..200).map(|row| centres[row % 4] + (row / 4) as f32 * 0.02).collect())
}

#[test]
fn cuts_follow_the_shape_of_the_data_and_are_kept_as_a_tree() {
    let learner = built("bisecting-k-means", "k = 4");
    for workers in [1, 3] {
        let driven = fit(&*learner, &clouds(), workers);
        // The first cut parts the ends; the next the wider pair.
        assert_eq!(driven.model.i64("children")[0], 1);
        let mut ends = driven.model.f64("nodes")[1..3].to_vec();
        ends.sort_by(f64::total_cmp);
        close(&ends, &[5.49, 115.49], 1e-3);
        let wide = driven.model.f64("nodes")[1..3].iter().position(|&c| c > 50.0).unwrap() + 1;
        assert_eq!(driven.model.i64("children")[wide], 3);
        let within = 4.0 * (0..50).map(|i| (f64::from(i) * 0.02 - 0.49).powi(2)).sum::<f64>();
        close(&[driven.grade.objective], &[within], 1e-4);
        let found = predictions(&*learner, &driven, &clouds());
        let clusters: Vec<f64> = found.chunks_exact(2).map(|pair| pair[0]).collect();
        assert!(clusters.chunks_exact(4).all(|four| four == &clusters[..4]));
    }
}

#[test]
fn strategies_cut_different_clusters() {
    // A tight cloud of many rows, and a wide one of few.
    let values = (0..120).map(|row| match row % 12 {
        0 => 1000.0 + (row / 12) as f32 * 20.0,
        _ => (row % 12) as f32 * 0.5,
    });
    let table = dense(1, values.collect());
    let cut = |strategy: &str| {
        let learner = built("bisecting-k-means", &format!("k = 3\nstrategy = '{strategy}'"));
        let driven = fit(&*learner, &table, 2);
        let masses = driven.model.f64("masses").to_vec();
        let leaf = (1..3).find(|&node| driven.model.i64("children")[node] > 0).unwrap();
        masses[leaf]
    };
    assert_eq!((cut("largest-inertia"), cut("largest-cluster")), (10.0, 110.0));
}

#[test]
fn digits_are_clustered_nearly_as_well_as_by_k_means() {
    let bisected = fit(&*built("bisecting-k-means", "k = 10"), &digits(), 2);
    let direct = fit(&*built("k-means", "k = 10"), &digits(), 2);
    let worse = bisected.grade.objective / direct.grade.objective;
    assert!((0.99..1.15).contains(&worse), "{worse}");
    let from_sparse = fit(&*built("bisecting-k-means", "k = 10"), &sparse(&digits()), 1);
    close(&[from_sparse.grade.objective], &[bisected.grade.objective], 1e-9);
}

#[test]
fn more_trials_are_no_worse() {
    let objective = |trials: u32| {
        let learner = built("bisecting-k-means", &format!("k = 2\ntrials = {trials}"));
        fit(&*learner, &iris(), 1).grade.objective
    };
    assert!(objective(10) <= objective(1) + 1e-9);
}

#[test]
fn equal_rows_stay_together() {
    let values: Vec<f32> = (0..40).map(|row| (row % 2) as f32).collect();
    let driven = fit(&*built("bisecting-k-means", "k = 5"), &dense(1, values), 2);
    assert_eq!(driven.grade.objective, 0.0);
    let leaves = driven.model.i64("children").iter().take(3).filter(|&&child| child == 0).count();
    assert_eq!(leaves, 2);
    let fault = refused(&*built("bisecting-k-means", "k = 5"), &dense(1, vec![1.0; 4]));
    assert!(fault.to_string().contains("5 clusters cannot be made of 4 rows"), "{fault}");
}

#[test]
fn weights_count_as_repeated_rows() {
    let table = iris();
    let values =
        (0..150).flat_map(|row| table.dense_rows(row, row + 1).unwrap().repeat(1 + row % 3));
    let repeated = dense(4, values.collect());
    let weights = (0..150).map(|row| (1 + row % 3) as f32).collect();
    let learner = built("bisecting-k-means", "k = 3\ntrials = 10\ntolerance = 0.0");
    let repeated = fit(&*learner, &repeated, 1).grade.objective;
    let weighed = fit(&*learner, &Table { weights, ..table }, 1).grade.objective;
    close(&[weighed], &[repeated], 1e-6);
}
