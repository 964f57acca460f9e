//! Optimisers: pure functions on slices with explicit state, so that the state can live in the model and a
//! server can step the rows it owns.

pub(crate) mod adagrad;
pub(crate) mod adam;
pub(crate) mod lbfgs;
pub(crate) mod line_search;
pub(crate) mod momentum;
pub(crate) mod resting;
pub(crate) mod sgd;
