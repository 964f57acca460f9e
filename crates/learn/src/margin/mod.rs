//! Support vector machines in the primal and in the dual: mean weighted loss of the margin + λ/2·‖w‖², the intercept
//! penalised with the weights as LIBLINEAR does (it is the weight of a constant feature). More than two classes are one
//! against the rest. `linear-svm` trains on the rows, `kernel-svm` on what a feature map makes of them.
//!
//! λ is `l2`, or 1/(c·mass) with the mass the sum of the rows' weights: then the objective is scikit-learn's
//! ½‖w‖² + c·Σ loss, divided by c·mass.

mod dual;
pub(crate) mod losses;
mod part;
mod primal;
pub(crate) mod state;

use crate::{Grade, Moment, Outcome, Rebuilds, Work};
use losses::{Hinge, MarginLoss, SquaredHinge};
pub(crate) use part::Part;
use starlings_core::{Block, Fault, Graph, Model, Op, Result, Role, Tensor, Update};
use starlings_data::Batch;
use state::{CLASSES, COUNTERS, GAP, Layout, MOMENTS, PENALTY, Problem, SCALE, WEIGHTS};

/// Rounds between two measurements of the duality gap.
const MEASURE_EVERY: i64 = 4;

/// Which loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    Hinge,
    SquaredHinge,
}

/// How the objective is minimised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Solver {
    /// Dual coordinate ascent, with this many passes of each shard a round.
    Dual { passes: usize },
    /// L-BFGS; the squared hinge only.
    Primal,
}

/// What classes count.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ClassWeight {
    /// All the same.
    Even,
    /// So that all classes have the same sum.
    Balanced,
    /// Each its own, by the text of its label.
    Given(Vec<(String, f64)>),
}

/// A support vector machine on rows of some width.
#[derive(Clone, Debug)]
pub(crate) struct Margin {
    pub(crate) loss: Loss,
    pub(crate) solver: Solver,
    /// LIBLINEAR's C.
    pub(crate) c: f64,
    /// λ, instead of C, if it is above zero.
    pub(crate) l2: f64,
    /// The constant feature that the intercept is the weight of; none: no intercept.
    pub(crate) constant: Option<f64>,
    pub(crate) class_weight: ClassWeight,
    pub(crate) standardise: bool,
    pub(crate) tolerance: f64,
}

impl Margin {
    /// Adds everything for `features` features to a new model.
    pub(crate) fn init(
        &self,
        model: &mut Model,
        features: usize,
        facts: &crate::Facts,
        limit: u64,
    ) -> Result<()> {
        let classes = facts.schema.classes();
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if classes < 2 {
            return Err(Fault::caller(format!("labels have {classes} classes, two are needed"))
                .hint("name the label column that tells classes apart"));
        }
        if features == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let scores = if classes == 2 { 1 } else { classes };
        let layout = Layout { features, scores, intercept: self.constant.is_some() };
        let shards = facts.rows.min(u64::from(facts.shards));
        state::init(model, layout, (facts.epochs.unwrap_or(limit), shards));
        if let ClassWeight::Given(weights) = &self.class_weight {
            let starlings_data::Target::Classes(names) = &facts.schema.target else {
                return Ok(());
            };
            for (name, weight) in weights {
                let Some(class) = names.iter().position(|known| known == name) else {
                    return Err(Fault::caller(format!(
                        "class_weight names '{name}', which is no class"
                    ))
                    .hint(format!("classes are {}", names.join(", "))));
                };
                model.f64_mut(CLASSES)[class] = *weight;
            }
        }
        if self.standardise {
            let units = [vec![1.0; features], vec![0.0; features]].concat();
            model.set(SCALE, Tensor::of(&[2, features], units, Role::Weight));
        }
        if self.solver == Solver::Primal {
            primal::init(model, layout);
        }
        Ok(())
    }

    /// Weights are a sum over dual variables: with some of them lost, they would be a sum over nothing.
    pub(crate) fn rebuilds(&self) -> Rebuilds {
        match self.solver {
            Solver::Dual { .. } => Rebuilds::Never,
            Solver::Primal => Rebuilds::Exactly,
        }
    }

    pub(crate) fn layout(&self, model: &Model) -> Layout {
        let weights = model.get(WEIGHTS).expect("every model of this learner has weights");
        let intercept = self.constant.is_some();
        let features = weights.rows() - usize::from(intercept);
        Layout { features, scores: weights.width(), intercept }
    }

