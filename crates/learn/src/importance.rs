//! Permutation importance (Breiman, 2001): how much worse a model predicts when the values of one feature are dealt to
//! the rows anew. It needs no more than predictions, so it serves every learner of classes or numbers.

use crate::{Learner, Task, metrics};
use starlings_core::{Fault, Model, Result, Rng};
use starlings_data::{Dealer, Features, Holding, Row, Table};
use std::sync::Arc;

/// How much the loss of a model (log-loss of classes, root mean squared error of numbers) on these rows grows when a
/// feature is shuffled: one number for each feature, the mean of `repeats` shuffles.
///
/// # Errors
/// When the rows have no labels, do not fit the model, or the learner predicts neither classes nor numbers.
pub fn permutation_importance(
    learner: &dyn Learner,
    model: &Model,
    table: &Table,
    (repeats, seed): (usize, u64),
) -> Result<Vec<f64>> {
    let metric = match learner.task() {
        Task::Classification => "log_loss",
        Task::Regression => "rmse",
        _ => {
            return Err(Fault::caller("permutation importance is for classes and numbers")
                .hint("it compares predictions with labels"));
        }
    };
    let mut rows = dense(table);
    let plain = loss(learner, model, &rows, metric)?;
    let mut found = Vec::with_capacity(table.width());
    for feature in 0..table.width() {
        let kept = column(&rows, feature);
        let mut grown = 0.0;
        for repeat in 0..repeats.max(1) {
            let mut shuffled = kept.clone();
            let key = [feature as u64, repeat as u64];
            Rng::named(seed, "permutation importance", &key).shuffle(&mut shuffled);
            set_column(&mut rows, feature, &shuffled);
            grown += loss(learner, model, &rows, metric)? - plain;
        }
        set_column(&mut rows, feature, &kept);
        found.push(grown / repeats.max(1) as f64);
    }
    Ok(found)
}

fn loss(learner: &dyn Learner, model: &Model, rows: &Table, metric: &str) -> Result<f64> {
    let dealer = Dealer::new(Holding::whole(Arc::new(rows.clone()), 1), 0, 1);
    let mut said = Vec::new();
    learner.predict(model, &dealer.everything(), &mut said)?;
    let found = metrics::evaluate(learner.task(), &said, learner.outputs(model), &rows.labels);
    found.get(metric).copied().ok_or_else(|| {
        Fault::caller("permutation importance needs labels").hint("give rows with a label column")
    })
}

/// The same rows, every number written out.
pub(crate) fn dense(table: &Table) -> Table {
    let width = table.width();
    let mut values = vec![0.0; table.rows() * width];
    for (row, into) in values.chunks_exact_mut(width.max(1)).enumerate() {
        match table.row(row) {
            Row::Dense(from) => into.copy_from_slice(from),
            Row::Sparse(columns, from) => {
                columns.iter().zip(from).for_each(|(&at, &value)| into[at as usize] = value);
            }
        }
    }
    Table { features: Features::Dense { width, values }.into(), ..table.clone() }
}

fn column(rows: &Table, feature: usize) -> Vec<f32> {
    let Features::Dense { width, values } = &rows.features else { unreachable!("made dense") };
    values.iter().skip(feature).step_by(*width).copied().collect()
}

fn set_column(rows: &mut Table, feature: usize, column: &[f32]) {
    let Features::Dense { width, values } = &mut rows.features else { unreachable!("made dense") };
    values.iter_mut().skip(feature).step_by(*width).zip(column).for_each(|(to, &x)| *to = x);
}
