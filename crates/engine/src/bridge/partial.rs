//! Partial gradient exchange (Watcharapichat et al., 2016: Ako): each worker steps on its own rows at once, and in
//! each step sends one part of what it has gathered since that part was last sent to all others. So the bytes
//! of a step are a fraction of the model, chosen to fit the bandwidth, and every change arrives after some steps.
//!
//! Laws: what all have sent and still hold adds up to all their steps; after a flush every replica has them all.

use super::lead::Lead;
use super::{Agreed, Exchange, HandedIn, step_by_share, steps_of_all, sum, unify};
use crate::exchange::model_wire::{add_scaled, put, weights, zeros_like};
use crate::exchange::served::Asks;
use crate::merge::Merger;
use crate::net::kinds::PARTIAL;
use crate::net::{Arrival, Net};
use crate::pace::{bytes_per_second, probe};
use starlings_codec::{Codec, Into as Put};
use starlings_core::{Block, Body, Deadline, Fault, Model, Result, Seat, Step, Update};
use starlings_learn::{Learner, Needs, Outcome};
use starlings_topology::{Pace, Partial};
use starlings_transport::{Header, Lane};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Steps after which the number of parts is chosen anew.
const CHOOSE_STEPS: u64 = 64;

/// How parts travel.
pub struct PartialOptions {
    /// How many parts, and which when.
    pub partial: Arc<dyn Partial>,
    /// How numbers travel.
    pub codec: Arc<dyn Codec>,
    /// How long a send may take.
    pub patience: Duration,
}

/// A worker that exchanges part by part.
pub struct PartialExchange {
    learner: Arc<dyn Learner>,
    options: PartialOptions,
    net: Arc<Net>,
    exact: Merger,
    /// What this worker has changed and not yet sent.
    gathered: Option<Update>,
    parts: u32,
    /// Messages sent to each other seat, and received from each.
    sent: u64,
    received: Vec<u64>,
    begun: Instant,
    bytes_per_second: f64,
    bytes_raw: u64,
    lead: Lead,
}

impl PartialExchange {
    /// From its options and a merger for exact sums.
    #[must_use]
    pub fn new(
        learner: Arc<dyn Learner>,
        options: PartialOptions,
        net: Arc<Net>,
        exact: Merger,
    ) -> PartialExchange {
        let received = vec![0; net.world() as usize];
        PartialExchange {
            learner,
            options,
            net,
            exact,
            gathered: None,
            parts: 0,
            sent: 0,
            received,
            begun: now(),
            bytes_per_second: 0.0,
            bytes_raw: 0,
            lead: Lead::default(),
        }
    }

    /// Chooses the number of parts from what links carry and how long steps take. Links are measured at the first choice,
    /// after all have met: the slowest seat's computation is no link's. Later choices know how long steps really took.
    fn choose(&mut self, step: u64, bytes: u64) -> Result<()> {
        if self.parts > 0 && !step.is_multiple_of(CHOOSE_STEPS) {
            return Ok(());
        }
        let steps = if self.parts == 0 { 1.0 } else { CHOOSE_STEPS as f64 };
        let step_seconds = self.begun.elapsed().as_secs_f64().max(1e-9) / steps;
        if self.parts == 0 {
            self.exact.meet()?;
            let everyone: Vec<Seat> = (0..self.net.world()).map(Seat).collect();
            let by = Deadline::after(self.options.patience);
            let mine = probe(&self.net, &everyone, u32::from(PARTIAL), by)?;
            let mine = Update { blocks: vec![Block::counts("pace", vec![mine])] };
            let slowest = self.exact.largest(mine)?;
            self.bytes_per_second = bytes_per_second(slowest.i64("pace")[0]);
        }
        let pace = Pace { bytes_per_second: self.bytes_per_second, step_seconds };
        self.parts = self.options.partial.parts(self.net.world(), bytes, pace).max(1);
        self.begun = now();
        Ok(())
    }

