//! The catalogue of learners: one file or folder each, two lines here.

mod boosted_stumps;
mod factorisation_machine;
mod isotonic_regression;
mod elastic_net;
pub mod k_means;
mod kernel_svm;
mod lasso;
mod linear_svm;
mod generalised_linear;
pub mod k_means;
mod linear_regression;
mod logistic_regression;
pub mod matrix_factorisation;
mod naive_bayes;
mod perceptron;
mod pipelined_perceptron;
mod survival_regression;
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
    naive_bayes::ENTRY,
    perceptron::ENTRY,
    factorisation_machine::ENTRY,
    isotonic_regression::ENTRY,
    survival_regression::ENTRY,
    lasso::ENTRY,
    elastic_net::ENTRY,
    linear_svm::ENTRY,
    kernel_svm::ENTRY,
];
