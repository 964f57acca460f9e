//! The learner: batch → update → model. A learner knows rows, blocks and its own mathematics. It never
//! sees a rank, a link or a clock: the engine decides who computes what, how sums travel and when.
//!
//! One step is one exchange: `contribute` on every worker's rows, a sum over all workers, `apply` on the
//! sum. A line search's probe, a tree's level and a topic sweep's slice are steps. Whatever must be
//! remembered between steps is in the [`Model`] (shared, the same on all replicas) or in [`Memory`]
//! (keyed by shard of rows). The learner itself is immutable.

use crate::{Branch, Importance, Memory, Outbox, Wires};
use starlings_core::{Ability, Fault, Graph, Model, Result, Rng, Shard, Step, Turn, Update};
use starlings_data::{Batch, Encoding, LabelNeed, Schema, Slice};
use std::collections::BTreeMap;

/// A step's sum that is made where it is used, a few numbers at a time, so that it is never written down and read again.
pub trait Late {
    /// The sums of small blocks, which are there.
    fn told(&self) -> &Update;

    /// Which of the other blocks has this name; they are dense and f32.
    fn find(&self, name: &str) -> Option<usize>;

    /// Puts the sums of some numbers of such a block, from a place on, into others.
    fn sums(&self, block: usize, from: usize, into: &mut [f32]);
}

/// How a learner wants its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appetite {
    /// Mini-batches of `[train] batch` rows.
    Batches,
    /// All rows it holds in every step, resident and in the same order each time.
    Passes,
}

/// What kind of answer a learner gives; decides metrics and the form of predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Task {
    /// Probabilities of classes.
    Classification,
    /// A number.
    Regression,
    /// The nearest cluster and the squared distance to it.
    Clustering,
    /// The rating of a (user, item) pair.
    Recommendation,
    /// The shares of topics in a document.
    Topics,
    /// The row in fewer numbers: components, selected features.
    Projection,
    /// The chances of components, then the logarithm of the row's density.
    Density,
    /// How unusual the row is: larger is more unusual.
    Anomaly,
    /// A score by which the rows of a group are put in order, the most relevant first.
    Ranking,
}

/// What is known of the data and the job before the first step. The same on all workers.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    /// Rows of the training data.
    pub rows: u64,
    /// What the columns mean.
    pub schema: Schema,
    /// Virtual shards.
    pub shards: u32,
    /// The job's seed.
    pub seed: u64,
    /// `[train] epochs`, if the job sets it: passes for mini-batch learners, iterations for the others.
    pub epochs: Option<u64>,
    /// `[train] steps`, if the job sets it: it ends after so many, whatever its epochs are.
    pub steps: Option<u64>,
    /// `[train] batch`.
    pub batch: u64,
}

impl Facts {
    /// A fault of a learner, which knows features by number, with the column's name.
    #[must_use]
    pub fn name(&self, fault: Fault) -> Fault {
        fault.name_feature(|feature| self.schema.feature_name(feature))
    }
}

/// How a fault begins that says that weights have left all bounds: what was learned before is to be gone back to.
pub const DIVERGED: &str = "training diverged";

/// Which part of the model this worker has. Everything, unless the plan cuts the model into stages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// This stage, from 0; the parts of a stage whose layers are split follow each other.
    pub stage: u32,
    /// How many stages, the parts of each counted.
    pub stages: u32,
    /// How many layers each stage has, where the job says so; empty lets the learner cut.
    pub layers: Vec<u32>,
    /// What this stage does with its micro-batches, in order; empty where the model is whole.
    pub turns: Vec<Turn>,
    /// Among how many workers the layers are split: stage s is part s mod parts of the (s div parts)-th run of layers.
    pub parts: u32,
}

impl Place {
    /// The whole model in one place.
    pub const WHOLE: Place =
        Place { stage: 0, stages: 1, layers: Vec::new(), turns: Vec::new(), parts: 1 };

