//! What is pushed is added (Ho et al., 2013: the tables of SSP).

use super::{BuildRule, Row, Rule, each_row};
use starlings_core::{Entry, Model, Result, Update};
use starlings_learn::Moment;
use std::sync::Arc;

pub(super) const ENTRY: Entry<BuildRule> = Entry {
    name: "sum",
    summary: "What is pushed is added",
    reference: "Ho et al.: More effective distributed ML via a stale synchronous parallel parameter server, NIPS 2013",
    params: &[],
    gives: &[],
    needs: &[],
    build: |_| Ok(Arc::new(Sum)),
};

struct Sum;

impl Rule for Sum {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<()> {
        each_row(model, update, &[], |Row { values, pushed, .. }| {
            values.iter_mut().zip(pushed).for_each(|(value, pushed)| *value += pushed);
        })
    }
}
