//! The gates: one file each, two lines here. They stand in the catalogue beside the blends (`blends/mod.rs`),
//! some of which have a gate inside.

mod asynchronous;
mod backup;
mod bulk;
mod stale;

pub(crate) use asynchronous::ENTRY as ASYNCHRONOUS;
pub(crate) use backup::ENTRY as BACKUP;
pub(crate) use bulk::ENTRY as BULK;
pub(crate) use stale::ENTRY as STALE;

pub(crate) use asynchronous::Asynchronous;
pub(crate) use bulk::Bulk;

use crate::Gate;
use stale::Stale;
use starlings_core::{Param, ParamKind, Params};

/// The gate inside a blend that works at owners.
pub(crate) const GATE: Param = Param {
    name: "gate",
    kind: ParamKind::Choice(&["async", "ssp"]),
    default: Some("async"),
    help: "whether workers may run ahead without a bound or with one",
};

/// The bound of that gate.
pub(crate) const BOUND: Param = Param {
    name: "bound",
    kind: ParamKind::Integer { min: 0, max: 1_000_000 },
    default: Some("3"),
    help: "steps that a worker may be ahead of the slowest, if the gate is ssp",
};

/// The gate that [`GATE`] and [`BOUND`] say.
pub(crate) fn chosen(params: &Params) -> Box<dyn Gate> {
    match params.text("gate") {
        // Rows that come unasked may reach a worker after its contribution was made: an owner that weighs
        // how late a contribution is must know what was read.
        "ssp" => Box::new(Stale { bound_steps: params.size("bound") as u64, push: false }),
        _ => Box::new(Asynchronous),
    }
}
