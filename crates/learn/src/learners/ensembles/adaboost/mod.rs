//! AdaBoost: one learner trained again and again, each time with more weight on the rows that the one before it got
//! wrong. For classes SAMME (Zhu, Zou, Rosset and Hastie, 2009), which for two classes is Freund and Schapire's (1997);
//! for numbers AdaBoost.R2 (Drucker, 1997) with weights in place of samples.
//!
//! The weights of rows are remembered by shard and can be made again from the members so far. What decides a member's
//! say travels as one row of sums for each shard, so that its bits do not depend on the flock.

mod classes;
mod numbers;
mod rounds;

use super::NEEDS;
use super::crew::{Crew, Fit, Same};
use super::graphs;
use super::member::Member;
use super::method::{Ensemble, Method};
use super::views::{View, Views};
use super::voting::{alone, outputs};
use crate::learners::BuildLearner;
use crate::{Cells, Facts, Moment, Outcome, Place, Task, Work};
use rounds::{Loss, State};
use starlings_core::{
    Entry, Graph, Model, Op, Param, ParamKind, Params, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, Schema, Slice};

/// The entry of the catalogue.
pub(in crate::learners) const ENTRY: Entry<BuildLearner> = Entry {
    name: "adaboost",
    summary: "One learner again and again, each time minding what went wrong before: SAMME for classes, R2 for numbers",
    reference: "Freund and Schapire, JCSS 55(1), 1997; Zhu, Zou, Rosset and Hastie, Multi-class AdaBoost, 2009; \
                Drucker, Improving regressors using boosting techniques, ICML 1997",
    params: &[
        Param {
            name: "base",
            kind: ParamKind::Table,
            default: Some("{ name = \"decision-tree\", max_depth = 1 }"),
            help: "the learner: its name and parameters; it must weigh rows",
        },
        Param {
            name: "rounds",
            kind: ParamKind::Integer { min: 1, max: 100_000 },
            default: Some("50"),
            help: "how often it is trained at most",
        },
        Param {
            name: "learning_rate",
            kind: ParamKind::Float { min: 1e-9, max: 100.0 },
            default: Some("1.0"),
            help: "what a member's say is multiplied with",
        },
        Param {
            name: "loss",
            kind: ParamKind::Choice(&["linear", "square", "exponential"]),
            default: Some("linear"),
            help: "how an error counts, for numbers",
        },
    ],
    gives: &[],
    needs: NEEDS,
    build: |params| Ok(Box::new(Ensemble(AdaBoost::new(params)?))),
};

struct AdaBoost {
    crew: Crew,
    rate: f64,
    loss: Loss,
}

impl AdaBoost {
    fn new(params: &Params) -> Result<AdaBoost> {
        let at = "adaboost: base";
        let base = Member::build(at, params.table("base"))?;
        base.must_answer(at, &[Task::Classification, Task::Regression])?;
        base.must_be_told(at)?;
        base.must_weigh(at, "rows that went wrong are to weigh more")?;
        let fit = |round: usize| Fit { member: 0, seed: Some(round as u64) };
        let fits = (0..params.size("rounds")).map(fit).collect();
        let crew = Crew { members: vec![base], fits, together: 1 };
        let loss = match params.text("loss") {
            "square" => Loss::Square,
            "exponential" => Loss::Exponential,
            _ => Loss::Linear,
        };
        Ok(AdaBoost { crew, rate: params.f64("learning_rate"), loss })
    }

    fn is_classification(&self) -> bool {
        self.task() == Task::Classification
    }

    /// How many members have a say.
    fn rounds(&self, model: &Model) -> usize {
        model.get("says").map_or(0, Tensor::rows)
    }

    /// The weights of a batch's rows: those of its shards where they are remembered and up to date.
    fn weights(&self, model: &Model, batch: &Batch<'_>, cells: &mut Cells) -> Result<()> {
        let (known, wanted) = (rounds::known(cells), self.rounds(model));
        if known == Some(wanted) {
            return Ok(());
        }
        let mut weights = match known {
            Some(_) => rounds::kept(cells),
            None => batch.rows().map(|row| batch.table.weight(row)).collect(),
        };
        for round in known.unwrap_or(0)..wanted {
            let said = self.crew.said_seen(model, round, batch)?;
            match self.is_classification() {
                true => {
                    let say = model.f64("says")[round];
                    classes::raise(&said, self.outputs(model), (batch, say), &mut weights);
                }
                false => {
                    let told = &model.f64("told")[2 * round..2 * round + 2];
                    numbers::lower(&said, (batch, told), (self.loss, self.rate), &mut weights);
                }
            }
        }
        rounds::keep(cells, weights, wanted);
        Ok(())
    }

