//! Learners against what other people's programs found: figures in `bench/references`, made by the scripts beside them.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod ensembles;
mod factorisation_machine;
mod few_labels;
mod isotonic_regression;
mod naive_bayes;
mod other_libraries;
mod perceptron;
mod survival_regression;
mod world;
