//! Delay-compensated asynchronous SGD (Zheng et al., 2017): a gradient that was made at w_read is carried to w_now by the
//! first term of its Taylor series, in which the outer product of the gradient stands for the Hessian, and its
//! diagonal for the whole: g + λ g⊙g⊙(w_now − w_read).
//!
//! The formula is for mean gradients: a contribution, which is a sum over `share` rows, is divided by it first and
//! multiplied afterwards. With a constant λ this is DC-ASGD-c; with a `decay` m it is DC-ASGD-a, whose λ is that of each
//! number, λ / √(s + 10⁻⁷), where s ← m s + (1 − m) g² is a running mean square that the owner keeps. After a resume, or at
//! a new owner, s begins anew.

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
        Param {
            name: "decay",
            kind: ParamKind::Float { min: 0.0, max: 0.999_999 },
            default: Some("0.0"),
            help: "adaptive form: lambda is divided by the root of a running mean square of gradients with this decay (0.95 in the paper); 0 keeps it constant",
        },
        GATE,
        BOUND,
    ],
    gives: &[],
    needs: &[Ability::Served, Ability::Anytime, Ability::RowWise, Ability::OneWay],
    build: |params| {
        let (lambda, decay) = (params.f64("lambda"), params.f64("decay"));
        let blend = Blending::Tempered(Box::new(DelayCompensated { lambda, decay }));
        Ok(Consistency { gate: chosen(params), blend })
    },
};

/// Keeps λ finite where all gradients were zero.
const EPSILON: f64 = 1e-7;

struct DelayCompensated {
    lambda: f64,
    /// Of the mean square of gradients; 0 for a constant λ.
    decay: f64,
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
        if let Some(squares) = late.squares.and_then(|rows| rows.values.as_f64()) {
            let roots = squares.iter().map(|square| (square + EPSILON).sqrt());
            return adapted(&mut rows.values, (&read.values, &now.values), scale, roots);
        }
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

    fn decay(&self) -> Option<f64> {
        (self.decay > 0.0).then_some(self.decay)
    }
}

/// The adaptive form: the scale of each number is divided by the root of its mean square.
fn adapted(
    sums: &mut Values,
    (read, now): (&Values, &Values),
    scale: f64,
    roots: impl Iterator<Item = f64>,
) {
    match (sums, read, now) {
        (Values::F32(sums), Values::F32(read), Values::F32(now)) => {
            let moves = now.iter().zip(read).map(|(now, read)| f64::from(now - read));
            for ((g, moved), root) in sums.iter_mut().zip(moves).zip(roots) {
                let sum = f64::from(*g);
                *g = (sum + scale / root * sum * sum * moved) as f32;
            }
        }
        (Values::F64(sums), Values::F64(read), Values::F64(now)) => {
            let moves = now.iter().zip(read).map(|(now, read)| now - read);
            for ((g, moved), root) in sums.iter_mut().zip(moves).zip(roots) {
                *g += scale / root * *g * *g * moved;
            }
        }
        // Integers are counts, not gradients.
        _ => {}
    }
}
