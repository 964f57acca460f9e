//! Principal components and truncated singular values.

use super::{
    built, close, dense, digits, figures, fit, iris, numbers, predictions, refused, sparse, tried,
};
use starlings_core::{Blame, Rng};
use starlings_data::Table;
use starlings_testkit::drive::Driven;

/// The largest sine of an angle between a vector of `found` and the space of `wanted`, both orthonormal.
fn largest_sine(found: &[f64], wanted: &[f64], width: usize) -> f64 {
    let sine = |vector: &[f64]| {
        let mut rest = vector.to_vec();
        for basis in wanted.chunks_exact(width) {
            let along: f64 = basis.iter().zip(vector).map(|(a, b)| a * b).sum();
            rest.iter_mut().zip(basis).for_each(|(r, b)| *r -= along * b);
        }
        rest.iter().map(|r| r * r).sum::<f64>().sqrt()
    };
    found.chunks_exact(width).map(sine).fold(0.0, f64::max)
}

fn check(driven: &Driven, wanted: &serde_json::Value, width: usize) {
    let wanted = |name: &str| numbers(&wanted[name]);
    for name in ["explained_variance", "explained_variance_ratio"] {
        close(driven.model.f64(name), &wanted(name), 1e-6);
    }
    let (found, wanted) = (driven.model.f64("components"), wanted("components"));
    assert!(largest_sine(found, &wanted, width) < 1e-6);
    // Signs and order too.
    close(found, &wanted, 1e-6);
}

#[test]
fn principal_components_are_those_of_scikit_learn_on_any_number_of_workers() {
    let figures = figures();
    for workers in [1, 3] {
        let learner = built("pca", "");
        check(&fit(&*learner, &iris(), workers), &figures["pca"]["iris"], 4);
        let learner = built("pca", "components = 10");
        check(&fit(&*learner, &digits(), workers), &figures["pca"]["digits"], 64);
        check(&fit(&*learner, &sparse(&digits()), workers), &figures["pca"]["digits"], 64);
    }
}

#[test]
fn passes_find_the_components_of_the_covariance() {
    let figures = figures();
    let params =
        "components = 10\nalgorithm = 'randomised'\npower_iterations = 200\ntolerance = 1e-14";
    for table in [digits(), sparse(&digits())] {
        let driven = fit(&*built("pca", params), &table, 2);
        check(&driven, &figures["pca"]["digits"], 64);
    }
    // Few passes are rough, and say so by explaining less.
    let rough = fit(
        &*built("pca", "components = 10\nalgorithm = 'randomised'\npower_iterations = 0"),
        &digits(),
        1,
    );
    let exact = fit(&*built("pca", "components = 10"), &digits(), 1);
    assert!(rough.grade.objective > exact.grade.objective + 1e-3);
}

#[test]
fn a_share_of_variance_takes_as_many_components_as_scikit_learn() {
    let driven = fit(&*built("pca", "components = 0.9"), &digits(), 2);
    let count = driven.model.f64("explained_variance").len() as u64;
    assert_eq!(Some(count), figures()["pca_share"]["digits"].as_u64());
    assert!(driven.grade.objective <= -0.9);
}

#[test]
fn whitened_rows_have_variance_one_and_no_covariance() {
    let learner = built("pca", "components = 3\nwhiten = true");
    let driven = fit(&*learner, &iris(), 1);
    let rows = predictions(&*learner, &driven, &iris());
    for a in 0..3 {
        for b in 0..3 {
            let product: f64 = rows.chunks_exact(3).map(|row| row[a] * row[b]).sum();
            let wanted = f64::from(u8::from(a == b));
            assert!((product / 149.0 - wanted).abs() < 1e-6, "{a} {b} {product}");
        }
    }
}

#[test]
fn far_from_the_origin_components_are_the_same() {
    let moved = |by: f32| {
        let mut rng = Rng::named(1, "far", &[]);
        let row = |_| {
            let (a, b) = (64.0 * rng.below(64) as f32, 64.0 * rng.below(16) as f32);
            [by + a, by + b]
        };
        dense(2, (0..500).flat_map(row).collect())
    };
    let near = fit(&*built("pca", ""), &moved(0.0), 1);
    let far = fit(&*built("pca", ""), &moved(134_217_728.0), 1);
    close(far.model.f64("explained_variance"), near.model.f64("explained_variance"), 1e-9);
}

#[test]
fn a_row_counts_as_often_as_it_weighs() {
    let table = iris();
    let twice: Vec<f32> = (0..150)
        .flat_map(|row| table.dense_rows(row, row + 1).unwrap().repeat(1 + row % 3))
        .collect();
    let weights: Vec<f32> = (0..150).map(|row| (1 + row % 3) as f32).collect();
    for (name, params) in
        [("pca", "components = 2"), ("truncated-svd", "power_iterations = 50\ntolerance = 1e-14")]
    {
        let learner = built(name, params);
        let repeated = fit(&*learner, &dense(4, twice.clone()), 1);
        let weighed = Table { weights: weights.clone(), ..table.clone() };
        let weighed = fit(&*learner, &weighed, 2);
        close(
            weighed.model.f64("explained_variance"),
            repeated.model.f64("explained_variance"),
            1e-9,
        );
        close(weighed.model.f64("components"), repeated.model.f64("components"), 1e-6);
    }
}

#[test]
fn singular_values_are_those_of_scikit_learn_without_centring() {
    let figures = figures();
    let params = "components = 5\npower_iterations = 200\ntolerance = 1e-14";
    for table in [digits(), sparse(&digits())] {
        let driven = fit(&*built("truncated-svd", params), &table, 3);
        check(&driven, &figures["truncated_svd"]["digits"], 64);
        let wanted = numbers(&figures["truncated_svd"]["digits"]["singular_values"]);
        close(driven.model.f64("singular_values"), &wanted, 1e-9);
    }
    let driven =
        fit(&*built("truncated-svd", "power_iterations = 100\ntolerance = 1e-14"), &iris(), 1);
    check(&driven, &figures["truncated_svd"]["iris"], 4);
}

#[test]
fn constant_columns_and_equal_rows_have_no_variance() {
    let driven =
        fit(&*built("pca", "whiten = true"), &dense(2, [1.0, 5.0, 2.0, 5.0, 4.0, 5.0].to_vec()), 1);
    close(driven.model.f64("explained_variance"), &[7.0 / 3.0, 0.0], 1e-12);
    let driven = fit(&*built("pca", ""), &dense(2, [3.0, 1.0].repeat(10)), 2);
    assert_eq!(driven.model.f64("explained_variance"), [0.0, 0.0]);
    assert_eq!(driven.grade.objective, 0.0);
}

#[test]
fn what_cannot_be_projected_is_refused_with_advice() {
    let one = refused(&*built("pca", ""), &dense(2, vec![1.0, 2.0]));
    assert!(one.blame() == Blame::Caller && one.to_string().contains("1 rows"), "{one}");
    let many = refused(&*built("pca", "components = 5"), &iris());
    assert!(many.to_string().contains("at most 4 components") && many.advice().is_some());
    let many = refused(&*built("truncated-svd", "components = 5"), &iris());
    assert!(many.to_string().contains("at most 4 singular values"), "{many}");
    assert!(tried("pca", "components = 2.5").is_err());
    assert!(tried("pca", "components = 0.5\nalgorithm = 'randomised'").is_err());
    let huge = refused(&*built("pca", ""), &dense(1, vec![f32::INFINITY, 1.0]));
    assert!(huge.to_string().contains("not finite"), "{huge}");
}
