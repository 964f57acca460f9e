//! Update rules of owners: what becomes of a contribution where the row lives. A learner brings its own; tables
//! of a caller's loop choose one from this catalogue (Li et al., 2014: user-defined functions on the server).

mod adagrad;
mod adam;
mod sgd;
mod sum;

use starlings_core::{Entry, Model, Param, ParamKind, Params, Result, Rows, Update};
use starlings_learn::{Learner, Moment};
use std::sync::Arc;

/// How a rule is built from checked parameters.
pub type BuildRule = fn(&Params) -> Result<Arc<dyn Rule>>;

/// All rules of the catalogue.
pub static RULES: &[Entry<BuildRule>] = &[adagrad::ENTRY, adam::ENTRY, sgd::ENTRY, sum::ENTRY];

/// What an owner does with a contribution. Works row by row: rows that are not in the update do not change.
pub trait Rule: Send + Sync {
    /// Adds what the rule must remember to a model before the first contribution.
    fn prepare(&self, model: &mut Model);

    /// Applies a contribution.
    ///
    /// # Errors
    /// When it does not fit the table, or the numbers are no longer finite.
    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()>;
}

/// A learner's own rule.
pub struct Learned(pub Arc<dyn Learner>);

impl Rule for Learned {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()> {
        self.0.apply(model, update, moment).map(|_| ())
    }
}

const RATE: Param = Param {
    name: "learning_rate",
    kind: ParamKind::Float { min: 1e-12, max: 1e6 },
    default: Some("0.01"),
    help: "step size: what is pushed is taken for a gradient",
};

/// The numbers of a table's rows that an update changes, with some state beside them.
struct Row<'a> {
    values: &'a mut [f64],
    state: Vec<&'a mut [f64]>,
    pushed: &'a [f64],
}

/// Runs `step` on every row of the update, with the named state tensors beside the table's.
fn each_row(
    model: &mut Model,
    update: &Update,
    state: &[&str],
    mut step: impl FnMut(Row<'_>),
) -> Result<()> {
    use starlings_core::{Body, Fault, Values};
    for block in &update.blocks {
        let wrong = || Fault::caller(format!("a push of rows that table '{}' has not", block.name));
        let Body::Rows(rows @ Rows { values: Values::F64(pushed), .. }) = &block.body else {
            return Err(wrong());
        };
        let tensor = model.get(&block.name).ok_or_else(wrong)?;
        let width = tensor.width();
        if rows.width as usize != width || rows.total as usize != tensor.rows() {
            return Err(wrong());
        }
        let mut values = std::mem::take(model.f64_mut(&block.name));
        let names: Vec<String> = state.iter().map(|word| format!("{}.{word}", block.name)).collect();
        let mut beside: Vec<Vec<f64>> =
            names.iter().map(|name| std::mem::take(model.f64_mut(name))).collect();
        for (&row, pushed) in rows.index.iter().zip(pushed.chunks_exact(width.max(1))) {
            let range = row as usize * width..(row as usize + 1) * width;
            let state = beside.iter_mut().map(|state| &mut state[range.clone()]).collect();
            step(Row { values: &mut values[range.clone()], state, pushed });
        }
        *model.f64_mut(&block.name) = values;
        for (name, state) in names.iter().zip(beside) {
            *model.f64_mut(name) = state;
        }
    }
    Ok(())
}

/// Adds zero tensors of the same shape beside every weight.
fn beside_each(model: &mut Model, words: &[&str]) {
    use starlings_core::{Kind, Role, Tensor};
    let tables: Vec<(String, Vec<usize>)> =
        model.iter().map(|(name, tensor)| (name.to_string(), tensor.shape.clone())).collect();
    for (name, shape) in tables {
        for word in words {
            let zeros = Tensor::zeros(Kind::F64, &shape, Role::State);
            model.set(format!("{name}.{word}"), zeros);
        }
    }
}
