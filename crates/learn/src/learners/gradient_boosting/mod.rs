//! Gradient boosting of trees (Friedman, 2001) with histograms (LightGBM, Ke et al., 2017; XGBoost, Chen and
//! Guestrin, 2016), for numbers, classes, counts, quantiles and orders within groups.
//!
//! Steps: a sample of rows makes the bins (`start.rs`), sums of labels the first scores; then for every tree one step
//! agrees on how gradients are rounded (`scale.rs`), each further one looks at a few leaves (`grow.rs`), and the last
//! ones settle what leaves say (`renew.rs`). All sums are of whole numbers: the trees are the same bits for any number
//! of workers. Where features are dealt and not rows, all rows travel once and then best splits (`feature_parallel.rs`);
//! where features are elected, votes travel first (`voting.rs`). What a worker keeps of its rows (`resident.rs`) follows from model and rows and is in no checkpoint.

mod feature_parallel;
mod grow;
mod growing;
mod losses;
mod options;
mod ranking;
mod renew;
mod resident;
mod scale;
mod scoring;
mod start;
mod state;
mod voting;

use self::losses::Loss;
use self::options::Options;
use self::resident::Resident;
use self::state::{Clock, Phase, Setup};
use super::BuildLearner;
use crate::trees::columns::{categorical, whole};
use crate::trees::predict::Forest;
use crate::trees::{dealing, describe, graph, tree};
use crate::{
    Appetite, Branch, Facts, Grade, Importance, Learner, Moment, Outcome, Place, Task, Work,
};
use starlings_core::{Ability, Block, Entry, Fault, Graph, Model, Result, Role, Tensor, Update};
use starlings_data::{Batch, Encoding, LabelNeed, Schema};

const GIVES: &[Ability] = &[];
const NEEDS: &[Ability] = &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// The entry of the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "gradient-boosting",
    summary: "Gradient boosting of decision trees with histograms, for classes, numbers, counts and rankings",
    reference: "Friedman, Greedy function approximation: a gradient boosting machine, Annals of \
                Statistics 29(5), 2001; Ke et al., LightGBM, NeurIPS 2017",
    params: options::PARAMS,
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(GradientBoosting { options: Options::new(params)? })),
};

struct GradientBoosting {
    options: Options,
}

impl GradientBoosting {
    /// The loss as far as the parameters alone say it: enough for the task.
    fn kind(&self) -> Loss {
        self.options.loss(2)
    }

    fn outputs_of(&self, schema: &Schema) -> Result<usize> {
        if !self.kind().is_classification() {
            return Ok(1);
        }
        let classes = schema.classes();
        match self.options.loss(classes) {
            _ if classes < 2 => {
                Err(Fault::caller("gradient-boosting: the labels have one class only")
                    .hint("look at the label column, or give rows of two classes or more"))
            }
            Loss::Logistic if classes != 2 => Err(Fault::caller(format!(
                "gradient-boosting: logistic tells two classes apart, and the labels have {classes}"
            ))
            .hint("use loss = \"softmax\", or \"auto\"")),
            Loss::Logistic => Ok(1),
            _ => Ok(classes),
        }
    }
}

