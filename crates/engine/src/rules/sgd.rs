//! What is pushed is a gradient; the owner steps against it (Robbins and Monro, 1951).

use super::{BuildRule, RATE, Row, Rule, each_row};
use starlings_core::{Entry, Model, Result, Update};
use starlings_learn::Moment;
use std::sync::Arc;

pub(super) const ENTRY: Entry<BuildRule> = Entry {
    name: "sgd",
    summary: "What is pushed is a gradient: the owner takes a step of a fixed size against it",
    reference: "Robbins and Monro: A stochastic approximation method, 1951",
    params: &[RATE],
    gives: &[],
    needs: &[],
    build: |params| Ok(Arc::new(Sgd { rate: params.f64("learning_rate") })),
};

struct Sgd {
    rate: f64,
}

impl Rule for Sgd {
    fn prepare(&self, _: &mut Model) {}

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<()> {
        each_row(model, update, &[], |Row { values, pushed, .. }| {
            values.iter_mut().zip(pushed).for_each(|(value, slope)| *value -= self.rate * slope);
        })
    }
}
