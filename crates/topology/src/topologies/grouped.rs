//! Synchronous groups around owners that serve (Mamidala et al., 2018: MXNet-MPI): the workers of a group sum
//! their contributions among themselves and push the sum as one worker would; groups do not wait for each
//! other more than the gate asks. So a large flock has the staleness, and the owners the load, of a few.
//!
//! Cost of a step for `n` bytes: the inner sum's within a group, then `n` bytes pushed and pulled a group.

use super::{BuildTopology, PARTS, sum_named};
use crate::{Form, Groups};
use starlings_core::{Ability, Entry, Param, ParamKind};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "grouped",
    summary: "Groups sum inside and push the sum to owners that serve all groups",
    reference: "Mamidala et al.: MXNET-MPI: embedding MPI parallelism in parameter server task model, 2018",
    params: &[
        Param {
            name: "inner",
            kind: ParamKind::Choice(PARTS),
            default: Some("ring"),
            help: "how a group sums",
        },
        Param {
            name: "outer",
            kind: ParamKind::Choice(&["star"]),
            default: Some("star"),
            help: "what serves the groups",
        },
        Param {
            name: "group",
            kind: ParamKind::Integer { min: 1, max: 64 },
            default: Some("2"),
            help: "neighbouring workers in a group; the last may have fewer",
        },
    ],
    gives: &[Ability::Served, Ability::Anytime],
    needs: &[Ability::RowWise, Ability::Summable, Ability::OneWay],
    build: |params| {
        let inner = sum_named(params.text("inner"))?;
        Ok(Form::Groups(Groups { inner, size: params.size("group") as u32 }))
    },
};
