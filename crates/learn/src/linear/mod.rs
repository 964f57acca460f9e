//! What linear models share. A row's scores are w·x + b; a loss says what they cost; a penalty says what weights cost; a
//! solver finds the weights. A learner of this kind is a [`Subject`] (what labels and answers are) in a
//! [`Linear`] with a solver.

mod cholesky;
mod exact;
pub(crate) mod full_pass;
mod gram;
mod layout;
mod learner;
pub(crate) mod losses;
mod mini_batch;
mod moments;
pub(crate) mod params;
mod pass;
mod penalty;
mod problem;
mod regression;
mod solver;
mod units;
mod visitors;

pub(crate) use learner::{Linear, Scored, Subject};
pub(crate) use moments::Labels;
pub(crate) use penalty::Penalty;
pub(crate) use regression::Errors;
pub(crate) use solver::{FULL_PASS_NEEDS, Setup};
