//! Learners.

use starlings_core::{Ability, Entry, Model, Result, Update};
use starlings_data::{Batch, Encoding, LabelNeed};
use starlings_learn::{
    Appetite, Facts, Grade, LEARNERS, Learner, Moment, Outcome, Place, Task, Work,
};
use starlings_testkit::conformance::learner;

/// Every learner with its defaults and in each way of working that its parameters choose.
#[test]
fn every_learner_obeys_the_laws() {
    for entry in LEARNERS {
        for given in settings(entry.name) {
            let params = entry.check("learner", &given.parse().unwrap()).unwrap();
            let built = (entry.build)(&params).unwrap();
            learner::check(&*built).unwrap_or_else(|law| panic!("{} {given}: {law}", entry.name));
        }
    }
}

/// What the small data ask for, and the parameters that choose another way of working.
fn settings(name: &str) -> &'static [&'static str] {
    match name {
        "logistic-regression" => &[
            "",
            "standardise = true",
            "intercept = false\nhistory = 1",
            "solver = 'sgd'",
            "solver = 'sgd'\nintercept = false",
            "solver = 'momentum'\ndecay = 0.1",
            "solver = 'adam'",
        ],
        "gradient-boosting" => &[
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
        // A tree without limits fits its rows whatever they weigh, so that weights could not be seen.
        "decision-tree" => &[
            "max_depth = 2",
            "max_depth = 1\ncriterion = 'entropy'\nccp_alpha = 0.001",
            "max_depth = 2\ncriterion = 'variance'\nmin_rows_leaf = 2",
        ],
        "random-forest" => {
            &["max_depth = 3", "max_depth = 2\ncriterion = 'variance'\nmax_features = '0.5'"]
        }
        "k-means" => &["k = 3"],
        "latent-dirichlet-allocation" => &["topics = 3"],
        _ => &[""],
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
        (How::TalksTooMuch, "predictions instead of"),
    ] {
        let params = entry.check("learner", &"solver = 'sgd'".parse().unwrap()).unwrap();
        let broken = Broken { inner: (entry.build)(&params).unwrap(), how };
        let law = learner::check(&broken).unwrap_err();
        assert!(law.contains(expected), "{law}");
    }
}
