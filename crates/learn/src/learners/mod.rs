//! The catalogue of learners: one file or folder each, two lines here.

use crate::Learner;
use starlings_core::{Entry, Params, Result};

/// How a learner is built from checked parameters.
pub type BuildLearner = fn(&Params) -> Result<Box<dyn Learner>>;

/// All learners.
pub static LEARNERS: &[Entry<BuildLearner>] = &[];
