//! The mini-batch solvers: stochastic gradient descent, momentum, Nesterov, AdaGrad, RMSProp, Adam, AdamW and LAMB. All
//! but LAMB step row by row of the weights, so that a step can run where the row lives. A row of a sparse table's weights
//! moves only when a batch touches it: its clock then says how many steps of the penalty it has missed. LAMB measures
//! whole layers: the features' weights are one, the intercepts another.

use super::layout::Layout;
use super::losses::with_loss;
use super::pass;
use super::problem::Problem;
use super::visitors::{Evaluate, Keep, rows};
use crate::optimisers::adam::{Adam, Means};
use crate::optimisers::momentum::Momentum;
use crate::optimisers::rmsprop::RmsProp;
use crate::optimisers::{adagrad, adam, adamw, lamb, momentum, nesterov, rmsprop, sgd};
use crate::{Moment, Outcome, Work};
use starlings_core::{
    Block, Body, Factors, Fault, Kind, Model, Params, Result, Role, Rows, Tensor, Update, Values,
};
use starlings_data::{Features, Row};

/// For each row of the weights: updates it has had, and the step after the last of them.
const CLOCK: &str = "weights.clock";
const VELOCITY: &str = "weights.momentum";
const SQUARES: &str = "weights.squares";
const FIRST: &str = "weights.m";
const SECOND: &str = "weights.v";

/// Which optimiser, with its constants.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Optimiser {
    Sgd,
    Momentum { momentum: f64 },
    Nesterov { momentum: f64 },
    AdaGrad { epsilon: f64 },
    RmsProp { keep: f64, epsilon: f64 },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
    AdamW { beta1: f64, beta2: f64, epsilon: f64 },
    Lamb { beta1: f64, beta2: f64, epsilon: f64 },
}

/// All names, with the learning rate that each takes by itself.
pub(crate) const NAMES: [(&str, f64); 8] = [
    ("sgd", 0.1),
    ("momentum", 0.02),
    ("nesterov", 0.02),
    ("adagrad", 0.05),
    ("rmsprop", 0.01),
    ("adam", 0.01),
    ("adamw", 0.01),
    ("lamb", 0.02),
];

impl Optimiser {
    /// The optimiser of a name and its own learning rate, if the name is of one.
    pub(crate) fn named(name: &str, params: &Params) -> Option<(Optimiser, f64)> {
        let rate = NAMES.iter().find(|(known, _)| *known == name)?.1;
        let (momentum, epsilon) = (params.f64("momentum"), params.f64("epsilon"));
        let (beta1, beta2) = (params.f64("beta1"), params.f64("beta2"));
        let optimiser = match name {
            "momentum" => Optimiser::Momentum { momentum },
            "nesterov" => Optimiser::Nesterov { momentum },
            "adagrad" => Optimiser::AdaGrad { epsilon },
            "rmsprop" => Optimiser::RmsProp { keep: params.f64("rho"), epsilon },
            "adam" => Optimiser::Adam { beta1, beta2, epsilon },
            "adamw" => Optimiser::AdamW { beta1, beta2, epsilon },
            "lamb" => Optimiser::Lamb { beta1, beta2, epsilon },
            _ => Optimiser::Sgd,
        };
        Some((optimiser, rate))
    }

    /// The tensors of its state: velocity or mean gradient, then the gradient's squares.
    fn tensors(self) -> [Option<&'static str>; 2] {
        match self {
            Optimiser::Sgd => [None, None],
            Optimiser::Momentum { .. } | Optimiser::Nesterov { .. } => [Some(VELOCITY), None],
            Optimiser::AdaGrad { .. } | Optimiser::RmsProp { .. } => [None, Some(SQUARES)],
            Optimiser::Adam { .. } | Optimiser::AdamW { .. } | Optimiser::Lamb { .. } => {
                [Some(FIRST), Some(SECOND)]
            }
        }
    }
}

/// A mini-batch solver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MiniBatch {
    pub(crate) optimiser: Optimiser,
    pub(crate) rate: f64,
    /// The rate at step t is rate / (1 + decay·t).
    pub(crate) decay: f64,
    pub(crate) l2: f64,
}

impl MiniBatch {
    /// Whether steps can be taken row by row.
    pub(crate) fn is_row_wise(&self) -> bool {
        !matches!(self.optimiser, Optimiser::Lamb { .. })
    }

    /// Adds the optimiser's state to a model with weights.
    pub(crate) fn init(&self, model: &mut Model, layout: Layout) {
        let shape = [layout.rows(), layout.scores];
        for name in self.optimiser.tensors().into_iter().flatten() {
            model.set(name, Tensor::zeros(Kind::F64, &shape, Role::State));
        }
        model.set(CLOCK, Tensor::zeros(Kind::I64, &[layout.rows(), 2], Role::State));
    }

