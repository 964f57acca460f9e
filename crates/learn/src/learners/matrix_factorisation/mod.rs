//! Matrix factorisation with biases by stochastic gradient descent (Koren, Bell, Volinsky, "Matrix
//! factorization techniques for recommender systems", IEEE Computer 2009): a rating is expected to be
//! mean + b_u + b_i + p_u·q_i. The last column of `users` and `items` is the bias.
//!
//! An update holds, for every touched row, the sum of its gradients in the batch and how many ratings it is
//! the sum of; `apply` reads and changes one row at a time, so that it can run wherever the row lives.
//!
//! - A row that occurs n times in a batch moves by (1 − (1 − cη)ⁿ)/cn times the sum of its gradients, where
//!   c = 2 + λ: by η when it occurs once, and in all by at most half of what would be right for its bias
//!   alone, because user and item move at the same time. So the result hardly depends on the batch, no
//!   batch is so large that popular rows overshoot, and no penalty is.
//! - The mean starts at 0 and is learned like a row: step t moves it by 1/(t + 1) of the batch's mean
//!   error. The first step moves nothing else, since without a mean every bias would have to stand in for
//!   it; the later ones average. So no pass over the data is needed before training, and an asynchronous
//!   run, whose owners of rows see nothing but a step number, needs no phases.

mod gradient;

use super::BuildLearner;
use crate::{Appetite, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Task, Work};
use gradient::{Factors, Rating, UNKNOWN, gradients};
use starlings_core::{
    Ability, Block, Entry, Fault, Kind, Model, Param, ParamKind, Params, Result, Rng, Role, Rows,
    Tensor, Update, Values,
};
use starlings_data::{Batch, Encoding, LabelNeed, Row};
use std::collections::BTreeMap;

/// Matrix factorisation in the catalogue.
pub(super) const ENTRY: Entry<BuildLearner> = Entry {
    name: "matrix-factorisation",
    summary: "Ratings of items by users as products of learned factors, with biases",
    reference: "Koren, Bell, Volinsky, Matrix factorization techniques for recommender systems, IEEE Computer 2009",
    params: PARAMS,
    gives: GIVES,
    needs: NEEDS,
    build: |params| Ok(Box::new(MatrixFactorisation::new(params))),
};

const GIVES: &[Ability] = &[Ability::RowWise, Ability::LocalSteps];
const NEEDS: &[Ability] = &[Ability::WholeModel];

/// Codes travel as f32, which counts exactly to 2²⁴.
const IDENTITIES_MAX: usize = 1 << 24;

const PARAMS: &[Param] = &[
    Param {
        name: "rank",
        kind: ParamKind::Integer { min: 1, max: 4096 },
        default: Some("16"),
        help: "factors of each user and item",
    },
    Param {
        name: "learning_rate",
        kind: ParamKind::Float { min: 1e-6, max: 0.5 },
        default: Some("0.03"),
        help: "step size of a single rating",
    },
    Param {
        name: "l2",
        kind: ParamKind::Float { min: 0.0, max: 100.0 },
        default: Some("0.05"),
        help: "penalty on squared factors and biases, for each rating",
    },
    Param {
        name: "decay",
        kind: ParamKind::Float { min: 0.0, max: 100.0 },
        default: Some("0.1"),
        help: "in pass t the step size is learning_rate / (1 + decay * t)",
    },
    Param {
        name: "deviation",
        kind: ParamKind::Float { min: 0.0, max: 1.0 },
        default: Some("0.05"),
        help: "standard deviation of the factors before the first step",
    },
];

/// The matrix factorisation learner.
#[derive(Clone, PartialEq, Debug)]
pub struct MatrixFactorisation {
    /// Factors of each user and item.
    pub rank: usize,
    /// Step size of a single rating in the first pass.
    pub learning_rate: f64,
    /// Penalty on squared factors and biases, for each rating.
    pub l2: f64,
    /// How the step size falls with passes.
    pub decay: f64,
    /// Standard deviation of the factors before the first step.
    pub deviation: f64,
}

impl MatrixFactorisation {
    /// From checked parameters.
    #[must_use]
    pub fn new(params: &Params) -> MatrixFactorisation {
        MatrixFactorisation {
            rank: params.size("rank"),
            learning_rate: params.f64("learning_rate"),
            l2: params.f64("l2"),
            decay: params.f64("decay"),
            deviation: params.f64("deviation"),
        }
    }

