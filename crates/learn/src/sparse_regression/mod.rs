//! Least squares with penalties that make weights zero: ½·mean (y − x·w − b)² + l1·‖w‖₁ + l2/2·‖w‖², the intercept not
//! penalised. The learners `lasso` and `elastic-net` are this, with other parameters.
//!
//! Data-parallel (`coordinate-descent`): the Gram matrix is summed over the flock once, and coordinate descent runs
//! alike on all replicas (`descent`). Where the Gram matrix of all features would be too large, it is that of a working
//! set, which grows by the gradient of all rows (`working_set`). Model-parallel (`scheduled`): see `scheduled`.

pub(crate) mod descent;
mod passes;
mod schedule;
mod scheduled;
mod state;
mod survey;
mod working_set;

use crate::rows::{check_finite, check_labelled, check_width, product};
use crate::{Appetite, Cells, Facts, Grade, Learner, Moment, Outcome, Place, Rebuilds, Task, Work};
pub(crate) use descent::Penalty;
use descent::{Limits, Point, Quadratic, minimise};
pub(crate) use scheduled::Scheduling;
use starlings_core::{
    Ability, Block, FEATURES, Fault, Graph, Kind, Model, Op, Result, Role, Tensor, Update,
};
use starlings_data::{Batch, LabelNeed, Slice};
pub(crate) use state::Wanted;
use state::{Counters, GAP, Moments, PATH, PENALTIES, Phase, SCALE, Stage, WEIGHTS};

/// What all solvers need: an agreed, exact sum of everyone's statistics.
pub(crate) const NEEDS: &[Ability] =
    &[Ability::Sum, Ability::Barrier, Ability::Lossless, Ability::WholeModel];

/// A column whose variance is below this share of its mean square is constant: what is left of it is rounding.
const CONSTANT: f64 = 1e-24;

/// How the problem is solved.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Solver {
    /// Coordinate descent on Gram matrices of up to this many features.
    CoordinateDescent {
        /// Features of the largest Gram matrix.
        gram_max: usize,
    },
    /// Blocks of coordinates that do not depend on each other.
    Scheduled(Scheduling),
}

/// A sparse regression.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SparseRegression {
    pub(crate) wanted: Wanted,
    pub(crate) solver: Solver,
    pub(crate) intercept: bool,
    pub(crate) standardise: bool,
    pub(crate) tolerance: f64,
    pub(crate) max_iterations: u64,
}

impl SparseRegression {
    fn features(&self, model: &Model) -> usize {
        model.f64(WEIGHTS).len() - usize::from(self.intercept)
    }

    fn limits(&self, counters: Counters) -> Limits {
        Limits { tolerance: self.tolerance, sweeps: counters.limit }
    }

    /// The columns whose Gram matrix is wanted: all, or the working set.
    fn set(&self, model: &Model) -> Vec<usize> {
        match model.get(working_set::SET) {
            Some(_) => working_set::columns(model),
            None => (0..self.features(model)).collect(),
        }
    }

    /// Emits the gradient of all features. Scheduled blocks go on from the residuals computed for it.
    fn emit_gradient(&self, work: &mut Work<'_>) {
        let (moments, point) = (Moments::of(work.model), work.model.f64(survey::POINT));
        let sums = match self.solver {
            Solver::Scheduled(_) => scheduled::gradient(work),
            _ => passes::gradient(work.batch, moments, point, |_, _| {}),
        };
        work.outbox.emit(Block::dense("gradient", sums));
    }

    /// Moments are known: what comes next depends on the solver.
    fn take_moments(&self, model: &mut Model, sums: &[f64]) -> Result<Outcome> {
        let mass = sums[0];
        if mass <= 0.0 {
            return Err(Fault::caller("all rows weigh nothing: there is nothing to learn from")
                .hint("give some rows a weight above zero"));
        }
        let mut numbers = vec![mass, sums[1] / mass, 0.0];
        numbers.extend(sums[2..].iter().map(|sum| sum / mass));
        if !self.intercept {
            numbers[1..].fill(0.0);
        }
        state::set_moments(model, &numbers);
        let mut counters = Counters::of(model);
        let narrow = model.get(working_set::SET).is_none();
        counters.phase = match self.solver {
            Solver::CoordinateDescent { .. } if narrow => Phase::Gram,
            _ => Phase::Survey,
        };
        counters.store(model);
        Ok(Outcome { iterations: Some(0), ..Outcome::default() })
    }

    /// The whole Gram matrix is known: all stages are solved at once.
    fn solve_all(&self, model: &mut Model, triangle: &[f64]) -> Result<Outcome> {
        let mut counters = Counters::of(model);
        let set = self.set(model);
        let problem = self.quadratic(model, triangle, &set)?;
        let steepest = problem.linear.iter().fold(0.0f64, |most, slope| most.max(slope.abs()));
        let mut point = Point::origin(&problem);
        let mut before = steepest;
        let mut outcome = Outcome { done: true, ..Outcome::default() };
        for stage in self.wanted.stages(steepest) {
            minimise(&problem, stage.penalty, before, self.limits(counters), &mut point);
            before = stage.penalty.l1;
            let value = self.keep(model, stage, &point.values, point.gap);
            if stage.row.is_none() {
                let residual = problem.residual(&point.values, &point.slopes);
                outcome.objective = Some(value + 0.5 * residual);
            }
        }
        counters.sweeps = point.sweeps;
        outcome.iterations = Some(point.sweeps);
        counters.store(model);
        Ok(outcome)
    }

