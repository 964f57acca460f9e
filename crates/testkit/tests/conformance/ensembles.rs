//! Learners made of learners: each over at least one plain learner and over at least one ensemble.

use starlings_core::Entry;
use starlings_data::Table;
use starlings_learn::LEARNERS;
use starlings_testkit::conformance::learner;

/// Whether a learner is one of these.
pub(super) fn has(name: &str) -> bool {
    SETTINGS.iter().any(|(ensemble, _)| *ensemble == name)
}

#[test]
fn every_ensemble_obeys_the_laws() {
    for (name, settings) in SETTINGS {
        let entry = Entry::find("learner", LEARNERS, name).unwrap();
        for given in *settings {
            let params = entry.check("learner", &given.parse().unwrap()).unwrap();
            let built = (entry.build)(&params).unwrap_or_else(|fault| panic!("{given}: {fault}"));
            // Folds of folds of a handful of rows may be empty, and are refused.
            let nested = given.matches("folds").count() > 1;
            let enough = |table: &mut Table| !nested || table.rows() >= 20;
            let checked = learner::check_on(&*built, &enough);
            checked.unwrap_or_else(|law| panic!("{name} {given}: {law}"));
        }
    }
}

const SETTINGS: &[(&str, &[&str])] = &[
    (
        "bagging",
        &[
            "bags = 3\nbase = { name = 'decision-tree', max_depth = 2 }",
            "bags = 3\nsubsample = 0.7\ncolumn_share = 0.5\ntogether = 2\n\
             base = { name = 'logistic-regression' }",
            "bags = 2\nbootstrap = false\nsubsample = 0.6\n\
             base = { name = 'decision-tree', criterion = 'variance', max_depth = 2 }",
            "bags = 2\nbase = { name = 'adaboost', rounds = 2 }",
            "bags = 2\nbase = { name = 'factorisation-machine' }",
        ],
    ),
    (
        "adaboost",
        &[
            "rounds = 4",
            "rounds = 3\nlearning_rate = 0.5\nbase = { name = 'naive-bayes' }",
            "rounds = 3\nloss = 'square'\n\
             base = { name = 'decision-tree', criterion = 'variance', max_depth = 2 }",
            "rounds = 2\nbase = { name = 'bagging', bags = 2, \
             base = { name = 'decision-tree', max_depth = 1 } }",
        ],
    ),
    (
        "voting",
        &[
            "members = [{ name = 'logistic-regression' }, { name = 'naive-bayes' }, \
             { name = 'decision-tree', max_depth = 2, weight = 2 }]",
            "voting = 'hard'\ntogether = 1\nmembers = [{ name = 'logistic-regression' }, \
             { name = 'logistic-regression', solver = 'sgd' }, { name = 'naive-bayes', weight = 1.5 }]",
            "members = [{ name = 'ridge' }, \
             { name = 'decision-tree', criterion = 'variance', max_depth = 2 }]",
            "members = [{ name = 'adaboost', rounds = 2 }, { name = 'bagging', bags = 2, \
             base = { name = 'voting', members = [{ name = 'naive-bayes' }] } }]",
        ],
    ),
    (
        "stacking",
        &[
            "folds = 3\nmembers = [{ name = 'naive-bayes' }, { name = 'decision-tree', max_depth = 2 }]",
            "folds = 2\nshuffle = false\npassthrough = true\ntogether = 2\n\
             members = [{ name = 'logistic-regression' }]\n\
             final = { name = 'decision-tree', max_depth = 2 }",
            "folds = 2\nmembers = [{ name = 'ridge' }, \
             { name = 'decision-tree', criterion = 'variance', max_depth = 2 }]",
            "folds = 2\nmembers = [{ name = 'bagging', bags = 2, \
             base = { name = 'decision-tree', max_depth = 2 } }, \
             { name = 'voting', members = [{ name = 'naive-bayes' }] }]",
        ],
    ),
    (
        "bucket",
        &[
            "folds = 3\nmembers = [{ name = 'naive-bayes' }, { name = 'decision-tree', max_depth = 2 }]",
            "holdout = 0.4\nmetric = 'accuracy'\n\
             members = [{ name = 'logistic-regression' }, { name = 'naive-bayes' }]",
            "folds = 2\nmetric = 'mae'\nmembers = [{ name = 'ridge' }, \
             { name = 'decision-tree', criterion = 'variance', max_depth = 2 }]",
            "folds = 3\nmembers = [{ name = 'adaboost', rounds = 2 }, { name = 'stacking', folds = 3, \
             members = [{ name = 'naive-bayes' }] }]",
        ],
    ),
    (
        "self-training",
        &[
            "",
            "criterion = 'k-best'\nbase = { name = 'decision-tree', max_depth = 2 }",
            "base = { name = 'bagging', bags = 2, base = { name = 'naive-bayes' } }",
        ],
    ),
    ("label-propagation", &["", "gamma = 0.5", "kernel = 'knn'\nneighbours = 3"]),
    ("label-spreading", &["", "gamma = 0.5\nalpha = 0.5", "kernel = 'knn'\nneighbours = 3"]),
];
