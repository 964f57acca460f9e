//! Small dense matrices that every replica solves for itself, after the flock has summed them: row after row, f64.

pub(crate) mod cholesky;
pub(crate) mod orthonormal;
pub(crate) mod subspace;
pub(crate) mod symmetric;
