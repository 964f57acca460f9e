//! The catalogue of topologies: one file each, two lines here.

mod ako;
mod all_to_all;
mod averaging;
mod gossip;
mod grouped;
mod halton;
mod halving_doubling;
mod hierarchical;
mod mesh;
mod ring;
mod star;
mod tree;

use crate::{Form, Topology};
use starlings_core::{Entry, Fault, Params, Result};

/// How a topology is built from checked parameters.
pub type BuildTopology = fn(&Params) -> Result<Form>;

/// All topologies.
pub static TOPOLOGIES: &[Entry<BuildTopology>] = &[
    ring::ENTRY,
    tree::ENTRY,
    halving_doubling::ENTRY,
    hierarchical::ENTRY,
    star::ENTRY,
    mesh::ENTRY,
    all_to_all::ENTRY,
    averaging::ENTRY,
    halton::ENTRY,
    gossip::ENTRY,
    ako::ENTRY,
    grouped::ENTRY,
];

/// The sums that others may be put together from: each chunk is summed once, at one seat.
const PARTS: &[&str] = &["ring", "tree", "halving-doubling", "star"];

/// A topology that sums, by its name and with its defaults.
pub(crate) fn sum_named(name: &str) -> Result<Box<dyn Topology>> {
    let entry = Entry::find("topology", TOPOLOGIES, name)?;
    let form = (entry.build)(&Params::defaults(entry.params)?)?;
    form.sum().ok_or_else(|| Fault::caller(format!("the topology '{name}' does not sum")))
}