    fn problem<'a>(&self, model: &'a Model) -> Problem<'a> {
        Problem::of(model, self.layout(model), self.constant.unwrap_or(1.0))
    }

    /// Emits what the next step needs of these shards.
    pub(crate) fn contribute(&self, work: &mut Work<'_>, parts: &[Part<'_>]) {
        let model = work.model;
        if model.i64(COUNTERS)[0] == 0 {
            work.outbox.emit(Block::dense("moments", moments(self.layout(model), parts)));
            return;
        }
        match (self.solver, self.loss) {
            (Solver::Primal, _) => self.evaluate(work, parts),
            (Solver::Dual { passes }, Loss::Hinge) => self.round(work, parts, Hinge, passes),
            (Solver::Dual { passes }, Loss::SquaredHinge) => {
                self.round(work, parts, SquaredHinge, passes);
            }
        }
    }

    fn evaluate(&self, work: &mut Work<'_>, parts: &[Part<'_>]) {
        let problem = self.problem(work.model);
        let grids = primal::grids(work.model, &problem);
        let columns = columns(problem.layout, work.model.f64(primal::TRIAL));
        let mut sums = vec![0; grids.len()];
        for &part in parts {
            primal::evaluate(&problem, &columns, part, &grids, &mut sums);
        }
        work.outbox.emit(Block::counts("gradient", sums));
    }

    fn round<L: MarginLoss>(
        &self,
        work: &mut Work<'_>,
        parts: &[Part<'_>],
        loss: L,
        passes: usize,
    ) {
        let problem = self.problem(work.model);
        let counters = work.model.i64(COUNTERS);
        let weights = columns(problem.layout, work.model.f64(WEIGHTS));
        let round = dual::Round {
            loss,
            shards: counters[3].max(1) as f64,
            passes,
            measure: measures(counters),
            step: work.moment.step.0 as i64,
        };
        let mut changes = dual::Changes { weights: vec![0.0; weights.len()], sums: [0.0; 2] };
        for &part in parts {
            let mut rng = work.moment.shard_rng("dual order", part.shard);
            let cells = work.memory.shard(part.shard);
            dual::round(round, &problem, (&weights, part), (cells, &mut rng), &mut changes);
        }
        work.outbox.emit(Block::dense("changes", changes.weights));
        work.outbox.emit(Block::dense("sums", changes.sums.to_vec()));
    }

    /// Applies the sum of all contributions.
    pub(crate) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        if model.i64(COUNTERS)[0] == 0 {
            self.take_moments(model, update.f64("moments"))?;
            return Ok(Outcome { iterations: Some(0), ..Outcome::default() });
        }
        let diverged = || {
            Fault::caller(format!("the objective is not finite at {}", moment.step))
                .hint("look for features that are not finite or are huge")
        };
        match self.solver {
            Solver::Primal => {
                let stop =
                    primal::Stop { tolerance: self.tolerance, iterations: model.i64(COUNTERS)[2] };
                let place = (self.layout(model), self.constant.unwrap_or(1.0));
                let told = primal::tell(model, place, update.i64("gradient"), stop);
                let told = told.ok_or_else(diverged)?;
                let (objective, iterations) = (Some(told.objective), Some(told.iterations));
                Ok(Outcome { objective, done: told.done, iterations })
            }
            Solver::Dual { .. } => {
                let outcome = self.apply_round(model, update);
                match model.f64(WEIGHTS).iter().all(|weight| weight.is_finite()) {
                    true => Ok(outcome),
                    false => Err(diverged()),
                }
            }
        }
    }

    fn apply_round(&self, model: &mut Model, update: &Update) -> Outcome {
        let problem = self.problem(model);
        let scores = problem.layout.scores;
        let (mut objective, mut closed) = (None, false);
        let mut gap = model.f64(GAP)[0];
        if measures(model.i64(COUNTERS)) {
            let weights = columns(problem.layout, model.f64(WEIGHTS));
            let squares = weights.chunks_exact(problem.layout.rows()).map(|w| problem.square(w));
            let penalty = 0.5 * problem.penalty * squares.sum::<f64>();
            let sums = update.f64("sums");
            let (loss, dual) = (sums[0] / problem.mass, sums[1] / problem.mass);
            gap = loss + 2.0 * penalty - dual;
            objective = Some(loss + penalty);
            closed = gap <= self.tolerance * (loss + penalty);
        }
        let changes = update.f64("changes");
        let rows = problem.layout.rows();
        model.f64_mut(GAP)[0] = gap;
        // The weights that were measured are kept when they will do.
        if !closed {
            for (at, weight) in model.f64_mut(WEIGHTS).iter_mut().enumerate() {
                *weight += changes[(at % scores) * rows + at / scores];
            }
        }
        let counters = model.i64_mut(COUNTERS);
        counters[1] += 1;
        let iterations = counters[1] as u64;
        Outcome {
            objective,
            done: closed || counters[1] >= counters[2],
            iterations: Some(iterations),
        }
    }

    fn take_moments(&self, model: &mut Model, sums: &[f64]) -> Result<()> {
        let layout = self.layout(model);
        let (classes, features) = (layout.classes(), layout.features);
        let mass: f64 = sums[..classes].iter().sum();
        if mass <= 0.0 {
            return Err(Fault::caller("all rows weigh nothing: there is nothing to learn from")
                .hint("give some rows a weight above zero"));
        }
        let sparse = sums[classes] > 0.0;
        let (firsts, seconds) = sums[classes + 1..].split_at(features);
        let mut moments = vec![mass];
        moments.extend(firsts.iter().map(|first| first / mass));
        moments.extend(firsts.iter().zip(seconds).map(|(first, second)| {
            let (mean, square) = (first / mass, second / mass);
            let variance = square - mean * mean;
            // What is left of a constant after cancellation is rounding.
            if variance > 1e-12 * square { variance } else { 0.0 }
        }));
        moments.extend(seconds.iter().map(|second| second / mass));
        if self.standardise {
            // Centring would make sparse rows dense, and without an intercept nothing could take it up.
            let centred = layout.intercept && !sparse;
            let scale = model.f64_mut(SCALE);
            for column in 0..features {
                let (mean, variance) = (moments[1 + column], moments[1 + features + column]);
                scale[column] = if variance > 0.0 { variance.sqrt() } else { 1.0 };
                scale[features + column] = if centred { mean } else { 0.0 };
            }
        }
        if self.class_weight == ClassWeight::Balanced {
            for (weight, sum) in model.f64_mut(CLASSES).iter_mut().zip(sums) {
                *weight = if *sum > 0.0 { mass / (classes as f64 * sum) } else { 1.0 };
            }
        }
        model.f64_mut(PENALTY)[0] = if self.l2 > 0.0 { self.l2 } else { 1.0 / (self.c * mass) };
        *model.f64_mut(MOMENTS) = moments;
        model.i64_mut(COUNTERS)[0] = 1;
        Ok(())
    }

    /// Sums of weights, losses and right answers.
    pub(crate) fn score(&self, model: &Model, parts: &[Part<'_>]) -> Vec<f64> {
        let (layout, classes) = (self.layout(model), model.f64(CLASSES));
        let mut sums = vec![0.0; 3];
        let mut scores = vec![0.0; layout.scores];
        let columns = columns(layout, model.f64(WEIGHTS));
        for part in parts {
            for row in 0..part.len() {
                let (class, weight) = (part.class(row), part.weight(row));
                scores_of(layout, &columns, part, row, &mut scores);
                for (score, found) in scores.iter().enumerate() {
                    let weight = weight * layout.class_weight(classes, class, score);
                    let margin = layout.sign(class, score) * found;
                    sums[1] += weight
                        * match self.loss {
                            Loss::Hinge => Hinge.value(margin),
                            Loss::SquaredHinge => SquaredHinge.value(margin),
                        };
                }
                sums[0] += weight;
                sums[2] += weight * f64::from(u8::from(guess(&scores) == class));
            }
        }
        sums
    }

    pub(crate) fn grade(&self, model: &Model, sums: &[f64]) -> Grade {
        let problem = self.problem(model);
        let mass = sums[0].max(f64::MIN_POSITIVE);
        let weights = columns(problem.layout, model.f64(WEIGHTS));
        let squares = weights.chunks_exact(problem.layout.rows()).map(|w| problem.square(w));
        let metrics = [("accuracy", sums[2] / mass), ("duality_gap", model.f64(GAP)[0])];
        Grade {
            objective: sums[1] / mass + 0.5 * problem.penalty * squares.sum::<f64>(),
            metrics: metrics.map(|(name, value)| (name.to_string(), value)).into(),
        }
    }

    /// What gives the shares of classes for rows.
    pub(crate) fn predictor(&self, model: &Model) -> Predictor {
        let layout = self.layout(model);
        Predictor { layout, columns: columns(layout, model.f64(WEIGHTS)) }
    }

    /// The graph from features (or mapped features) to shares of classes.
    pub(crate) fn graph(&self, model: &Model, graph: &mut Graph, features: &str) {
        let layout = self.layout(model);
        let (weights, intercept) = model.f64(WEIGHTS).split_at(layout.features * layout.scores);
        let weights =
            graph.constant("weights", &[layout.features, layout.scores], weights.to_vec());
        let mut score = graph.node(Op::MatMul, &[features, &weights]);
        if layout.intercept {
            let intercept = graph.constant("intercept", &[layout.scores], intercept.to_vec());
            score = graph.node(Op::Add, &[&score, &intercept]);
        }
        if layout.scores > 1 {
            graph.node(Op::Softmax, &[&score]);
            return;
        }
        let share = graph.node(Op::Sigmoid, &[&score]);
        let other = graph.node(Op::Neg, &[&score]);
        let other = graph.node(Op::Sigmoid, &[&other]);
        graph.node(Op::Concat, &[&other, &share]);
    }
}

