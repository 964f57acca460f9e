//! The catalogue of learners: one file or folder each, two lines here.

mod boosted_stumps;
mod generalised_linear;
pub mod k_means;
mod linear_regression;
mod logistic_regression;
pub mod matrix_factorisation;
mod pipelined_perceptron;
mod ridge;
mod topic_model;

use crate::Learner;
use starlings_core::{Entry, Params, Result};

/// How a learner is built from checked parameters.
pub type BuildLearner = fn(&Params) -> Result<Box<dyn Learner>>;

/// All learners.
pub static LEARNERS: &[Entry<BuildLearner>] = &[
    logistic_regression::ENTRY,
    linear_regression::ENTRY,
    ridge::ENTRY,
    generalised_linear::ENTRY,
    k_means::ENTRY,
    matrix_factorisation::ENTRY,
    boosted_stumps::ENTRY,
    pipelined_perceptron::ENTRY,
    topic_model::ENTRY,
];
