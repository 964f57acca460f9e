//! The learner that all linear models are: a subject, which knows labels and answers, and a solver.

use super::full_pass::state::SCALE;
use super::layout::Layout;
use super::losses::{Criterion, RowLoss, with_loss};
use super::moments::Labels;
use super::pass::{self, Visitor};
use super::problem::Problem;
use super::solver::{Setup, SolverKind};
use super::visitors::rows;
use crate::{
    Appetite, Cells, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Rebuilds, Task, Work,
};
use starlings_core::{
    Ability, FEATURES, Fault, Graph, Kind, Model, Op, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, Features, LabelNeed, Schema, Slice};
use std::collections::BTreeMap;

/// What a linear model is about.
pub(crate) trait Subject: Send + Sync {
    /// What kind of answer it gives.
    fn task(&self) -> Task;

    /// What it wants of labels.
    fn label(&self) -> LabelNeed;

    /// How many scores a row has.
    ///
    /// # Errors
    /// When labels are not such that they could be learned.
    fn scores(&self, schema: &Schema) -> Result<usize>;

    /// The loss of a row with so many scores.
    fn criterion(&self, scores: usize) -> Criterion;

    /// What labels are.
    fn labels(&self, scores: usize) -> Labels;

    /// Why a label cannot be, if it cannot.
    fn refuse(&self, scores: usize, label: f32) -> Option<Fault>;

    /// How many numbers an answer has.
    fn outputs(&self, scores: usize) -> usize;

    /// Turns a row's scores into its answer.
    fn answer(&self, scores: &mut [f64], out: &mut Vec<f64>);

    /// How many sums of rows the metrics are made of.
    fn sums(&self) -> usize;

    /// Adds a row to the sums that metrics are made of.
    fn add(&self, scored: Scored<'_>, sums: &mut [f64]);

    /// Metrics from the sums and the weight of all rows.
    fn metrics(&self, sums: &[f64], weight: f64) -> Vec<(&'static str, f64)>;

    /// Goes on in a graph from the scores to the answer.
    fn draw(&self, graph: &mut Graph, scores: &str, width: usize) -> Option<String>;
}

/// A row that was scored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scored<'a> {
    pub(crate) scores: &'a [f64],
    pub(crate) label: f64,
    /// How much it counts, its class aside.
    pub(crate) weight: f64,
    /// Its loss, unweighted.
    pub(crate) loss: f64,
}

/// A linear model with a solver.
pub(crate) struct Linear<S> {
    pub(crate) subject: S,
    pub(crate) setup: Setup,
}

impl<S: Subject> Linear<S> {
    fn problem(&self, layout: Layout) -> Problem {
        let scores = layout.scores;
        let (criterion, labels) = (self.subject.criterion(scores), self.subject.labels(scores));
        Problem { layout, criterion, labels }
    }

    fn problem_of(&self, model: &Model) -> Problem {
        let weights = model.get("weights").expect("every linear model has weights");
        let intercept = self.setup.intercept;
        let features = weights.rows() - usize::from(intercept);
        self.problem(Layout { features, scores: weights.width(), intercept })
    }

    fn solver(&self, problem: &Problem) -> SolverKind {
        // What does not suit is refused before the first step.
        self.setup.suited(problem.layout.features).unwrap_or(self.setup).solver
    }

    /// Refuses rows that do not fit and labels that cannot be.
    fn check(&self, problem: &Problem, batch: &Batch<'_>) -> Result<()> {
        problem.layout.check(batch)?;
        for row in batch.rows() {
            let Some(&label) = batch.table.labels.get(row) else {
                return Err(Fault::caller(format!("row {row} has no label")));
            };
            if let Some(fault) = self.subject.refuse(problem.layout.scores, label) {
                return Err(fault.during(format!("row {row} has the label {label}")));
            }
        }
        Ok(())
    }
}

impl<S: Subject> Learner for Linear<S> {
    fn task(&self) -> Task {
        self.subject.task()
    }

    fn appetite(&self) -> Appetite {
        match self.setup.solver {
            SolverKind::FullPass(_) => Appetite::Passes,
            SolverKind::MiniBatch(_) => Appetite::Batches,
        }
    }

    fn label(&self) -> LabelNeed {
        self.subject.label()
    }

    fn weighs(&self) -> bool {
        true
    }

    fn gives(&self) -> &'static [Ability] {
        self.setup.gives()
    }

