//! Bulk-synchronous parallel (Valiant, 1990): a step starts when all workers have finished the one before, so
//! everyone reads the same model and a run is as reproducible as with one worker. The slowest sets the pace.

use crate::{Blending, BuildConsistency, Consistency, Gate};
use starlings_core::{Ability, Entry, Step};

pub(crate) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "bsp",
    summary: "All workers finish a step before anyone starts the next: exact and reproducible",
    reference: "Valiant: A bridging model for parallel computation, 1990",
    params: &[],
    gives: &[Ability::Barrier],
    needs: &[],
    build: |_| Ok(Consistency { gate: Box::new(Bulk), blend: Blending::Plain }),
};

pub(crate) struct Bulk;

impl Gate for Bulk {
    fn fresh(&self, step: Step, slowest: u64) -> bool {
        slowest >= step.0
    }

    fn lead_max(&self) -> Option<u64> {
        Some(0)
    }
}
