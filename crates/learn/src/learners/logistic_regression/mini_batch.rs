//! The mini-batch solvers: stochastic gradient descent, momentum, AdaGrad and Adam. Everything in `apply` happens row
//! by row of the weights, so that it can run where the row lives. A row of a sparse table's weights moves
//! only when a batch touches it: its clock then says how many steps of the penalty it has missed.

use super::objective::{self, Layout};
use crate::optimisers::{adagrad, adam, momentum, sgd};
use crate::{Moment, Outcome, Work};
use starlings_core::{Block, Body, Fault, Kind, Model, Result, Role, Rows, Tensor, Update, Values};
use starlings_data::Features;

/// For each row of the weights: updates it has had, and the step after the last of them.
const CLOCK: &str = "weights.clock";
const VELOCITY: &str = "weights.momentum";
const SQUARES: &str = "weights.squares";
const FIRST: &str = "weights.m";
const SECOND: &str = "weights.v";

/// Which optimiser, with its constants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Optimiser {
    Sgd,
    Momentum { momentum: f64 },
    AdaGrad { epsilon: f64 },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
}

/// A mini-batch solver.
#[derive(Clone, Copy, Debug)]
pub(super) struct MiniBatch {
    pub(super) optimiser: Optimiser,
    pub(super) rate: f64,
    /// The rate at step t is rate / (1 + decay·t).
    pub(super) decay: f64,
    pub(super) l2: f64,
    pub(super) intercept: bool,
}

impl MiniBatch {
    /// Adds the optimiser's state to a model with weights.
    pub(super) fn init(&self, model: &mut Model, layout: Layout) {
        let shape = [layout.rows(), layout.scores];
        let names: &[&str] = match self.optimiser {
            Optimiser::Sgd => &[],
            Optimiser::Momentum { .. } => &[VELOCITY],
            Optimiser::AdaGrad { .. } => &[SQUARES],
            Optimiser::Adam { .. } => &[FIRST, SECOND],
        };
        for name in names {
            model.set(*name, Tensor::zeros(Kind::F64, &shape, Role::State));
        }
        model.set(CLOCK, Tensor::zeros(Kind::I64, &[layout.rows(), 2], Role::State));
    }

    /// Emits the sum of the rows' gradients and of their losses.
    pub(super) fn contribute(&self, work: &mut Work<'_>, layout: Layout) {
        let weights = work.model.f64("weights");
        let (sums, body) = match &work.batch.table.features {
            Features::Dense { .. } if work.outbox.wants_factors() => {
                let sums = objective::evaluate(layout, weights, work.batch);
                (sums, Body::Factors(objective::factors(layout, weights, work.batch)))
            }
            Features::Dense { .. } => {
                let mut gradient = vec![0.0; layout.len()];
                let sums = objective::gradient(layout, weights, work.batch, &mut gradient);
                (sums, Body::Dense(Values::F64(gradient)))
            }
            Features::Sparse { .. } => {
                let index = objective::touched(layout, work.batch);
                let mut gradient = vec![0.0; index.len() * layout.scores];
                let sums =
                    objective::touched_gradient(layout, weights, work.batch, &index, &mut gradient);
                let (total, width) = (layout.rows() as u32, layout.scores as u32);
                let values = Values::F64(gradient);
                (sums, Body::Rows(Rows { total, width, index, values }))
            }
        };
        work.outbox.emit(Block { name: "weights".to_string(), body });
        work.outbox.emit(Block::dense("loss", vec![sums.loss, work.batch.len() as f64]));
    }