    fn requires(&self) -> &'static [Ability] {
        self.setup.requires()
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        let scores = self.subject.scores(&facts.schema)?;
        let (features, intercept) = (facts.schema.features, self.setup.intercept);
        let layout = Layout { features, scores, intercept };
        if layout.rows() == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let setup = self.setup.suited(features)?;
        let mut model = Model::new();
        let shape = [layout.rows(), layout.scores];
        model.set("weights", Tensor::zeros(Kind::F64, &shape, Role::Weight));
        match &setup.solver {
            SolverKind::FullPass(solver) => {
                let iterations = facts.epochs.unwrap_or(setup.max_iterations);
                let iterations = i64::try_from(iterations).unwrap_or(i64::MAX);
                solver.init(&mut model, &self.problem(layout), (iterations, facts.shards));
            }
            SolverKind::MiniBatch(solver) => solver.init(&mut model, layout),
        }
        Ok(model)
    }

    fn needs(&self, model: &Model, batch: &Batch<'_>) -> Needs {
        match (&self.setup.solver, &batch.table.features) {
            (SolverKind::MiniBatch(solver), Features::Sparse { .. }) if solver.is_row_wise() => {
                let touched = pass::touched(self.problem_of(model).layout, batch);
                Needs::Rows(BTreeMap::from([("weights".to_string(), touched)]))
            }
            _ => Needs::All,
        }
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        let problem = self.problem_of(model);
        if let SolverKind::FullPass(solver) = self.solver(&problem) {
            solver.adopt(model, &problem, (batch, slice), cells);
        }
    }

    fn rebuilds(&self) -> Rebuilds {
        match self.setup.solver {
            SolverKind::FullPass(solver) => solver.rebuilds(),
            SolverKind::MiniBatch(_) => Rebuilds::Exactly,
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let problem = self.problem_of(work.model);
        match self.solver(&problem) {
            SolverKind::FullPass(solver) => {
                // Rows stay the same: the first step has seen them all.
                if solver.is_first(work.model) {
                    self.check(&problem, work.batch)?;
                }
                solver.contribute(work, &problem)
            }
            SolverKind::MiniBatch(solver) => {
                self.check(&problem, work.batch)?;
                solver.contribute(work, &problem);
                Ok(())
            }
        }
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let problem = self.problem_of(model);
        match self.solver(&problem) {
            SolverKind::FullPass(solver) => solver.apply(model, update, &problem, moment),
            SolverKind::MiniBatch(solver) => solver.apply(model, update, &problem, moment),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let problem = self.problem_of(work.model);
        self.check(&problem, work.batch)?;
        let rows = rows(work.model, work.batch);
        let mut sums = vec![0.0; 3 + self.subject.sums()];
        let (own, subjects) = sums.split_at_mut(3);
        with_loss!(problem.criterion, criterion => {
            let mut visit = |row: usize, scores: &[f64]| {
                let told = rows.told([row]);
                let mut residuals = scores.to_vec();
                let once = super::losses::Told { weights: [1.0], ..told };
                let loss = criterion.residuals(&mut residuals, once);
                let weight = work.batch.table.weight(row);
                if weight > 0.0 {
                    own[0] += told.weights[0] * loss;
                    own[1] += told.weights[0];
                    own[2] += weight;
                    let label = told.labels[0];
                    self.subject.add(Scored { scores, label, weight, loss }, subjects);
                }
            };
            let weights = work.model.f64("weights");
            pass::scores(problem.layout, weights, work.batch, &mut ByRow::new(&mut visit));
        });
        Ok(sums)
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        let layout = self.problem_of(model).layout;
        let units = if model.get(SCALE).is_some() { model.f64(SCALE) } else { &[] };
        let penalty = self.setup.penalty.value(layout, units, model.f64("weights"));
        let mean = if sums[1] > 0.0 { sums[0] / sums[1] } else { 0.0 };
        let metrics = self.subject.metrics(&sums[3..], sums[2].max(f64::MIN_POSITIVE));
        Grade {
            objective: mean + penalty,
            metrics: metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        }
    }

    fn outputs(&self, model: &Model) -> usize {
        self.subject.outputs(self.problem_of(model).layout.scores)
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let layout = self.problem_of(model).layout;
        layout.check(batch)?;
        let mut visit = |_: usize, scores: &[f64]| self.subject.answer(&mut scores.to_vec(), out);
        pass::scores(layout, model.f64("weights"), batch, &mut ByRow::new(&mut visit));
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let layout = self.problem_of(model).layout;
        let mut graph = Graph::new();
        let cut = layout.features * layout.scores;
        let (weights, intercepts) = model.f64("weights").split_at(cut);
        let shape = [layout.features, layout.scores];
        let weights = graph.constant("weights", &shape, weights.to_vec());
        let mut scores = graph.node(Op::MatMul, &[FEATURES, &weights]);
        if layout.intercept {
            let constant = graph.constant("intercept", &[layout.scores], intercepts.to_vec());
            scores = graph.node(Op::Add, &[&scores, &constant]);
        }
        self.subject.draw(&mut graph, &scores, layout.scores)?;
        Some(graph)
    }
}

/// Shows each row with its scores.
struct ByRow<'a, F> {
    visit: &'a mut F,
    room: Vec<f64>,
}

impl<'a, F: FnMut(usize, &[f64])> ByRow<'a, F> {
    fn new(visit: &'a mut F) -> ByRow<'a, F> {
        ByRow { visit, room: Vec::new() }
    }
}

impl<F: FnMut(usize, &[f64])> Visitor for ByRow<'_, F> {
    fn visit<const N: usize>(&mut self, rows: [usize; N], _: usize, scores: &mut [f64]) {
        for (n, row) in rows.into_iter().enumerate() {
            self.room.clear();
            self.room.extend(scores.iter().skip(n).step_by(N));
            (self.visit)(row, &self.room);
        }
    }
}