    /// The start of users or items. A row's numbers depend on seed, table and row alone.
    fn start(&self, name: &str, rows: usize, seed: u64) -> Tensor {
        let mut values = Vec::with_capacity(rows * (self.rank + 1));
        for row in 0..rows {
            let mut rng = Rng::named(seed, name, &[row as u64]);
            values.extend((0..self.rank).map(|_| self.deviation * rng.normal()));
            values.push(0.0);
        }
        Tensor::of(&[rows, self.rank + 1], values, Role::Weight)
    }

    fn factors<'a>(&self, model: &'a Model) -> Factors<'a> {
        Factors {
            users: model.f64("users"),
            items: model.f64("items"),
            mean: model.f64("mean")[0],
            rank: self.rank,
        }
    }
}

impl Learner for MatrixFactorisation {
    fn task(&self) -> Task {
        Task::Recommendation
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn encoding(&self) -> Encoding {
        Encoding::Identity
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::Number
    }

    fn gives(&self) -> &'static [Ability] {
        GIVES
    }

    fn requires(&self) -> &'static [Ability] {
        NEEDS
    }

    fn init(&self, facts: &Facts, _: Place) -> Result<Model> {
        let schema = &facts.schema;
        if schema.features != 2 {
            let found = schema.features;
            return Err(Fault::caller(format!(
                "a rating has a user and an item, not {found} features"
            ))
            .hint("name the two columns: [data] features = [\"user\", \"item\"]"));
        }
        let (users, items) = (schema.identities(0), schema.identities(1));
        if users == 0 || items == 0 || users.max(items) > IDENTITIES_MAX {
            return Err(Fault::caller(format!(
                "{users} users and {items} items: there must be some, and at most {IDENTITIES_MAX} of each"
            )));
        }
        let mut model = Model::new();
        model.set("users", self.start("users", users, facts.seed));
        model.set("items", self.start("items", items, facts.seed));
        model.set("mean", Tensor::zeros(Kind::F64, &[1], Role::Weight));
        Ok(model)
    }

    fn needs(&self, model: &Model, batch: &Batch<'_>) -> Needs {
        let ratings = ratings(model, batch);
        let rows = |code: fn(&Rating) -> u32| {
            let mut codes: Vec<u32> = ratings.iter().map(code).filter(|&c| c != UNKNOWN).collect();
            codes.sort_unstable();
            codes.dedup();
            codes
        };
        Needs::Rows(BTreeMap::from([
            ("users".to_string(), rows(|rating| rating.user)),
            ("items".to_string(), rows(|rating| rating.item)),
            ("mean".to_string(), vec![0]),
        ]))
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let ratings = ratings(work.model, work.batch);
        let found = gradients(&ratings, self.factors(work.model), self.l2);
        let total = |name: &str| work.model.get(name).map_or(0, Tensor::rows);
        let mut mean = Rows::none(Kind::F64, 1, 3);
        if !ratings.is_empty() {
            mean.index.push(0);
            // Each step brings its own share with it, so that steps may accrue before they are applied.
            let averaging = 1.0 / (work.moment.step.0 + 1) as f64;
            let gradient = -averaging * found.errors;
            mean.values = Values::F64(vec![gradient, ratings.len() as f64, found.squared]);
        }
        let (users, items) = (total("users"), total("items"));
        let mut users = found.users.into_rows(users, self.rank);
        let mut items = found.items.into_rows(items, self.rank);
        // The first step only finds the mean.
        if work.moment.step.0 == 0 {
            users.values = Values::zeros(Kind::F64, users.values.len());
            items.values = Values::zeros(Kind::F64, items.values.len());
        }
        work.outbox.emit(Block::rows("users", users));
        work.outbox.emit(Block::rows("items", items));
        work.outbox.emit(Block::rows("mean", mean));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<Outcome> {
        let rate = self.learning_rate / (1.0 + self.decay * moment.pass as f64);
        for name in ["users", "items"] {
            if let Some(rows) = update.rows(name) {
                move_rows(model.f64_mut(name), rows, (rate, self.l2))?;
            }
        }
        let mut outcome = Outcome::default();
        if let Some([gradient, count, squared]) = update.rows("mean").and_then(mean_sums) {
            // Divided by the rows of the whole step and not of this update, so that several updates of
            // one step, applied one by one, move the mean as far as their sum would, and so that one of
            // several steps moves it as far as each of them would.
            model.f64_mut("mean")[0] -= gradient / moment.rows.max(1) as f64;
            outcome.objective = Some(squared / count);
        }
        Ok(outcome)
    }

    fn score(&self, work: &mut Work<'_>) -> Result<Vec<f64>> {
        let factors = self.factors(work.model);
        let mut sums = vec![0.0; 3];
        for rating in ratings(work.model, work.batch) {
            let error = rating.value - factors.predict(rating.user, rating.item);
            sums[0] += error * error;
            sums[1] += error.abs();
            sums[2] += factors.penalty(&rating);
        }
        Ok(sums)
    }

    /// The objective is the mean over ratings of e² + λ(‖p_u‖² + b_u² + ‖q_i‖² + b_i²).
    fn grade(&self, _: &Model, sums: &[f64], rows: u64) -> Grade {
        let rows = rows.max(1) as f64;
        let metrics = BTreeMap::from([
            ("rmse".to_string(), (sums[0] / rows).sqrt()),
            ("mae".to_string(), sums[1] / rows),
        ]);
        Grade { objective: (sums[0] + self.l2 * sums[2]) / rows, metrics }
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, model: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        if batch.table.width() != 2 {
            let found = batch.table.width();
            return Err(Fault::caller(format!(
                "a rating has a user and an item, not {found} features"
            ))
            .hint("use the same two columns as in training"));
        }
        let factors = self.factors(model);
        out.extend(ratings(model, batch).iter().map(|r| factors.predict(r.user, r.item)));
        Ok(())
    }
}

