//! Blockwise model-update filtering (Chen and Huo, 2016): the mean move of a block of local steps is not taken as
//! it is, but filtered by a momentum over blocks, which makes up for the averaging: with P workers each move is
//! 1/P too cautious, and a momentum of 1 − 1/P adds up to the missing factor.
//!
//! With W the global model, the replicas' common start S, and G = Σ(xᵢ − S) / P:
//! Δ ← ηΔ + ζG, W ← W + Δ. The next block starts at W (classical) or at W + ηΔ (Nesterov's form).
//! At an ending all hold W, the global model; in Nesterov's form a job that goes on starts its block there.

use super::{steps, together};
use crate::anchor::{
    add_copy, add_zeros, anchor, average_tracked, beside, change, deltas, due, led, moved, prepare,
    settle, summed,
};
use crate::{At, Blend, BuildConsistency, Share};
use starlings_core::{Ability, Entry, Model, Param, ParamKind, Update, faded, faint};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "block-momentum",
    summary: "Workers take a block of local steps; the mean move is filtered by a momentum over blocks",
    reference: "Chen and Huo: Scalable training of deep learning machines by incremental block training with intra-block parallel optimization and blockwise model-update filtering, ICASSP 2016",
    params: &[
        steps("8"),
        Param {
            name: "momentum",
            kind: ParamKind::Float { min: 0.0, max: 0.9999 },
            default: Some("0.0"),
            help: "momentum over blocks; 0 is automatic, 1 - 1/P with P workers",
        },
        Param {
            name: "rate",
            kind: ParamKind::Float { min: 1e-6, max: 100.0 },
            default: Some("1.0"),
            help: "how much of the mean move of a block is taken",
        },
        Param {
            name: "nesterov",
            kind: ParamKind::Flag,
            default: Some("false"),
            help: "start the next block where the momentum leads, not at the global model",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Sum, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        Ok(together(BlockMomentum {
            steps: params.size("steps") as u64,
            momentum: params.f64("momentum"),
            rate: params.f64("rate"),
            nesterov: params.flag("nesterov"),
        }))
    },
};

/// The momentum Δ.
const MOVE: &str = "move";
/// The global model W, where it is not the start of the block.
const GLOBAL: &str = "global";

struct BlockMomentum {
    steps: u64,
    momentum: f64,
    rate: f64,
    nesterov: bool,
}

impl Blend for BlockMomentum {
    fn share(&self) -> Share {
        Share::Own
    }

    fn averages(&self) -> bool {
        true
    }

    fn prepare(&self, model: &mut Model) {
        prepare(model);
        let names = led(model);
        add_zeros(model, &names, MOVE);
        if self.nesterov {
            for name in &names {
                add_copy(model, name, GLOBAL);
            }
        }
    }

    fn offer(&self, at: &At, round: u32, model: &mut Model) -> Option<Update> {
        (round == 0 && due(at, self.steps)).then(|| deltas(at, model))
    }

    fn absorb(&self, at: &At, _round: u32, sum: &Update, model: &mut Model) {
        let moved = moved(at, model);
        for name in led(model) {
            let values = summed(sum, &name);
            let (start, step) = (anchor(&name), beside(MOVE, &name));
            let faint = faint(values.kind());
            let filtered = |step, sum| faded(self.filtered(at, step, sum), faint);
            if self.nesterov {
                let global = beside(GLOBAL, &name);
                change(
                    model,
                    [&name, &start, &step, &global],
                    values,
                    |[_, _, step, global], sum| {
                        let next = if moved { filtered(step, sum) } else { step };
                        let global = if moved { global + next } else { global };
                        let ahead = if at.ending { 0.0 } else { self.momentum(at.world) * next };
                        [global + ahead, global + ahead, next, global]
                    },
                );
            } else if moved {
                change(model, [&name, &start, &step], values, |[_, start, step], sum| {
                    let next = filtered(step, sum);
                    [start + next, start + next, next]
                });
            }
        }
        average_tracked(at, sum, model);
        settle(at, sum, model);
    }
}

impl BlockMomentum {
    /// The next Δ.
    fn filtered(&self, at: &At, step: f64, sum: f64) -> f64 {
        self.momentum(at.world) * step + self.rate * (sum / f64::from(at.world))
    }

    fn momentum(&self, world: u32) -> f64 {
        if self.momentum > 0.0 { self.momentum } else { 1.0 - 1.0 / f64::from(world) }
    }
}
