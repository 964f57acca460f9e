//! The catalogue of learners: one file or folder each, two lines here.

mod bisecting_k_means;
mod boosted_stumps;
mod feature_selection;
pub mod gaussian_mixture;
pub mod k_means;
mod logistic_regression;
pub mod matrix_factorisation;
mod pca;
mod pipelined_perceptron;
mod power_iteration_clustering;
mod topic_model;
mod truncated_svd;

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
    pipelined_perceptron::ENTRY,
    topic_model::ENTRY,
    bisecting_k_means::ENTRY,
    gaussian_mixture::ENTRY,
    power_iteration_clustering::ENTRY,
    pca::ENTRY,
    truncated_svd::ENTRY,
    feature_selection::ENTRY,
];
