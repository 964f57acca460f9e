//! Learners made of learners: against scikit-learn, against the formulas of their papers, and what tells neighbours apart.

use crate::world::{
    close, csv, dense, digits, figures, iris, learner, numbers, predict, schema, shared, train,
    try_train,
};
use serde_json::Value;
use starlings_core::{Entry, Fault, Rng};
use starlings_data::{Column, ColumnKind, Encoding, Features, Schema, Table, Target};
use starlings_learn::LEARNERS;
use starlings_testkit::drive::Drive;
use std::sync::Arc;

fn refused(name: &str, params: &str) -> Fault {
    let entry = Entry::find("learner", LEARNERS, name).unwrap();
    let checked = entry.check("learner", &params.parse().unwrap());
    checked.and_then(|params| (entry.build)(&params)).err().unwrap()
}

fn breast_cancer() -> Option<Arc<Table>> {
    Some(csv(shared("sklearn_breast_cancer.csv")?.lines().skip(1)))
}

fn rows_of(case: &Value) -> Option<(Arc<Table>, usize)> {
    match case["data"].as_str().unwrap() {
        "iris" => Some((iris(), 3)),
        "digits" => Some((digits(false), 10)),
        _ => breast_cancer().map(|table| (table, 2)),
    }
}

fn accuracy(said: &[f64], labels: &[f32]) -> f64 {
    let width = said.len() / labels.len();
    let best = |row: &[f64]| (1..width).fold(0, |a, b| if row[b] > row[a] { b } else { a });
    let hits = said.chunks(width).zip(labels).filter(|(row, label)| best(row) == **label as usize);
    hits.count() as f64 / labels.len() as f64
}

/// Chances of the rows that the reference tells, and the accuracy.
#[track_caller]
fn agrees(case: &Value, said: &[f64], labels: &[f32], tolerance: f64) {
    let width = said.len() / labels.len();
    let rows = numbers(&case["rows"]);
    let some: Vec<f64> = rows
        .iter()
        .flat_map(|&row| said[row as usize * width..(row as usize + 1) * width].to_vec())
        .collect();
    close("chances", &some, &numbers(&case["chances"]), tolerance);
    close("accuracy", &[accuracy(said, labels)], &[case["accuracy"].as_f64().unwrap()], 1e-9);
}

#[test]
fn adaboost_has_the_says_of_scikit_learn() {
    for case in figures("ensembles")["adaboost"].as_array().unwrap() {
        let Some((table, classes)) = rows_of(case) else { continue };
        let boost = learner(
            "adaboost",
            &format!(
                "rounds = {}\nlearning_rate = {}\nbase = {{ name = 'naive-bayes', var_smoothing = 1e-15 }}",
                case["rounds"], case["learning_rate"]
            ),
        );
        let driven = train(&*boost, &table, &schema(table.width(), classes));
        close("says", driven.model.f64("says"), &numbers(&case["says"]), 1e-6);
        close("errors", driven.model.f64("errors"), &numbers(&case["errors"]), 1e-6);
        agrees(case, &predict(&*boost, &driven.model, &table), &table.labels, 1e-6);
    }
}

#[test]
fn adaboost_for_numbers_follows_druckers_recurrence() {
    let flowers = iris();
    let Features::Dense { values, .. } = &flowers.features else { panic!("dense") };
    let features = values.chunks(4).flat_map(|row| [row[0], row[1], row[3]]).collect();
    let labels = values.chunks(4).map(|row| row[2]).collect();
    let table = dense(3, features, labels);
    let boost = learner("adaboost", "rounds = 4\nbase = { name = 'ridge', l2 = 0.01 }");
    let driven = train(&*boost, &table, &schema(3, 0));
    let wanted = &figures("ensembles")["adaboost_numbers"];
    close("errors", driven.model.f64("errors"), &numbers(&wanted["errors"]), 1e-5);
    close("says", driven.model.f64("says"), &numbers(&wanted["says"]), 1e-5);
}

const VOTERS: &str = "members = [{ name = 'naive-bayes', weight = 2 }, \
                      { name = 'naive-bayes', kind = 'bernoulli', binarize = 8.0 }]\n";

#[test]
fn votes_are_those_of_scikit_learn() {
    let (table, test) = (digits(false), digits(true));
    let wanted = &figures("ensembles")["voting"];
    let soft = learner("voting", VOTERS);
    let model = train(&*soft, &table, &schema(64, 10)).model;
    agrees(&wanted["soft"], &predict(&*soft, &model, &test), &test.labels, 1e-6);
    let hard = learner("voting", &format!("{VOTERS}voting = 'hard'"));
    let model = train(&*hard, &table, &schema(64, 10)).model;
    let found = accuracy(&predict(&*hard, &model, &test), &test.labels);
    close("accuracy", &[found], &[wanted["hard"]["accuracy"].as_f64().unwrap()], 1e-9);
}