impl Learner for GradientBoosting {
    fn task(&self) -> Task {
        match self.kind() {
            loss if loss.is_classification() => Task::Classification,
            Loss::LambdaRank => Task::Ranking,
            _ => Task::Regression,
        }
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn encoding(&self) -> Encoding {
        Encoding::Codes
    }

    fn label(&self) -> LabelNeed {
        if self.kind().is_classification() { LabelNeed::Class } else { LabelNeed::Number }
    }

    fn weighs(&self) -> bool {
        self.kind() != Loss::LambdaRank
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let outputs = self.outputs_of(&facts.schema)?;
        if facts.schema.features > usize::from(u16::MAX) {
            return Err(Fault::caller(format!(
                "gradient-boosting: {} features are too many for trees",
                facts.schema.features
            ))
            .hint("65535 is the most; hash or select features first"));
        }
        let categorical = categorical(&facts.schema);
        let monotone = self.options.monotone(&facts.schema, &categorical)?;
        let iterations = facts.epochs.map_or(self.options.trees, |epochs| epochs.max(1) as usize);
        let mut model = Model::new();
        model.set("base", Tensor::of(&[outputs], vec![0.0; outputs], Role::Weight));
        tree::init(&mut model);
        model.set("bins", Tensor::of(&[0], vec![], Role::Weight));
        model.set("bin_starts", whole(vec![0; categorical.len() + 1], Role::Weight));
        let categorical = categorical.into_iter().map(i64::from).collect();
        model.set("categorical", whole(categorical, Role::Weight));
        let monotone = monotone.into_iter().map(i64::from).collect();
        model.set("monotone", whole(monotone, Role::State));
        model.set("voters", whole(vec![i64::from(facts.shards)], Role::State));
        for name in ["growing", "slots", "elected", "descent", "last_leaves", "rows"] {
            model.set(name, whole(Vec::new(), Role::State));
        }
        model.set("continued", whole(vec![0], Role::State));
        model.set("last_values", Tensor::of(&[0], vec![], Role::State));
        ranking::init(&mut model);
        state::set_bounds(&mut model, [1.0; 2], 0.0);
        Clock::start(iterations, facts.seed).save(&mut model);
        Ok(model)
    }

    fn go_on(&self, model: &mut Model, earlier: &Model) -> Result<()> {
        start::go_on(model, earlier)
    }

    fn for_numbers(&self) -> Option<(&'static str, &'static str)> {
        (self.options.loss == "auto").then_some(("loss", "squared"))
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let setup = Setup::new(&self.options, work.model);
        let phase = Clock::load(work.model).phase;
        match phase {
            Phase::Sample => return start::sample(&setup, work),
            Phase::Prior => return start::prior(&setup, work),
            Phase::Gather => {
                let rows = dealing::gather(work);
                work.outbox.emit(Block::counts("rows", rows));
                return Ok(());
            }
            _ => {}
        }
        let first = work.batch.slices.first().map(|slice| slice.shard);
        let mut resident = first.map(|first| {
            let kept = work.memory.take_scratch(first);
            Resident::refresh(kept, &setup, work.model, work.batch, work.moment.seed)
        });
        let rows = resident.as_deref_mut();
        match phase {
            Phase::Scores => scale::scores(rows.as_deref(), work),
            Phase::Scale => scale::scale(&setup, rows.as_deref(), work),
            Phase::Vote => voting::contribute(&setup, rows, work),
            Phase::Grow if feature_parallel::deals(&setup) => {
                feature_parallel::contribute(&setup, rows, work);
            }
            Phase::Grow => grow::contribute(&setup, rows, work),
            _ => renew::contribute(&setup, rows, work),
        }
        if let (Some(first), Some(resident)) = (first, resident) {
            work.memory.leave_scratch(first, resident);
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let setup = Setup::new(&self.options, model);
        let mut clock = Clock::load(model);
        clock.tick(tree::count(model) as u64);
        let before =
            Outcome { iterations: Some(setup.iteration(model) as u64), ..Outcome::default() };
        let outcome = match clock.phase {
            Phase::Sample => {
                start::apply_sample(&setup, model, update, moment.rows, moment.seed);
                clock.phase = Phase::Prior;
                before
            }
            Phase::Prior => {
                start::apply_prior(&setup, model, update, &mut clock, moment.rows)?;
                before
            }
            Phase::Gather => {
                model.set("rows", whole(update.i64("rows").to_vec(), Role::State));
                clock.phase = start::first_phase(&setup);
                before
            }
            Phase::Scores => scale::apply_scores(&setup, model, update, &mut clock, moment.seed),
            Phase::Scale => {
                let outcome = scale::apply_scale(&setup, model, update, &mut clock, moment.rows);
                growing::Growing::root().save(model);
                clock.phase = growth_phase(&setup);
                outcome
            }
            Phase::Vote => {
                voting::apply(&setup, model, update, moment);
                clock.phase = Phase::Grow;
                before
            }
            Phase::Grow if grow_further(&setup, model, update, moment) => {
                clock.phase = growth_phase(&setup);
                before
            }
            Phase::Grow => renew::begin(&setup, model, &mut clock),
            Phase::Renew => renew::apply(&setup, model, update, &mut clock, moment.rows),
        };
        if outcome.done {
            model.set("slots", whole(Vec::new(), Role::State));
            model.set("rows", whole(Vec::new(), Role::State));
        }
        clock.save(model);
        match outcome.objective {
            Some(objective) if !objective.is_finite() => {
                Err(Fault::caller(format!("gradient-boosting: the loss is {objective}"))
                    .hint("lower learning_rate, raise l2, or look at extreme labels"))
            }
            _ => Ok(outcome),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        scoring::score(&Setup::new(&self.options, work.model), work)
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        scoring::grade(&Setup::new(&self.options, model), model, sums)
    }

    fn outputs(&self, model: &Model) -> usize {
        match self.kind().is_classification() {
            true => model.f64("base").len().max(2),
            false => 1,
        }
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let setup = Setup::new(&self.options, model);
        let scores = scoring::scores(&Forest::new(model), model.f64("base"), batch);
        scoring::answers(&setup, &scores, out);
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let setup = Setup::new(&self.options, model);
        let outputs = setup.outputs;
        let said = |tree: usize, value: f64| {
            (0..outputs).map(|output| if tree % outputs == output { value } else { 0.0 }).collect()
        };
        let (mut graph, scores) = graph::scores(model, model.f64("base"), said)?;
        scoring::graph(&setup, &mut graph, &scores);
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        Some(describe::text(model, schema, describe::short))
    }

    fn importances(&self, model: &Model, schema: &Schema) -> Vec<Importance> {
        describe::importances(model, schema)
    }

    fn tree(&self, model: &Model, schema: &Schema, number: usize) -> Option<Vec<Branch>> {
        describe::branches(model, schema, number, describe::short)
    }
}

fn growth_phase(setup: &Setup<'_>) -> Phase {
    if voting::votes(setup) { Phase::Vote } else { Phase::Grow }
}

/// Takes what a step of growth brought and says whether there is more to look at.
fn grow_further(setup: &Setup<'_>, model: &mut Model, update: &Update, moment: &Moment) -> bool {
    match feature_parallel::deals(setup) {
        true => feature_parallel::apply(setup, model, update, moment),
        false => grow::apply(setup, model, update, moment),
    }
}