    /// Emits the sum of the rows' gradients and of their losses.
    pub(crate) fn contribute(&self, work: &mut Work<'_>, problem: &Problem) {
        let layout = problem.layout;
        let weights = work.model.f64("weights");
        let rows = rows(work.model, work.batch);
        let (loss, body) = with_loss!(problem.criterion, criterion => {
            let mut visitor = Evaluate { criterion, rows, kept: &mut [], loss: 0.0 };
            let body = match &work.batch.table.features {
                // With one score the gradient is a vector: its factors would be more numbers, not fewer.
                Features::Dense { .. } if work.outbox.wants_factors() && layout.scores > 1 => {
                    let mut residuals = vec![0.0; work.batch.len() * layout.scores];
                    let visitor = &mut Residuals { inner: &mut visitor, kept: &mut residuals };
                    pass::scores(layout, weights, work.batch, visitor);
                    Body::Factors(factors(layout, work, residuals))
                }
                Features::Dense { .. } => {
                    let mut gradient = vec![0.0; layout.len()];
                    pass::sums(layout, weights, work.batch, &mut visitor, &mut gradient);
                    Body::Dense(Values::F64(gradient))
                }
                Features::Sparse { .. } => {
                    let index = pass::touched(layout, work.batch);
                    let gradient =
                        pass::touched_sums(layout, weights, work.batch, &mut visitor, &index);
                    let (total, width) = (layout.rows() as u32, layout.scores as u32);
                    Body::Rows(Rows { total, width, index, values: Values::F64(gradient) })
                }
            };
            (visitor.loss, body)
        });
        let weight: f64 = work.batch.rows().map(|row| rows.weight(row)).sum();
        work.outbox.emit(Block { name: "weights".to_string(), body });
        work.outbox.emit(Block::dense("loss", vec![loss, weight]));
    }

    /// One step of the optimiser on every row that the update has.
    pub(crate) fn apply(
        &self,
        model: &mut Model,
        update: &Update,
        problem: &Problem,
        moment: &Moment,
    ) -> Result<Outcome> {
        let Some(block) = update.get("weights") else { return Ok(Outcome::default()) };
        let mut state = State::take(model, self.optimiser, problem.layout);
        let mut finite = true;
        if self.is_row_wise() {
            each_row(&block.body, state.layout.scores, |row, sum| {
                finite &= self.step(&mut state, moment, row, sum);
            });
        } else {
            self.layer_step(&mut state, moment, &block.body);
            finite = state.weights.iter().all(|weight| weight.is_finite());
        }
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

    fn rate_at(&self, moment: &Moment) -> f64 {
        self.rate / (1.0 + self.decay * moment.step.0 as f64)
    }

    /// One step on one row of the weights. Says whether they are still finite.
    fn step(&self, state: &mut State, moment: &Moment, row: usize, sum: &[f64]) -> bool {
        let rate = self.rate_at(moment);
        let width = state.layout.scores;
        let range = row * width..(row + 1) * width;
        let [count, last] = &mut state.clock[2 * row..2 * row + 2] else {
            unreachable!("two long")
        };
        let now = moment.step.0 as i64 + 1;
        let missed = (now - *last).max(0) as f64;
        (*count, *last) = (*count + 1, now.max(*last));
        // Catching up on more than 1 / (rate · l2) steps of the penalty at once would overshoot zero.
        let most = (1.0 / (rate * self.l2)).max(1.0);
        let penalty = if row < state.layout.features { self.l2 * missed.min(most) } else { 0.0 };
        let weights = &mut state.weights[range.clone()];
        let scale = 1.0 / moment.rows.max(1) as f64;
        // AdamW's penalty is beside the gradient, not in it.
        let inside = if let Optimiser::AdamW { .. } = self.optimiser { 0.0 } else { penalty };
        state.gradient.clear();
        state.gradient.extend(sum.iter().zip(&*weights).map(|(g, w)| g * scale + inside * w));
        let gradient = &state.gradient;
        match self.optimiser {
            Optimiser::Sgd => sgd::step(rate, weights, gradient),
            Optimiser::Momentum { momentum } => {
                let options = Momentum { rate, momentum };
                momentum::step(options, weights, gradient, &mut state.first[range]);
            }
            Optimiser::Nesterov { momentum } => {
                let options = Momentum { rate, momentum };
                nesterov::step(options, weights, gradient, &mut state.first[range]);
            }
            Optimiser::AdaGrad { epsilon } => {
                adagrad::step((rate, epsilon), weights, gradient, &mut state.second[range]);
            }
            Optimiser::RmsProp { keep, epsilon } => {
                let options = RmsProp { rate, keep, epsilon };
                rmsprop::step(options, weights, gradient, &mut state.second[range]);
            }
            Optimiser::Adam { beta1, beta2, epsilon } => {
                let options = Adam { rate, beta1, beta2, epsilon };
                let first = &mut state.first[range.clone()];
                let means = Means { first, second: &mut state.second[range] };
                adam::step(options, *count, weights, gradient, means);
            }
            Optimiser::AdamW { beta1, beta2, epsilon } => {
                let options = Adam { rate, beta1, beta2, epsilon };
                let first = &mut state.first[range.clone()];
                let means = Means { first, second: &mut state.second[range] };
                adamw::step((options, penalty), *count, weights, gradient, means);
            }
            Optimiser::Lamb { .. } => unreachable!("LAMB steps by layer"),
        }
        weights.iter().all(|weight| weight.is_finite())
    }

    /// LAMB: one step on all rows; those that the update does not have had no gradient.
    fn layer_step(&self, state: &mut State, moment: &Moment, body: &Body) {
        let Optimiser::Lamb { beta1, beta2, epsilon } = self.optimiser else { return };
        let options = Adam { rate: self.rate_at(moment), beta1, beta2, epsilon };
        let scale = 1.0 / moment.rows.max(1) as f64;
        let width = state.layout.scores;
        let mut gradient = vec![0.0; state.layout.len()];
        each_row(body, width, |row, sum| {
            let into = &mut gradient[row * width..(row + 1) * width];
            into.iter_mut().zip(sum).for_each(|(into, sum)| *into = scale * sum);
        });
        let count = state.clock[0] + 1;
        state.clock.chunks_exact_mut(2).for_each(|clock| clock[0] = count);
        let cut = state.layout.features * width;
        let (weights, intercepts) = state.weights.split_at_mut(cut);
        let (first, first_last) = state.first.split_at_mut(cut);
        let (second, second_last) = state.second.split_at_mut(cut);
        let means = Means { first, second };
        lamb::step((options, self.l2), count, weights, &gradient[..cut], means);
        // Intercepts are not measured, as biases are not in the paper: they take Adam's step.
        let means = Means { first: first_last, second: second_last };
        adam::step(options, count, intercepts, &gradient[cut..], means);
    }
}

/// Shows each row's gradient that a block has.
fn each_row(body: &Body, width: usize, mut visit: impl FnMut(usize, &[f64])) {
    match body {
        Body::Dense(Values::F64(gradient)) => {
            gradient.chunks_exact(width).enumerate().for_each(|(row, sum)| visit(row, sum));
        }
        Body::Rows(Rows { index, values: Values::F64(gradient), .. }) => {
            let rows = index.iter().zip(gradient.chunks_exact(width));
            rows.for_each(|(&row, sum)| visit(row as usize, sum));
        }
        _ => panic!("gradients are f64"),
    }
}

/// Keeps the residuals that another visitor makes.
struct Residuals<'a, V> {
    inner: &'a mut V,
    kept: &'a mut [f64],
}