/// Two members lean a little to one class, a third is sure of the other: votes and chances disagree.
#[test]
fn hard_and_soft_votes_differ_where_few_are_sure() {
    // The first two see a column of noise, the third one that tells the classes.
    let mut rng = Rng::named(5, "votes", &[]);
    let (mut values, mut labels) = (Vec::new(), Vec::new());
    for row in 0..200 {
        let label = row % 2;
        values.push(4.0 * label as f32 + rng.normal() as f32 * 0.3);
        values.push(rng.normal() as f32 + 0.3 * label as f32);
        labels.push(label as f32);
    }
    let table = dense(2, values, labels);
    let members = "members = [{ name = 'decision-tree', max_depth = 0, min_rows_leaf = 200 }, \
                   { name = 'decision-tree', min_rows_leaf = 200 }, { name = 'naive-bayes' }]\n";
    let ask = |how: &str| {
        let voting = learner("voting", &format!("{members}voting = '{how}'"));
        let model = train(&*voting, &table, &schema(2, 2)).model;
        predict(&*voting, &model, &table)
    };
    let (soft, hard) = (ask("soft"), ask("hard"));
    assert!(accuracy(&soft, &table.labels) > 0.99, "the one that knows decides");
    assert!(accuracy(&hard, &table.labels) < 0.51, "the two that do not know outvote it");
    let mut votes = hard.iter().map(|share| share * 3.0);
    assert!(votes.all(|votes| (votes - votes.round()).abs() < 1e-9), "three votes");
}

#[test]
fn a_vote_of_one_is_that_one_alone() {
    let table = iris();
    for (name, own) in [
        ("logistic-regression", ""),
        ("logistic-regression", "solver = 'sgd'"),
        ("random-forest", "trees = 5"),
    ] {
        let alone = learner(name, own);
        let member = match own.is_empty() {
            true => format!("name = '{name}'"),
            false => format!("name = '{name}', {own}"),
        };
        let voting = learner("voting", &format!("members = [{{ {member} }}]"));
        let wanted = train(&*alone, &table, &schema(4, 3));
        let found = train(&*voting, &table, &schema(4, 3));
        assert_eq!(
            predict(&*voting, &found.model, &table),
            predict(&*alone, &wanted.model, &table),
            "{name} {own}"
        );
        assert_eq!(found.steps, wanted.steps, "{name} {own}: a member's step is a step");
    }
}

#[test]
fn members_side_by_side_take_fewer_steps_and_give_the_same() {
    let table = iris();
    let train_with = |together: usize| {
        let bags = learner("bagging", &format!("bags = 6\ntogether = {together}"));
        let driven = train(&*bags, &table, &schema(4, 3));
        (predict(&*bags, &driven.model, &table), driven.steps)
    };
    let (one, all) = (train_with(1), train_with(6));
    assert_eq!(one.0, all.0);
    assert_eq!(one.1, 6 * all.1);
}

#[test]
fn stacking_is_that_of_scikit_learn() {
    for case in figures("ensembles")["stacking"].as_array().unwrap() {
        let (table, classes) = rows_of(case).unwrap();
        let stacking = learner(
            "stacking",
            &format!(
                "folds = {}\nshuffle = false\nmembers = [{{ name = 'naive-bayes' }}, \
                 {{ name = 'naive-bayes', kind = 'bernoulli', binarize = 3.0 }}]\n\
                 final = {{ name = 'logistic-regression', l2 = {}, tolerance = 1e-10 }}",
                case["folds"], case["l2"]
            ),
        );
        let driven = train(&*stacking, &table, &schema(table.width(), classes));
        agrees(case, &predict(&*stacking, &driven.model, &table), &table.labels, 1e-4);
        let found = driven.grade.metrics["log_loss"];
        close("log_loss", &[found], &[case["log_loss"].as_f64().unwrap()], 1e-4);
    }
}