/// Shares of classes: the logistic function of two classes' score, the softmax of more.
pub(crate) struct Predictor {
    layout: Layout,
    columns: Vec<f64>,
}

impl Predictor {
    /// For all rows of a shard.
    pub(crate) fn predict(&self, part: &Part<'_>, out: &mut Vec<f64>) {
        let mut scores = vec![0.0; self.layout.scores];
        for row in 0..part.len() {
            scores_of(self.layout, &self.columns, part, row, &mut scores);
            shares(&mut scores, out);
        }
    }

    /// For one row of features.
    pub(crate) fn shares_of(&self, features: &[f64], out: &mut Vec<f64>) {
        let score = |weights: &[f64]| {
            let product: f64 = features.iter().zip(weights).map(|(x, w)| x * w).sum();
            product + weights.get(features.len()).copied().unwrap_or(0.0)
        };
        let mut scores: Vec<f64> =
            self.columns.chunks_exact(self.layout.rows()).map(score).collect();
        shares(&mut scores, out);
    }
}

fn shares(scores: &mut [f64], out: &mut Vec<f64>) {
    if let [score] = scores {
        out.extend([1.0 / (1.0 + score.exp()), 1.0 / (1.0 + (-*score).exp())]);
        return;
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = (*score - largest).exp());
    let sum: f64 = scores.iter().sum();
    out.extend(scores.iter().map(|power| power / sum));
}

