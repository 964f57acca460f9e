//! Gaussian mixtures.

use super::{
    built, close, dense, digits, figures, fit, iris, made, numbers, predictions, refused, sparse,
};
use starlings_core::Blame;
use starlings_data::Table;
use starlings_learn::gaussian_mixture::{Covariance, GaussianMixture, Given, Start};

const KINDS: [(&str, Covariance); 4] = [
    ("full", Covariance::Full),
    ("tied", Covariance::Tied),
    ("diag", Covariance::Diagonal),
    ("spherical", Covariance::Spherical),
];

/// From equal shares, rows of the table as means and covariances of one, as `clusters.py` has it.
fn from_rows(
    table: &Table,
    rows: &[usize],
    covariance: Covariance,
    iterations: u64,
) -> GaussianMixture {
    let (count, width) = (rows.len(), table.width());
    let matrix = (0..width * width).map(|at| f64::from(u8::from(at / width == at % width)));
    let covariances = match covariance {
        Covariance::Full => (0..count).flat_map(|_| matrix.clone()).collect(),
        Covariance::Tied => matrix.collect(),
        Covariance::Diagonal => vec![1.0; count * width],
        Covariance::Spherical => vec![1.0; count],
    };
    let means = rows.iter().flat_map(|&row| table.dense_rows(row, row + 1).unwrap());
    let means = means.map(|&x| f64::from(x)).collect();
    let start =
        Start::Given(Given { weights: vec![1.0 / count as f64; count], means, covariances });
    GaussianMixture {
        components: count,
        covariance,
        regularisation: 1e-6,
        tolerance: 1e-9,
        iterations_max: iterations,
        start,
    }
}

fn check(learner: &GaussianMixture, table: &Table, wanted: &serde_json::Value, workers: u32) {
    let driven = fit(learner, table, workers);
    let likelihood = wanted["log_likelihood"].as_f64().unwrap();
    let found = driven.grade.metrics["log_likelihood"];
    assert!((found / likelihood - 1.0).abs() < 1e-6, "{found}, not {likelihood}");
    assert_eq!(driven.outcome.iterations, wanted["iterations"].as_u64());
    close(driven.model.f64("weights"), &numbers(&wanted["weights"]), 1e-5);
    close(driven.model.f64("means"), &numbers(&wanted["means"]), 1e-5);
}

#[test]
fn every_kind_of_covariance_ends_where_scikit_learn_ends() {
    let figures = figures();
    for (name, covariance) in KINDS {
        for workers in [1, 3] {
            let learner = from_rows(&iris(), &[0, 50, 100], covariance, 25);
            check(&learner, &iris(), &figures["mixture"]["iris"][name], workers);
            let learner = from_rows(&made(), &[0, 1, 2], covariance, 25);
            check(&learner, &made(), &figures["mixture"]["made"][name], workers);
        }
    }
}

#[test]
fn reduced_digits_have_the_likelihood_of_scikit_learn() {
    let reduction = built("pca", "components = 6");
    let driven = fit(&*reduction, &digits(), 1);
    let rows = predictions(&*reduction, &driven, &digits());
    close(&rows[..12], &numbers(&figures()["digits_reduced_rows"]), 1e-6);
    let table = dense(6, rows.iter().map(|&x| x as f32).collect());
    let learner = from_rows(&table, &(0..10).collect::<Vec<_>>(), Covariance::Full, 20);
    let driven = fit(&learner, &table, 2);
    let wanted = figures()["mixture"]["digits"]["full"]["log_likelihood"].as_f64().unwrap();
    let found = driven.grade.metrics["log_likelihood"];
    assert!((found / wanted - 1.0).abs() < 1e-6, "{found}, not {wanted}");
}

#[test]
fn k_means_starts_find_three_kinds_of_iris_on_any_number_of_workers() {
    let learner = built("gaussian-mixture", "components = 3");
    let alone = fit(&*learner, &iris(), 1);
    assert!(alone.grade.metrics["log_likelihood"] > -1.25, "{:?}", alone.grade);
    for workers in [2, 4] {
        let together = fit(&*learner, &iris(), workers);
        close(&[together.grade.objective], &[alone.grade.objective], 1e-9);
        assert_eq!(together.steps, alone.steps);
    }
    let from_sparse = fit(&*learner, &sparse(&iris()), 2);
    close(&[from_sparse.grade.objective], &[alone.grade.objective], 1e-9);
    assert!(alone.model.get("centres").is_none(), "what k-means left is gone");
}

#[test]
fn likelihood_rises_with_every_iteration() {
    let mut last = f64::INFINITY;
    for iterations in 0..6 {
        let learner = from_rows(&iris(), &[0, 50, 100], Covariance::Full, iterations + 1);
        let objective = fit(&learner, &iris(), 1).grade.objective;
        assert!(objective < last, "{iterations}: {objective} {last}");
        last = objective;
    }
}

#[test]
fn predictions_are_chances_and_the_logarithm_of_the_density() {
    let learner = built("gaussian-mixture", "components = 3\ncovariance = 'diagonal'");
    let driven = fit(&*learner, &iris(), 1);
    let rows = predictions(&*learner, &driven, &iris());
    let mut sum = 0.0;
    for row in rows.chunks_exact(4) {
        assert!((row[..3].iter().sum::<f64>() - 1.0).abs() < 1e-12);
        sum += row[3];
    }
    close(&[sum / 150.0], &[driven.grade.metrics["log_likelihood"]], 1e-12);
}

#[test]
fn a_row_counts_as_often_as_it_weighs() {
    let table = iris();
    let values = (0..150).flat_map(|row| table.dense_rows(row, row + 1).unwrap().repeat(row % 3));
    let repeated = dense(4, values.collect());
    let weights = (0..150).map(|row| (row % 3) as f32).collect();
    let weighed = Table { weights, ..table.clone() };
    for (_, covariance) in KINDS {
        let learner = from_rows(&table, &[1, 50, 100], covariance, 10);
        let (repeated, weighed) = (fit(&learner, &repeated, 1), fit(&learner, &weighed, 2));
        close(&[weighed.grade.objective], &[repeated.grade.objective], 1e-9);
    }
}

#[test]
fn singular_covariances_are_refused_unless_they_are_regularised() {
    // The second column is twice the first.
    let flat = dense(2, (0..40).flat_map(|i| [i as f32, 2.0 * i as f32]).collect());
    let fault = refused(&*built("gaussian-mixture", "components = 2\nregularisation = 0.0"), &flat);
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.to_string().contains("singular") && fault.to_string().contains("regularisation"));
    assert!(
        fit(&*built("gaussian-mixture", "components = 2"), &flat, 2).grade.objective.is_finite()
    );
    // As many components as rows: each shrinks to one row, and regularisation alone is its covariance.
    let few =
        fit(&*built("gaussian-mixture", "components = 4"), &dense(1, vec![1.0, 2.0, 4.0, 8.0]), 1);
    assert!(few.grade.objective.is_finite());
    let equal = fit(&*built("gaussian-mixture", "components = 2"), &dense(1, vec![3.0; 20]), 2);
    assert!(equal.grade.objective.is_finite());
    let fault = refused(&*built("gaussian-mixture", "components = 5"), &dense(1, vec![1.0; 4]));
    assert!(fault.to_string().contains("5 components cannot be made of 4 rows"), "{fault}");
}