/// The ratings of a batch. A code that is missing or beyond the model's is unknown.
fn ratings(model: &Model, batch: &Batch<'_>) -> Vec<Rating> {
    let rows = |name: &str| model.get(name).map_or(0, Tensor::rows);
    let (users, items) = (rows("users"), rows("items"));
    // NaN fails both comparisons.
    let code = |code: f32, bound: usize| {
        if code >= 0.0 && code < bound as f32 { code as u32 } else { UNKNOWN }
    };
    let one = |row: usize| {
        let (user, item) = match batch.table.row(row) {
            Row::Dense(codes) => (codes[0], codes[1]),
            Row::Sparse(columns, values) => {
                // An entry that is not stored is the code 0.
                let at = |column: u32| columns.iter().position(|&c| c == column);
                (at(0).map_or(0.0, |at| values[at]), at(1).map_or(0.0, |at| values[at]))
            }
        };
        let value = batch.table.labels.get(row).copied().unwrap_or(f32::NAN);
        Rating { user: code(user, users), item: code(item, items), value: f64::from(value) }
    };
    batch.rows().map(one).collect()
}

/// Moves the touched rows of a tensor against their gradients.
fn move_rows(weights: &mut [f64], rows: &Rows, (rate, l2): (f64, f64)) -> Result<()> {
    let width = rows.width as usize - 1;
    let sums = rows.values.as_f64().expect("gradients are f64");
    for (&row, sums) in rows.index.iter().zip(sums.chunks_exact(width + 1)) {
        let step = step_size(rate, l2, sums[width]);
        let weights = &mut weights[row as usize * width..][..width];
        let mut finite = true;
        for (weight, gradient) in weights.iter_mut().zip(sums) {
            *weight -= step * gradient;
            finite &= weight.is_finite();
        }
        if !finite {
            return Err(Fault::caller("training has diverged: factors are no longer finite")
                .hint("lower learning_rate or raise l2"));
        }
    }
    Ok(())
}

/// What a summed gradient of `count` ratings is multiplied with: (1 − (1 − cη)ⁿ)/cn with c = 2 + λ.
fn step_size(rate: f64, l2: f64, count: f64) -> f64 {
    let curvature = 2.0 + l2;
    match count > 0.0 {
        true => (1.0 - (1.0 - curvature * rate).max(0.0).powf(count)) / (curvature * count),
        false => 0.0,
    }
}

fn mean_sums(rows: &Rows) -> Option<[f64; 3]> {
    rows.values.as_f64().and_then(|sums| sums.first_chunk::<3>()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rating_is_a_plain_step_and_many_never_overshoot() {
        assert!((step_size(0.05, 0.0, 1.0) - 0.05).abs() < 1e-15);
        assert!((step_size(0.05, 0.0, 2.0) * 2.0 - (0.05 + 0.9 * 0.05)).abs() < 1e-15);
        assert!(step_size(0.05, 0.0, 1e6) * 1e6 <= 0.5);
        assert!(step_size(0.5, 100.0, 1e6) * 1e6 * 100.0 <= 1.0);
        assert_eq!(step_size(0.05, 0.0, 0.0), 0.0);
    }
}
