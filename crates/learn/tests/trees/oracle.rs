//! Against brute force on small data: no cut of any feature, with the missing on either side, gains more than the one
//! that was chosen; and leaves say what their rows' gradients ask for.

use crate::{dense, learner, named, schema, train, train_on};
use starlings_core::Rng;
use starlings_data::Table;

/// 40 rows of three numbers with ties and a fifth missing.
fn small(seed: u64) -> Table {
    let mut rng = Rng::named(seed, "small", &[]);
    let value = |rng: &mut Rng| match rng.below(5) {
        0 => f32::NAN,
        _ => rng.below(9) as f32,
    };
    let values: Vec<f32> = (0..120).map(|_| value(&mut rng)).collect();
    let label = |row: &[f32], rng: &mut Rng| {
        let known = row.iter().map(|x| if x.is_nan() { 2.5 } else { *x });
        known.enumerate().map(|(at, x)| x * (at as f32 - 0.7)).sum::<f32>() + rng.normal() as f32
    };
    let labels = values.chunks(3).map(|row| label(row, &mut rng)).collect();
    dense(3, values, labels)
}

fn mean(table: &Table) -> f64 {
    table.labels.iter().map(|&y| f64::from(y)).sum::<f64>() / table.rows() as f64
}

/// The gain of the rows for which `left` says so going left, for the squared error; none if a side is too small.
fn gain(table: &Table, least: usize, l2: f64, left: impl Fn(&[f32]) -> bool) -> Option<f64> {
    let (mean, mut sums, mut counts) = (mean(table), [0.0; 2], [0; 2]);
    for row in 0..table.rows() {
        let starlings_data::Row::Dense(values) = table.row(row) else { panic!("dense") };
        let side = usize::from(!left(values));
        sums[side] += mean - f64::from(table.labels[row]);
        counts[side] += 1;
    }
    let part = |sum: f64, count: usize| sum * sum / (count as f64 + l2);
    let whole = part(sums[0] + sums[1], counts[0] + counts[1]);
    let both = part(sums[0], counts[0]) + part(sums[1], counts[1]);
    (counts[0] >= least && counts[1] >= least).then_some(both - whole)
}

fn best_of_all(table: &Table, least: usize, l2: f64) -> f64 {
    let mut best = 0.0f64;
    for feature in 0..3 {
        for threshold in 0..10 {
            for missing_left in [false, true] {
                let left = |row: &[f32]| match row[feature] {
                    x if x.is_nan() => missing_left,
                    x => x <= threshold as f32,
                };
                best = best.max(gain(table, least, l2, left).unwrap_or(0.0));
            }
        }
    }
    best
}

#[test]
fn the_chosen_split_gains_as_much_as_the_best_of_all() {
    for seed in 0..20 {
        let table = small(seed);
        for (least, l2) in [(1, 0.0), (6, 2.0)] {
            let more = format!(
                "loss = 'squared'\ntrees = 1\nleaves = 2\nmin_rows_leaf = {least}\nl2 = {l2:?}"
            );
            let driven = train("gradient-boosting", &more, &table, 2);
            let (found, wanted) = (driven.model.f64("nodes")[6], best_of_all(&table, least, l2));
            assert!((found - wanted).abs() < 1e-4 * wanted, "{seed}: {found} {wanted}");
        }
        let tree = train("decision-tree", "criterion = 'variance'\nmax_depth = 1", &table, 2);
        let (found, wanted) = (tree.model.f64("nodes")[6], best_of_all(&table, 1, 0.0));
        assert!((found - wanted).abs() < 1e-4 * wanted, "tree {seed}: {found} {wanted}");
    }
}

#[test]
fn categories_are_parted_as_well_as_by_the_best_of_all_subsets() {
    for seed in 0..10 {
        let mut rng = Rng::named(seed, "categories", &[]);
        let codes: Vec<f32> = (0..60).map(|_| rng.below(6) as f32).collect();
        let effect: Vec<f32> = (0..6).map(|_| rng.normal() as f32).collect();
        let labels =
            codes.iter().map(|&c| effect[c as usize] + 0.3 * rng.normal() as f32).collect();
        let table = dense(1, codes, labels);
        let subsets =
            (1..63u32).map(|set| gain(&table, 1, 0.0, |row| set >> row[0] as u32 & 1 == 1));
        let wanted = subsets.map(|gain| gain.unwrap_or(0.0)).fold(0.0, f64::max);
        let plain = "trees = 1\nleaves = 2\nmin_rows_leaf = 1\nloss = 'squared'\ncategory_smoothing = 0.0\n\
                     category_l2 = 0.0\ncategory_group = 1";
        for (name, more) in [
            ("gradient-boosting", plain),
            ("decision-tree", "criterion = 'variance'\nmax_depth = 1"),
        ] {
            let learner = learner(name, more);
            let schema = named(schema(&*learner, &table), &[("kind", 6)]);
            let driven = train_on(&*learner, &table, &schema, 3).unwrap();
            let found = driven.model.f64("nodes")[6];
            assert!((found - wanted).abs() < 1e-4 * wanted, "{name} {seed}: {found} {wanted}");
        }
    }
}

#[test]
fn looking_at_several_leaves_at_once_changes_no_tree() {
    let table = small(3);
    let trees = |splits: usize| {
        let more = format!(
            "loss = 'squared'\ntrees = 5\nleaves = 8\nmin_rows_leaf = 1\nsplits_per_exchange = {splits}"
        );
        let driven = train("gradient-boosting", &more, &table, 2);
        (driven.model.f64("nodes").to_vec(), driven.steps)
    };
    let (one, many) = (trees(1), trees(8));
    assert_eq!(one.0, many.0);
    assert!(many.1 < one.1, "{} exchanges instead of {}", many.1, one.1);
}

#[test]
fn leaves_of_the_absolute_error_say_the_median_of_their_residuals() {
    let table = small(5);
    let more = "loss = 'absolute'\ntrees = 1\nleaves = 2\nmin_rows_leaf = 5\nlearning_rate = 1.0";
    let driven = train("gradient-boosting", more, &table, 3);
    let said = crate::predict(&*learner("gradient-boosting", more), &driven, &table);
    let mut sides: Vec<f64> = said.clone();
    sides.sort_by(f64::total_cmp);
    sides.dedup();
    assert_eq!(sides.len(), 2, "{sides:?}");
    for side in sides {
        let mut labels: Vec<f64> = said
            .iter()
            .zip(&table.labels)
            .filter(|(s, _)| **s == side)
            .map(|(_, &y)| f64::from(y))
            .collect();
        labels.sort_by(f64::total_cmp);
        let median = labels[labels.len().div_ceil(2) - 1];
        assert!((side - median).abs() < 1e-5, "{side} {median}");
    }
}
