//! Boosted stumps: against another implementation, a brute-force one, and the laws of memory and sums.

use crate::{Knuth, dense, learner, schema, sparse};
use starlings_core::{Model, Update};
use starlings_data::{Dealer, Features, Holding};
use starlings_learn::Memory;
use starlings_testkit::drive::{Drive, Run, drive};

/// 400 rows of four uniform features, one of five values and a rare 0/1.
fn data() -> Holding {
    let mut knuth = Knuth(7);
    let (mut values, mut labels) = (vec![], vec![]);
    for _ in 0..400 {
        let row: Vec<f32> = (0..6)
            .map(|feature| match (feature, knuth.uniform()) {
                (4, u) => (u * 5.0).floor() as f32,
                (5, u) => f32::from(u < 0.03),
                (_, u) => (u * 4.0 - 2.0) as f32,
            })
            .collect();
        let x: Vec<f64> = row.iter().map(|&x| f64::from(x)).collect();
        let z = 1.5 * x[0] - x[1] * x[1] + 0.5 * x[4] + 2.0 * x[5];
        labels.push(f32::from(knuth.uniform() < 1.0 / (1.0 + (-z).exp())));
        values.extend(row);
    }
    dense(6, values, labels)
}

fn train(holding: &Holding, parameters: &str, options: &Drive) -> (Model, f64) {
    let facts = options.facts(&schema(6, 2), 400);
    let driven = drive(&*learner("boosted-stumps", parameters), &facts, holding, options).unwrap();
    (driven.model, driven.grade.metrics["log_loss"])
}

#[test]
fn the_training_loss_is_that_of_another_implementation() {
    // scikit-learn 1.9: HistGradientBoostingClassifier(max_depth=1, max_iter=100, learning_rate=0.1,
    // min_samples_leaf=1, early_stopping=False, max_bins=64).fit(X, y) on the same rows, log_loss(y, …);
    // GradientBoostingClassifier(max_depth=1), which looks at every value, gives 0.42266.
    const REFERENCE: f64 = 0.426193475082505;
    let (_, loss) = train(&data(), "", &Drive::default());
    assert!((loss / REFERENCE - 1.0).abs() < 0.01, "{loss}");
}

#[test]
fn trees_agree_with_brute_force_over_all_rows_and_edges() {
    let holding = data();
    let (model, _) = train(&holding, "bins = 16\nl2 = 0.5\ntrees = 40", &Drive::default());
    let reference = brute_force(&holding, 15, 0.5, 40);
    assert_eq!(model.f64("trees").len(), reference.len());
    for (tree, (ours, theirs)) in model.f64("trees").iter().zip(&reference).enumerate() {
        assert!((ours - theirs).abs() < 1e-9, "number {tree}: {ours} {theirs}");
    }
}

#[test]
fn one_two_and_four_workers_and_sparse_rows_grow_the_same_bits() {
    let options = |workers| Drive { workers, epochs: Some(20), ..Drive::default() };
    let alone = train(&data(), "", &options(1)).0;
    assert_eq!(alone.i64("grown"), [20]);
    for workers in [2, 4] {
        assert_eq!(alone.digest(), train(&data(), "", &options(workers)).0.digest());
    }
    assert_eq!(alone.digest(), train(&sparse(&data()), "", &options(2)).0.digest());
}

#[test]
fn memory_that_is_lost_is_made_again_to_the_bit() {
    let (holding, options) = (data(), Drive { workers: 2, epochs: Some(20), ..Drive::default() });
    let (undisturbed, _) = train(&holding, "", &options);
    let stumps = learner("boosted-stumps", "");
    let facts = options.facts(&schema(6, 2), 400);
    // Before the edges are known, at the first tree, and in the midst of the trees.
    for lost_at in [3, 8, 15] {
        let mut run = Run::start(&*stumps, &facts, &holding, &options).unwrap();
        (0..lost_at).for_each(|_| assert!(run.step().unwrap()));
        let (steps, model, _) = run.checkpoint();
        let four = Drive { workers: 4, ..options };
        let mut run = Run::resume(&*stumps, &holding, &four, (steps, &model, &Memory::new()));
        while run.step().unwrap() {}
        assert_eq!(run.checkpoint().1.digest(), undisturbed.digest(), "lost at {lost_at}");
    }
}