    /// The problem in the solver's units, from the sums of centred columns and y.
    fn quadratic(&self, model: &mut Model, triangle: &[f64], set: &[usize]) -> Result<Quadratic> {
        if triangle.iter().any(|sum| !sum.is_finite()) {
            return Err(Fault::caller("the products of features are not finite")
                .hint("scale features whose magnitude is above 1e150"));
        }
        let (width, mass) = (set.len() + 1, Moments::of(model).mass);
        let sums = crate::kernels::gram::whole(triangle, width);
        let variance = |place: usize| sums[place * width + place] / mass;
        let variances: Vec<f64> = (0..set.len()).map(variance).collect();
        let units = self.set_units(model, set, &variances);
        let mut problem =
            Quadratic { gram: vec![], linear: vec![], square: sums[width * width - 1] / mass };
        problem.gram.reserve(set.len() * set.len());
        for (row, unit) in sums.chunks_exact(width).zip(&units) {
            let (products, linear) = (&row[..set.len()], row[set.len()]);
            let scaled = products.iter().zip(&units).map(|(sum, other)| sum * unit * other / mass);
            problem.gram.extend(scaled);
            problem.linear.push(linear * unit / mass);
        }
        Ok(problem)
    }

    /// One over the unit of each column of a set; zero for a column that never varies, which takes it out.
    fn set_units(&self, model: &mut Model, set: &[usize], variances: &[f64]) -> Vec<f64> {
        let means = Moments::of(model).means;
        let varies = |(&column, &variance): (&usize, &f64)| {
            let mean: f64 = means[column];
            variance > CONSTANT * (mean * mean + variance)
        };
        let varies: Vec<bool> = set.iter().zip(variances).map(varies).collect();
        if self.standardise {
            let scale = model.f64_mut(SCALE);
            for ((&column, variance), varies) in set.iter().zip(variances).zip(&varies) {
                scale[column] = if *varies { variance.sqrt() } else { 1.0 };
            }
        }
        let scale = model.get(SCALE).map(|_| model.f64(SCALE));
        let unit = |column: usize| scale.map_or(1.0, |scale| 1.0 / scale[column]);
        let pairs = set.iter().zip(varies);
        pairs.map(|(&column, varies)| if varies { unit(column) } else { 0.0 }).collect()
    }

    /// Stores the answer of a stage, from values in the solver's units for all features. Gives the penalty's value.
    fn keep(&self, model: &mut Model, stage: Stage, values: &[f64], gap: f64) -> f64 {
        let weights = self.weights_of(model, values);
        match stage.row {
            None => {
                model.f64_mut(WEIGHTS).copy_from_slice(&weights);
                model.f64_mut(GAP)[0] = gap;
            }
            Some(row) => {
                let width = weights.len();
                model.f64_mut(PATH)[row * width..][..width].copy_from_slice(&weights);
                let Penalty { l1, l2 } = stage.penalty;
                model.f64_mut(PENALTIES)[row * 2..][..2].copy_from_slice(&[l1, l2]);
            }
        }
        value_of(stage.penalty, values.iter().copied())
    }

    /// From the solver's units to the data's, with the intercept.
    fn weights_of(&self, model: &Model, values: &[f64]) -> Vec<f64> {
        let scale = model.get(SCALE).map(|_| model.f64(SCALE));
        let unit = |column: usize| scale.map_or(1.0, |scale| scale[column]);
        let mut weights: Vec<f64> =
            values.iter().enumerate().map(|(column, value)| value / unit(column)).collect();
        if self.intercept {
            let Moments { centre, means, .. } = Moments::of(model);
            weights.push(centre - weights.iter().zip(means).map(|(w, m)| w * m).sum::<f64>());
        }
        weights
    }
}

/// The value of a penalty.
fn value_of(penalty: Penalty, values: impl Iterator<Item = f64>) -> f64 {
    values.map(|u| penalty.l1 * u.abs() + 0.5 * penalty.l2 * u * u).sum()
}

impl Learner for SparseRegression {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn appetite(&self) -> Appetite {
        Appetite::Passes
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn weighs(&self) -> bool {
        true
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let features = facts.schema.features;
        if facts.rows == 0 {
            return Err(Fault::caller("there are no rows to learn from"));
        }
        if features == 0 {
            return Err(Fault::caller("there are no features to learn from"));
        }
        let width = features + usize::from(self.intercept);
        let mut model = Model::new();
        let weights = |shape: &[usize]| Tensor::zeros(Kind::F64, shape, Role::Weight);
        model.set(WEIGHTS, weights(&[width, 1]));
        model.set(GAP, weights(&[1]));
        if self.wanted.path > 0 {
            model.set(PATH, weights(&[self.wanted.path, width]));
            model.set(PENALTIES, weights(&[self.wanted.path, 2]));
        }
        if self.standardise {
            model.set(SCALE, Tensor::of(&[features], vec![1.0; features], Role::Weight));
        }
        state::init(&mut model, features, facts.epochs.unwrap_or(self.max_iterations));
        match self.solver {
            Solver::CoordinateDescent { gram_max } if features > gram_max => {
                survey::init(&mut model, width);
                working_set::init(&mut model, features);
            }
            Solver::CoordinateDescent { .. } => {}
            Solver::Scheduled(scheduling) => {
                survey::init(&mut model, width);
                scheduling.init(&mut model, features);
            }
        }
        Ok(model)
    }

