//! Gossip learning (Ormándi, Hegedűs and Jelasity, 2013): models walk from worker to worker at random. A worker
//! merges a visitor with the visitor before it, learns from its own rows, ages the model by one, remembers it
//! and sends it on. There is no sum, no barrier and no owner; a prediction is a vote among the remembered.

use super::lead::Lead;
use super::{Agreed, Exchange, HandedIn, sum, unify};
use crate::exchange::model_wire::{add_scaled, put, read, weights, write, zeros_like};
use crate::exchange::served::Asks;
use crate::merge::Merger;
use crate::net::kinds::WALKING;
use crate::net::{Arrival, Net};
use starlings_codec::Codec;
use starlings_core::{
    Block, Body, Deadline, Fault, Model, Result, Role, Step, Tensor, Update, Values,
};
use starlings_learn::{Learner, Moment, Needs, Outcome};
use starlings_topology::Walk;
use starlings_transport::{Header, Lane};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What a remembered model's tensors are called in the answer: `vote.3.weights`.
pub const VOTE: &str = "vote.";

/// What the model's age is called in the model, so that checkpoints and whoever is handed the model have it, too.
const AGE: &str = "gossip.age";

/// Steps of learning behind a model.
fn age(model: &Model) -> u64 {
    match model.get(AGE).map(|tensor| &tensor.values) {
        Some(Values::I64(age)) if age.len() == 1 => age[0] as u64,
        _ => 0,
    }
}

fn set_age(model: &mut Model, age: u64) {
    let values = Values::I64(vec![age as i64]);
    model.set(AGE, Tensor { shape: vec![1], values, role: Role::State });
}

/// How models walk.
pub struct WalkOptions {
    /// Where to.
    pub walk: Arc<dyn Walk>,
    /// How numbers travel.
    pub codec: Arc<dyn Codec>,
    /// The job's seed.
    pub seed: u64,
    /// How long a send may take.
    pub patience: Duration,
}

/// A worker that models visit.
pub struct Gossip {
    learner: Arc<dyn Learner>,
    options: WalkOptions,
    net: Arc<Net>,
    exact: Merger,
    /// The visitor before the current one.
    last: Option<(u64, Update)>,
    cache: VecDeque<Update>,
    closing: bool,
    bytes_raw: u64,
    lead: Lead,
}

impl Gossip {
    /// From its options and a merger for exact sums.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        options: WalkOptions,
        net: Arc<Net>,
        exact: Merger,
    ) -> Gossip {
        let (last, cache, lead) = (None, VecDeque::new(), Lead::default());
        Gossip { learner, options, net, exact, last, cache, closing: false, bytes_raw: 0, lead }
    }

    /// Merges every visitor that has come with the one before it. The last of them stays.
    fn receive(&mut self, model: &mut Model) -> Result<()> {
        let any = |arrival: &Arrival| arrival.header.kind == WALKING;
        while let Some(arrival) = self.net.try_next(Lane::Exchange, any)? {
            let from = arrival.from;
            self.lead.heard(arrival.header.step);
            let own = weights(model);
            let ([visited, _, _], visitor) = read(&arrival.payload, &own, &*self.options.codec)
                .map_err(|malformed| {
                    let host = self.net.host(from);
                    Fault::peer(Some(from), format!("{from} on {host} sent {}", malformed.0))
                })?;
            let (age_last, last) = self.last.take().unwrap_or((age(model), own));
            put(model, &merged(&visitor, &last));
            set_age(model, visited.max(age_last));
            self.last = Some((visited, visitor));
        }
        Ok(())
    }

    fn send_on(&mut self, model: &Model, round: Step) -> Result<()> {
        let (seat, world) = (self.net.seat(), self.net.world());
        let Some(next) = self.options.walk.next(seat, world, round.0, self.options.seed) else {
            return Ok(());
        };
        let own = weights(model);
        self.bytes_raw += own.bytes() as u64;
        let message = write([age(model), 0, 0], &own, &*self.options.codec);
        let header = Header { lane: Lane::Exchange, kind: WALKING, step: round, tag: 0 };
        self.net.send(next, header, &message, Deadline::after(self.options.patience))
    }

    fn remember(&mut self, model: &Model) {
        if self.cache.len() == self.options.walk.cache() {
            self.cache.pop_front();
        }
        self.cache.push_back(weights(model));
    }

    /// The remembered models become part of the answer, so that a prediction can be a vote.
    fn add_votes(&self, model: &mut Model) {
        for (number, remembered) in self.cache.iter().enumerate() {
            for block in &remembered.blocks {
                let Body::Dense(values) = &block.body else { continue };
                let shape = model.get(&block.name).map(|tensor| tensor.shape.clone());
                let tensor = Tensor {
                    shape: shape.unwrap_or_default(),
                    values: values.clone(),
                    role: Role::Weight,
                };
                model.set(format!("{VOTE}{number}.{}", block.name), tensor);
            }
        }
    }
}

/// The mean of two models.
fn merged(a: &Update, b: &Update) -> Update {
    let mut mean = zeros_like(a);
    add_scaled(&mut mean, 0.5, a);
    add_scaled(&mut mean, 0.5, b);
    mean
}

impl Exchange for Gossip {
    fn open(&mut self, step: Step, _: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        self.lead.at(step);
        self.receive(model)?;
        Ok(Agreed { stop: asks.stop, ..Agreed::default() })
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let step = handed.moment.step;
        // The learning rate follows the model's age, not the worker's clock.
        let moment = Moment { step: Step(age(model)), ..handed.alone() };
        let outcome = self.learner.apply(model, &handed.update, &moment)?;
        set_age(model, moment.step.0 + 1);
        self.remember(model);
        self.send_on(model, step)?;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        let step = super::latest(&mut self.exact, &self.net, step)?;
        if self.closing {
            self.add_votes(model);
        } else {
            // The mean is as old as the oldest, as what visits is.
            let mine = Block::counts(AGE, vec![age(model) as i64]);
            let oldest = self.exact.largest(Update { blocks: vec![mine] })?;
            set_age(model, oldest.i64(AGE)[0] as u64);
            unify::to_mean(model, &mut self.exact, self.net.world())?;
        }
        Ok(step)
    }

    fn sum(&mut self, numbers: Vec<f64>) -> Result<Vec<f64>> {
        sum(&mut self.exact, numbers)
    }

    fn close(&mut self, _: Step) -> Result<()> {
        self.closing = true;
        Ok(())
    }

    fn bytes_raw(&self) -> u64 {
        self.bytes_raw + self.exact.bytes_raw()
    }

    fn lead_max(&self) -> u64 {
        self.lead.max()
    }

    fn replicated(&self) -> bool {
        false
    }
}

#[cfg(test)]
#[path = "gossip_tests.rs"]
mod tests;
