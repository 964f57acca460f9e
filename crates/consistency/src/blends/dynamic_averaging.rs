//! Dynamic averaging (Kamp et al., 2018): replicas are averaged only when they have drifted apart. Each watches a
//! condition of its own, ‖xᵢ − r‖² ≤ Δ against the reference r, the last average. While all conditions hold, the mean
//! squared distance of the replicas to their mean is at most Δ; on a converged model nothing but a count travels.
//!
//! Every `check` steps round 0 sums how many conditions are broken: one integer. If any is, round 1 sums the deltas,
//! and all take the mean, which is the new r. The paper's coordinator may first try to average a few replicas;
//! with sums of the whole flock there is only its full synchronisation. An ending averages always.

use super::together;
use crate::anchor::{add_counter, anchor, change, deltas, due, prepare, settle, summed, weights};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Block, Entry, Model, Param, ParamKind, Update, Values};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "dynamic-averaging",
    summary: "Workers average their models, all of them, only when one has drifted too far (the paper may average some of them first)",
    reference: "Kamp et al.: Efficient decentralized deep learning by dynamic model averaging, ECML-PKDD 2018",
    params: &[
        Param {
            name: "divergence",
            kind: ParamKind::Float { min: 0.0, max: 1e12 },
            default: Some("0.1"),
            help: "squared distance from the last average beyond which a worker asks for a new one",
        },
        Param {
            name: "check",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("8"),
            help: "local steps between two looks at that distance",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        let (divergence, check) = (params.f64("divergence"), params.size("check") as u64);
        Ok(together(DynamicAveraging { divergence, check }))
    },
};

/// How many conditions are broken: what round 0 sums, and where `absorb` keeps the sum for round 1.
const VIOLATIONS: &str = "blend.violations";

struct DynamicAveraging {
    divergence: f64,
    check: u64,
}

impl Blend for DynamicAveraging {
    fn share(&self) -> Share {
        Share::Own
    }

    fn averages(&self) -> bool {
        true
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
        add_counter(model, VIOLATIONS);
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        match round {
            0 if due(at, self.check) => {
                // A distance that is no number is a broken condition too.
                let holds = squared_distance(model) <= self.divergence;
                Some(Update { blocks: vec![Block::counts(VIOLATIONS, vec![i64::from(!holds)])] })
            }
            1 if at.ending || model.i64(VIOLATIONS)[0] > 0 => Some(deltas(at, model)),
            _ => None,
        }
    }

    fn absorb(&self, at: &At, round: u32, sum: &Update, model: &mut Model) {
        if round == 0 {
            model.i64_mut(VIOLATIONS)[0] = sum.i64(VIOLATIONS)[0];
            return;
        }
        model.i64_mut(VIOLATIONS)[0] = 0;
        let world = f64::from(at.world);
        for name in weights(model) {
            change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, reference], sum| {
                [reference + sum / world; 2]
            });
        }
        settle(at, sum, model);
    }
}

/// ‖x − r‖² over all float weights.
fn squared_distance(model: &Model) -> f64 {
    let values = |name: &str| &model.get(name).expect("prepared").values;
    let of = |name: String| match (values(&name), values(&anchor(&name))) {
        (Values::F32(now), Values::F32(then)) => squares(now, then),
        (Values::F64(now), Values::F64(then)) => squares(now, then),
        _ => panic!("'{name}' and its reference hold different kinds of numbers"),
    };
    weights(model).into_iter().map(of).sum()
}

fn squares<T: Copy + Into<f64>>(now: &[T], then: &[T]) -> f64 {
    now.iter().zip(then).map(|(&now, &then)| (now.into() - then.into()).powi(2)).sum()
}