/// Labels by chance: a tree that remembers every row tells the labels of rows that it saw. A final learner that is told
/// by such a tree believes it; one that is told out of fold finds that it knows nothing.
#[test]
fn what_the_final_learner_reads_is_out_of_fold() {
    let mut rng = Rng::named(3, "noise", &[]);
    let values: Vec<f32> = (0..400 * 3).map(|_| rng.normal() as f32).collect();
    let labels: Vec<f32> = (0..400).map(|_| rng.below(2) as f32).collect();
    let table = dense(3, values, labels);
    let tree = "members = [{ name = 'decision-tree' }]\nfinal = { name = 'logistic-regression' }";
    let stacking = learner("stacking", tree);
    let driven = train(&*stacking, &table, &schema(3, 2));
    // The tree alone is right on every row that it saw, and the stack must not believe it.
    let said = predict(&*stacking, &driven.model, &table);
    let sure = said.chunks(2).map(|row| row[0].max(row[1])).fold(0.0, f64::max);
    assert!(sure < 0.75, "the final learner is {sure} sure of labels that are chance");
    let alone = learner("decision-tree", "");
    let model = train(&*alone, &table, &schema(3, 2)).model;
    assert!(accuracy(&predict(&*alone, &model, &table), &table.labels) > 0.99);
}

#[test]
fn a_bucket_keeps_the_best_on_rows_it_did_not_see() {
    // The tree without limits is perfect on what it saw and useless elsewhere; a mean is as good as it gets.
    let mut rng = Rng::named(4, "noise", &[]);
    let values: Vec<f32> = (0..300 * 2).map(|_| rng.normal() as f32).collect();
    let labels: Vec<f32> = (0..300).map(|row| f32::from(u8::from(row % 3 == 0))).collect();
    let table = dense(2, values, labels);
    for how in ["folds = 4", "holdout = 0.3"] {
        let text = "members = [{ name = 'decision-tree' }, { name = 'naive-bayes' }]\n";
        let bucket = learner("bucket", &format!("{text}{how}"));
        let driven = train(&*bucket, &table, &schema(2, 2));
        assert_eq!(driven.model.i64("chosen"), [1], "{how}");
        let scores = driven.model.f64("scores");
        assert!(scores[0] > 2.0 && scores[1] < 0.8, "{how}: {scores:?}");
        let reported = if how.starts_with("folds") { "cross_validated" } else { "held_out" };
        let reported = driven.grade.metrics[&format!("{reported}_log_loss")];
        assert_eq!(reported, scores[1]);
        let alone = learner("naive-bayes", "");
        let model = train(&*alone, &table, &schema(2, 2)).model;
        assert_eq!(
            predict(&*bucket, &driven.model, &table),
            predict(&*alone, &model, &table),
            "the best is trained on all rows"
        );
    }
}

#[test]
fn bagging_is_as_good_as_that_of_scikit_learn() {
    for case in figures("ensembles")["bagging"].as_array().unwrap() {
        let (train_rows, test, classes) = match case["data"].as_str().unwrap() {
            "digits" => (digits(false), digits(true), 10),
            _ => {
                let Some(text) = shared("sklearn_breast_cancer.csv") else { continue };
                let part = |odd: usize| {
                    csv(text
                        .lines()
                        .skip(1)
                        .enumerate()
                        .filter(|(at, _)| at % 2 == odd)
                        .map(|x| x.1))
                };
                (part(0), part(1), 2)
            }
        };
        let bags = learner("bagging", &format!("bags = {}", case["bags"]));
        let driven = train(&*bags, &train_rows, &schema(train_rows.width(), classes));
        let found = accuracy(&predict(&*bags, &driven.model, &test), &test.labels);
        let outside = driven.grade.metrics["out_of_bag_accuracy"];
        for (what, found, wanted) in
            [("accuracy", found, &case["accuracy"]), ("out of bag", outside, &case["out_of_bag"])]
        {
            let (mean, deviation) = (wanted[0].as_f64().unwrap(), wanted[1].as_f64().unwrap());
            let near = 3.0 * deviation.max(0.005);
            assert!((found - mean).abs() < near, "{}: {what} {found}, {mean}", case["data"]);
        }
    }
}

/// Columns of texts with missing values: the tree reads codes, the linear model one-hot, and both see the same rows.
#[test]
fn members_that_want_other_encodings_see_the_same_rows() {
    let Some(text) = shared("adult.data.gz") else { return };
    let wanted = &figures("ensembles")["adult"];
    let rows = wanted["rows"].as_u64().unwrap() as usize;
    let lines: Vec<Vec<&str>> =
        text.lines().take(rows).map(|line| line.split(',').map(str::trim).collect()).collect();
    let (schema, table) = coded(&lines);
    let half = |from: usize| {
        let Features::Dense { width, values } = &table.features else { panic!("dense") };
        let (to, labels) = (from + rows / 2, &table.labels);
        dense(*width, values[from * width..to * width].to_vec(), labels[from..to].to_vec())
    };
    let voting = learner(
        "voting",
        "members = [{ name = 'logistic-regression', standardise = true, l2 = 1e-3 }, \
         { name = 'decision-tree', max_depth = 5 }]",
    );
    assert_eq!(voting.encoding(), Encoding::Codes);
    let driven = train(&*voting, &half(0), &schema);
    let test = half(rows / 2);
    let found = accuracy(&predict(&*voting, &driven.model, &test), &test.labels);
    assert!((found - wanted["accuracy"].as_f64().unwrap()).abs() < 0.012, "{found} {wanted}");
}

