//! Cross-validation and evaluation through the front door: the folds are scikit-learn's when it is given them, the
//! figures do not depend on the number of workers, and a model never sees a row that it is measured on.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use serde_json::Value;
use starlings::{
    Blame, DataSpec, Encoding, Event, Job, LabelNeed, Report, Result, Surroundings, TrainOptions,
    fold_of_rows, train,
};
use std::path::Path;
use std::sync::{Arc, Mutex};

const BAYES: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'naive-bayes'
var_smoothing = 1e-3
[validate]
folds = 5
seed = 1
";
const RIDGE: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'ridge'
l2 = 0.01
[validate]
folds = 4
seed = 2
";

fn job(text: &str, sets: &[&str]) -> Result<Job> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    Job::parse(text, &sets, &Surroundings { folder: std::env::temp_dir(), cores: 2 })
}

fn report(text: &str, sets: &[&str]) -> Report {
    let trained = train(job(text, sets).unwrap(), TrainOptions::default());
    trained.unwrap_or_else(|fault| panic!("{sets:?}: {fault}")).report
}

fn reference() -> Value {
    serde_json::from_str(include_str!("../../../bench/references/validation.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn folds_and_figures_are_those_of_scikit_learn_with_any_number_of_workers() {
    for (text, name, label, wish, tolerance) in [
        (BAYES, "classes", LabelNeed::Class, (5, 1), 1e-12),
        (RIDGE, "numbers", LabelNeed::Number, (4, 2), 1e-6),
    ] {
        let expected = &reference()[name];
        let spec = DataSpec::new("digits").label("class");
        let folds = fold_of_rows(&spec, wish, (Encoding::OneHot, label)).unwrap();
        let recorded = numbers(&expected["fold_of_rows"]);
        assert!(folds.iter().map(|&fold| f64::from(fold)).eq(recorded), "{name}");
        for workers in ["cluster.workers=1", "cluster.workers=3"] {
            let report = report(text, &[workers]);
            let found = report.validation.unwrap();
            let rows: u64 = found.folds.iter().map(|fold| fold.rows).sum();
            assert_eq!((found.folds.len(), rows), (wish.0 as usize, 1438));
            for (metric, expected) in expected["metrics"].as_object().unwrap() {
                let by_fold = found.folds.iter().map(|fold| fold.metrics[metric]);
                for (found, expected) in by_fold.zip(numbers(&expected["folds"])) {
                    assert!((found - expected).abs() < tolerance, "{metric}: {found} {expected}");
                }
                let spread = found.metrics[metric];
                let close = |found: f64, key: &str| {
                    (found - expected[key].as_f64().unwrap()).abs() < tolerance
                };
                assert!(close(spread.mean, "mean") && close(spread.deviation, "deviation"));
            }
        }
    }
}

#[test]
fn every_class_has_the_same_share_of_every_fold() {
    let spec = DataSpec::new("digits").label("class");
    let folds = fold_of_rows(&spec, (5, 7), (Encoding::OneHot, LabelNeed::Class)).unwrap();
    let survey = starlings::survey(&spec, Encoding::OneHot, LabelNeed::Class).unwrap();
    let report = report(BAYES, &["validate.seed=7"]);
    let mut of_folds = [0u64; 5];
    folds.iter().for_each(|&fold| of_folds[fold as usize] += 1);
    for (fold, found) in report.validation.unwrap().folds.iter().enumerate() {
        let confusion = found.confusion.as_ref().unwrap();
        assert_eq!(found.rows, of_folds[fold]);
        for (class, counts) in confusion.counts.iter().enumerate() {
            let (here, all) = (counts.iter().sum::<f64>(), survey.class_rows[class] as f64);
            assert!((here - all / 5.0).abs() < 1.0, "fold {fold}, class {class}: {here} of {all}");
        }
    }
}

#[test]
fn one_fold_alone_is_the_fold_of_the_whole_and_the_final_model_has_all_rows() {
    let told: Arc<Mutex<Vec<Event>>> = Arc::default();
    let events = told.clone();
    let options = TrainOptions {
        observer: Arc::new(move |event: Event| events.lock().unwrap().push(event)),
        ..TrainOptions::default()
    };
    let whole = train(job(BAYES, &["validate.folds=3"]).unwrap(), options).unwrap().report;
    let found = whole.validation.unwrap();
    let second = report(BAYES, &["validate.folds=3", "validate.only=1"]);
    assert_eq!(second.evaluation, found.folds[1].metrics);
    assert!(second.validation.is_none());
    let plain = BAYES.split("[validate]").next().unwrap();
    assert_eq!(report(plain, &[]).digest, whole.digest, "the final model has all rows");
    let events = told.lock().unwrap();
    let of_folds = events.iter().filter_map(|event| match event {
        Event::Fold { fold, folds: 3, found } => Some((*fold, found.clone())),
        _ => None,
    });
    assert!(of_folds.eq((0..3).zip(found.folds)), "each fold is told");
}

#[test]
fn what_is_held_out_leaks_neither_categories_nor_means() {
    let folder = tempfile::tempdir().unwrap();
    // The held-out rows of each fold have categories and numbers that no other row has.
    let rows = |fold: &dyn Fn(usize) -> u32| -> String {
        let line = |row: usize| {
            format!("{},{},t{}\n", row % 2, 10.0_f64.powi(fold(row) as i32), fold(row))
        };
        (0..30).map(line).collect()
    };
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, format!("y,x,t\n{}", rows(&|_| 0))).unwrap();
    let spec = DataSpec::new(path.to_string_lossy()).label("y");
    let folds = fold_of_rows(&spec, (3, 0), (Encoding::OneHot, LabelNeed::Class)).unwrap();
    std::fs::write(&path, format!("y,x,t\n{}", rows(&|row| folds[row]))).unwrap();
    let text = format!(
        "[data]\ntrain = '{}'\nlabel = 'y'\n[[prepare]]\nname = 'scale'\ncolumns = ['x']\n\
         [learner]\nname = 'logistic-regression'\n[validate]\nfolds = 3\nonly = 2\n",
        path.display()
    );
    let trained = train(job(&text, &[]).unwrap(), TrainOptions::default()).unwrap();
    let schema = serde_json::to_string(trained.predictor.schema()).unwrap();
    assert!(schema.contains("t0") && schema.contains("t1") && !schema.contains("t2"), "{schema}");
    let prepared = serde_json::to_string(&trained.predictor.file().schema).unwrap();
    assert!(prepared.contains("5.5"), "x has the mean of 1 and 10, not of 100: {prepared}");
}

#[test]
fn groups_are_never_cut() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let line = |row: usize| format!("{},{},q{}\n", row % 2, row, row / 4);
    let text: String = (0..60).map(line).collect();
    std::fs::write(&path, format!("y,x,group\n{text}")).unwrap();
    let mut spec = DataSpec::new(path.to_string_lossy()).label("y");
    spec.group = Some("group".into());
    let folds = fold_of_rows(&spec, (5, 3), (Encoding::OneHot, LabelNeed::Class)).unwrap();
    assert!(folds.chunks(4).all(|group| group.iter().all(|fold| *fold == group[0])), "{folds:?}");
    let mut count = [0; 5];
    folds.iter().for_each(|&fold| count[fold as usize] += 1);
    assert_eq!(count, [12; 5]);
    for workers in ["cluster.workers=1", "cluster.workers=3"] {
        let text = format!(
            "[data]\ntrain = '{}'\nlabel = 'y'\ngroup = 'group'\n\
             [learner]\nname = 'logistic-regression'\n[validate]\nfolds = 5\nseed = 3\n",
            path.display()
        );
        let found = report(&text, &[workers]).validation.unwrap();
        assert!(found.folds.iter().all(|fold| fold.rows == 12));
    }
}

