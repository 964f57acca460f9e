//! Neighbours mix their models after each step of their own: x ← Σ wⱼ xⱼ − step (Lian et al., 2017: D-PSGD; Li
//! et al., 2015: MALT). Nobody sums models over the flock. With a barrier a worker waits for the models of its
//! neighbours; without one it mixes those that have come.
//!
//! Where mixing is controlled (Kong et al., 2021) neighbours mix until a bound of their distance from the mean is small enough:
//! how far a turn of the graph's schedule has moved the models, a number of each that is summed over the flock, times what the
//! graph's spectrum allows ([`lag`]). Rounds are numbered by steps, and what control remembers lies in the model, so
//! that a run that is resumed goes on with the same bits.

use super::lead::Lead;
use super::{Agreed, Exchange, HandedIn, agreed, asks_block, sum, unify};
use crate::exchange::model_wire::{
    add_scaled, put, read, squared_distance, weights, write, zeros_like,
};
use crate::exchange::served::Asks;
use crate::merge::Merger;
use crate::net::kinds::MIXED;
use crate::net::{Arrival, Net};
use starlings_codec::Codec;
use starlings_consistency::Blending;
use starlings_core::{Deadline, Fault, Model, Result, Role, Seat, Step, Tensor, Update};
use starlings_learn::{Learner, Needs, Outcome};
use starlings_topology::{Graph, lag};
use starlings_transport::{Header, Lane};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Steps between two votes on stopping and on checkpoints.
const VOTE_STEPS: u64 = 16;

/// Where mixing is controlled, each step has so many numbers for its rounds: more than any control makes.
const ROUNDS: u64 = 1 << 16;

/// The critical distance, in the model: part of a checkpoint.
const CRITICAL: &str = "blend.critical";

/// How neighbours mix.
pub struct MixOptions {
    /// Who mixes with whom.
    pub graph: Arc<dyn Graph>,
    /// How often, where that is controlled.
    pub blending: Arc<Blending>,
    /// How numbers travel.
    pub codec: Arc<dyn Codec>,
    /// Whether a worker waits for its neighbours.
    pub waits: bool,
    /// How long to wait for a neighbour that is alive but silent.
    pub patience: Duration,
}

/// Models of neighbours, mixed.
pub struct Mixed {
    learner: Arc<dyn Learner>,
    options: MixOptions,
    net: Arc<Net>,
    exact: Merger,
    /// How far from the mean models can be after a turn that moved them by 1, where mixing is controlled.
    lag: f64,
    asks: Asks,
    agreed: Agreed,
    bytes_raw: u64,
    /// The newest model of each neighbour that has not been mixed yet.
    visitors: BTreeMap<Seat, Update>,
    lead: Lead,
}

