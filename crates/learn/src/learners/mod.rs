//! The catalogue of learners: one file or folder each, two lines here.

mod boosted_stumps;
mod decision_tree;
mod gradient_boosting;
mod isolation_forest;
pub mod k_means;
mod logistic_regression;
pub mod matrix_factorisation;
mod pipelined_perceptron;
mod random_forest;
mod topic_model;

use crate::Learner;
use starlings_core::{Entry, Params, Result};

/// How a learner is built from checked parameters.
pub type BuildLearner = fn(&Params) -> Result<Box<dyn Learner>>;

/// All learners.
pub static LEARNERS: &[Entry<BuildLearner>] = &[
    logistic_regression::ENTRY,
    k_means::ENTRY,
    matrix_factorisation::ENTRY,
    boosted_stumps::ENTRY,
    gradient_boosting::ENTRY,
    decision_tree::ENTRY,
    random_forest::ENTRY,
    isolation_forest::ENTRY,
    pipelined_perceptron::ENTRY,
    topic_model::ENTRY,
];