    fn adopt(&self, model: &Model, batch: &Batch<'_>, slice: &Slice, cells: &mut Cells) {
        if matches!(self.solver, Solver::Scheduled(_)) {
            scheduled::adopt(model, batch, slice, cells);
        }
    }

    /// Residuals that were kept up to date by every change differ from those made anew by their rounding.
    fn rebuilds(&self) -> Rebuilds {
        match self.solver {
            Solver::CoordinateDescent { .. } => Rebuilds::Exactly,
            Solver::Scheduled(_) => Rebuilds::Nearly,
        }
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let (model, batch) = (work.model, work.batch);
        let features = self.features(model);
        check_width(features, batch)?;
        match Counters::of(model).phase {
            Phase::Moments => {
                check_labelled(batch)?;
                check_finite(batch)?;
                work.outbox.emit(Block::dense("moments", passes::moments(batch, features)));
            }
            Phase::Gram => {
                let sums = passes::gram(batch, Moments::of(model), &self.set(model));
                work.outbox.emit(Block::dense("gram", sums));
            }
            Phase::Survey => {
                self.emit_gradient(work);
                let squares = passes::squares(batch, Moments::of(model).means);
                work.outbox.emit(Block::dense("squares", squares));
            }
            Phase::Gradient => self.emit_gradient(work),
            Phase::Block => scheduled::contribute(work),
        }
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let mut counters = Counters::of(model);
        let phase = counters.phase;
        counters.steps += 1;
        counters.store(model);
        match (phase, self.solver) {
            (Phase::Moments, _) => self.take_moments(model, update.f64("moments")),
            (Phase::Block, Solver::Scheduled(how)) => how.apply_block(self, model, update, moment),
            (Phase::Gram, _) if model.get(working_set::SET).is_none() => {
                self.solve_all(model, update.f64("gram"))
            }
            (Phase::Gram, _) => working_set::solve(self, model, update.f64("gram")),
            (_, Solver::Scheduled(how)) => how.apply_gradient(self, model, update, moment),
            _ => working_set::choose(self, model, update),
        }
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let features = self.features(work.model);
        check_width(features, work.batch)?;
        check_labelled(work.batch)?;
        let (weights, table) = (work.model.f64(WEIGHTS), work.batch.table);
        let mut sums = vec![0.0; 5];
        for row in work.batch.rows() {
            let (label, weight) = (table.labels[row], table.weight(row));
            let r = passes::residual(table.row(row), label, weights, features);
            let y = f64::from(label);
            let terms = [1.0, r * r, r.abs(), y, y * y];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += weight * term);
        }
        Ok(sums)
    }

    fn grade(&self, model: &Model, sums: &[f64], _: u64) -> Grade {
        let mass = sums[0].max(f64::MIN_POSITIVE);
        let scale = model.get(SCALE).map(|_| model.f64(SCALE));
        let weights = model.f64(WEIGHTS)[..self.features(model)].iter().enumerate();
        let penalised = weights.map(|(column, w)| w * scale.map_or(1.0, |scale| scale[column]));
        let squared = sums[1] / mass;
        let spread = sums[4] / mass - (sums[3] / mass).powi(2);
        let mut metrics = vec![
            ("rmse", squared.sqrt()),
            ("mae", sums[2] / mass),
            ("duality_gap", model.f64(GAP)[0]),
        ];
        if spread > 0.0 {
            metrics.push(("r2", 1.0 - squared / spread));
        }
        Grade {
            objective: 0.5 * squared + value_of(self.wanted.penalty, penalised),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        }
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        let features = self.features(model);
        check_width(features, batch)?;
        let weights = model.f64(WEIGHTS);
        let intercept = weights.get(features).copied().unwrap_or(0.0);
        out.extend(batch.rows().map(|row| product(batch.table.row(row), weights) + intercept));
        Ok(())
    }

    fn graph(&self, model: &Model) -> Option<Graph> {
        let features = self.features(model);
        let (weights, intercept) = model.f64(WEIGHTS).split_at(features);
        let mut graph = Graph::new();
        let weights = graph.constant("weights", &[features, 1], weights.to_vec());
        let score = graph.node(Op::MatMul, &[FEATURES, &weights]);
        if let [intercept] = intercept {
            let intercept = graph.constant("intercept", &[1], vec![*intercept]);
            graph.node(Op::Add, &[&score, &intercept]);
        }
        Some(graph)
    }
}
