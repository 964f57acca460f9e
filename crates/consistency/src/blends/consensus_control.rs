//! Consensus control (Kong et al., 2021): in decentralised training the models of the workers need not be equal, but
//! beyond a critical distance from their mean they learn less well. That distance is of the order of a step, so
//! neighbours mix after each step until they are within a fraction of the steps' size: Γ = ratio × an exponential mean
//! of the norms of the steps. Where the graph mixes fast or models are close, once is enough.
//!
//! Nobody knows the mean. The engine bounds the distance from it by what a round of mixing has moved the models, times what the
//! spectrum of the graph allows (`starlings_topology::lag`): 4 on a ring of eight, 19 on one of sixteen. So below the limit of
//! rounds the true distance is never above the critical one.

use crate::gates::Bulk;
use crate::{Blending, BuildConsistency, Consistency, MixControl};
use starlings_core::{Ability, Entry, Param, ParamKind};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "consensus-control",
    summary: "Neighbours mix as often as it takes to keep their models within a fraction of a step of each other",
    reference: "Kong et al.: Consensus control for decentralized deep learning, ICML 2021",
    params: &[
        Param {
            name: "ratio",
            kind: ParamKind::Float { min: 0.0, max: 1e6 },
            default: Some("0.5"),
            help: "distance from the mean that is allowed after mixing, as a fraction of the size of a step",
        },
        Param {
            name: "rounds_max",
            kind: ParamKind::Integer { min: 1, max: 10_000 },
            default: Some("16"),
            help: "how often neighbours mix after a step at most, however far apart they still are",
        },
    ],
    gives: &[Ability::Barrier],
    needs: &[Ability::Mixing, Ability::LocalSteps, Ability::WholeModel],
    build: |params| {
        let rounds_max = u32::try_from(params.size("rounds_max")).expect("declared smaller");
        let control = ConsensusControl { ratio: params.f64("ratio"), rounds_max };
        Ok(Consistency { gate: Box::new(Bulk), blend: Blending::Mixing(Box::new(control)) })
    },
};

/// The weight of the past in the exponential mean.
const MEMORY: f64 = 0.9;

struct ConsensusControl {
    ratio: f64,
    rounds_max: u32,
}

impl MixControl for ConsensusControl {
    fn again(&self, _steps: u64, rounds: u32, distance: f64, critical: f64) -> bool {
        rounds == 0 || (rounds < self.rounds_max && distance > critical)
    }

    fn critical(&self, moved: f64, before: f64) -> f64 {
        let now = self.ratio * moved;
        // At the start there is no past to remember.
        if before > 0.0 { MEMORY * before + (1.0 - MEMORY) * now } else { now }
    }
}
