//! DiLoCo (Douillard et al., 2023): many local steps of any inner optimiser, whose mean move is the gradient of an
//! outer one, SGD with Nesterov's momentum. Made for exchanges hundreds of steps apart, over slow links.
//!
//! With the outer gradient g = Σ(θ − xᵢ) / P: m ← μm + g, θ ← θ − ν(g + μm), and all replicas go on at θ.
//!
//! Its replicas walk as those of block momentum in Nesterov's form with the same constants do, as the algebra shows;
//! what differs are the constants, which here do not depend on the number of workers, and what is left at an ending:
//! here the outer parameters, there the global model behind them.

use super::{steps, together};
use crate::anchor::{
    add_zeros, anchor, average_tracked, beside, change, deltas, due, led, moved, prepare, settle,
    summed,
};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Entry, Model, Param, ParamKind, Update, faded, faint};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "diloco",
    summary: "Workers take many steps on their own; an outer optimiser with momentum follows their mean move",
    reference: "Douillard et al.: DiLoCo: Distributed low-communication training of language models, arXiv 2311.08105, 2023",
    params: &[
        steps("50"),
        Param {
            name: "outer_rate",
            kind: ParamKind::Float { min: 1e-6, max: 100.0 },
            default: Some("0.7"),
            help: "learning rate of the outer optimiser",
        },
        Param {
            name: "outer_momentum",
            kind: ParamKind::Float { min: 0.0, max: 0.9999 },
            default: Some("0.9"),
            help: "Nesterov's momentum of the outer optimiser",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        Ok(together(DiLoCo {
            steps: params.size("steps") as u64,
            rate: params.f64("outer_rate"),
            momentum: params.f64("outer_momentum"),
        }))
    },
};

/// The outer momentum m.
const MOMENTUM: &str = "momentum";

struct DiLoCo {
    steps: u64,
    rate: f64,
    momentum: f64,
}

impl Blend for DiLoCo {
    fn share(&self) -> Share {
        Share::Own
    }

    fn averages(&self) -> bool {
        true
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
        let names = led(model);
        add_zeros(model, &names, MOMENTUM);
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        (round == 0 && due(at, self.steps)).then(|| deltas(at, model))
    }

    fn absorb(&self, at: &At, _round: u32, sum: &Update, model: &mut Model) {
        let world = f64::from(at.world);
        let names = if moved(at, model) { led(model) } else { Vec::new() };
        for name in names {
            let tensors = [&*name, &anchor(&name), &beside(MOMENTUM, &name)];
            let sums = summed(sum, &name);
            let faint = faint(sums.kind());
            change(model, tensors, sums, |[_, outer, momentum], sum| {
                let gradient = -sum / world;
                let momentum = faded(self.momentum * momentum + gradient, faint);
                let outer = outer - self.rate * (gradient + self.momentum * momentum);
                [outer, outer, momentum]
            });
        }
        average_tracked(at, sum, model);
        settle(at, sum, model);
    }
}