/// Refuses rows whose labels are not class codes.
pub(crate) fn check_labels(classes: usize, batch: &Batch<'_>) -> Result<()> {
    crate::rows::check_labelled(batch)?;
    match batch.rows().find(|&row| !(0.0..classes as f32).contains(&batch.table.labels[row])) {
        Some(row) => {
            let label = batch.table.labels[row];
            Err(Fault::caller(format!("row {row} has the label code {label}"))
                .hint(format!("codes of classes are 0 to {}", classes - 1)))
        }
        None => Ok(()),
    }
}

/// Whether this round measures the gap.
fn measures(counters: &[i64]) -> bool {
    counters[1] % MEASURE_EVERY == 0 || counters[1] + 1 >= counters[2]
}

/// A vector for each score, intercept last, from a matrix with one column a score.
fn columns(layout: Layout, weights: &[f64]) -> Vec<f64> {
    (0..layout.scores).flat_map(|score| layout.column(weights, score)).collect()
}

fn scores_of(layout: Layout, columns: &[f64], part: &Part<'_>, row: usize, scores: &mut [f64]) {
    for (weights, score) in columns.chunks_exact(layout.rows()).zip(scores) {
        let intercept = if layout.intercept { weights[layout.features] } else { 0.0 };
        *score = part.product(row, weights) + intercept;
    }
}

/// The class of the largest score; with one score, whether it is above zero.
fn guess(scores: &[f64]) -> usize {
    if let [score] = scores {
        return usize::from(*score > 0.0);
    }
    let mut best = 0;
    for (class, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = class;
        }
    }
    best
}

/// Sums of weights by class, whether rows are sparse, then sums of x and of x².
fn moments(layout: Layout, parts: &[Part<'_>]) -> Vec<f64> {
    let classes = layout.classes();
    let mut sums = vec![0.0; classes + 1 + 2 * layout.features];
    for part in parts {
        sums[classes] += f64::from(u8::from(part.is_sparse() && part.len() > 0));
        for row in 0..part.len() {
            let weight = part.weight(row);
            sums[part.class(row)] += weight;
            let (firsts, seconds) = sums[classes + 1..].split_at_mut(layout.features);
            part.add(row, weight, firsts);
            part.add_squares(row, weight, seconds);
        }
    }
    sums
}
