//! The wires of a pipeline: messages between the stages of one pipeline, on their own lane.

use crate::net::Net;
use crate::trace::{Tracer, microseconds};
use starlings_codec::{Codec, Into as Put};
use starlings_core::{Deadline, Fault, Kind, Result, Seat, Step, Values};
use starlings_learn::Wires;
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The wires of one seat.
pub struct StageWires {
    net: Arc<Net>,
    codec: Arc<dyn Codec>,
    pipeline: Vec<Seat>,
    patience: Duration,
    bytes_raw: Arc<AtomicU64>,
    tracer: Tracer,
}

impl StageWires {
    /// The wires of this seat's pipeline; numbers travel by `codec`, which must be exact. `bytes_raw` counts
    /// what they have in memory.
    #[must_use]
    pub fn new(
        net: Arc<Net>,
        codec: Arc<dyn Codec>,
        pipeline: Vec<Seat>,
        patience: Duration,
        bytes_raw: Arc<AtomicU64>,
    ) -> StageWires {
        let tracer = Tracer::default();
        StageWires { net, codec, pipeline, patience, bytes_raw, tracer }
    }

    /// Records when it sends and waits.
    #[must_use]
    pub fn traced(mut self, tracer: Tracer) -> StageWires {
        self.tracer = tracer;
        self
    }

    fn began(&self) -> u64 {
        if self.tracer.is_on() { microseconds() } else { 0 }
    }

    fn seat(&self, stage: u32) -> Result<Seat> {
        let seat = self.pipeline.get(stage as usize).copied();
        seat.filter(|&seat| seat != self.net.seat())
            .ok_or_else(|| Fault::caller(format!("this plan has no wire to stage {stage}")))
    }
}

impl Wires for StageWires {
    fn send(&mut self, stage: u32, values: Values) -> Result<()> {
        let kind = match values.kind() {
            Kind::F32 => 0,
            Kind::F64 => 1,
            Kind::I64 => 2,
        };
        let header = Header { lane: Lane::Wire, kind, step: Step(0), tag: values.len() as u32 };
        let mut bytes = Vec::new();
        self.codec.encode(&values, 0, values.len(), &mut bytes);
        self.bytes_raw.fetch_add((values.len() * values.kind().bytes()) as u64, Ordering::Relaxed);
        let (by, began) = (Deadline::after(self.patience), self.began());
        let sent = self.net.send(self.seat(stage)?, header, &bytes, by);
        self.tracer.ends("wire", "send", header.step, began);
        sent.map_err(|fault| fault.during(format!("sending to stage {stage}")))
    }

    fn receive(&mut self, stage: u32) -> Result<Values> {
        let from = self.seat(stage)?;
        let (by, began) = (Deadline::after(self.patience), self.began());
        let arrival = self.net.next(Lane::Wire, |arrival| arrival.from == from, by);
        self.tracer.ends("wire", "wait for a stage", Step(0), began);
        let arrival =
            arrival.map_err(|fault| fault.during(format!("waiting for stage {stage}")))?;
        let broken = || Fault::peer(Some(from), format!("{from} sent a broken wire message"));
        let kind = match arrival.header.kind {
            0 => Kind::F32,
            1 => Kind::F64,
            2 => Kind::I64,
            _ => return Err(broken()),
        };
        let len = arrival.header.tag as usize;
        if self.codec.encoded_len(kind, len) != arrival.payload.len() {
            return Err(broken());
        }
        let mut values = Values::zeros(kind, len);
        self.codec.decode(&arrival.payload, &mut values, 0..len, Put::Put).map_err(|_| broken())?;
        Ok(values)
    }
}
