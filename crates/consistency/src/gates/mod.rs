//! The catalogue of gates: one file each, two lines here.

mod asynchronous;
mod bulk;
mod stale;

use crate::Gate;
use starlings_core::{Entry, Params, Result};

/// How a gate is built from checked parameters.
pub type BuildGate = fn(&Params) -> Result<Box<dyn Gate>>;

/// All gates.
pub static GATES: &[Entry<BuildGate>] = &[asynchronous::ENTRY, bulk::ENTRY, stale::ENTRY];