impl<V: pass::Visitor> pass::Visitor for Residuals<'_, V> {
    #[inline(always)]
    fn visit<const N: usize>(&mut self, rows: [usize; N], at: usize, scores: &mut [f64]) {
        self.inner.visit(rows, at, scores);
        Keep(self.kept).visit(rows, at, scores);
    }
}

/// The gradient as the outer products it is the sum of: a row's features with what its scores should change by.
fn factors(layout: Layout, work: &Work<'_>, right: Vec<f64>) -> Factors {
    let mut left = Vec::new();
    for row in work.batch.rows() {
        if let Row::Dense(x) = work.batch.table.row(row) {
            left.extend(x.iter().map(|&x| f64::from(x)));
            left.extend(layout.intercept.then_some(1.0));
        }
    }
    Factors { rows: layout.rows() as u32, width: layout.scores as u32, left, right }
}

/// The tensors that a step changes, moved out of the model so that all can change at once.
struct State {
    layout: Layout,
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
    fn take(model: &mut Model, optimiser: Optimiser, layout: Layout) -> State {
        let mut take = |name: &str| std::mem::take(model.f64_mut(name));
        let [first, second] =
            optimiser.tensors().map(|name| name.map(&mut take).unwrap_or_default());
        let weights = take("weights");
        let clock = std::mem::take(model.i64_mut(CLOCK));
        State { layout, weights, clock, first, second, gradient: Vec::with_capacity(layout.scores) }
    }

    fn put_back(self, model: &mut Model, optimiser: Optimiser) {
        *model.f64_mut("weights") = self.weights;
        *model.i64_mut(CLOCK) = self.clock;
        for (name, values) in optimiser.tensors().into_iter().zip([self.first, self.second]) {
            if let Some(name) = name {
                *model.f64_mut(name) = values;
            }
        }
    }
}

/// The mean loss of the rows that contributed; the penalty is left out, since an owner of some rows of the
/// weights does not know the others.
fn mean_loss(update: &Update) -> Option<f64> {
    update.get("loss")?;
    let [loss, weight] = update.f64("loss") else { return None };
    (*weight > 0.0).then(|| loss / weight)
}
