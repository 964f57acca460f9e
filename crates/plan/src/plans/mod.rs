//! The catalogue of plans: one file each, two lines here.

mod data;
mod hybrid;
mod pipeline;
mod tensor;

use crate::Plan;
use starlings_core::{Entry, Params, Result};

/// How a plan is built from checked parameters.
pub type BuildPlan = fn(&Params) -> Result<Box<dyn Plan>>;

/// All plans.
pub static PLANS: &[Entry<BuildPlan>] =
    &[data::ENTRY, pipeline::ENTRY, hybrid::ENTRY, tensor::ENTRY];