#[test]
fn what_cannot_be_validated_is_refused_with_the_key() {
    for (set, word) in [
        ("validate.folds=1", "folds"),
        ("validate.only=5", "only"),
        ("validate.fold=2", "'fold'"),
        ("cluster.launcher='flock'", "flock"),
    ] {
        let fault = match job(BAYES, &[set]) {
            Err(fault) => fault,
            Ok(job) => train(job, TrainOptions::default()).err().unwrap(),
        };
        assert!(fault.to_string().contains(word), "{fault}");
        assert_eq!(fault.blame(), Blame::Caller);
    }
    // A class of a single row is unknown to the model that has not seen it.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let text: String = (0..20).map(|row| format!("{},{row}\n", row % 2)).collect();
    std::fs::write(&path, format!("y,x\n{text}9,1\n")).unwrap();
    let text =
        BAYES.replace("'digits'", &format!("'{}'", path.display())).replace("'class'", "'y'");
    let fault = train(job(&text, &[]).unwrap(), TrainOptions::default()).err().unwrap();
    assert!(fault.to_string().contains("fold") && fault.to_string().contains('9'), "{fault}");
}

#[test]
fn a_model_is_evaluated_alike_by_any_number_of_workers_and_by_the_flock_that_trained_it() {
    let text = BAYES.split("[validate]").next().unwrap();
    let text = text.replace("label", "test = 'digits:test'\nlabel");
    let trained =
        train(job(&text, &["cluster.workers=2"]).unwrap(), TrainOptions::default()).unwrap();
    let spec = DataSpec::new("digits:test").label("class");
    let alone = trained.predictor.evaluate(&spec).unwrap();
    assert_eq!(alone.rows, 359);
    assert_eq!(trained.report.confusion, alone.confusion);
    for workers in [2, 3, 9] {
        let found = trained.predictor.evaluate_with(&spec, workers).unwrap();
        assert_eq!((found.rows, &found.confusion), (alone.rows, &alone.confusion));
        for (name, value) in &alone.metrics {
            assert!((found.metrics[name] - value).abs() < 1e-12, "{name}, {workers} workers");
            assert!((trained.report.evaluation[name] - value).abs() < 1e-12, "{name}");
        }
    }
    let names =
        ["accuracy", "auc", "auc_weighted", "balanced_accuracy", "brier", "calibration_error"];
    let names = names.into_iter().chain(["f1", "f1_macro", "f1_weighted", "log_loss"]);
    assert!(alone.metrics.keys().eq(names), "{:?}", alone.metrics);
    let missing = trained.predictor.evaluate_with(&DataSpec::new("nowhere.csv"), 2);
    assert!(missing.unwrap_err().to_string().contains("nowhere.csv"));
}

