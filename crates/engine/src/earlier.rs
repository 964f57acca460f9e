//! Continued training: the model begins as an earlier one ended (`[train] continue_from`), and not from nothing. Every
//! worker reads the file, as it reads its rows; the columns must mean what they meant then.

use crate::choices::Choices;
use crate::job::Job;
use starlings_cluster::model_file;
use starlings_core::{Fault, Model, Result};
use starlings_data::{ColumnKind, Schema, Target};
use starlings_learn::Facts;

/// Puts what an earlier model knows into one that has just been made, if the job names one.
///
/// # Errors
/// A file that is no model of this learner, or columns that mean something else.
pub(crate) fn go_on(job: &Job, choices: &Choices, facts: &Facts, model: &mut Model) -> Result<()> {
    let Some(path) = &job.continue_from else { return Ok(()) };
    let during = |fault: Fault| fault.during("[train] continue_from");
    let file = model_file::load(path).map_err(during)?;
    if file.learner != job.learner.name {
        return Err(during(
            Fault::caller(format!(
                "the earlier model is one of '{}', and the job's learner is '{}'",
                file.learner, job.learner.name
            ))
            .hint("name a model of the same learner"),
        ));
    }
    let schema: Schema = serde_json::from_value(file.schema.clone())
        .map_err(|_| during(Fault::caller("the earlier model has a broken schema")))?;
    compare(&schema, &facts.schema).map_err(during)?;
    choices.learner.go_on(model, &file.model).map_err(during)
}

/// Whether the rows mean what they meant to the earlier model.
fn compare(earlier: &Schema, now: &Schema) -> Result<()> {
    let differ = |what: String| {
        Err(Fault::caller(what).hint("train on data of the same columns, categories and classes"))
    };
    if earlier.features != now.features {
        return differ(format!(
            "the earlier model has {} features, and the rows have {}",
            earlier.features, now.features
        ));
    }
    for (then, now) in earlier.columns.iter().zip(&now.columns) {
        let same = match (&then.kind, &now.kind) {
            (ColumnKind::Numeric { .. }, ColumnKind::Numeric { .. }) => true,
            (ColumnKind::Categorical { codes: then }, ColumnKind::Categorical { codes: now }) => {
                then == now
            }
            _ => false,
        };
        if then.name != now.name {
            return differ(format!(
                "column '{}' was '{}' in the earlier model",
                now.name, then.name
            ));
        }
        if !same {
            return differ(format!(
                "column '{}' has other values than in the earlier model",
                now.name
            ));
        }
    }
    match (&earlier.target, &now.target) {
        (Target::Classes(then), Target::Classes(now)) if then != now => {
            differ("the labels have other classes than those of the earlier model".to_string())
        }
        (then, now) if std::mem::discriminant(then) != std::mem::discriminant(now) => {
            differ("the labels are of another kind than those of the earlier model".to_string())
        }
        _ => Ok(()),
    }
}
