//! Delay-compensated asynchronous SGD (Zheng et al., 2017): a gradient that was made at w_read is carried to w_now by the
//! first term of its Taylor series, in which the outer product of the gradient stands for the Hessian, and its
//! diagonal for the whole: g + λ g⊙g⊙(w_now − w_read).
//!
//! The formula is for mean gradients: a contribution, which is a sum over `share` rows, is divided by it first and
//! multiplied afterwards. This is DC-ASGD-c, with a constant λ; the adaptive form divides λ by a running mean square of
//! the gradients at each owner, and a temper has no state.

use crate::gates::{BOUND, GATE, chosen};
use crate::{Blending, BuildConsistency, Consistency, Late, Temper};
use starlings_core::{Ability, Entry, Param, ParamKind, Rows, Values};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "delay-compensated",
    summary: "Owners correct a late gradient for how the model has moved since it was read",
    reference: "Zheng et al.: Asynchronous stochastic gradient descent with delay compensation, ICML 2017",
    params: &[
        Param {
            name: "lambda",
            kind: ParamKind::Float { min: 0.0, max: 1e6 },
            default: Some("0.04"),
            help: "how much of the correction is applied; 0 is none",
        },
        GATE,
        BOUND,
    ],
    gives: &[],
    needs: &[Ability::Served, Ability::Anytime, Ability::RowWise, Ability::OneWay],
    build: |params| {
        let blend = Blending::Tempered(Box::new(DelayCompensated { lambda: params.f64("lambda") }));
        Ok(Consistency { gate: chosen(params), blend })
    },
};

struct DelayCompensated {
    lambda: f64,
}

impl Temper for DelayCompensated {
    fn temper(&self, rows: &mut Rows, late: &Late<'_>) {
        let (Some(read), Some(now)) = (late.read, late.now) else { return };
        assert!(
            rows.index == read.index && rows.index == now.index,
            "what was read and what there is are not the rows of the contribution"
        );
        // λ g² share (now − read) with g = sum / share.
        let scale = self.lambda / late.share.max(1) as f64;
        match (&mut rows.values, &read.values, &now.values) {
            (Values::F32(sums), Values::F32(read), Values::F32(now)) => {
                let moves = now.iter().zip(read).map(|(now, read)| now - read);
                sums.iter_mut().zip(moves).for_each(|(g, moved)| {
                    *g += scale as f32 * *g * *g * moved;
                });
            }
            (Values::F64(sums), Values::F64(read), Values::F64(now)) => {
                let moves = now.iter().zip(read).map(|(now, read)| now - read);
                sums.iter_mut().zip(moves).for_each(|(g, moved)| *g += scale * *g * *g * moved);
            }
            // Integers are counts, not gradients.
            _ => {}
        }
    }

    fn remembers(&self) -> bool {
        true
    }
}