impl Mixed {
    /// From its options and a merger for exact sums.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        options: MixOptions,
        net: Arc<Net>,
        exact: Merger,
    ) -> Mixed {
        let controlled = matches!(&*options.blending, Blending::Mixing(_));
        let lag = if controlled { lag(&*options.graph, net.world()) } else { 0.0 };
        Mixed {
            learner,
            options,
            net,
            exact,
            lag,
            asks: Asks::default(),
            agreed: Agreed::default(),
            bytes_raw: 0,
            visitors: BTreeMap::new(),
            lead: Lead::default(),
        }
    }

    /// One round of mixing.
    fn mix(&mut self, round: u64, model: &mut Model) -> Result<()> {
        let (seat, world) = (self.net.seat(), self.net.world());
        let own = weights(model);
        let by = Deadline::after(self.options.patience);
        let message = write([round, 0, 0], &own, &*self.options.codec);
        for peer in self.options.graph.sends_to(seat, world, round) {
            let header = Header { lane: Lane::Exchange, kind: MIXED, step: Step(round), tag: 0 };
            self.bytes_raw += own.bytes() as u64;
            self.net.send(peer, header, &message, by)?;
        }
        let shares = self.options.graph.weights(seat, world, round);
        if self.options.waits {
            self.await_neighbours(Step(round), &shares, &own)?;
        } else {
            self.take_arrived(&own)?;
        }
        put(model, &self.combine(&shares, &own));
        Ok(())
    }

    fn await_neighbours(
        &mut self,
        round: Step,
        shares: &[(Seat, f64)],
        own: &Update,
    ) -> Result<()> {
        let (seat, by) = (self.net.seat(), Deadline::after(self.options.patience));
        for &(peer, _) in shares.iter().filter(|(peer, _)| *peer != seat) {
            let wanted = |arrival: &Arrival| {
                arrival.header.kind == MIXED && arrival.from == peer && arrival.header.step == round
            };
            let host = self.net.host(peer).to_string();
            let arrival = self.net.next(Lane::Exchange, wanted, by).map_err(|fault| {
                fault.during(format!("waiting for the model of {peer} on {host}"))
            })?;
            self.welcome(&arrival, own)?;
        }
        Ok(())
    }

    fn take_arrived(&mut self, own: &Update) -> Result<()> {
        let any = |arrival: &Arrival| arrival.header.kind == MIXED;
        while let Some(arrival) = self.net.try_next(Lane::Exchange, any)? {
            self.lead.heard(arrival.header.step);
            self.welcome(&arrival, own)?;
        }
        Ok(())
    }

    fn welcome(&mut self, arrival: &Arrival, like: &Update) -> Result<()> {
        let from = arrival.from;
        let broken = |why: &str| {
            let what = format!("{from} on {} sent {why}", self.net.host(from));
            Fault::peer(Some(from), what)
        };
        let (_, model) = read(&arrival.payload, like, &*self.options.codec)
            .map_err(|malformed| broken(malformed.0))?;
        self.visitors.insert(from, model);
        Ok(())
    }

    /// The weighted mean of what is there, in the order of seats.
    fn combine(&mut self, shares: &[(Seat, f64)], own: &Update) -> Update {
        let visitors = std::mem::take(&mut self.visitors);
        let seat = self.net.seat();
        let present = |peer: &Seat| *peer == seat || visitors.contains_key(peer);
        let total: f64 =
            shares.iter().filter(|(peer, _)| present(peer)).map(|(_, share)| share).sum();
        // With all neighbours present the shares are what the graph says, to the bit. Others may have come, too.
        let complete = shares.iter().all(|(peer, _)| present(peer));
        let scale = if complete { 1.0 } else { 1.0 / total };
        let mut mixed = zeros_like(own);
        for (peer, share) in shares {
            let model = if *peer == seat { Some(own) } else { visitors.get(peer) };
            if let Some(model) = model {
                add_scaled(&mut mixed, share * scale, model);
            }
        }
        mixed
    }

    /// Mixes until the models are close enough, where that is controlled.
    fn settle(&mut self, step: Step, stepped: f64, model: &mut Model) -> Result<()> {
        let blending = self.options.blending.clone();
        let Blending::Mixing(control) = &*blending else { return self.mix(step.0, model) };
        let turn = self.options.graph.turn(self.net.world());
        remember(model);
        let before = model.f64(CRITICAL)[0];
        let (mut critical, mut begun, mut rounds) = (before, weights(model), 0);
        loop {
            self.mix(step.0 * ROUNDS + u64::from(rounds), model)?;
            rounds += 1;
            // In the middle of a turn nothing can be said: some models may not have heard of each other.
            let mut distance = f64::INFINITY;
            if u64::from(rounds).is_multiple_of(turn) {
                let now = weights(model);
                let seen = self.see([squared_distance(&begun, &now), stepped], before)?;
                begun = now;
                distance = seen.distance;
                if u64::from(rounds) == turn {
                    critical = control.critical(seen.stepped, seen.before);
                    model.f64_mut(CRITICAL)[0] = critical;
                }
            }
            if !control.again(step.0 + 1, rounds, distance, critical) {
                return Ok(());
            }
        }
    }

    /// What the flock sees together, from the squares of how far this worker's model was moved by a turn of mixing and by its
    /// step, and from the critical distance that it remembers.
    fn see(&mut self, [moved, stepped]: [f64; 2], before: f64) -> Result<Seen> {
        // All must decide alike, so the first seat says what the graph allows and what is remembered: another machine's sines
        // may end in other bits, and after a loss some have finished a step that others take again.
        let first = f64::from(u8::from(self.net.seat() == Seat(0)));
        let numbers = vec![moved, stepped, first * self.lag, first * before];
        let sums = sum(&mut self.exact, numbers)?;
        let mean = |square: f64| (square / f64::from(self.net.world())).sqrt();
        let distance = sums[2] * mean(sums[0]);
        Ok(Seen { distance, stepped: mean(sums[1]), before: sums[3] })
    }

    fn vote(&mut self, steps: u64) -> Result<()> {
        if self.options.waits && steps.is_multiple_of(VOTE_STEPS) {
            let votes = Update { blocks: vec![asks_block(self.asks, false)] };
            self.agreed = agreed(self.exact.merge(votes)?.blocks.pop());
        }
        Ok(())
    }
}

/// What a flock sees of a turn of mixing, as root mean squares over all seats.
struct Seen {
    /// How far models are from their mean at most.
    distance: f64,
    /// How long steps were.
    stepped: f64,
    /// The critical distance before this step.
    before: f64,
}

/// Gives the model a place for the critical distance: on all seats before a cut, which takes the mean of every tensor.
fn remember(model: &mut Model) {
    if model.get(CRITICAL).is_none() {
        model.set(CRITICAL, Tensor::of(&[1], vec![0.0], Role::State));
    }
}

impl Exchange for Mixed {
    fn open(&mut self, step: Step, _: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        self.lead.at(step);
        self.asks = asks;
        if matches!(&*self.options.blending, Blending::Mixing(_)) {
            remember(model);
        }
        // Without a barrier everyone who is asked to stop does so where it is.
        let alone = Agreed { stop: asks.stop, ..Agreed::default() };
        Ok(if self.options.waits { std::mem::take(&mut self.agreed) } else { alone })
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let controlled = matches!(&*self.options.blending, Blending::Mixing(_));
        let before = controlled.then(|| weights(model));
        let moment = handed.alone();
        let outcome = self.learner.apply(model, &handed.update, &moment)?;
        let stepped = before.map_or(0.0, |before| squared_distance(&before, &weights(model)));
        self.settle(moment.step, stepped, model)?;
        self.vote(moment.step.0 + 1)?;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        let step = super::latest(&mut self.exact, &self.net, step)?;
        unify::to_mean(model, &mut self.exact, self.net.world())?;
        Ok(step)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        self.bytes_raw + self.exact.bytes_raw()
    }

    fn lead_max(&self) -> u64 {
        self.lead.max()
    }

    fn replicated(&self) -> bool {
        true
    }
}

#[cfg(test)]
#[path = "mixed_tests.rs"]
mod tests;
