//! Synchronous groups around owners that serve (Mamidala et al., 2018: MXNet-MPI): the workers of a group sum
//! their contributions among themselves and push the sum as one worker would; groups do not wait for each
//! other more than the gate asks. So a large flock has the staleness, and the owners the load, of a few.
//!
//! Cost of a step for `n` bytes, of which each of the P seats owns as many, in G groups: the inner sum's within a group, twice,
//! for what is summed and for the model that is shared; a group's first seat pushes `(P−1)/P · n`, and each owner answers the
//! first seats of other groups with its `n/P`. With rings in equal groups of g: `4(g−1) + 2` rounds; a first seat sends
//! `4(g−1)/g · n + (P+G−2)/P · n`, all together `4(P−G) · n + 2G(P−1)/P · n`. Rows are dealt to owners by hashing, to at most
//! 5/4 of an equal share each, so in a job these are expectations.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cost;

    #[test]
    fn equal_groups_of_rings_cost_what_is_said_above() {
        for (world, size) in [(4, 2), (6, 2), (6, 3), (8, 4), (5, 1), (7, 7)] {
            let groups = Groups { inner: sum_named("ring").expect("sums"), size };
            let cost = groups.cost(world, 840_000);
            let [p, g, n] = [f64::from(world), f64::from(size), 840_000.0];
            let of_groups = p / g;
            let most = 4.0 * (g - 1.0) / g * n + (p + of_groups - 2.0) / p * n;
            let all = 4.0 * (p - of_groups) * n + 2.0 * of_groups * (p - 1.0) / p * n;
            assert_eq!(cost.rounds, u64::from(4 * (size - 1) + 2), "{world} in {size}s");
            assert!((cost.bytes_sent_max - most).abs() < 1e-6, "{cost:?}, not {most}");
            assert!((cost.bytes_sent_total - all).abs() < 1e-6, "{cost:?}, not {all}");
        }
        let alone = Groups { inner: sum_named("tree").expect("sums"), size: 2 };
        assert_eq!(alone.cost(1, 840_000), Cost::NOTHING);
    }
}
