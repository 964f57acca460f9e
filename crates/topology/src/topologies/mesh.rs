//! Peer-to-peer broadcast over a full mesh (Li, Kadav et al., 2015: MALT's "all"; Xie et al., 2016): everyone
//! sends its contribution to everyone and folds all of them itself. Nobody stands between, so contributions
//! may travel in any shape, such as the sufficient factors of a matrix, which no partial sum could keep.
//!
//! Fold order: the order of seats, the same on all seats.
//!
//! Cost for `n` bytes: 1 round, `(P−1) · n` bytes sent by each seat, `P(P−1) · n` by all.

use super::BuildTopology;
use crate::{Cost, Form, Pattern, Topology};
use starlings_core::{Ability, Entry, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "mesh",
    summary: "Everyone sends its contribution to everyone, in one round and in any shape",
    reference: "Xie et al.: Lighter-communication distributed machine learning via sufficient factor broadcasting, UAI 2016",
    params: &[],
    gives: &[Ability::Sum, Ability::Contributions],
    needs: &[Ability::Barrier],
    build: |_| Ok(Form::Sum(Box::new(Mesh))),
};

struct Mesh;

impl Topology for Mesh {
    fn pattern(&self, _seat: Seat, _world: u32, _chunks: usize) -> Pattern {
        Pattern::Everyone
    }

    fn cost(&self, world: u32, bytes: u64, chunks: usize) -> Cost {
        if world < 2 || chunks == 0 {
            return Cost::NOTHING;
        }
        let sent = f64::from(world - 1) * bytes as f64;
        Cost { rounds: 1, bytes_sent_max: sent, bytes_sent_total: f64::from(world) * sent }
    }

    fn grain(&self, _world: u32) -> usize {
        1
    }
}