    /// Sends one part of what was gathered to all others, and forgets it.
    fn send_part(&mut self, part: u32, round: Step) -> Result<()> {
        let Some(gathered) = &mut self.gathered else { return Ok(()) };
        let mut message = Vec::new();
        for word in [part, self.parts] {
            message.extend_from_slice(&word.to_le_bytes());
        }
        let (seat, world) = (self.net.seat(), self.net.world());
        let mut raw = 0;
        for block in &mut gathered.blocks {
            let Body::Dense(values) = &mut block.body else { continue };
            let span = span(values.len(), part, self.parts);
            self.options.codec.encode(values, span.start, span.end, &mut message);
            raw += span.len() * values.kind().bytes();
            let zeros = starlings_core::Values::zeros(values.kind(), span.len());
            values.copy_at(span.start, &zeros).expect("the span is inside");
        }
        self.sent += 1;
        let by = Deadline::after(self.options.patience);
        let header = Header { lane: Lane::Exchange, kind: PARTIAL, step: round, tag: 0 };
        for peer in (1..world).map(|step| Seat((seat.0 + step) % world)) {
            self.bytes_raw += raw as u64;
            self.net.send(peer, header, &message, by)?;
        }
        Ok(())
    }

    /// Adds the parts that have come to the model.
    fn receive(&mut self, model: &mut Model) -> Result<()> {
        let any = |arrival: &Arrival| arrival.header.kind == PARTIAL;
        while let Some(arrival) = self.net.try_next(Lane::Exchange, any)? {
            self.lead.heard(arrival.header.step);
            self.add(&arrival, model)?;
        }
        Ok(())
    }

    fn add(&mut self, arrival: &Arrival, model: &mut Model) -> Result<()> {
        let from = arrival.from;
        self.received[from.index()] += 1;
        let mut own = weights(model);
        if let Err(why) = add_part(&mut own, &arrival.payload, &*self.options.codec) {
            let what = format!("{from} on {} sent {why}", self.net.host(from));
            return Err(Fault::peer(Some(from), what));
        }
        put(model, &own);
        Ok(())
    }
}

/// Where part `part` of `parts` lies in a block.
fn span(len: usize, part: u32, parts: u32) -> Range<usize> {
    let at = |part: u32| (len as u128 * u128::from(part) / u128::from(parts)) as usize;
    at(part)..at(part + 1)
}

fn add_part(own: &mut Update, message: &[u8], codec: &dyn Codec) -> Result<(), &'static str> {
    let (head, mut rest) = message.split_first_chunk::<8>().ok_or("a part without a head")?;
    let part = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    let parts = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    if part >= parts {
        return Err("a part beyond the last");
    }
    for block in &mut own.blocks {
        let Body::Dense(values) = &mut block.body else { continue };
        let span = span(values.len(), part, parts);
        let len = codec.encoded_len(values.kind(), span.len());
        let (mine, after) = rest.split_at_checked(len).ok_or("a part that is too short")?;
        codec.decode(mine, values, span, Put::Add).map_err(|malformed| malformed.0)?;
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err("a part that is too long") }
}

impl Exchange for PartialExchange {
    fn open(&mut self, step: Step, _: &Needs, asks: Asks, model: &mut Model) -> Result<Agreed> {
        self.lead.at(step);
        self.receive(model)?;
        Ok(Agreed { stop: asks.stop, ..Agreed::default() })
    }

    fn finish(&mut self, handed: HandedIn, model: &mut Model) -> Result<Outcome> {
        let (outcome, delta) = step_by_share(&*self.learner, &handed, model)?;
        let gathered = self.gathered.get_or_insert_with(|| zeros_like(&delta));
        add_scaled(gathered, 1.0, &delta);
        let step = handed.moment.step;
        self.choose(step.0 + 1, delta.bytes() as u64)?;
        let part = self.options.partial.part(self.net.seat(), step.0, self.parts);
        self.send_part(part, step)?;
        Ok(outcome)
    }

    fn cut(&mut self, step: Step, model: &mut Model) -> Result<Step> {
        // They belong to the last step that was taken: the next one has not begun.
        let last = Step(step.0.saturating_sub(1));
        for part in 0..self.parts {
            self.send_part(part, last)?;
        }
        // Each seat tells how much it has sent, so that all know when everything has come.
        let sent = steps_of_all(&mut self.exact, &self.net, Step(self.sent))?;
        let (me, by) = (self.net.seat().index(), Deadline::after(self.options.patience));
        while (0..sent.len()).any(|seat| seat != me && self.received[seat] < sent[seat]) {
            let arrival = self.net.next(Lane::Exchange, |a| a.header.kind == PARTIAL, by)?;
            self.add(&arrival, model)?;
        }
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

#[expect(clippy::disallowed_methods, reason = "the pace of steps and links is measured")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
#[path = "partial_tests.rs"]
mod tests;
