//! Stale-synchronous parallel (Ho et al., 2013): a worker may run ahead of the slowest by at most `bound`
//! steps, so it reads a model that misses at most that much. Short delays are hidden, and convergence is
//! still proved. With bound 0 it is bulk-synchronous.

use super::BuildGate;
use crate::Gate;
use starlings_core::{Ability, Entry, Param, ParamKind, Step};

pub(super) const ENTRY: Entry<BuildGate> = Entry {
    name: "ssp",
    summary: "Fast workers may run a few steps ahead of the slowest, and no more",
    reference: "Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013",
    params: &[Param {
        name: "bound",
        kind: ParamKind::Integer { min: 0, max: 1_000_000 },
        default: Some("3"),
        help: "steps that a worker may be ahead of the slowest; 0 is bulk-synchronous",
    }],
    gives: &[],
    needs: &[Ability::Served, Ability::RowWise],
    build: |params| Ok(Box::new(Stale { bound_steps: params.size("bound") as u64 })),
};

struct Stale {
    bound_steps: u64,
}

impl Gate for Stale {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        slowest.saturating_add(self.bound_steps) >= step.0
    }

    fn lead_max(&self) -> Option<u64> {
        Some(self.bound_steps)
    }
}
