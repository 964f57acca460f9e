//! Backup workers (Chen et al., 2016): a barrier that does not wait for the last few. A step is complete when all
//! but `spare` workers have contributed; what comes later is dropped, and its worker goes on with the step of
//! the others. The gradient stays synchronous, of fewer rows; the slowest no longer set the pace.

use crate::{Blending, BuildConsistency, Consistency, Gate};
use starlings_core::{Ability, Entry, Param, ParamKind, Step};

pub(crate) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "backup-workers",
    summary: "A step ends when all but a few spare workers have contributed; those who come late are left out",
    reference: "Chen et al.: Revisiting distributed synchronous SGD, arXiv 1604.00981, 2016",
    params: &[Param {
        name: "spare",
        kind: ParamKind::Integer { min: 0, max: 1_000_000 },
        default: Some("1"),
        help: "workers (or groups of them) that a step does not wait for; at least one is always waited for",
    }],
    gives: &[],
    needs: &[Ability::Served, Ability::RowWise, Ability::OneWay],
    build: |params| {
        let spare = u32::try_from(params.size("spare")).expect("declared with a smaller max");
        Ok(Consistency { gate: Box::new(Backup { spare }), blend: Blending::Plain })
    },
};

struct Backup {
    spare: u32,
}

impl Gate for Backup {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        slowest >= step.0
    }

    fn lead_max(&self) -> Option<u64> {
        Some(0)
    }

    fn quorum(&self, world: u32) -> u32 {
        world.saturating_sub(self.spare).max(1)
    }
}
