//! What travels under each parallelism: the bytes are those of the formulas, and dealing features instead of rows
//! changes no tree.

use crate::workers::rows;
use crate::{dense, learner, schema, train};
use starlings_core::Rng;
use starlings_data::{Holding, Table};
use starlings_testkit::drive::{Drive, Run};
use std::sync::Arc;

/// Bytes that one worker emits in each step of a training.
fn bytes(parameters: &str, table: &Table) -> Vec<usize> {
    let learner = learner("gradient-boosting", parameters);
    let options = Drive { workers: 2, ..Drive::default() };
    let facts = options.facts(&schema(&*learner, table), table.rows() as u64);
    let holding = Holding::whole(Arc::new(table.clone()), options.shards);
    let mut run = Run::start(&*learner, &facts, &holding, &options).unwrap();
    let mut all = Vec::new();
    while run.step().unwrap() {
        all.push(run.emitted());
    }
    all
}

/// Features of two values each, so that each has three bins: that of the missing is empty.
fn switches(rows: usize, features: usize) -> Table {
    let mut rng = Rng::named(8, "switches", &[]);
    let values: Vec<f32> = (0..rows * features).map(|_| rng.below(2) as f32).collect();
    let label = |row: &[f32]| 3.0 * row[0] + 2.0 * row[0] * row[1] + row[2];
    let labels = values.chunks(features).map(label).collect();
    dense(features, values, labels)
}

const WORD: usize = 8;

#[test]
fn each_parallelism_sends_the_bytes_of_its_formula() {
    let (rows, features) = (600, 8);
    let table = switches(rows, features);
    // A tree of three leaves: its root and both children of it are looked at.
    let sent = |way: &str| {
        bytes(&format!("loss = 'squared'\ntrees = 1\nleaves = 3\nvotes = 1\n{way}"), &table)
    };
    let total = 3 * WORD;
    // Two words a bin; of the children the smaller one's bins that the root has rows in.
    let data = sent("parallelism = 'data'");
    assert_eq!(data[3..], [features * 3 * 2 * WORD + total, features * 2 * 2 * WORD]);
    // A vote a feature, then the bins of twice as many features as each names, of both children.
    let voting = sent("parallelism = 'voting'");
    let elected = 2 * 3 * 2 * WORD;
    assert_eq!(voting[3..], [features * WORD, elected + total, 2 * features * WORD, 2 * elected]);
    // All rows once, in a word for label and weight and one for eight bins; then thirteen words a group of features.
    let feature = sent("parallelism = 'feature'");
    assert_eq!(feature[2], rows * 2 * WORD);
    assert_eq!(feature[4..], [features * 13 * WORD + total, 2 * features * 13 * WORD]);
    // What comes before is the same for all.
    assert_eq!(data[..3], voting[..3]);
    assert_eq!([&data[..2], &data[2..3]], [&feature[..2], &feature[3..4]]);
}

#[test]
fn voting_sends_less_than_histograms_of_all_features() {
    let table = rows(2);
    let [all, voted] = ["data", "voting"].map(|way| {
        // So few bins that every node has rows in nearly all, as nodes of large data have.
        let more = format!("trees = 5\nvotes = 1\nbins = 8\nparallelism = '{way}'");
        bytes(&more, &table).iter().sum::<usize>()
    });
    // Two of eight features are elected, but siblings are not had by subtraction.
    assert!((voted as f64) < 0.7 * all as f64, "{voted} bytes instead of {all}");
}

#[test]
fn dealing_features_grows_the_trees_of_dealing_rows() {
    for (more, classes) in [
        ("", 3),
        ("gradient_bits = '13'\ngoss = true", 2),
        ("subsample = 0.6\ncolumn_share = 0.7\ncolumn_share_node = 0.6\nearly_stopping = 3", 2),
        ("growth = 'level-wise'\nmax_depth = 3\nloss = 'quantile'\nalpha = 0.3", 3),
        ("loss = 'lambdarank'", 4),
    ] {
        let table = rows(classes);
        let [by_rows, by_features] = ["data", "feature"].map(|way| {
            let more = format!("{more}\ntrees = 6\nmin_rows_leaf = 5\nparallelism = '{way}'");
            train("gradient-boosting", &more, &table, 3)
        });
        assert!(by_rows.model.f64("nodes").len() > 8 * 8, "{more}: no trees to compare");
        assert_eq!(by_rows.model.f64("nodes"), by_features.model.f64("nodes"), "{more}");
        assert_eq!(by_rows.grade, by_features.grade, "{more}");
    }
}

#[test]
fn small_data_send_no_bins_that_their_parents_lack() {
    // 300 rows fill a fraction of 255 bins once they are parted.
    let mut rng = Rng::named(9, "few rows", &[]);
    let values: Vec<f32> = (0..300 * 5).map(|_| rng.normal() as f32).collect();
    let labels = values.chunks(5).map(|row| row[0] * row[1] + row[2]).collect();
    let steps = bytes("loss = 'squared'\ntrees = 1\nmin_rows_leaf = 5", &dense(5, values, labels));
    let (root, later) = (steps[3] - 3 * WORD, &steps[4..]);
    assert_eq!(root, 5 * 256 * 2 * WORD);
    let nodes = 31 - 1;
    let sent: usize = later.iter().sum();
    assert!(sent * 3 < nodes * root, "{sent} bytes where whole histograms are {}", nodes * root);
}
