//! Elastic averaging SGD (Zhang, Choromanska and LeCun, 2015), the synchronous form: replicas are never made equal
//! but tied to a centre by springs, so that each explores on its own and the centre averages over workers and
//! over time.
//!
//! Every τ steps, with x̃ the centre: xᵢ ← xᵢ − α(xᵢ − x̃) and x̃ ← x̃ + α Σ(xᵢ − x̃). By default α = β/P with
//! β = 0.9, as in the paper; αP above 1 makes the centre overshoot. At an ending all take the centre. A flock of one
//! has nobody to be tied to: its centre is its model.

use super::{steps, together};
use crate::anchor::{anchor, change, deltas, due, moved, prepare, settle, summed, weights};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Entry, Model, Param, ParamKind, Update};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "elastic-averaging",
    summary: "Each worker keeps its own model, drawn to a common centre that follows them all",
    reference: "Zhang, Choromanska and LeCun: Deep learning with elastic averaging SGD, NIPS 2015",
    params: &[
        steps("8"),
        Param {
            name: "alpha",
            kind: ParamKind::Float { min: 0.0, max: 1.0 },
            default: Some("0.0"),
            help: "strength of the spring between a worker and the centre; 0 is automatic, 0.9/P with P workers",
        },
    ],
    gives: &[Ability::Barrier],
    // What it offers is where a replica is, not how far it went: what a codec lost would be offered again by itself, and
    // once more by error feedback.
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel, Ability::Elementwise],
    build: |params| {
        let (steps, alpha) = (params.size("steps") as u64, params.f64("alpha"));
        Ok(together(ElasticAveraging { steps, alpha }))
    },
};

/// The paper's β: how much of the way to the mean of the replicas the centre goes.
const BETA: f64 = 0.9;

struct ElasticAveraging {
    steps: u64,
    alpha: f64,
}

impl Blend for ElasticAveraging {
    fn share(&self) -> Share {
        Share::Own
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        (round == 0 && due(at, self.steps)).then(|| deltas(at, model))
    }

    fn absorb(&self, at: &At, _round: u32, sum: &Update, model: &mut Model) {
        // An ending after an exchange at the same step takes the centre and does not move it again.
        let moved = moved(at, model);
        let alpha = match at.world {
            1 => 1.0,
            _ if self.alpha > 0.0 => self.alpha,
            world => BETA / f64::from(world),
        };
        let joins = at.ending || at.world == 1;
        for name in weights(model) {
            change(model, [&name, &anchor(&name)], summed(sum, &name), |[own, centre], sum| {
                let next = if moved { centre + alpha * sum } else { centre };
                [if joins { next } else { own - alpha * (own - centre) }, next]
            });
        }
        settle(at, sum, model);
    }
}
