//! Local SGD (McMahan et al., 2017; Stich, 2019): every worker takes H steps on its own rows, then all take the mean
//! of their models. One exchange in H steps, and for convex problems the same rate up to a point.
//!
//! With anchor a and replicas xᵢ: a ← a + Σ(xᵢ − a) / P, and xᵢ ← a. An ending is an exchange, due or not.

use super::{steps, together};
use crate::anchor::{anchor, change, deltas, due, prepare, settle, summed, weights};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Entry, Model, Update};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "local",
    summary: "Workers take a few steps on their own, then all take the mean of their models",
    reference: "Stich: Local SGD converges fast and communicates little, ICLR 2019; McMahan et al.: Communication-efficient learning of deep networks from decentralized data, AISTATS 2017",
    params: &[steps("8")],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| Ok(together(Local { steps: params.size("steps") as u64 })),
};

struct Local {
    steps: u64,
}

impl Blend for Local {
    fn share(&self) -> Share {
        Share::Own
    }

    fn averages(&self) -> bool {
        true
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        (round == 0 && due(at, self.steps)).then(|| deltas(at, model))
    }

    fn absorb(&self, at: &At, _round: u32, sum: &Update, model: &mut Model) {
        let world = f64::from(at.world);
        for name in weights(model) {
            change(model, [&name, &anchor(&name)], summed(sum, &name), |[_, start], sum| {
                [start + sum / world; 2]
            });
        }
        settle(at, sum, model);
    }
}
