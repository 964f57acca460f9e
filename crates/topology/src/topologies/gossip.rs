//! Gossip learning (Ormándi, Hegedűs and Jelasity, 2013): models walk from worker to worker at random, are
//! merged with models that came by before, and take a step on the rows of their host. Every worker has a
//! usable model at any time and predicts by the vote of the last visitors it remembers.
//!
//! Each round a worker sends its newest model to one peer, drawn evenly from all others.
//!
//! Cost of a round for a model of `n` bytes: 1 round, `n` bytes sent by each seat, `P · n` by all; how many models a seat
//! receives is chance, one on average.

use super::BuildTopology;
use crate::{Cost, Form, Walk, circulant};
use starlings_core::{Ability, Entry, Param, ParamKind, Rng, Seat};

pub(super) const ENTRY: Entry<BuildTopology> = Entry {
    name: "gossip",
    summary: "Models walk from worker to worker at random and learn from the rows they find",
    reference: "Ormándi, Hegedűs and Jelasity: Gossip learning with linear models on fully distributed data, 2013",
    params: &[Param {
        name: "cache",
        kind: ParamKind::Integer { min: 1, max: 1_000 },
        default: Some("10"),
        help: "visitors that a worker remembers and lets vote",
    }],
    gives: &[Ability::Anytime],
    needs: &[Ability::Unbounded, Ability::LocalSteps, Ability::Elementwise],
    build: |params| Ok(Form::Walk(Box::new(Gossip { cache: params.size("cache") }))),
};

struct Gossip {
    cache: usize,
}

impl Walk for Gossip {
    fn next(&self, seat: Seat, world: u32, round: u64, seed: u64) -> Option<Seat> {
        if world < 2 {
            return None;
        }
        let mut rng = Rng::named(seed, "gossip", &[seat.0.into(), round]);
        let among_others = rng.below(u64::from(world) - 1) as u32;
        Some(Seat(among_others + u32::from(among_others >= seat.0)))
    }

    fn cache(&self) -> usize {
        self.cache
    }

    fn cost(&self, world: u32, bytes: u64) -> Cost {
        circulant::cost(world, bytes, usize::from(world > 1))
    }
}
