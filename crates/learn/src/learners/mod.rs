//! The catalogue of learners: one file or folder each, two lines here.

mod bisecting_k_means;
mod boosted_stumps;
mod decision_tree;
mod elastic_net;
mod ensembles;
mod factorisation_machine;
mod feature_selection;
pub mod gaussian_mixture;
mod generalised_linear;
mod gradient_boosting;
mod isolation_forest;
mod isotonic_regression;
pub mod k_means;
mod kernel_svm;
mod label_propagation;
mod lasso;
mod linear_regression;
mod linear_svm;
mod logistic_regression;
pub mod matrix_factorisation;
mod naive_bayes;
mod pca;
mod perceptron;
mod pipelined_perceptron;
mod power_iteration_clustering;
mod random_forest;
mod ridge;
mod survival_regression;
mod topic_model;
mod truncated_svd;

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
    gradient_boosting::ENTRY,
    decision_tree::ENTRY,
    random_forest::ENTRY,
    isolation_forest::ENTRY,
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
    bisecting_k_means::ENTRY,
    gaussian_mixture::ENTRY,
    power_iteration_clustering::ENTRY,
    pca::ENTRY,
    truncated_svd::ENTRY,
    feature_selection::ENTRY,
    ensembles::BAGGING,
    ensembles::ADABOOST,
    ensembles::VOTING,
    ensembles::STACKING,
    ensembles::BUCKET,
    ensembles::SELF_TRAINING,
    label_propagation::PROPAGATION,
    label_propagation::SPREADING,
];