    /// One step of the optimiser on every row that the update has.
    pub(super) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        moment: &Moment,
    ) -> Result<Outcome> {
        let Some(block) = update.get("weights") else { return Ok(Outcome::default()) };
        let mut state = State::take(model, self.optimiser);
        let finite = match &block.body {
            Body::Dense(Values::F64(gradient)) => {
                let gradients = gradient.chunks_exact(state.width).enumerate();
                gradients.fold(true, |fine, (row, g)| self.step(&mut state, moment, row, g) && fine)
            }
            Body::Rows(Rows { index, values: Values::F64(gradient), .. }) => {
                let gradients = index.iter().zip(gradient.chunks_exact(state.width));
                gradients.fold(true, |fine, (&row, g)| {
                    self.step(&mut state, moment, row as usize, g) && fine
                })
            }
            _ => panic!("gradients are f64"),
        };
        state.put_back(model, self.optimiser);
        if !finite {
            let rate = self.rate;
            return Err(Fault::caller(format!(
                "training diverged: the weights are not finite after {}",
                moment.step
            ))
            .hint(format!("lower learning_rate (it is {rate}) or scale the features")));
        }
        Ok(Outcome { objective: mean_loss(update), ..Outcome::default() })
    }

    /// One step on one row of the weights. Says whether they are still finite.
    fn step(&self, state: &mut State, moment: &Moment, row: usize, sum: &[f64]) -> bool {
        let rate = self.rate / (1.0 + self.decay * moment.step.0 as f64);
        let range = row * state.width..(row + 1) * state.width;
        let [count, last] = &mut state.clock[2 * row..2 * row + 2] else {
            unreachable!("two long")
        };
        let now = moment.step.0 as i64 + 1;
        let missed = (now - *last).max(0) as f64;
        (*count, *last) = (*count + 1, now.max(*last));
        let is_intercept = self.intercept && row + 1 == state.rows;
        // Catching up on more than 1 / (rate · l2) steps of the penalty at once would overshoot zero.
        let most = (1.0 / (rate * self.l2)).max(1.0);
        let penalty = if is_intercept { 0.0 } else { self.l2 * missed.min(most) };
        let weights = &mut state.weights[range.clone()];
        let scale = 1.0 / moment.rows.max(1) as f64;
        state.gradient.clear();
        state.gradient.extend(sum.iter().zip(&*weights).map(|(g, w)| g * scale + penalty * w));
        let gradient = &state.gradient;
        match self.optimiser {
            Optimiser::Sgd => sgd::step(rate, weights, gradient),
            Optimiser::Momentum { momentum } => {
                let options = momentum::Momentum { rate, momentum };
                momentum::step(options, weights, gradient, &mut state.first[range]);
            }
            Optimiser::AdaGrad { epsilon } => {
                adagrad::step((rate, epsilon), weights, gradient, &mut state.second[range]);
            }
            Optimiser::Adam { beta1, beta2, epsilon } => {
                let options = adam::Adam { rate, beta1, beta2, epsilon };
                let first = &mut state.first[range.clone()];
                let means = adam::Means { first, second: &mut state.second[range] };
                adam::step(options, *count, weights, gradient, means);
            }
        }
        weights.iter().all(|weight| weight.is_finite())
    }
}

/// The tensors that a step changes, moved out of the model so that all can change at once.
struct State {
    rows: usize,
    width: usize,
    weights: Vec<f64>,
    clock: Vec<i64>,
    /// Velocity or mean gradient.
    first: Vec<f64>,
    /// Mean, or sum, of squared gradients.
    second: Vec<f64>,
    /// Room for one row's gradient.
    gradient: Vec<f64>,
}

impl State {
    fn take(model: &mut Model, optimiser: Optimiser) -> State {
        let tensor = model.get("weights").expect("made by init");
        let (rows, width) = (tensor.rows(), tensor.width());
        let mut take = |name: &str| std::mem::take(model.f64_mut(name));
        let (first, second) = match optimiser {
            Optimiser::Sgd => (Vec::new(), Vec::new()),
            Optimiser::Momentum { .. } => (take(VELOCITY), Vec::new()),
            Optimiser::AdaGrad { .. } => (Vec::new(), take(SQUARES)),
            Optimiser::Adam { .. } => (take(FIRST), take(SECOND)),
        };
        let weights = take("weights");
        let clock = std::mem::take(model.i64_mut(CLOCK));
        State { rows, width, weights, clock, first, second, gradient: Vec::with_capacity(width) }
    }

    fn put_back(self, model: &mut Model, optimiser: Optimiser) {
        *model.f64_mut("weights") = self.weights;
        *model.i64_mut(CLOCK) = self.clock;
        match optimiser {
            Optimiser::Sgd => {}
            Optimiser::Momentum { .. } => *model.f64_mut(VELOCITY) = self.first,
            Optimiser::AdaGrad { .. } => *model.f64_mut(SQUARES) = self.second,
            Optimiser::Adam { .. } => {
                *model.f64_mut(FIRST) = self.first;
                *model.f64_mut(SECOND) = self.second;
            }
        }
    }
}

/// The mean loss of the rows that contributed; the penalty is left out, since an owner of some rows of the
/// weights does not know the others.
fn mean_loss(update: &Update) -> Option<f64> {
    update.get("loss")?;
    let [loss, rows] = update.f64("loss") else { return None };
    (*rows > 0.0).then(|| loss / rows)
}
