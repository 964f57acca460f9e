//! Totally asynchronous (Recht et al., 2011: Hogwild!; Dean et al., 2012: Downpour): nobody waits for anybody.
//! The fastest of all gates per step, and the only one without a bound on how old a model a worker reads.

use crate::{Blending, BuildConsistency, Consistency, Gate};
use starlings_core::{Ability, Entry, Step};

pub(crate) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "async",
    summary: "Nobody waits: each worker reads whatever model there is",
    reference: "Recht et al.: Hogwild!, NIPS 2011; Dean et al.: Large scale distributed deep networks, NIPS 2012",
    params: &[],
    gives: &[Ability::Unbounded],
    needs: &[Ability::Anytime, Ability::RowWise, Ability::OneWay],
    build: |_| Ok(Consistency { gate: Box::new(Asynchronous), blend: Blending::Plain }),
};

pub(crate) struct Asynchronous;

impl Gate for Asynchronous {
    fn fresh(&self, _step: Step, _slowest: u64) -> bool {
        true
    }

    fn lead_max(&self) -> Option<u64> {
        None
    }
}