/// Rows of codes, as the data crate would make them; the label is the last.
fn coded(lines: &[Vec<&str>]) -> (Schema, Table) {
    let width = lines[0].len() - 1;
    let mut columns = Vec::new();
    let mut values = vec![f32::NAN; lines.len() * width];
    for position in 0..width {
        let present: Vec<&str> =
            lines.iter().map(|line| line[position]).filter(|cell| *cell != "?").collect();
        let parsed: Option<Vec<f64>> = present.iter().map(|cell| cell.parse().ok()).collect();
        let kind = match parsed {
            Some(all) => ColumnKind::Numeric { mean: all.iter().sum::<f64>() / all.len() as f64 },
            None => {
                let mut codes: Vec<String> = present.iter().map(ToString::to_string).collect();
                codes.sort();
                codes.dedup();
                ColumnKind::Categorical { codes }
            }
        };
        for (row, line) in lines.iter().enumerate() {
            let cell = line[position];
            values[row * width + position] = match &kind {
                ColumnKind::Numeric { .. } => cell.parse().unwrap_or(f32::NAN),
                ColumnKind::Categorical { codes } => {
                    codes.iter().position(|code| code == cell).map_or(f32::NAN, |code| code as f32)
                }
            };
        }
        columns.push(Column { name: format!("c{position}"), position, kind, missing: 0 });
    }
    let labels = lines.iter().map(|line| f32::from(u8::from(line[width] == ">50K"))).collect();
    let target = Target::Classes(vec!["<=50K".to_string(), ">50K".to_string()]);
    let schema =
        Schema { columns, encoding: Encoding::Codes, features: width, target, label: None };
    (schema, Table::new(Features::Dense { width, values }, labels))
}

#[test]
fn ensembles_nest() {
    let table = iris();
    let nested = learner(
        "voting",
        "members = [{ name = 'bagging', bags = 3, base = { name = 'decision-tree', max_depth = 3 } }, \
         { name = 'stacking', folds = 3, members = [{ name = 'naive-bayes' }, \
         { name = 'adaboost', rounds = 3 }] }]",
    );
    let one = try_train(&*nested, &table, &schema(4, 3), &Drive::default()).unwrap();
    let three = train(&*nested, &table, &schema(4, 3));
    let (one, three) =
        (predict(&*nested, &one.model, &table), predict(&*nested, &three.model, &table));
    close("one worker and three", &one, &three, 1e-7);
    assert!(accuracy(&one, &table.labels) > 0.95);
}

#[test]
fn refusals_say_which_member_and_what_would_do() {
    let says = |fault: Fault, words: &[&str]| {
        let text = fault.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{text}"));
    };
    says(
        refused("adaboost", "base = { name = 'boosted-stumps' }"),
        &["'boosted-stumps' counts every row alike", "decision-tree", "logistic-regression"],
    );
    says(
        refused("bagging", "base = { name = 'k-means', k = 2 }"),
        &["predicts clusters", "classes or numbers"],
    );
    says(
        refused("voting", "members = [{ name = 'ridge' }, { name = 'naive-bayes' }]"),
        &["'ridge' predicts numbers", "'naive-bayes' classes"],
    );
    says(refused("voting", "members = []"), &["no members", "[[learner.members]]"]);
    says(refused("voting", "members = [{ max_depth = 3 }]"), &["member 0 has no name"]);
    says(
        refused("voting", "members = [{ name = 'decision-treee' }]"),
        &["member 0", "unknown learner 'decision-treee'", "'decision-tree'"],
    );
    says(
        refused("bagging", "base = { name = 'decision-tree', max_dept = 3 }"),
        &["bagging: base", "'max_dept'", "'max_depth'"],
    );
    says(
        refused("voting", "members = [{ name = 'naive-bayes', weight = 0 }]"),
        &["weight = 0", "above 0"],
    );
    says(
        refused("stacking", "members = [{ name = 'naive-bayes', weight = 2 }]"),
        &["unknown key 'weight'", "voting"],
    );
    says(
        refused("adaboost", "base = { name = 'self-training' }"),
        &["'self-training'", "some have no label"],
    );
    says(refused("bucket", "metric = 'rmse'"), &["rmse is not for classes"]);
    says(refused("voting", "members = 3"), &["[[learner.members]]"]);
    says(
        refused("self-training", "base = { name = 'ridge' }"),
        &["'ridge' predicts numbers", "must predict classes"],
    );
}
