//! Steps by row: each row of a tensor has its own optimiser state beside it and moves when an update has it. A row that
//! batches seldom touch catches up on the penalty it has missed when it next moves.

use crate::Moment;
use crate::optimisers::{adagrad, adam, sgd};
use starlings_core::{Block, Body, Kind, Model, Role, Rows, Tensor, Values};

/// Which optimiser, with its constants.
#[derive(Clone, Copy, Debug)]
pub(super) enum Optimiser {
    Sgd,
    AdaGrad { epsilon: f64 },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
}

/// An optimiser with its rate: `rate / (1 + decay·t)` at step t.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solver {
    pub(super) optimiser: Optimiser,
    pub(super) rate: f64,
    pub(super) decay: f64,
}

/// What lies beside a tensor: its name with one of these behind it.
const CLOCK: &str = ".clock";
const FIRST: &str = ".m";
const SECOND: &str = ".v";

impl Solver {
    fn state(&self) -> &'static [&'static str] {
        match self.optimiser {
            Optimiser::Sgd => &[],
            Optimiser::AdaGrad { .. } => &[SECOND],
            Optimiser::Adam { .. } => &[FIRST, SECOND],
        }
    }

    /// Adds the state of a tensor to the model. The clock of a row: its updates, and the step after the last.
    pub(super) fn init(&self, model: &mut Model, name: &str) {
        let shape = model.get(name).expect("the tensor is made first").shape.clone();
        for suffix in self.state() {
            let zeros = Tensor::zeros(Kind::F64, &shape, Role::State);
            model.set(format!("{name}{suffix}"), zeros);
        }
        let clock = Tensor::zeros(Kind::I64, &[shape[0], 2], Role::State);
        model.set(format!("{name}{CLOCK}"), clock);
    }

    /// Moves the rows of the tensor that a block of gradient sums is for. Says whether they are still finite.
    pub(super) fn step(&self, model: &mut Model, block: &Block, l2: f64, moment: &Moment) -> bool {
        let name = block.name.as_str();
        let mut room = Room::take(model, name, self.state());
        let mut finite = true;
        let mut each =
            |row: usize, sum: &[f64]| finite &= self.step_row(&mut room, (row, sum), l2, moment);
        let width = model.get(name).map_or(1, Tensor::width);
        match &block.body {
            Body::Dense(Values::F64(sums)) => {
                sums.chunks_exact(width).enumerate().for_each(|(row, sum)| each(row, sum));
            }
            Body::Rows(Rows { index, values: Values::F64(sums), .. }) => {
                let rows = index.iter().zip(sums.chunks_exact(width));
                rows.for_each(|(&row, sum)| each(row as usize, sum));
            }
            _ => panic!("gradients are f64"),
        }
        room.put_back(model, name, self.state());
        finite
    }

    fn step_row(
        &self,
        room: &mut Room,
        (row, sum): (usize, &[f64]),
        l2: f64,
        moment: &Moment,
    ) -> bool {
        let rate = self.rate / (1.0 + self.decay * moment.step.0 as f64);
        let range = row * sum.len()..(row + 1) * sum.len();
        let [count, last] = &mut room.clock[2 * row..2 * row + 2] else { unreachable!("two long") };
        let now = moment.step.0 as i64 + 1;
        let missed = (now - *last).max(0) as f64;
        (*count, *last) = (*count + 1, now.max(*last));
        // Catching up on more than 1 / (rate · l2) steps of the penalty at once would overshoot zero.
        let penalty = l2 * missed.min((1.0 / (rate * l2)).max(1.0));
        let weights = &mut room.weights[range.clone()];
        let scale = 1.0 / moment.rows.max(1) as f64;
        room.gradient.clear();
        room.gradient.extend(sum.iter().zip(&*weights).map(|(g, w)| g * scale + penalty * w));
        match self.optimiser {
            Optimiser::Sgd => sgd::step(rate, weights, &room.gradient),
            Optimiser::AdaGrad { epsilon } => {
                adagrad::step((rate, epsilon), weights, &room.gradient, &mut room.second[range]);
            }
            Optimiser::Adam { beta1, beta2, epsilon } => {
                let options = adam::Adam { rate, beta1, beta2, epsilon };
                let first = &mut room.first[range.clone()];
                let means = adam::Means { first, second: &mut room.second[range] };
                adam::step(options, *count, weights, &room.gradient, means);
            }
        }
        weights.iter().all(|weight| weight.is_finite())
    }
}

/// A tensor and its state, moved out of the model so that all can change at once.
struct Room {
    weights: Vec<f64>,
    clock: Vec<i64>,
    first: Vec<f64>,
    second: Vec<f64>,
    /// Room for one row's gradient.
    gradient: Vec<f64>,
}

impl Room {
    fn take(model: &mut Model, name: &str, state: &[&str]) -> Room {
        let mut take = |suffix: &str| match suffix.is_empty() || state.contains(&suffix) {
            true => std::mem::take(model.f64_mut(&format!("{name}{suffix}"))),
            false => Vec::new(),
        };
        let (weights, first, second) = (take(""), take(FIRST), take(SECOND));
        let clock = std::mem::take(model.i64_mut(&format!("{name}{CLOCK}")));
        Room { weights, clock, first, second, gradient: Vec::new() }
    }

    fn put_back(self, model: &mut Model, name: &str, state: &[&str]) {
        *model.f64_mut(name) = self.weights;
        *model.i64_mut(&format!("{name}{CLOCK}")) = self.clock;
        for (suffix, values) in [(FIRST, self.first), (SECOND, self.second)] {
            if state.contains(&suffix) {
                *model.f64_mut(&format!("{name}{suffix}")) = values;
            }
        }
    }
}
