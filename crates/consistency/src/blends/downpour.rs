//! Downpour SGD (Dean et al., 2012): replicas that know nothing of each other accrue their gradients, push them to the
//! owners every `push` steps and fetch the model every `fetch` steps; between fetches they go on with their own copy.
//! Nobody waits, so a dead replica takes only its own rows along. The paper's two aids are the learner's AdaGrad and
//! `warm`: one replica trains alone for a while before the others begin.

use crate::gates::Asynchronous;
use crate::{Blending, BuildConsistency, Cadence, Consistency};
use starlings_core::{Ability, Entry, Param, ParamKind};

pub(super) const ENTRY: Entry<BuildConsistency> = Entry {
    name: "downpour",
    summary: "Replicas push gradients and fetch the model now and then, and nobody waits for anybody",
    reference: "Dean et al.: Large scale distributed deep networks, NIPS 2012",
    params: &[
        Param {
            name: "fetch",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("5"),
            help: "steps between two fetches of the model",
        },
        Param {
            name: "push",
            kind: ParamKind::Integer { min: 1, max: 1_000_000 },
            default: Some("5"),
            help: "steps between two pushes of the accrued gradients",
        },
        Param {
            name: "warm",
            kind: ParamKind::Integer { min: 0, max: 1_000_000 },
            default: Some("0"),
            help: "steps that one replica makes alone before the others begin",
        },
    ],
    gives: &[],
    needs: &[
        Ability::Anytime,
        Ability::RowWise,
        Ability::OneWay,
        Ability::Served,
        Ability::LocalSteps,
    ],
    build: |params| {
        let steps = |name| params.size(name) as u64;
        let cadence = Cadence { fetch: steps("fetch"), push: steps("push"), warm: steps("warm") };
        Ok(Consistency { gate: Box::new(Asynchronous), blend: Blending::Cadence(cadence) })
    },
};
