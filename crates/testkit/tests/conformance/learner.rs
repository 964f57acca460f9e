//! Learners.

use starlings_core::{Ability, Entry, Model, Result, Update};
use starlings_data::{Batch, Encoding, Features, LabelNeed, Table};
use starlings_learn::{
    Appetite, Facts, Grade, LEARNERS, Learner, Moment, Outcome, Place, Task, Work,
};
use starlings_testkit::conformance::learner;

/// Every learner with its defaults and in each way of working that its parameters choose.
#[test]
fn every_learner_obeys_the_laws() {
    let mut broken = Vec::new();
    for entry in LEARNERS.iter().filter(|entry| !super::ensembles::has(entry.name)) {
        for given in settings(entry.name) {
            let params = entry.check("learner", &given.parse().unwrap()).unwrap();
            let built = (entry.build)(&params).unwrap();
            if let Err(law) = learner::check_on(&*built, prepared(entry.name, given)) {
                broken.push(format!("{} {given:?}: {law}", entry.name));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What the small data ask for, and the parameters that choose another way of working. Others have their defaults.
const SETTINGS: &[(&str, &[&str])] = &[
    (
        "logistic-regression",
        &[
            "",
            "standardise = true",
            "intercept = false\nhistory = 1",
            "l1 = 0.02",
            "l1 = 0.02\nstandardise = true",
            "class_weight = 'balanced'",
            "solver = 'newton'",
            "solver = 'sandblaster'\nhistory = 2",
            "solver = 'sgd'",
            "solver = 'sgd'\nintercept = false",
            "solver = 'momentum'\ndecay = 0.1",
            "solver = 'nesterov'",
            "solver = 'adagrad'",
            "solver = 'rmsprop'",
            "solver = 'adam'",
            "solver = 'adamw'",
            "solver = 'lamb'",
        ],
    ),
    (
        "linear-regression",
        &[
            "",
            "intercept = false",
            "standardise = true",
            "solver = 'conjugate-gradient'",
            "solver = 'lbfgs'",
            "solver = 'sandblaster'",
            "solver = 'sgd'\nlearning_rate = 0.01",
            "solver = 'lamb'",
        ],
    ),
    (
        "ridge",
        &[
            "",
            "intercept = false",
            "standardise = true",
            "solver = 'conjugate-gradient'",
            "solver = 'lbfgs'",
            "solver = 'sandblaster'",
            "solver = 'sgd'\nlearning_rate = 0.01",
            "solver = 'lamb'",
        ],
    ),
    (
        "generalised-linear",
        &["", "solver = 'newton'", "solver = 'sandblaster'", "solver = 'adamw'"],
    ),
    (
        "lasso",
        &[
            "l1 = 0.1",
            "l1 = 0.1\npath = 5",
            "l1 = 0.1\nstandardise = true",
            "l1 = 0.1\nintercept = false\ngram_max = 2",
            "l1 = 0.1\ngram_max = 2\npath = 3\nstandardise = true",
            "l1 = 0.1\nsolver = 'scheduled'\nblock = 2\ncandidates = 4",
            "l1 = 0.1\nsolver = 'scheduled'\ntheta = 0.5\npath = 3\nstandardise = true",
        ],
    ),
    ("elastic-net", &["alpha = 0.1", "l2 = 0.1", "alpha = 0.1\nsolver = 'scheduled'"]),
    (
        "linear-svm",
        &[
            "",
            "loss = 'hinge'",
            "solver = 'sdca'\nlocal_passes = 3",
            "standardise = true",
            "standardise = true\nsolver = 'sdca'",
            "intercept = false\nstandardise = true\nclass_weight = 'balanced'",
        ],
    ),
    (
        "kernel-svm",
        &[
            "components = 8",
            "components = 8\napproximation = 'random-features'\nloss = 'hinge'",
            "components = 9\napproximation = 'random-features'\nkernel = 'polynomial'\ncoef0 = 1.0",
            "components = 8\nkernel = 'polynomial'\nstandardise = true",
            "components = 8\nkernel = 'sigmoid'\nstandardise = true\ngamma = 0.1",
        ],
    ),
    (
        "k-means",
        &[
            "k = 3",
            "k = 3\nalgorithm = 'lloyd'",
            "k = 4\nalgorithm = 'elkan'\nseeding = 'first'",
            "k = 4\nalgorithm = 'hamerly'\nseeding = 'random'",
            "k = 3\nalgorithm = 'mini-batch'",
            "k = 3\nalgorithm = 'mini-batch'\nseeding = 'random'",
            "k = 1",
            "k = 9",
        ],
    ),
    ("bisecting-k-means", &["k = 3", "k = 4\nstrategy = 'largest-cluster'\ntrials = 1", "k = 1"]),
    (
        "gaussian-mixture",
        &[
            "components = 3",
            "components = 2\ncovariance = 'tied'",
            "components = 3\ncovariance = 'diagonal'\nstart = 'random'",
            "components = 3\ncovariance = 'spherical'",
            "components = 1",
        ],
    ),
    ("power-iteration-clustering", &["", "start = 'degree'", "k = 3"]),
    (
        "pca",
        &[
            "",
            "components = 1\nwhiten = true",
            "components = 0.8",
            "components = 1\nalgorithm = 'randomised'",
        ],
    ),
    ("truncated-svd", &["components = 1", "components = 1\noversampling = 0"]),
    (
        "feature-selection",
        &[
            "",
            "k = 1",
            "method = 'chi2'",
            "method = 'chi2'\nk = 1",
            "method = 'mutual-information'\nk = 1",
        ],
    ),
    (
        "gradient-boosting",
        &[
            "",
            "min_rows_leaf = 1",
            "min_rows_leaf = 2\ngradient_bits = '13'\ngrowth = 'level-wise'\nmax_depth = 3",
            "min_rows_leaf = 1\nsubsample = 0.7\ncolumn_share = 0.5\ncolumn_share_node = 0.5",
            "min_rows_leaf = 1\ngoss = true\nearly_stopping = 1\nvalidation = 0.2",
            "min_rows_leaf = 1\nparallelism = 'voting'\nvotes = 1",
            "min_rows_leaf = 1\nloss = 'squared'\nmonotone = '0:+1'",
            "min_rows_leaf = 1\nloss = 'absolute'",
            "min_rows_leaf = 1\nloss = 'huber'\ngradient_bits = '13'",
            "min_rows_leaf = 1\nloss = 'quantile'\nalpha = 0.3",
            "min_rows_leaf = 1\nloss = 'lambdarank'",
            "min_rows_leaf = 1\nloss = 'lambdarank'\nearly_stopping = 2\nvalidation = 0.4",
        ],
    ),
    // A tree without limits fits its rows whatever they weigh, so that weights could not be seen.
    (
        "decision-tree",
        &[
            "max_depth = 2",
            "max_depth = 1\ncriterion = 'entropy'\nccp_alpha = 0.001",
            "max_depth = 2\ncriterion = 'variance'\nmin_rows_leaf = 2",
        ],
    ),
    (
        "random-forest",
        &["max_depth = 3", "max_depth = 2\ncriterion = 'variance'\nmax_features = '0.5'"],
    ),
    ("latent-dirichlet-allocation", &["topics = 3"]),
    (
        "naive-bayes",
        &[
            "",
            "fit_prior = false",
            "kind = 'bernoulli'",
            "kind = 'bernoulli'\nbinarize = -0.5",
            "kind = 'multinomial'",
            "kind = 'complement'",
            "kind = 'complement'\nnorm = true",
        ],
    ),
    (
        "perceptron",
        &[
            "",
            "average = true",
            "mixing = 'errors'\nintercept = false",
            "mixing = 'errors'\naverage = true\nshuffle = false",
        ],
    ),
    (
        "factorisation-machine",
        &[
            "",
            "task = 'classification'",
            "solver = 'sgd'\nl2 = 0.1",
            "solver = 'adagrad'\ntask = 'classification'\ndecay = 0.1",
            "components = 0",
        ],
    ),
    ("isotonic-regression", &["", "increasing = 'false'", "increasing = 'auto'"]),
    (
        "survival-regression",
        &[
            "",
            "distribution = 'log-normal'\nquantiles = '0.1, 0.9'",
            "distribution = 'log-logistic'\nintercept = false",
            "prediction = 'mean'",
            "event = '0'",
        ],
    ),
];

fn settings(name: &str) -> &'static [&'static str] {
    let found = SETTINGS.iter().find(|(learner, _)| *learner == name);
    found.map_or(&[""], |(_, settings)| settings)
}

/// What learners of counts, times and events want of the rows.
fn prepared(name: &str, given: &str) -> &'static dyn Fn(&mut Table) -> bool {
    match name {
        "naive-bayes" if given.contains("multinomial") => &|table| counts(table) > 0,
        // A single feature has all of every class's counts, and says nothing of the class.
        "naive-bayes" if given.contains("complement") => &|table| counts(table) > 1,
        "survival-regression" => &|table| {
            table.labels.iter_mut().for_each(|label| *label = label.exp());
            let happened = |x: f32| f32::from(u8::from(x > 0.0));
            each_number(table, |feature, x| if feature == 0 { happened(x) } else { x });
            true
        },
        _ => &|_| true,
    }
}

/// Makes counts of all numbers, and says how many features there are.
fn counts(table: &mut Table) -> usize {
    each_number(table, |_, x| x.abs().ceil());
    table.width()
}

fn each_number(table: &mut Table, change: impl Fn(usize, f32) -> f32) {
    match &mut table.features {
        Features::Dense { width, values } => {
            values.iter_mut().enumerate().for_each(|(at, x)| *x = change(at % *width, *x));
        }
        Features::Sparse { columns, values, .. } => {
            columns.iter().zip(values.iter_mut()).for_each(|(&c, x)| *x = change(c as usize, *x));
        }
    }
}

/// Logistic regression, spoilt in one way.
struct Broken {
    inner: Box<dyn Learner>,
    how: How,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    /// Sees each worker's number of rows.
    CountsWorkers,
    /// Emits nothing for an empty batch.
    SilentWhenEmpty,
    /// Moves all rows of the weights, whichever the update has.
    MovesAllRows,
    /// Moves the state of all rows, whichever the update has.
    MovesAllState,
    /// Gives one prediction too many.
    TalksTooMuch,
}

impl Learner for Broken {
    fn task(&self) -> Task {
        self.inner.task()
    }
    fn appetite(&self) -> Appetite {
        self.inner.appetite()
    }
    fn encoding(&self) -> Encoding {
        self.inner.encoding()
    }
    fn label(&self) -> LabelNeed {
        self.inner.label()
    }
    fn gives(&self) -> &'static [Ability] {
        self.inner.gives()
    }
    fn requires(&self) -> &'static [Ability] {
        self.inner.requires()
    }
    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        self.inner.init(facts, place)
    }
    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        if self.how == How::SilentWhenEmpty && work.batch.slices.is_empty() {
            return Ok(());
        }
        self.inner.contribute(work)?;
        if self.how == How::CountsWorkers {
            let mut update = work.outbox.take();
            let twice = update.clone();
            if work.batch.slices.len() < 16 {
                update.fold(&twice).expect("the same blocks");
            }
            update.blocks.into_iter().for_each(|block| work.outbox.emit(block));
        }
        Ok(())
    }
    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let outcome = self.inner.apply(model, update, moment);
        if self.how == How::MovesAllRows {
            model.f64_mut("weights").iter_mut().for_each(|weight| *weight += 1e-3);
        }
        if self.how == How::MovesAllState {
            model.i64_mut("weights.clock").iter_mut().for_each(|count| *count += 1);
        }
        outcome
    }
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        self.inner.score(work)
    }
    fn grade(&self, model: &Model, sums: &[f64], rows: u64) -> Grade {
        self.inner.grade(model, sums, rows)
    }
    fn outputs(&self, model: &Model) -> usize {
        self.inner.outputs(model)
    }
    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        if self.how == How::TalksTooMuch {
            out.push(0.0);
        }
        self.inner.predict(model, batch, out)
    }
}

#[test]
fn broken_learners_are_found_out() {
    let entry = Entry::find("learner", LEARNERS, "logistic-regression").unwrap();
    for (how, expected) in [
        (How::CountsWorkers, "workers reach"),
        (How::SilentWhenEmpty, "an empty one"),
        (How::MovesAllRows, "the owner of rows"),
        (How::MovesAllState, "the update does not name it"),
        (How::TalksTooMuch, "predictions instead of"),
    ] {
        let params = entry.check("learner", &"solver = 'sgd'".parse().unwrap()).unwrap();
        let broken = Broken { inner: (entry.build)(&params).unwrap(), how };
        let law = learner::check(&broken).unwrap_err();
        assert!(law.contains(expected), "{law}");
    }
}