    /// A stage of several, without layers or turns of its own.
    #[must_use]
    pub fn stage(stage: u32, stages: u32) -> Place {
        Place { stage, stages, ..Place::WHOLE }
    }

    /// Which run of layers it has, from 0.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.stage / self.parts
    }

    /// How many runs of layers follow each other.
    #[must_use]
    pub fn depths(&self) -> u32 {
        self.stages / self.parts
    }

    /// Which part of these layers it has, from 0.
    #[must_use]
    pub fn part(&self) -> u32 {
        self.stage % self.parts
    }

    /// Whether it has but a part of the layers that can be split.
    #[must_use]
    pub fn splits(&self) -> bool {
        self.parts > 1
    }
}

/// The moment of a step. Randomness derives from it and the shard, never from a rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moment {
    /// The step, counted over the whole job.
    pub step: Step,
    /// The pass over the data (0 for learners that count their own iterations).
    pub pass: u64,
    /// The job's seed.
    pub seed: u64,
    /// Rows used in this step by all workers together.
    pub rows: u64,
}

impl Moment {
    /// The generator for a purpose at this step: the same on all workers.
    #[must_use]
    pub fn rng(&self, purpose: &str) -> Rng {
        Rng::named(self.seed, purpose, &[self.step.0])
    }

    /// The generator for a purpose at this step on one shard.
    #[must_use]
    pub fn shard_rng(&self, purpose: &str, shard: Shard) -> Rng {
        Rng::named(self.seed, purpose, &[self.step.0, u64::from(shard.0)])
    }
}

/// What a learner works with in one step.
pub struct Work<'a> {
    /// When.
    pub moment: Moment,
    /// Which part of the model this is.
    pub place: Place,
    /// The model as this worker may see it now.
    pub model: &'a Model,
    /// This worker's rows of the step.
    pub batch: &'a Batch<'a>,
    /// What it remembers of these rows, by shard.
    pub memory: &'a mut Memory,
    /// Channels to the other stages, where the plan has any.
    pub wires: &'a mut dyn Wires,
    /// Where blocks are emitted.
    pub outbox: &'a mut Outbox,
}

/// Which part of the model a batch touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Needs {
    /// All weights.
    All,
    /// These rows of these tensors (strictly increasing row numbers). Tensors not named are not needed.
    Rows(BTreeMap<String, Vec<u32>>),
}

/// What becomes of memory that is lost with a worker: the law `Memory` of the conformance suite. The best comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rebuilds {
    /// It is a function of model and rows: training ends with the same weights, to the bit.
    Exactly,
    /// What is made anew leads to the same optimum, but not by the same steps.
    Nearly,
    /// Training would end elsewhere. The flock goes back to its last checkpoint.
    Never,
}

/// What came of a step.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The objective as this step saw it, if it is known.
    pub objective: Option<f64>,
    /// The learner has converged or used up its iterations: no further step.
    pub done: bool,
    /// Iterations (passes) complete after this step; only for learners that pass over all rows.
    pub iterations: Option<u64>,
}

/// The objective and the metrics of a model over all training rows.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Grade {
    /// The objective.
    pub objective: f64,
    /// Metrics by the contract's names.
    pub metrics: BTreeMap<String, f64>,
}

/// The block with the sums over all stages of what [`Learner::across`] tells of each.
pub const ACROSS: &str = "starlings.across";

/// A learner.
///
/// Law `Exact` (learners that require [`Ability::Lossless`] or whose statistics are sums): folding the
/// updates of n workers and applying once gives the model that one worker would have given, to rounding.
///
/// Law `RowWise` (if [`Ability::RowWise`] is in `gives`): applying an update restricted to some rows changes
/// exactly what applying the whole update would have changed in those rows, so that each owner can apply
/// its part. Blocks of the update carry the name of the tensor they change. Only the rows that they name change, in that
/// tensor and in the state beside it (tensors with as many rows whose names begin with the same word): an owner's backup gets
/// these and no others.
///
/// Law `Memory`: `adopt` on a shard's rows and the model equals what a worker that always had the shard
/// would remember, or the engine takes it from the checkpoint together with the model that matches.
pub trait Learner: Send + Sync {
    /// What kind of answer it gives.
    fn task(&self) -> Task;

