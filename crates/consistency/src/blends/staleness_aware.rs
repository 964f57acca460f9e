//! Staleness-aware asynchronous SGD (Gupta et al., 2016: Rudra; Zhang et al., 2016): a gradient that was made τ updates
//! ago is divided by τ, so that late workers still help and no longer push the model off its way.

use crate::gates::{BOUND, GATE, chosen};
use crate::{Blending, BuildConsistency, Consistency, Late, Temper};
use starlings_core::{Ability, Entry, Rows, Values};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "staleness-aware",
    summary: "Owners divide a late contribution by how many updates it has missed",
    reference: "Zhang, Gupta, Lian and Liu: Staleness-aware async-SGD for distributed deep learning, IJCAI 2016; Gupta, Zhang and Wang: Model accuracy and runtime tradeoff in distributed deep learning, ICDM 2016",
    params: &[GATE, BOUND],
    gives: &[],
    needs: &[Ability::Served, Ability::Anytime, Ability::RowWise, Ability::OneWay],
    build: |params| {
        let blend = Blending::Tempered(Box::new(StalenessAware));
        Ok(Consistency { gate: chosen(params), blend })
    },
};

struct StalenessAware;

impl Temper for StalenessAware {
    fn temper(&self, rows: &mut Rows, late: &Late<'_>) {
        let staleness = late.staleness.max(1) as f64;
        match &mut rows.values {
            Values::F32(values) => values.iter_mut().for_each(|g| *g /= staleness as f32),
            Values::F64(values) => values.iter_mut().for_each(|g| *g /= staleness),
            Values::I64(_) => {}
        }
    }

    fn remembers(&self) -> bool {
        false
    }
}
