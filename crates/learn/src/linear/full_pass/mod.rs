//! Solvers that pass over all rows. A step is one exchange, and what it is for is the phase: sums of features first,
//! then loss and gradient at trial points, products with the curvature, or pieces of a history that nobody holds whole.
//!
//! Every evaluation remembers the rows' scores by shard. Between two points the scores are linear in the length of the
//! step, so that further probes of a line search are made from what is remembered: however many a
//! line needs, it reads the features twice at most.
//!
//! Solvers work in units of their own (see `units`); `trial` and `weights` stay in the units of the data. Sums are
//! exact (see `exact`): the whole run has the same bits on any flock.

mod contribute;
mod descent;
mod history;
mod newton;
mod owlqn;
mod sandblaster;
pub(crate) mod state;

use super::cholesky;
use super::exact::{self, Fold};
use super::gram::{self, Scaling};
use super::moments::{self, Moments};
use super::penalty::Penalty;
use super::problem::Problem;
use super::units::Units;
use crate::{Moment, Outcome};
use descent::{Descent, Told, dot, largest};
use starlings_core::{Fault, Kind, Model, Result, Role, Tensor, Update};
use state::{CLASS_WEIGHTS, Counters, FACTOR, Phase, SCALE, TRIAL};

/// How a direction is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// From the last steps and changes of the gradient.
    Lbfgs,
    /// The same within an orthant, for l1.
    Owlqn,
    /// The same with the history in parts, by shard.
    Sandblaster,
    /// Newton's step, by conjugate gradients cut short.
    Newton,
    /// Conjugate gradients to the end: for squared errors.
    ConjugateGradient,
}

/// Whose correlations solvers take into account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Correlations {
    /// Nobody's: features are scaled by their deviation alone.
    None,
    /// Those of a sample of rows, where there are few features.
    Sample,
    /// Those of all rows: then squared errors are solved by one step.
    All,
}

/// The full-pass solver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FullPass {
    pub(crate) method: Method,
    pub(crate) correlations: Correlations,
    pub(crate) penalty: Penalty,
    pub(crate) tolerance: f64,
    pub(crate) history: usize,
    pub(crate) standardise: bool,
    /// Whether classes weigh the same, however many rows they have.
    pub(crate) balanced: bool,
}

/// Beyond this many features a factor of their correlations costs more than it saves.
const SAMPLE_FEATURES_MAX: usize = 1024;
/// Rows of a sample for each feature: enough for eigenvalues that are right within a third.
const SAMPLE_ROWS: usize = 50;
/// What is added to correlations whose factor does not exist.
const RIDGES: [f64; 4] = [0.0, 1e-8, 1e-6, 1e-4];

impl FullPass {
    /// Adds the solver's state to a model with weights.
    pub(crate) fn init(
        &self,
        model: &mut Model,
        problem: &Problem,
        (iterations, shards): (i64, u32),
    ) {
        let layout = problem.layout;
        let counters = Counters {
            phase: Phase::Moments,
            iterations: 0,
            iterations_max: iterations,
            pairs: 0,
            shards,
            arrived: false,
            passes: 0,
            probes: 0,
            products: 0,
        };
        state::init(model, layout, problem.labels.sums(), counters);
        match self.method {
            Method::Lbfgs | Method::Owlqn => history::init(model, layout.len(), self.history),
            Method::Newton | Method::ConjugateGradient => newton::init(model, layout.len()),
            Method::Sandblaster => sandblaster::init(model, self.history),
        }
        if self.standardise {
            let ones = vec![1.0; layout.features];
            model.set(SCALE, Tensor::of(&[layout.features], ones, Role::Weight));
        }
        if self.balanced {
            let ones = vec![1.0; problem.labels.sums()];
            model.set(CLASS_WEIGHTS, Tensor::of(&[ones.len()], ones, Role::Weight));
        }
    }

    /// Whether the next step is the first.
    pub(crate) fn is_first(&self, model: &Model) -> bool {
        Counters::read(model).phase == Phase::Moments
    }

