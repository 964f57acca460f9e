//! Rows that a model makes up: what a generative model has learned, for people to look at.

/// Rows made up by a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Samples {
    /// Numbers of a row.
    pub width: usize,
    /// Their numbers, row after row.
    pub values: Vec<f32>,
}