#[test]
fn a_step_that_is_computed_again_contributes_the_same() {
    let (holding, options) = (data(), Drive::default());
    let stumps = learner("boosted-stumps", "");
    let mut run =
        Run::start(&*stumps, &options.facts(&schema(6, 2), 400), &holding, &options).unwrap();
    (0..12).for_each(|_| assert!(run.step().unwrap()));
    let (step, model, mut memory) = run.checkpoint();
    let dealer = Dealer::new(holding.clone(), 1, 32);
    let mut again = || -> Update {
        crate::topic_model::contribute(&*stumps, (step, &model), &dealer, &mut memory)
    };
    assert_eq!(again(), again());
}

#[test]
fn predictions_are_probabilities_that_give_the_graded_loss() {
    let holding = data();
    let (model, loss) = train(&holding, "", &Drive::default());
    let dealer = Dealer::new(holding.clone(), 1, 32);
    let mut out = vec![];
    learner("boosted-stumps", "").predict(&model, &dealer.everything(), &mut out).unwrap();
    let pairs = out.chunks_exact(2).zip(&holding.table.labels);
    let mean = pairs.map(|(p, &label)| -p[label as usize].ln()).sum::<f64>() / 400.0;
    assert!((mean - loss).abs() < 1e-12, "{mean} {loss}");
    assert!(out.chunks_exact(2).all(|p| (p[0] + p[1] - 1.0).abs() < 1e-15));
}

#[test]
fn three_classes_and_one_class_are_refused() {
    let (stumps, options) = (learner("boosted-stumps", ""), Drive::default());
    let fault = stumps.init(&options.facts(&schema(6, 3), 400), starlings_learn::Place::WHOLE);
    assert!(fault.unwrap_err().to_string().contains("have 3"));
    let Features::Dense { values, .. } = data().table.features.clone() else { panic!("dense") };
    let one = dense(6, values.to_vec(), vec![1.0; 400]);
    let fault = drive(&*stumps, &options.facts(&schema(6, 2), 400), &one, &options);
    assert!(fault.unwrap_err().to_string().contains("one class"));
}

/// Boosting by the book: for every tree every edge of every feature is tried on all rows.
fn brute_force(holding: &Holding, edges: usize, l2: f64, trees: usize) -> Vec<f64> {
    let Features::Dense { width, values } = &holding.table.features else { panic!("dense") };
    let labels: Vec<f64> = holding.table.labels.iter().map(|&y| f64::from(y)).collect();
    let rows = labels.len();
    let column = |f: usize| values.iter().skip(f).step_by(*width).copied();
    let positives: f64 = labels.iter().sum();
    let mut scores = vec![(positives / (rows as f64 - positives)).ln(); rows];
    let mut grown = vec![];
    for _ in 0..trees {
        let p: Vec<f64> = scores.iter().map(|s| 1.0 / (1.0 + (-s).exp())).collect();
        let mut best = (0.0, [0.0; 4]);
        for feature in 0..*width {
            let mut sorted: Vec<f32> = column(feature).collect();
            sorted.sort_by(f32::total_cmp);
            for edge in 1..=edges {
                let threshold = sorted[edge * (rows - 1) / edges];
                let mut sums = [[0.0; 2]; 2];
                for (row, x) in column(feature).enumerate() {
                    let side = usize::from(x >= threshold);
                    sums[side][0] += p[row] - labels[row];
                    sums[side][1] += p[row] * (1.0 - p[row]);
                }
                let [[gl, hl], [gr, hr]] = sums;
                let whole = (gl + gr) * (gl + gr) / (hl + hr + l2);
                let gain = gl * gl / (hl + l2) + gr * gr / (hr + l2) - whole;
                // Of equal splits the first: sums of floats are equal only up to rounding.
                if hl >= 1e-3 && hr >= 1e-3 && gain > best.0 + 1e-12 {
                    let leaves = [-0.1 * gl / (hl + l2), -0.1 * gr / (hr + l2)];
                    best = (gain, [feature as f64, threshold.into(), leaves[0], leaves[1]]);
                }
            }
        }
        let [feature, threshold, left, right] = best.1;
        for (score, x) in scores.iter_mut().zip(column(feature as usize)) {
            *score += if f64::from(x) < threshold { left } else { right };
        }
        grown.extend(best.1);
    }
    grown
}
