//! Bulk-synchronous parallel (Valiant, 1990): a step starts when all workers have finished the one before, so
//! everyone reads the same model and a run is as reproducible as with one worker. The slowest sets the pace.

use super::BuildGate;
use crate::Gate;
use starlings_core::{Ability, Entry, Step};

pub(super) const ENTRY: Entry<BuildGate> = Entry {
    name: "bsp",
    summary: "All workers finish a step before anyone starts the next: exact and reproducible",
    reference: "Valiant: A bridging model for parallel computation, 1990",
    params: &[],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum],
    build: |_| Ok(Box::new(Bulk)),
};

struct Bulk;

impl Gate for Bulk {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        slowest >= step.0
    }

    fn lead_max(&self) -> Option<u64> {
        Some(0)
    }
}
