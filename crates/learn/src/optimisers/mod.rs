//! Optimisers: pure functions on slices with explicit state, so that the state can live in the model and a
//! server can step the rows it owns.

pub(crate) mod adagrad;
pub(crate) mod adam;
pub(crate) mod adamw;
pub(crate) mod conjugate_gradient;
pub(crate) mod lamb;
pub(crate) mod lbfgs;
pub(crate) mod line_search;
pub(crate) mod momentum;
pub(crate) mod nesterov;
pub(crate) mod orthant;
pub(crate) mod probing;
pub(crate) mod resting;
pub(crate) mod rmsprop;
pub(crate) mod sgd;
