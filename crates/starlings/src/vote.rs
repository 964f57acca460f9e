//! Prediction by vote: a model that remembers others (those that visited it, in gossip learning) asks them all. Of
//! classes the share of votes counts, of numbers the mean (Ormándi, Hegedűs and Jelasity, 2013, algorithm 4).

use starlings_core::{Model, Result};
use starlings_data::Batch;
use starlings_engine::bridge::VOTE;
use starlings_learn::{Learner, Task};
use std::collections::BTreeMap;

/// The models that a model remembers; none where it is one of its own.
pub(crate) fn voters(model: &Model) -> Vec<Model> {
    let mut voters: BTreeMap<u32, Model> = BTreeMap::new();
    for (name, tensor) in model.iter() {
        let Some((number, inner)) = name.strip_prefix(VOTE).and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        if let Ok(number) = number.parse() {
            let voter = voters.entry(number).or_insert_with(|| own(model));
            voter.set(inner, tensor.clone());
        }
    }
    voters.into_values().collect()
}

/// The model without what it remembers.
fn own(model: &Model) -> Model {
    let mut own = Model::new();
    for (name, tensor) in model.iter().filter(|(name, _)| !name.starts_with(VOTE)) {
        own.set(name, tensor.clone());
    }
    own
}

/// What the voters say together, row after row.
pub(crate) fn poll(learner: &dyn Learner, voters: &[Model], batch: &Batch<'_>) -> Result<Vec<f64>> {
    let mut sums: Vec<f64> = Vec::new();
    for voter in voters {
        let mut said = Vec::new();
        learner.predict(voter, batch, &mut said)?;
        if learner.task() == Task::Classification {
            said.chunks_mut(learner.outputs(voter).max(1)).for_each(decide);
        }
        sums.resize(said.len(), 0.0);
        sums.iter_mut().zip(said).for_each(|(sum, said)| *sum += said);
    }
    sums.iter_mut().for_each(|sum| *sum /= voters.len() as f64);
    Ok(sums)
}

/// One vote for the likeliest class.
fn decide(row: &mut [f64]) {
    let best = super::predictor::largest(row);
    row.fill(0.0);
    if let Some(vote) = row.get_mut(best) {
        *vote = 1.0;
    }
}
