//! The catalogue of consistency models: gates alone, and blends with a gate inside. One file each, two lines
//! here.

mod approximate;
mod block_momentum;
mod consensus_control;
mod delay_compensated;
mod diloco;
mod downpour;
mod dynamic_averaging;
mod elastic_averaging;
mod local;
mod staleness_aware;

use crate::gates::{ASYNCHRONOUS, BACKUP, BULK, Bulk, STALE};
use crate::{Blend, Blending, BuildConsistency, Consistency};
use starlings_core::{Entry, Param, ParamKind};

/// All consistency models.
pub static CONSISTENCIES: &[Entry<BuildConsistency>] = &[
    BULK,
    STALE,
    ASYNCHRONOUS,
    BACKUP,
    local::ENTRY,
    block_momentum::ENTRY,
    elastic_averaging::ENTRY,
    diloco::ENTRY,
    dynamic_averaging::ENTRY,
    approximate::ENTRY,
    consensus_control::ENTRY,
    staleness_aware::ENTRY,
    delay_compensated::ENTRY,
    downpour::ENTRY,
];

/// How many local steps lie between two exchanges.
const fn steps(default: &'static str) -> Param {
    Param {
        name: "steps",
        kind: ParamKind::Integer { min: 1, max: 1_000_000 },
        default: Some(default),
        help: "local steps between two exchanges",
    }
}

/// A blend whose exchanges all workers finish together.
fn together(blend: impl Blend + 'static) -> Consistency {
    Consistency { gate: Box::new(Bulk), blend: Blending::Local(Box::new(blend)) }
}