    /// Brings the weights of all shards of a batch up to date.
    fn remember(&self, work: &mut Work<'_>) -> Result<()> {
        for slice in &work.batch.slices {
            let one = alone(work.batch, slice);
            self.weights(work.model, &one, work.memory.shard(slice.shard))?;
        }
        Ok(())
    }
}

/// Shows the weights of this round, on average one.
fn weigh<'a>(view: &mut View, scale: f64, weights: impl Iterator<Item = &'a f64>) {
    view.table.weights.clear();
    view.table.weights.extend(weights.map(|weight| (weight * scale) as f32));
}

impl Method for AdaBoost {
    fn crew(&self) -> &Crew {
        &self.crew
    }

    fn init(&self, facts: &Facts, place: Place) -> Result<Model> {
        let mut model = Model::new();
        let schema = |_: usize| facts.schema.clone();
        self.crew.init((facts, place), &schema, &mut model)?;
        model.set("outputs", outputs(facts));
        model.set("says", Tensor::of(&[0], vec![], Role::Weight));
        model.set("errors", Tensor::of(&[0], vec![], Role::Weight));
        model.set("told", Tensor::of(&[0], vec![], Role::State));
        State::start(facts).save(&mut model);
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let one = alone(batch, slice);
        // Rows that a member refuses are refused again, and told, when they are next used.
        if self.weights(model, &one, cells).is_err() {
            return;
        }
        let state = State::load(model);
        let mut view = View::of(&one, None);
        weigh(&mut view, state.scale(), rounds::kept(cells).iter());
        let range = state.round..state.round + 1;
        if state.training() {
            self.crew.adopt(model, (&one, slice), (range, &mut Same(&view)), cells);
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let state = State::load(work.model);
        self.remember(work)?;
        if !state.training() {
            return self.judge(work, &state);
        }
        if state.counting() {
            return rounds::count(work, &state);
        }
        let mut views = Views::take(work.memory, work.batch);
        let view = views.get("rows", || View::of(work.batch, None));
        let shards: Vec<Vec<f64>> = work
            .batch
            .slices
            .iter()
            .map(|slice| rounds::kept(work.memory.shard(slice.shard)))
            .collect();
        weigh(view, state.scale(), shards.iter().flatten());
        let range = state.round..state.round + 1;
        self.crew.contribute(work, range, &mut Same(view))?;
        views.leave(work.memory);
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let mut state = State::load(model);
        let done = match (state.training(), state.counting()) {
            (true, true) => {
                state.counted(update)?;
                false
            }
            (true, false) => {
                let range = state.round..state.round + 1;
                if self.crew.apply(model, update, (moment, range))? {
                    state.trained(self.is_classification());
                }
                false
            }
            (false, _) => self.settle(model, update, &mut state)?,
        };
        state.save(model);
        let iterations = Some(self.rounds(model) as u64);
        Ok(Outcome { objective: None, done, iterations })
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let said: Result<Vec<Vec<f64>>> =
            (0..self.rounds(model)).map(|round| self.crew.said_seen(model, round, batch)).collect();
        let says = model.f64("says");
        match self.is_classification() {
            true => classes::answer(&said?, says, (batch.len(), self.outputs(model)), out),
            false => numbers::answer(&said?, says, batch.len(), out),
        }
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        // The weighted median of numbers is beyond these operators.
        if !self.is_classification() || self.rounds(model) == 0 {
            return None;
        }
        let (mut graph, width) = (Graph::new(), self.outputs(model));
        let mut votes = Vec::new();
        for (round, &say) in model.f64("says").iter().enumerate() {
            let answer = graphs::fit(&mut graph, &self.crew, model, round)?;
            votes.push((graphs::vote(&mut graph, &answer, width), say));
        }
        let share = graphs::mean(&mut graph, &votes)?;
        // A vote is 1 for its class and −1/(K−1) for the others, divided by K−1.
        let others = (width - 1) as f64;
        let slope = graph.constant("slope", &[1], vec![(1.0 + 1.0 / others) / others]);
        let scores = graph.node(Op::Mul, &[&share, &slope]);
        graph.node(Op::Softmax, &[&scores]);
        Some(graph)
    }

    fn describe(&self, model: &Model, schema: &Schema) -> Option<String> {
        let mut text = String::from("round  say  error\n");
        let says = model.f64("says").iter().zip(model.f64("errors"));
        for (round, (say, error)) in says.enumerate() {
            text.push_str(&format!("{round:5}  {say:.4}  {error:.4}\n"));
        }
        let members = self.crew.describe(model, (0..self.rounds(model), schema))?;
        Some(text + &members)
    }
}
