//! Data made on the spot: the same rows for everyone, with the statistics that their models promise.

use crate::{all, classes, dense, plain, refused, says};
use starlings_core::Shard;
use starlings_data::{DataSpec, Encoding, Features, LabelNeed, Row, load, survey};

#[test]
fn rows_depend_on_seed_and_number_alone() {
    let small = classes(&DataSpec::new("synthetic://classification?rows=100&features=5&seed=3"));
    let large = classes(&DataSpec::new("synthetic://classification?rows=9000&features=5&seed=3"));
    assert_eq!(dense(&small.1), &dense(&large.1)[..500]);
    assert_eq!(small.1.labels, large.1.labels[..100]);
    let other = classes(&DataSpec::new("synthetic://classification?rows=100&features=5&seed=4"));
    assert_ne!(dense(&small.1), dense(&other.1));
    assert_ne!(small.0.digest, other.0.digest);
}

#[test]
fn a_survey_of_many_rows_costs_nothing() {
    let spec = DataSpec::new("synthetic://classification?rows=1000000000000&features=28");
    let found = survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap();
    assert_eq!(
        (found.rows, found.schema.features, found.schema.classes()),
        (1_000_000_000_000, 28, 2)
    );
    let held = load(&spec, &found, &[Shard(77_777_777)], 1_000_000_000).unwrap();
    assert_eq!(held.table.rows(), 1000);
}

#[test]
fn classification_features_are_correlated_and_labels_follow_them() {
    let (found, table) =
        classes(&DataSpec::new("synthetic://classification?rows=20000&features=4&classes=3"));
    assert_eq!(found.schema.classes(), 3);
    let values = dense(&table);
    let product = |a: usize, b: usize| {
        values.chunks_exact(4).map(|x| f64::from(x[a] * x[b])).sum::<f64>() / 20_000.0
    };
    for (pair, expected) in
        [((0, 0), 1.0), ((3, 3), 1.0), ((0, 1), 0.5), ((0, 2), 0.25), ((1, 3), 0.25)]
    {
        let found = product(pair.0, pair.1);
        assert!((found - expected).abs() < 0.04, "{pair:?}: {found} instead of {expected}");
    }
    // Class means lie apart, which labels without relation to features would not do.
    let mean = |class: f32| {
        let rows = values.chunks_exact(4).zip(&table.labels).filter(|(_, label)| **label == class);
        let firsts: Vec<f32> = rows.map(|(x, _)| x[0]).collect();
        assert!(firsts.len() > 1000, "every class has rows");
        firsts.iter().sum::<f32>() / firsts.len() as f32
    };
    let means = [mean(0.0), mean(1.0), mean(2.0)];
    let apart = means.iter().fold(f32::MIN, |a, b| a.max(*b))
        - means.iter().fold(f32::MAX, |a, b| a.min(*b));
    assert!(apart > 0.3, "{means:?}");
}

#[test]
fn regression_and_blobs_keep_their_promises() {
    let spec = DataSpec::new("synthetic://regression?rows=4000&features=1&noise=0");
    let (_, table) = all(&spec, Encoding::OneHot, LabelNeed::Number);
    let slopes: Vec<f32> = table.labels.iter().zip(dense(&table)).map(|(y, x)| y / x).collect();
    assert!(slopes.iter().all(|slope| (slope - slopes[0]).abs() < 1e-4 * slopes[0].abs()));
    let (found, table) =
        classes(&DataSpec::new("synthetic://blobs?rows=3000&features=2&centers=4&spread=0.01"));
    assert_eq!(found.schema.classes(), 4);
    let first = |label: f32| table.labels.iter().position(|l| *l == label).unwrap();
    for (row, label) in table.labels.iter().enumerate() {
        let (own, first) = (&dense(&table)[2 * row..], &dense(&table)[2 * first(*label)..]);
        assert!((own[0] - first[0]).abs() < 0.2 && (own[1] - first[1]).abs() < 0.2);
    }
}

#[test]
fn ratings_have_identities_and_a_low_rank() {
    let spec = DataSpec::new("synthetic://ratings?rows=5000&users=30&items=20&rank=2&noise=0");
    let (found, table) = all(&spec, Encoding::Identity, LabelNeed::Number);
    assert_eq!((found.schema.identities(0), found.schema.identities(1)), (30, 20));
    let mut seen = std::collections::BTreeMap::new();
    for (pair, rating) in dense(&table).chunks_exact(2).zip(&table.labels) {
        assert!(pair[0] < 30.0 && pair[1] < 20.0);
        let known = *seen.entry((pair[0] as u32, pair[1] as u32)).or_insert(*rating);
        assert_eq!(known, *rating, "without noise a user rates an item once and for all");
    }
    let mean = table.labels.iter().sum::<f32>() / 5000.0;
    assert!((2.0..4.0).contains(&mean), "{mean}");
}

#[test]
fn documents_and_baskets_are_sparse_counts() {
    let (found, table) =
        plain(&DataSpec::new("synthetic://documents?documents=300&words=500&topics=5&length=40"));
    assert_eq!((found.rows, found.schema.features), (300, 500));
    let Features::Sparse { values, columns, .. } = &table.features else {
        panic!("must be sparse")
    };
    let tokens = values.iter().sum::<f32>() / 300.0;
    assert!((36.0..44.0).contains(&tokens), "{tokens}");
    assert!(columns.iter().all(|word| *word < 500));
    let (found, table) =
        plain(&DataSpec::new("synthetic://baskets?baskets=500&items=100&patterns=20&length=6"));
    assert_eq!((found.rows, found.schema.features), (500, 100));
    let mut items = 0;
    for row in 0..500 {
        let Row::Sparse(columns, values) = table.row(row) else { panic!("must be sparse") };
        assert!(!columns.is_empty() && columns.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(values.iter().all(|value| *value == 1.0));
        items += columns.len();
    }
    assert!((2000..3500).contains(&items), "{items}");
    says(&refused(&DataSpec::new("synthetic://baskets"), LabelNeed::Class), &["has no labels"]);
}

#[test]
fn survival_times_are_positive_and_some_are_censored() {
    let spec = DataSpec::new("synthetic://survival?rows=1000&features=3");
    let (found, table) = all(&spec, Encoding::OneHot, LabelNeed::Number);
    let names: Vec<&str> = found.schema.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["x0", "x1", "x2", "event"]);
    assert!(table.labels.iter().all(|time| *time > 0.0 && time.is_finite()));
    let events: Vec<f32> = dense(&table).chunks_exact(4).map(|row| row[3]).collect();
    assert!(events.iter().all(|event| *event == 0.0 || *event == 1.0));
    let happened: f32 = events.iter().sum();
    assert!((500.0..900.0).contains(&happened), "{happened}");
}

#[test]
fn misspelt_addresses_get_the_nearest_right_one() {
    let message = |address: &str| refused(&DataSpec::new(address), LabelNeed::None);
    says(&message("synthetic://clasification"), &["'clasification'", "'classification'"]);
    says(&message("synthetic://blobs?rwos=3"), &["unknown key 'rwos'", "'rows'"]);
    says(&message("synthetic://blobs?rows=0"), &["rows = 0"]);
    says(&message("synthetic://blobs?rows=many"), &["rows", "whole number"]);
    says(&message("synthetic://blobs?rows"), &["'rows' is not key=value"]);
}