    /// Takes the sums of a step.
    pub(crate) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        problem: &Problem,
        moment: &Moment,
    ) -> Result<Outcome> {
        let mut counters = Counters::read(model);
        let done = match counters.phase {
            Phase::Moments => {
                counters.passes += 1;
                self.measured(model, update, problem, &mut counters)?;
                false
            }
            Phase::Products => {
                counters.passes += 1;
                self.correlated(model, update, problem);
                counters.phase = Phase::Evaluate;
                self.begin(model, problem);
                false
            }
            Phase::Evaluate => {
                counters.passes += 1;
                self.evaluated(model, update, problem, &mut counters)
                    .map_err(|fault| fault.during(format!("{}", moment.step)))?
            }
            Phase::Probe => {
                counters.probes += 1;
                self.probed(model, update, problem, &mut counters)
            }
            Phase::Curve => {
                counters.passes += 1;
                newton::curved(self, model, update, problem, &mut counters);
                false
            }
            Phase::Dots => {
                sandblaster::dotted(model, update, &mut counters);
                false
            }
            Phase::Parts => {
                sandblaster::assembled(self, model, update, problem, &mut counters);
                false
            }
        };
        counters.write(model);
        let line = state::Line::read(model);
        let objective = (line.search.is_some() || done).then_some(line.value);
        let iterations = match self.method {
            Method::ConjugateGradient => counters.products,
            _ => counters.iterations,
        };
        Ok(Outcome { objective, done, iterations: Some(iterations as u64) })
    }

    /// Sets units and class weights from the sums of features and labels.
    fn measured(
        &self,
        model: &mut Model,
        update: &Update,
        problem: &Problem,
        counters: &mut Counters,
    ) -> Result<()> {
        let mut moments = moments::read(update, problem.layout.features);
        if moments.weight <= 0.0 {
            return Err(Fault::caller("no row weighs anything").hint("look at the weight column"));
        }
        if self.standardise {
            let features = 0..problem.layout.features;
            *model.f64_mut(SCALE) = features.map(|j| moments.deviation(j)).collect();
        }
        if self.balanced {
            let alike = moments.weight / moments.labels.len() as f64;
            let weight = |&of_class: &f64| if of_class > 0.0 { alike / of_class } else { 0.0 };
            *model.f64_mut(CLASS_WEIGHTS) = moments.labels.iter().map(weight).collect();
            moments.labels.fill(alike);
            // Classes that do not occur cannot take their share.
            moments.weight =
                model.f64(CLASS_WEIGHTS).iter().filter(|w| **w > 0.0).count() as f64 * alike;
        }
        state::write_moments(model, &moments);
        counters.phase = Phase::Evaluate;
        if self.stride(problem, &moments).is_some() {
            counters.phase = Phase::Products;
        } else {
            self.begin(model, problem);
        }
        Ok(())
    }

    /// Goes to where the first evaluation is wanted.
    fn begin(&self, model: &mut Model, problem: &Problem) {
        let moments = state::read_moments(model);
        let from = problem.layout.features * problem.layout.scores;
        model.f64_mut(TRIAL)[from..].copy_from_slice(&problem.start(&moments));
        let mut trial = model.f64(TRIAL).to_vec();
        self.units(model, problem).enter(&mut trial);
        *model.f64_mut(state::VECTORS[3]) = trial;
    }

    /// Every how many rows features' products are wanted; `None` for not at all.
    fn stride(&self, problem: &Problem, moments: &Moments) -> Option<usize> {
        let features = problem.layout.features;
        match self.correlations {
            Correlations::All => Some(1),
            Correlations::Sample if (2..=SAMPLE_FEATURES_MAX).contains(&features) => {
                // Weights need not be counts, but their sum is the best guess of how much is known.
                let known = moments.weight as usize / (SAMPLE_ROWS * features);
                (moments.weight >= 10.0 * features as f64).then_some(known.max(1))
            }
            _ => None,
        }
    }

    fn scaling(&self, model: &Model, problem: &Problem) -> Scaling {
        let moments = state::read_moments(model);
        let Units { means, scales, .. } = self.deviations(problem, &moments);
        let stride = self.stride(problem, &moments).unwrap_or(1);
        // Products weigh rows as they are, whatever their classes weigh.
        let weight = moments.weight * RANGE * moments.labels.len().max(1) as f64;
        Scaling { means, scales, weight, stride }
    }

    /// Centred features in units of their deviation.
    fn deviations(&self, problem: &Problem, moments: &Moments) -> Units {
        let intercept = problem.layout.intercept;
        let pairs = moments.means.iter().zip(&moments.variances);
        let scales = pairs.map(|(mean, variance)| {
            moments::deviation(if intercept { *variance } else { variance + mean * mean })
        });
        let scales = scales.collect();
        // Without an intercept there is nothing that could take up the means.
        let means = if intercept { moments.means.clone() } else { Vec::new() };
        Units { width: problem.layout.scores, means, scales, factor: Vec::new() }
    }

    /// Factors the curvature that the features' products promise.
    fn correlated(&self, model: &mut Model, update: &Update, problem: &Problem) {
        let scaling = self.scaling(model, problem);
        let Some(mut products) = gram::read(&scaling, update) else { return };
        let moments = state::read_moments(model);
        let share = problem.curvature(&moments);
        let units = model.get(SCALE).map(|_| model.f64(SCALE).to_vec()).unwrap_or_default();
        products.iter_mut().for_each(|product| *product *= share);
        for feature in 0..problem.layout.features {
            let unit = units.get(feature).copied().unwrap_or(1.0) / scaling.scales[feature];
            let diagonal = &mut products[cholesky::start(feature) + feature];
            *diagonal += self.penalty.l2 * unit * unit;
            // A feature that never varies has no curvature, and gets no weight.
            if *diagonal <= 1e-30 {
                *diagonal = share;
            }
        }
        for ridge in RIDGES {
            let mut factor = products.clone();
            for feature in 0..problem.layout.features {
                factor[cholesky::start(feature) + feature] *= 1.0 + ridge;
            }
            if cholesky::factor(&mut factor).is_ok() {
                let len = factor.len();
                model.set(FACTOR, Tensor::of(&[len], factor, Role::State));
                return;
            }
        }
    }

    fn units(&self, model: &Model, problem: &Problem) -> Units {
        let moments = state::read_moments(model);
        let mut units = self.deviations(problem, &moments);
        if let Some(tensor) = model.get(FACTOR) {
            units.factor = tensor.values.as_f64().unwrap_or(&[]).to_vec();
            return units;
        }
        let share = problem.curvature(&moments);
        for (feature, scale) in units.scales.iter_mut().enumerate() {
            let unit = if self.standardise { moments.deviation(feature) } else { 1.0 };
            let variance = if moments.variances[feature] > 0.0 || !problem.layout.intercept {
                *scale * *scale
            } else {
                0.0
            };
            let curvature = (share * variance + self.penalty.l2 * unit * unit).sqrt();
            *scale = if curvature > 0.0 { curvature } else { 1.0 };
        }
        units
    }

    /// The units of the penalty.
    fn penalised<'a>(&self, model: &'a Model) -> &'a [f64] {
        if self.standardise { model.f64(SCALE) } else { &[] }
    }

    /// How gradients travel: on grids where no residual is above one, for then a feature's sum stays below the weight
    /// of all rows · √(mean of x²), and the intercept's below the weight.
    fn fold(&self, model: &Model, problem: &Problem, counters: &Counters) -> Fold {
        if !problem.criterion.is_bounded() {
            return Fold::Shards(counters.shards);
        }
        let moments = state::read_moments(model);
        let classes = if self.balanced { model.f64(CLASS_WEIGHTS) } else { &[1.0] };
        let weight = moments.weight * classes.iter().fold(1.0, |a: f64, b| a.max(*b));
        let pairs = moments.means.iter().zip(&moments.variances);
        let features = pairs.map(|(mean, v)| exact::grid(weight * (v + mean * mean).sqrt()));
        let grids = features.chain(problem.layout.intercept.then(|| exact::grid(weight))).collect();
        Fold::Grids { grids, width: problem.layout.scores }
    }

    /// Value and gradient at the trial point, in the solver's units; the gradient without l1's part.
    fn objective(
        &self,
        model: &Model,
        update: &Update,
        problem: &Problem,
        counters: &Counters,
    ) -> (f64, Vec<f64>) {
        let weight = 1.0 / state::read_moments(model).weight;
        let mut gradient = exact::read(&self.fold(model, problem, counters), update, "gradient");
        gradient.iter_mut().for_each(|slope| *slope *= weight);
        let (trial, penalised) = (model.f64(TRIAL), self.penalised(model));
        self.penalty.add_curved(problem.layout, penalised, trial, &mut gradient);
        self.units(model, problem).enter_gradient(&mut gradient);
        let loss = exact::read(&Fold::Shards(counters.shards), update, "loss")[0];
        (loss * weight + self.penalty.value(problem.layout, penalised, trial), gradient)
    }

    /// Says whether training is complete.
    fn evaluated(
        &self,
        model: &mut Model,
        update: &Update,
        problem: &Problem,
        counters: &mut Counters,
    ) -> Result<bool> {
        let (value, gradient) = self.objective(model, update, problem, counters);
        counters.arrived = false;
        if self.method == Method::Owlqn {
            return owlqn::evaluated(self, model, (value, gradient), problem, counters);
        }
        let mut descent = Descent::take(model);
        let told = descent.evaluated(value, &gradient);
        match told {
            Told::Diverged => {
                descent.put_back(model);
                return Err(diverged());
            }
            Told::Searching => counters.phase = Phase::Probe,
            Told::Stuck => {
                descent.put_back(model);
                return Ok(!self.retry(model, problem, counters));
            }
            Told::Arrived => {
                if self.method == Method::Lbfgs && descent.line.search.is_some() {
                    history::remember(model, &descent, &gradient, counters);
                }
                counters.iterations += i64::from(descent.line.search.is_some());
                let moving = descent.arrive(value, gradient);
                counters.arrived = true;
                let trial = model.f64(TRIAL).to_vec();
                model.f64_mut("weights").copy_from_slice(&trial);
                let flat = largest(&descent.gradient) <= self.tolerance;
                let over = match self.method {
                    Method::ConjugateGradient => counters.products >= counters.iterations_max,
                    _ => counters.iterations >= counters.iterations_max,
                };
                descent.put_back(model);
                if flat || !moving || over {
                    return Ok(true);
                }
                self.set_out(model, problem, counters);
                return Ok(false);
            }
        }
        descent.put_back(model);
        Ok(false)
    }

    /// Takes a probe that was made from remembered scores.
    fn probed(
        &self,
        model: &mut Model,
        update: &Update,
        problem: &Problem,
        counters: &mut Counters,
    ) -> bool {
        let sums = exact::read(&Fold::Shards(counters.shards), update, "probe");
        let weight = 1.0 / state::read_moments(model).weight;
        let units = self.units(model, problem);
        let mut descent = Descent::take(model);
        descent.move_to(descent.line.search.map_or(0.0, |search| search.length()));
        let (mut there, mut along) = (descent.trial.clone(), descent.direction.clone());
        units.leave(&mut there);
        units.leave(&mut along);
        let penalised = self.penalised(model);
        let mut slopes = vec![0.0; there.len()];
        self.penalty.add_curved(problem.layout, penalised, &there, &mut slopes);
        let value = sums[0] * weight + self.penalty.value(problem.layout, penalised, &there);
        let slope = sums[1] * weight + dot(&slopes, &along);
        let told = descent.probed(value, slope);
        if told == Told::Arrived {
            // The length will do: one more pass for the gradient there.
            descent.settle();
            counters.phase = Phase::Evaluate;
        }
        descent.put_back(model);
        match told {
            Told::Arrived => self.show_trial(model, problem),
            Told::Stuck => return !self.retry(model, problem, counters),
            Told::Searching | Told::Diverged => {}
        }
        false
    }

    /// Looks for a direction at a point that was just accepted.
    fn set_out(&self, model: &mut Model, problem: &Problem, counters: &mut Counters) {
        match self.method {
            Method::Lbfgs | Method::Owlqn => history::set_out(self, model, problem, counters),
            Method::Newton | Method::ConjugateGradient => {
                newton::set_out(self, model, problem, counters);
            }
            Method::Sandblaster => counters.phase = Phase::Dots,
        }
    }

    /// The search found nothing: the remembered curvature may mislead, so once more along the gradient itself. Says
    /// whether there is anything to try.
    fn retry(&self, model: &mut Model, problem: &Problem, counters: &mut Counters) -> bool {
        let has_history = matches!(self.method, Method::Lbfgs | Method::Sandblaster);
        if !has_history || counters.pairs == 0 {
            return false;
        }
        counters.pairs = 0;
        match self.method {
            Method::Sandblaster => sandblaster::forget(model, counters),
            _ => history::set_out(self, model, problem, counters),
        }
        true
    }

    /// The first length to try along a direction with this slope.
    fn first_length(&self, model: &Model, slope: f64, counters: &Counters) -> f64 {
        // Where correlations are known the curvature is about one. Otherwise, without a history, the scale is unknown:
        // a step of length one, as SciPy's.
        let known = counters.pairs > 0 || model.get(FACTOR).is_some();
        if known { 1.0 } else { 1.0 / (-slope).sqrt() }
    }

    /// Writes the trial point in the data's units, where kernels look for it.
    fn show_trial(&self, model: &mut Model, problem: &Problem) {
        let mut trial = model.f64(state::VECTORS[3]).to_vec();
        self.units(model, problem).leave(&mut trial);
        *model.f64_mut(TRIAL) = trial;
    }
}

/// Products of a sample may be above the weight of all rows only by what class weights and chance do to them.
const RANGE: f64 = 64.0;

fn diverged() -> Fault {
    Fault::caller("the objective is not finite where training starts").hint(
        "look for features or labels that are huge, or for a link that does not suit the family",
    )
}

/// A tensor of zeros for a solver's state.
fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(Kind::F64, shape, Role::State)
}
