//! The blocking shell of the played exchange: performs the machine's sends and feeds it what arrives.

use crate::exchange::scheduled::{Command, Event, Scheduled};
use crate::net::{Arrival, Net};
use starlings_codec::Codec;
use starlings_core::{Deadline, Fault, Result, Seat, Step, Update};
use starlings_topology::{Topology, moves};
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::time::Duration;

/// The tag's highest bit says that a chunk is the total.
const TOTAL: u32 = 1 << 31;

/// Sums updates over a group of seats, one sum after another.
pub struct Merger {
    net: Arc<Net>,
    /// Sums of different groups of one flock travel on the same lane under different kinds.
    kind: u8,
    group: Vec<Seat>,
    me: Seat,
    topology: Arc<dyn Topology>,
    codec: Arc<dyn Codec>,
    patience: Duration,
    count: u64,
    scratch: Vec<u8>,
    bytes_raw: u64,
}

/// How a merger sums.
pub struct MergeOptions {
    /// Distinguishes this group's sums from those of other groups that this seat is in.
    pub kind: u8,
    /// The seats that sum, this one included, in order.
    pub group: Vec<Seat>,
    /// Who talks to whom.
    pub topology: Arc<dyn Topology>,
    /// How numbers travel.
    pub codec: Arc<dyn Codec>,
    /// How long to wait for a peer that is alive but silent about this sum.
    pub patience: Duration,
}

impl Merger {
    /// A merger over a group that this seat belongs to.
    ///
    /// # Panics
    /// If this seat is not in the group.
    #[must_use]
    pub fn new(net: Arc<Net>, options: MergeOptions) -> Merger {
        let MergeOptions { kind, group, topology, codec, patience } = options;
        let me = group.iter().position(|&seat| seat == net.seat());
        let me = Seat(me.expect("a seat sums within its own group") as u32);
        let scratch = Vec::new();
        Merger { net, kind, group, me, topology, codec, patience, count: 0, scratch, bytes_raw: 0 }
    }

    /// Bytes that the chunks sent so far have in memory.
    #[must_use]
    pub fn bytes_raw(&self) -> u64 {
        self.bytes_raw
    }

    /// Sums an update over the group. All seats get the same bits.
    ///
    /// # Errors
    /// A lost peer, named with what was being waited for; an abort; or a peer that broke the protocol.
    pub fn merge(&mut self, update: Update) -> Result<Update> {
        let count = Step(self.count);
        self.count += 1;
        let world = self.group.len() as u32;
        if world == 1 {
            return Ok(update);
        }
        let topology = self.topology.clone();
        let me = self.me;
        let mut machine =
            Scheduled::new(update, self.codec.clone(), topology.grain(world), |chunks| {
                moves(&topology.pattern(me, world, chunks), me, world)
            });
        let by = Deadline::after(self.patience);
        let mut commands = Vec::new();
        machine.on(Event::Begin, &mut commands);
        loop {
            if self.perform(&machine, count, &mut commands, by)? {
                return Ok(machine.take());
            }
            let event = match self.arrival(count, by) {
                Ok(event) => event,
                Err(fault) => return Err(self.explain(fault, &machine)),
            };
            machine.on(event, &mut commands);
        }
    }

    /// Performs the machine's commands; true when the sum is complete.
    fn perform(
        &mut self,
        machine: &Scheduled,
        count: Step,
        commands: &mut Vec<Command>,
        by: Deadline,
    ) -> Result<bool> {
        for command in commands.drain(..) {
            match command {
                Command::Send { to, chunk, total } => {
                    let tag = chunk as u32 | if total { TOTAL } else { 0 };
                    let header = Header { lane: Lane::Exchange, kind: self.kind, step: count, tag };
                    let bytes = machine.payload(chunk, &mut self.scratch);
                    self.bytes_raw += machine.bytes_raw(chunk);
                    self.net.send(self.group[to.index()], header, bytes, by)?;
                }
                Command::Done => return Ok(true),
                Command::Fail { seat, phase, why } => {
                    let seat = self.group[seat.index()];
                    let what = format!("{seat} on {} {why}", self.net.host(seat));
                    return Err(Fault::peer(Some(seat), what).during(phase));
                }
            }
        }
        Ok(false)
    }

    /// The next frame of this sum. A peer may be one sum ahead: its frames wait in the lane.
    fn arrival(&mut self, count: Step, by: Deadline) -> Result<Event> {
        let mine =
            |arrival: &Arrival| arrival.header.kind == self.kind && arrival.header.step == count;
        self.event(self.net.next(Lane::Exchange, mine, by)?)
    }

    fn event(&self, arrival: Arrival) -> Result<Event> {
        let from = self.group.iter().position(|&seat| seat == arrival.from);
        let Some(from) = from else {
            let what = format!("{} is not in this group", arrival.from);
            return Err(Fault::peer(Some(arrival.from), what));
        };
        let tag = arrival.header.tag;
        let (chunk, total) = ((tag & !TOTAL) as usize, tag & TOTAL != 0);
        Ok(Event::Frame { from: Seat(from as u32), chunk, total, payload: arrival.payload })
    }

    fn explain(&self, fault: Fault, machine: &Scheduled) -> Fault {
        match machine.waiting() {
            Some((peer, chunk)) => {
                let peer = self.group[peer.index()];
                fault.during(format!(
                    "waiting for chunk {chunk} from {peer} on {}",
                    self.net.host(peer)
                ))
            }
            None => fault,
        }
    }
}