#[test]
fn an_order_within_groups_is_measured_by_whoever_evaluates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queries.csv");
    let row =
        |row: u32| format!("{},{},{},{}\n", row / 9, row * 7 % 10, row * 3 % 8, row * 5 % 11 % 4);
    let text: String = (0..360).map(row).collect();
    std::fs::write(&path, format!("query,a,b,grade\n{text}")).unwrap();
    let path = path.display();
    let text = format!(
        "[data]\ntrain = '{path}'\ntest = '{path}'\nlabel = 'grade'\ngroup = 'query'\n\
         [learner]\nname = 'gradient-boosting'\nloss = 'lambdarank'\ntrees = 3\nleaves = 4\n"
    );
    for workers in ["cluster.workers=1", "cluster.workers=3"] {
        let found = report(&text, &[workers]);
        let (seen, graded) = (found.evaluation["ndcg"], found.metrics["ndcg"]);
        assert!((seen - graded).abs() < 1e-9, "{seen} and {graded}");
        assert!(seen > 0.5 && seen < 1.0, "{seen}");
    }
}

#[test]
fn rows_count_by_their_weights_in_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, weight: &dyn Fn(usize) -> u32| {
        let path = folder.path().join(name);
        let line = |row: usize| format!("{},{},{}\n", row % 2, (row * 37) % 11, weight(row));
        let text: String = (0..50).map(line).collect();
        std::fs::write(&path, format!("y,x,w\n{text}")).unwrap();
        path
    };
    let evaluated = |test: &Path| {
        let text = format!(
            "[data]\ntrain = '{}'\ntest = '{}'\nlabel = 'y'\nweight = 'w'\n\
             [learner]\nname = 'logistic-regression'\n",
            folder.path().join("train.csv").display(),
            test.display()
        );
        report(&text, &[]).evaluation
    };
    write("train.csv", &|_| 1);
    let plain = evaluated(&write("plain.csv", &|_| 1));
    let weighted = evaluated(&write("weighted.csv", &|row| if row % 2 == 0 { 3 } else { 1 }));
    assert_ne!(plain["accuracy"], weighted["accuracy"]);
    // Weights by class alone do not change what is counted class by class.
    assert!((plain["auc"] - weighted["auc"]).abs() < 1e-12);
    assert!((plain["balanced_accuracy"] - weighted["balanced_accuracy"]).abs() < 1e-12);
}