    /// How it wants its rows.
    fn appetite(&self) -> Appetite;

    /// How it wants features encoded.
    fn encoding(&self) -> Encoding {
        Encoding::OneHot
    }

    /// What it wants of labels.
    fn label(&self) -> LabelNeed;

    /// Whether it counts rows by their weights (`[data] weight`). Law `Weights`: weights of one change nothing, and
    /// a row of weight zero is as if it were not there.
    fn weighs(&self) -> bool {
        false
    }

    /// What it gives to the other choices, its parameters considered.
    fn gives(&self) -> &'static [Ability] {
        &[]
    }

    /// Why it does not give something that it would give with other parameters, in words; `None` where it cannot say.
    fn why_not(&self, ability: Ability) -> Option<String> {
        let _ = ability;
        None
    }

    /// What to change of its parameters so that it gives something, as a request: "leave out …". Law: with that it does.
    /// `None` where it cannot say.
    fn remedy(&self, ability: Ability) -> Option<String> {
        let _ = ability;
        None
    }

    /// What it requires of the other choices, its parameters considered.
    fn requires(&self) -> &'static [Ability];

    /// How many steps it takes, where that is known before the first. Learners that pass over all rows and
    /// are to be served without a barrier must know it, for no step can tell all workers to stop.
    fn steps_max(&self, facts: &Facts) -> Option<u64> {
        let _ = facts;
        None
    }

    /// What a worker with this place's part of the model needs of memory, with so many rows of a step; `None` where it is
    /// small, or cannot be foreseen.
    fn footprint(&self, facts: &Facts, place: &Place, rows: u64) -> Option<crate::Footprint> {
        let _ = (facts, place, rows);
        None
    }

    /// The model before the first step. The same on every worker with the same place.
    ///
    /// # Errors
    /// When the data cannot be learned from: too few rows, one class only.
    fn init(&self, facts: &Facts, place: Place) -> Result<Model>;

    /// Which tensors of its first model come from model files: a path, and what is put before the names of that file's
    /// tensors. Who trains reads the files after `init` and puts the tensors in.
    fn furnishings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The whole model, from one that has the tensors of all stages. Where they are the model's own there is nothing to do.
    fn assemble(&self, model: Model) -> Model {
        model
    }

    /// Which part of the model a place has, in words that people know it by; `None` where there is nothing to tell.
    fn tell_place(&self, facts: &Facts, place: &Place) -> Option<String> {
        let _ = (facts, place);
        None
    }

    /// How many layers each of so many stages should have so that the slowest takes as little time as can be, measured on
    /// rows made up for it. `clock` gives seconds from any moment on. `None`: the learner has nothing to measure.
    ///
    /// # Errors
    /// When the model cannot be cut so.
    fn measured_cut(
        &self,
        facts: &Facts,
        stages: u32,
        clock: &dyn Fn() -> f64,
    ) -> Result<Option<Vec<u32>>> {
        let _ = (facts, stages, clock);
        Ok(None)
    }

    /// What every stage must know of all stages before it applies an update, as numbers that are summed over them: the
    /// squared length of a gradient, for example. `apply` finds the sums in the block [`ACROSS`], where the model is cut.
    /// Always the same length; what several stages have is told by one of them.
    fn across(&self, model: &Model, update: &Update) -> Vec<f64> {
        let _ = (model, update);
        Vec::new()
    }

    /// Puts what an earlier model of this learner knows into one that `init` has just made: training goes on from there.
    ///
    /// # Errors
    /// When the learner cannot go on, or not from this model.
    fn go_on(&self, model: &mut Model, earlier: &Model) -> Result<()> {
        let _ = (model, earlier);
        Err(Fault::caller("this learner begins anew in every training")
            .hint("leave out [train] continue_from; gradient-boosting takes it"))
    }

    /// The parameter, and its value, with which it learns numbers where it otherwise learns classes: for jobs that
    /// leave the parameter open and have labels that are no classes.
    fn for_numbers(&self) -> Option<(&'static str, &'static str)> {
        None
    }

    /// Which rows of the model this batch touches.
    fn needs(&self, model: &Model, batch: &Batch<'_>) -> Needs {
        let _ = (model, batch);
        Needs::All
    }

    /// Fills the memory of a shard that this worker has not held before. `cells` is empty on entry.
    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut crate::Cells) {
        let _ = (model, batch, slice, cells);
    }

    /// What [`adopt`](Learner::adopt) can make again of what a lost worker remembered of a shard.
    fn rebuilds(&self) -> Rebuilds {
        Rebuilds::Exactly
    }

    /// Computes this worker's contribution and emits its blocks. Under one step every worker emits the same
    /// names and shapes in the same order, also for an empty batch. A step may be begun again after a loss: the second
    /// call finds the memory as the first left it, and gives the same blocks.
    ///
    /// # Errors
    /// When rows are unusable or a wire fails.
    fn contribute(&self, work: &mut Work<'_>) -> Result<()>;

    /// Applies the sum of all contributions. A pure function of its arguments: replicas stay equal.
    ///
    /// # Errors
    /// When training has diverged to non-finite numbers.
    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome>;

    /// Whether [`apply_late`](Learner::apply_late) is there: sums need not be written down before they are applied.
    fn sums_late(&self) -> bool {
        false
    }

    /// As [`apply`](Learner::apply), with the same bits, of a sum that is made where it is used: each number of it is asked for once.
    /// Called only where [`sums_late`](Learner::sums_late) says so, and it may not fail half-way for any other reason
    /// than `apply`.
    ///
    /// # Errors
    /// As [`apply`](Learner::apply).
    fn apply_late(&self, model: &mut Model, late: &dyn Late, moment: &Moment) -> Result<Outcome> {
        let _ = (model, late, moment);
        Err(Fault::machine("this learner applies no sums that are not there yet"))
    }

    /// Sums over rows from which [`grade`](Learner::grade) makes objective and metrics. Always the same length.
    ///
    /// # Errors
    /// When rows are unusable or a wire fails.
    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>>;

    /// Objective and metrics from the sums of all rows.
    fn grade(&self, model: &Model, sums: &[f64], rows: u64) -> Grade;

    /// Whether `score` and `grade` measure rows that the model was not trained on as well, where answers and labels alone
    /// do not say how good it is: what an autoencoder cannot restore, the surprise of a language model.
    fn grades_unseen(&self) -> bool {
        false
    }

    /// Numbers that `predict` gives for a row.
    fn outputs(&self, model: &Model) -> usize;

    /// Predictions for all rows of a batch, appended to `out` row by row.
    ///
    /// # Errors
    /// When the rows do not fit the model.
    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()>;

    /// The trained model as a graph of ONNX operators from encoded features to what `predict` gives.
    ///
    /// Law `Graph`: the graph, evaluated on dense rows, gives what `predict` gives, to rounding. `None`: the answer
    /// is not a function of the features that such operators can write.
    fn graph(&self, model: &Model) -> Option<Graph> {
        let _ = model;
        None
    }

    /// The trained model in words, for people who inspect it.
    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        let _ = (model, schema);
        None
    }

    /// Rows like those it was trained on, drawn with a seed; `None` where the model does not make any.
    fn samples(&self, model: &Model, count: usize, seed: u64) -> Option<crate::Samples> {
        let _ = (model, count, seed);
        None
    }

    /// How much each feature is used, the most used first; empty where the model does not tell.
    fn importances(&self, model: &Model, schema: &Schema) -> Vec<Importance> {
        let _ = (model, schema);
        Vec::new()
    }

    /// A tree of the model by its number, its root first; none where there is no such tree.
    fn tree(&self, model: &Model, schema: &Schema, number: usize) -> Option<Vec<Branch>> {
        let _ = (model, schema, number);
        None
    }
}
