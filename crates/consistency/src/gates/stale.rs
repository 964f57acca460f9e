//! Stale-synchronous parallel (Ho et al., 2013): a worker may run ahead of the slowest by at most `bound`
//! steps, so it reads a model that misses at most that much. Short delays are hidden, and convergence is
//! still proved. With bound 0 it is bulk-synchronous.
//!
//! With `push`, owners send fresh rows by themselves when a clock advances (Dai et al., 2015: ESSP): workers then
//! mostly read rows as fresh as the network allows, instead of rows that have just become too old.

use crate::{Blending, BuildConsistency, Consistency, Gate};
use starlings_core::{Ability, Entry, Param, ParamKind, Step};

pub(crate) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "ssp",
    summary: "Fast workers may run a few steps ahead of the slowest, and no more",
    reference: "Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013; Dai et al.: High-performance distributed ML at scale through parameter server consistency models, AAAI 2015",
    params: &[
        Param {
            name: "bound",
            kind: ParamKind::Integer { min: 0, max: 1_000_000 },
            default: Some("3"),
            help: "steps that a worker may be ahead of the slowest; 0 is bulk-synchronous",
        },
        Param {
            name: "push",
            kind: ParamKind::Flag,
            default: Some("true"),
            help: "owners send fresh rows by themselves instead of waiting to be asked",
        },
    ],
    gives: &[],
    needs: &[Ability::Served, Ability::RowWise, Ability::OneWay],
    build: |params| {
        let gate = Stale { bound_steps: params.size("bound") as u64, push: params.flag("push") };
        Ok(Consistency { gate: Box::new(gate), blend: Blending::Plain })
    },
};

pub(crate) struct Stale {
    pub(crate) bound_steps: u64,
    pub(crate) push: bool,
}

impl Gate for Stale {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        slowest.saturating_add(self.bound_steps) >= step.0
    }

    fn lead_max(&self) -> Option<u64> {
        Some(self.bound_steps)
    }

    fn pushes(&self) -> bool {
        self.push
    }
}
