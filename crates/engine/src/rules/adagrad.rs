//! AdaGrad at the owner (Duchi, Hazan and Singer, 2011): each number's step shrinks with the squares of the
//! gradients it has seen. DistBelief's choice, for it forgives stale gradients (Dean et al., 2012).

use super::{BuildRule, RATE, Row, Rule, beside_each, each_row};
use starlings_core::{Entry, Model, Result, Update};
use starlings_learn::Moment;
use std::sync::Arc;

pub(super) const ENTRY: Entry<BuildRule> = Entry {
    name: "adagrad",
    summary: "What is pushed is a gradient: steps shrink with the squares of those seen before",
    reference: "Duchi, Hazan and Singer: Adaptive subgradient methods for online learning, JMLR 2011",
    params: &[RATE],
    gives: &[],
    needs: &[],
    build: |params| Ok(Arc::new(AdaGrad { rate: params.f64("learning_rate") })),
};

const SQUARES: &str = "squares";

struct AdaGrad {
    rate: f64,
}

impl Rule for AdaGrad {
    fn prepare(&self, model: &mut Model) {
        beside_each(model, &[SQUARES]);
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<()> {
        each_row(model, update, &[SQUARES], |Row { values, mut state, pushed }| {
            let squares = state.pop().expect("one was asked for");
            for ((value, square), slope) in values.iter_mut().zip(squares).zip(pushed) {
                *square += slope * slope;
                *value -= self.rate * slope / (square.sqrt() + 1e-10);
            }
        })
    }
}
