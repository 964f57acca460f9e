//! The catalogue of topologies: one file each, two lines here.

mod ring;
mod star;
mod tree;

use crate::Topology;
use starlings_core::{Entry, Params, Result};

/// How a topology is built from checked parameters.
pub type BuildTopology = fn(&Params) -> Result<Box<dyn Topology>>;

/// All topologies.
pub static TOPOLOGIES: &[Entry<BuildTopology>] = &[ring::ENTRY, star::ENTRY, tree::ENTRY];
