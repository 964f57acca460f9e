//! What every ensemble does alike, written once: a method says what is its own, and [`Ensemble`] makes a learner of it.

use super::NEEDS;
use super::crew::Crew;
use super::verdict;
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Rebuilds, Task, Work};
use starlings_core::{Ability, Graph, Model, Result, Update};
use starlings_data::{Batch, Encoding, LabelNeed, Schema, Slice};

/// A way to make one learner of several. The methods are those of [`Learner`], which has their laws.
pub(super) trait Method: Send + Sync {
    /// Whom it trains and asks.
    fn crew(&self) -> &Crew;

    /// What it answers: what its members do.
    fn task(&self) -> Task {
        self.crew().members[0].learner.task()
    }

    /// What it wants of labels: what its members do.
    fn label(&self) -> LabelNeed {
        self.crew().members[0].learner.label()
    }

    /// How it wants features encoded.
    fn encoding(&self) -> Encoding {
        self.crew().encoding()
    }

    /// Whether rows count by their weights.
    fn weighs(&self) -> bool {
        true
    }

    /// What can be made again of what it remembers.
    fn rebuilds(&self) -> Rebuilds {
        self.crew().rebuilds()
    }

    /// The first fit of which there is one a member: members that were trained before have none before it.
    fn first_whole(&self) -> usize {
        0
    }

    /// How many numbers an answer has.
    fn outputs(&self, model: &Model) -> usize {
        model.i64("outputs")[0] as usize
    }

    /// The model before the first step.
    fn init(&self, facts: &Facts, place: Place) -> Result<Model>;

    /// Fills the memory of a shard that is new here.
    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells);

    /// One worker's part of a step.
    fn contribute(&self, work: &mut Work<'_>) -> Result<()>;

    /// The sum of all parts of a step.
    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome>;

    /// Sums from which the grade is made.
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let mut said = Vec::new();
        self.predict(work.model, work.batch, &mut said)?;
        Ok(verdict::judge_batch(self.task(), work.batch, &said, self.outputs(work.model)))
    }

    /// Objective and metrics.
    fn grade(&self, model: &Model, sums: &[f64]) -> Grade {
        let _ = model;
        verdict::grade(self.task(), sums)
    }

    /// Answers for all rows of a batch.
    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()>;

    /// The answer as operators.
    fn graph(&self, model: &Model) -> Option<Graph>;

    /// The model in words.
    fn describe(&self, model: &Model, schema: &Schema) -> Option<String>;
}

/// The learner that a method makes.
pub(super) struct Ensemble<M>(pub(super) M);

impl<M: Method> Learner for Ensemble<M> {
    fn task(&self) -> Task {
        self.0.task()
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        self.0.encoding()
    }

    fn label(&self) -> LabelNeed {
        self.0.label()
    }

    fn weighs(&self) -> bool {
        self.0.weighs()
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        self.0.init(facts, place)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        self.0.adopt(model, batch, slice, cells);
    }

    fn rebuilds(&self) -> Rebuilds {
        self.0.rebuilds()
    }

    fn furnishings(&self) -> Vec<(String, String)> {
        self.0.crew().furnishings(self.0.first_whole())
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        self.0.contribute(work)
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        self.0.apply(model, update, moment)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        self.0.score(work)
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        self.0.grade(model, sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        self.0.outputs(model)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        self.0.predict(model, batch, out)
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        self.0.graph(model)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        self.0.describe(model, schema)
    }
}
