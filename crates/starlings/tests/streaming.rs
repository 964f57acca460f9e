//! Data sets that do not fit into the memory they may take: rows lie in a file, and the trained model has the same bits.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{Job, Result, Surroundings, TrainOptions, TrainedModel, train};

fn trained(text: &str, sets: &[&str]) -> Result<TrainedModel> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    let around = Surroundings { folder: std::env::temp_dir(), cores: 2 };
    train(Job::parse(text, &sets, &around)?, TrainOptions::default())
}

fn job(data: &str, learner: &str) -> String {
    format!("[data]\n{data}\n[learner]\n{learner}\n[train]\nepochs = 3\nbatch = 64\nseed = 7\n")
}

const CLASSES: &str = "train = 'synthetic://classification?rows=3000&features=6&seed=4'";
const NUMBERS: &str = "train = 'synthetic://regression?rows=3000&features=6&seed=4'";
const BLOBS: &str = "train = 'synthetic://blobs?rows=3000&features=6&centers=4&seed=4'";
const DIGITS: &str = "train = 'digits'\nlabel = 'class'";

#[test]
fn models_have_the_same_bits_whether_or_not_rows_fit_into_memory() {
    let text = sparse_text();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.libsvm");
    std::fs::write(&path, text).unwrap();
    let sparse = format!("train = '{}'", path.display());
    for (data, learner) in [
        (CLASSES, "name = 'logistic-regression'"),
        (CLASSES, "name = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.1"),
        (DIGITS, "name = 'logistic-regression'\nl2 = 0.1"),
        (&sparse, "name = 'logistic-regression'\nl2 = 0.1"),
        (NUMBERS, "name = 'linear-regression'"),
        (NUMBERS, "name = 'lasso'\nl1 = 0.1"),
        (BLOBS, "name = 'k-means'\nk = 4"),
        (BLOBS, "name = 'k-means'\nk = 4\nalgorithm = 'mini-batch'"),
        (CLASSES, "name = 'naive-bayes'\nkind = 'gaussian'"),
        (&sparse, "name = 'naive-bayes'\nkind = 'multinomial'"),
        (CLASSES, "name = 'gradient-boosting'\ntrees = 3\nleaves = 7"),
        (BLOBS, "name = 'pca'\ncomponents = 2"),
    ] {
        let job = job(data, learner);
        let sets = |memory: &'static str| ["cluster.workers=2", memory];
        let held = trained(&job, &sets("data.memory='1GB'")).unwrap();
        let spilt = trained(&job, &sets("data.memory='10KB'")).unwrap();
        assert_eq!(held.predictor.file().model, spilt.predictor.file().model, "{learner}");
        assert_eq!(held.report.digest, spilt.report.digest, "{learner}");
    }
}

#[test]
fn a_preparation_streams_too() {
    let job = job(DIGITS, "name = 'ridge'") + "[[prepare]]\nname = 'polynomial'\ndegree = 2\n";
    let sets = |memory: &'static str| ["learner.name='logistic-regression'", memory];
    let held = trained(&job, &sets("data.memory='1GB'")).unwrap();
    let spilt = trained(&job, &sets("data.memory='100KB'")).unwrap();
    assert_eq!(held.predictor.file().model, spilt.predictor.file().model);
}

#[test]
fn a_folder_that_takes_no_file_is_named() {
    let job = job(CLASSES, "name = 'logistic-regression'");
    let sets = ["data.memory='10KB'", "data.spill='/nowhere/at/all'"];
    let fault = trained(&job, &sets).map(|_| ()).unwrap_err().to_string();
    assert!(fault.contains("/nowhere/at/all") && fault.contains("[data] spill"), "{fault}");
}

fn sparse_text() -> String {
    let row = |row: u32| {
        let entries = (1..40).filter(|at| (row * 7 + at * at).is_multiple_of(11));
        let entries: Vec<String> =
            entries.map(|at| format!("{at}:{}", (row % 5 + at) as f32 / 8.0)).collect();
        format!("{} {}\n", (row * row) % 3 % 2, entries.join(" "))
    };
    (0..2000).map(row).collect()
}
