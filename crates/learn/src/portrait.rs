//! What people ask of a trained model: which features matter, how a tree decides, and what the prediction is for each
//! value of a column.

use crate::Learner;
use starlings_core::{Model, Result};
use starlings_data::{Dealer, Features, Holding, Table};
use std::sync::Arc;

/// How much a feature is used.
#[derive(Clone, PartialEq, Debug)]
pub struct Importance {
    /// The feature's name.
    pub name: String,
    /// What all splits on it gained.
    pub gain: f64,
    /// How many splits there are.
    pub splits: u64,
}

/// A node of a tree in words.
#[derive(Clone, PartialEq, Debug)]
pub struct Branch {
    /// The question it asks, or what a leaf says.
    pub text: String,
    /// Training rows that came here.
    pub rows: f64,
    /// Where rows go that answer yes, and where the others; none for a leaf.
    pub children: Option<[usize; 2]>,
}

/// Partial dependence (Friedman, 2001): the mean prediction over these rows when some features have given values in all
/// of them. One row of outputs for each choice of values; a choice names features and their values.
///
/// # Errors
/// When the rows do not fit the model.
pub fn partial_dependence(
    learner: &dyn Learner,
    model: &Model,
    table: &Table,
    choices: &[Vec<(usize, f32)>],
) -> Result<Vec<Vec<f64>>> {
    let mut rows = crate::importance::dense(table);
    let width = learner.outputs(model);
    let mut means = Vec::with_capacity(choices.len());
    for choice in choices {
        if let Features::Dense { width, values } = &mut rows.features {
            for row in values.chunks_exact_mut((*width).max(1)) {
                choice.iter().for_each(|&(feature, value)| row[feature] = value);
            }
        }
        let dealer = Dealer::new(Holding::whole(Arc::new(rows.clone()), 1), 0, 1);
        let mut said = Vec::new();
        learner.predict(model, &dealer.everything(), &mut said)?;
        let mut mean = vec![0.0; width];
        for outputs in said.chunks_exact(width.max(1)) {
            mean.iter_mut().zip(outputs).for_each(|(mean, said)| *mean += said);
        }
        mean.iter_mut().for_each(|mean| *mean /= table.rows().max(1) as f64);
        means.push(mean);
    }
    Ok(means)
}
