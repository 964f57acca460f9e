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
fn rows_are_predicted_and_measured_piece_by_piece() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.csv");
    let row = |row: u64| {
        let x = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{x}.{:040},{},{}\n", 0, row % 7, if x % 3 == row % 7 % 3 { "yes" } else { "no" })
    };
    let text: String = (0..150_000).map(row).collect();
    std::fs::write(&path, format!("a,b,class\n{text}")).unwrap();
    let data = format!("train = '{}'\nlabel = 'class'", path.display());
    let model = trained(&job(&data, "name = 'gradient-boosting'\ntrees = 2"), &[]).unwrap();
    let spec = starlings::DataSpec::new(path.display().to_string()).label("class");
    let whole = model.predictor.predict(&spec).unwrap();
    let (mut values, mut classes, mut pieces) = (Vec::new(), Vec::new(), 0);
    let take = &mut |piece: starlings::Prediction| {
        pieces += 1;
        values.extend(piece.values);
        classes.extend(piece.classes);
        Ok(())
    };
    model.predictor.predict_pieces(&spec, take).unwrap();
    assert!(pieces > 1 && values == whole.values && classes == whole.classes);
    let panel = model.predictor.evaluate(&spec).unwrap();
    assert_eq!(panel.rows, 150_000);
    assert!((panel.metrics["log_loss"] - model.report.metrics["log_loss"]).abs() < 1e-9);
}

#[test]
fn what_has_no_labels_is_measured_on_rows_it_has_not_seen() {
    for (learner, metric) in [
        ("name = 'autoencoder'\nhidden = [8]", "loss"),
        ("name = 'vae'\nhidden = [8]\ncode = 2", "loss"),
        (
            "name = 'transformer'\ntask = 'next-token'\ntokens = 17\nwidth = 8\nheads = 2\nblocks = 1",
            "perplexity",
        ),
    ] {
        let data = "train = 'digits'\ntest = 'digits:test'\nlabel = 'class'";
        let alone = trained(&job(data, learner), &["train.epochs=1"]).unwrap().report;
        let same = "train = 'digits:test'\ntest = 'digits:test'\nlabel = 'class'";
        let two = ["train.epochs=1", "cluster.workers=2"];
        let known = trained(&job(same, learner), &two).unwrap().report;
        assert!(alone.evaluation[metric].is_finite(), "{learner}: {:?}", alone.evaluation);
        assert_ne!(alone.evaluation[metric], alone.metrics[metric], "{learner}: other rows");
        let (seen, graded) = (known.evaluation[metric], known.metrics[metric]);
        assert!((seen - graded).abs() < 1e-5 * graded.abs(), "{learner}: {seen} and {graded}");
    }
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
