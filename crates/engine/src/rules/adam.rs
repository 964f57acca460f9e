//! Adam at the owner (Kingma and Ba, 2015), counted for each row by itself: a row that is seldom pushed takes
//! its first step as large as any.

use super::{BuildRule, RATE, Row, Rule, beside_each, each_row};
use starlings_core::{Entry, Model, Result, Update};
use starlings_learn::Moment;
use std::sync::Arc;

pub(super) const ENTRY: Entry<BuildRule> = Entry {
    name: "adam",
    summary: "What is pushed is a gradient: steps by running means of gradients and their squares",
    reference: "Kingma and Ba: Adam: a method for stochastic optimization, ICLR 2015",
    params: &[RATE],
    gives: &[],
    needs: &[],
    build: |params| Ok(Arc::new(Adam { rate: params.f64("learning_rate") })),
};

const STATE: &[&str] = &["means", "squares", "counts"];
const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f64 = 1e-8;

struct Adam {
    rate: f64,
}

impl Rule for Adam {
    fn prepare(&self, model: &mut Model) {
        beside_each(model, STATE);
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<()> {
        each_row(model, update, STATE, |Row { values, state, pushed }| {
            let [means, squares, counts] = <[&mut [f64]; 3]>::try_from(state).expect("three");
            for (at, (value, slope)) in values.iter_mut().zip(pushed).enumerate() {
                counts[at] += 1.0;
                means[at] = BETA1 * means[at] + (1.0 - BETA1) * slope;
                squares[at] = BETA2 * squares[at] + (1.0 - BETA2) * slope * slope;
                let mean = means[at] / (1.0 - BETA1.powf(counts[at]));
                let square = squares[at] / (1.0 - BETA2.powf(counts[at]));
                *value -= self.rate * mean / (square.sqrt() + EPSILON);
            }
        })
    }
}
