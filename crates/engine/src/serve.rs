//! The blocking shells of the served exchange: the thread that runs this seat's server shard, and the client
//! through which the worker pushes and pulls.

use crate::exchange::rows_wire::{read, write};
use crate::exchange::served::{Asks, Command, Event, Shard, WantedRows, place};
use crate::net::{Arrival, Net};
use serde::{Deserialize, Serialize};
use starlings_codec::Codec;
use starlings_core::{
    Block, Body, Deadline, Fault, Model, Result, Role, Rows, Seat, Step, Tensor, Update,
};
use starlings_learn::{Moment, Needs};
use starlings_topology::owned_rows;
use starlings_transport::{Header, Lane};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PUSH: u8 = 1;
const PULL: u8 = 2;
const FINISHED: u8 = 3;
const ANSWER: u8 = 4;

#[derive(Serialize, Deserialize)]
struct PushMeta {
    pass: u64,
    seed: u64,
    rows: u64,
}

#[derive(Serialize, Deserialize)]
struct PullMeta {
    strict: bool,
    stop: bool,
    cut: bool,
    wanted: Vec<(String, Option<Vec<u32>>)>,
}

#[derive(Serialize, Deserialize)]
struct AnswerMeta {
    stop_at: Option<u64>,
    cut_at: Option<u64>,
}

/// How pushes are encoded and pulled rows travel.
#[derive(Clone)]
pub struct Codecs {
    /// For contributions.
    pub push: Arc<dyn Codec>,
    /// For the model's rows: exact.
    pub pull: Arc<dyn Codec>,
}

/// Starts the thread that runs this seat's shard. It ends when the net closes; `lead` always has the largest
/// lead it has allowed.
///
/// # Errors
/// When the thread cannot be started.
pub fn start(
    net: Arc<Net>,
    mut shard: Shard,
    codecs: Codecs,
    lead: Arc<AtomicU64>,
) -> Result<JoinHandle<()>> {
    let serve = move || {
        let _alarm = Alarm(net.clone());
        let mut commands = Vec::new();
        // It ends with the net: closed, aborted, or a peer lost, which the client reports.
        while let Some(arrival) = next_request(&net) {
            let from = arrival.from;
            match decode(arrival, &codecs) {
                Ok(event) => shard.on(event, &mut commands),
                Err(why) => commands.push(Command::Fail(format!("{from} sent {why}"))),
            }
            lead.store(shard.lead_max(), Ordering::Relaxed);
            for command in commands.drain(..) {
                if let Err(fault) = perform(&net, command, &codecs) {
                    net.abort(fault);
                }
            }
        }
    };
    Ok(std::thread::Builder::new().name("server shard".to_string()).spawn(serve)?)
}

/// A server that panics must not leave the workers waiting for its answers.
struct Alarm(Arc<Net>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let what = format!("the server shard of {} panicked", self.0.seat());
            self.0.abort(Fault::machine(what).hint("this is a bug: please report it"));
        }
    }
}

fn next_request(net: &Net) -> Option<Arrival> {
    net.next(Lane::Request, |_| true, Deadline::after(Duration::from_secs(3600 * 24))).ok()
}

fn decode(arrival: Arrival, codecs: &Codecs) -> Result<Event, &'static str> {
    let (from, step) = (arrival.from, arrival.header.step);
    match arrival.header.kind {
        PUSH => {
            let (meta, update) = read::<PushMeta>(&arrival.payload, &*codecs.push)?;
            let PushMeta { pass, seed, rows } = meta;
            Ok(Event::Push { from, moment: Moment { step, pass, seed, rows }, update })
        }
        PULL => {
            let meta: PullMeta = postcard::from_bytes(&arrival.payload)
                .map_err(|_| "a request that cannot be read")?;
            let wanted = meta
                .wanted
                .into_iter()
                .map(|(name, rows)| (name, rows.map_or(WantedRows::Owned, WantedRows::These)));
            let asks = Asks { strict: meta.strict, stop: meta.stop, cut: meta.cut };
            Ok(Event::Pull { from, step, wanted: wanted.collect(), asks })
        }
        FINISHED => Ok(Event::Finished { from }),
        _ => Err("an unknown request"),
    }
}

fn perform(net: &Net, command: Command, codecs: &Codecs) -> Result<()> {
    match command {
        Command::Answer { to, step, rows, stop_at, cut_at } => {
            let payload = write(AnswerMeta { stop_at, cut_at }, &rows, &*codecs.pull);
            let header = Header { lane: Lane::Answer, kind: ANSWER, step, tag: 0 };
            // A worker that is gone is reported by whoever waits for it, not by its server.
            let _ = net.send(to, header, &payload, Deadline::after_ms(60_000));
            Ok(())
        }
        Command::Fail(why) => Err(Fault::caller(why).during("the server shard stopped")),
    }
}

/// What a pull learned besides the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pulled {
    /// All stop before this step.
    pub stop_at: Option<u64>,
    /// All make a cut before this step.
    pub cut_at: Option<u64>,
}

/// The worker's side: pushes contributions to the owners of their rows, pulls rows from them.
pub struct Client {
    net: Arc<Net>,
    codecs: Codecs,
    patience: Duration,
    bytes_raw: u64,
}

impl Client {
    /// A client on a net whose every seat runs a shard.
    #[must_use]
    pub fn new(net: Arc<Net>, codecs: Codecs, patience: Duration) -> Client {
        Client { net, codecs, patience, bytes_raw: 0 }
    }

    /// Bytes that everything pushed and pulled has in memory.
    #[must_use]
    pub fn bytes_raw(&self) -> u64 {
        self.bytes_raw
    }

    /// Pushes a contribution. Blocks that name no tensor of the model stay here: they are statistics.
    ///
    /// # Errors
    /// A lost peer.
    pub fn push(&mut self, moment: &Moment, update: &Update, model: &Model) -> Result<()> {
        let by = Deadline::after(self.patience);
        let header = Header { lane: Lane::Request, kind: PUSH, step: moment.step, tag: 0 };
        for owner in (0..self.net.world()).map(Seat) {
            let parts: Vec<Block> = update
                .blocks
                .iter()
                .filter_map(|block| {
                    restrict(block, model.get(&block.name)?, owner, self.net.world())
                })
                .collect();
            if owner != self.net.seat() {
                self.bytes_raw += parts.iter().map(|block| block.bytes() as u64).sum::<u64>();
            }
            let meta = PushMeta { pass: moment.pass, seed: moment.seed, rows: moment.rows };
            self.net.send(owner, header, &write(meta, &parts, &*self.codecs.push), by)?;
        }
        Ok(())
    }

    /// Pulls what is needed into the model. Waits until the owners' gates admit the step.
    ///
    /// # Errors
    /// A lost peer, an abort or the deadline.
    pub fn pull(
        &mut self,
        step: Step,
        needs: &Needs,
        asks: Asks,
        model: &mut Model,
    ) -> Result<Pulled> {
        let by = Deadline::after(self.patience);
        let world = self.net.world();
        for owner in (0..world).map(Seat) {
            let wanted = wanted(needs, asks.strict, model, owner, world);
            let meta = PullMeta { strict: asks.strict, stop: asks.stop, cut: asks.cut, wanted };
            let payload = postcard::to_stdvec(&meta).expect("plain data serialises");
            let header = Header { lane: Lane::Request, kind: PULL, step, tag: 0 };
            self.net.send(owner, header, &payload, by)?;
        }
        let mut pulled = Pulled::default();
        for _ in 0..world {
            let arrival = self.net.next(Lane::Answer, |arrival| arrival.header.step == step, by)?;
            let from = arrival.from;
            let broken = |why: &str| {
                Fault::peer(
                    Some(from),
                    format!("{from} on {} answered with {why}", self.net.host(from)),
                )
            };
            let (meta, rows) =
                read::<AnswerMeta>(&arrival.payload, &*self.codecs.pull).map_err(broken)?;
            if from != self.net.seat() {
                self.bytes_raw += rows.bytes() as u64;
            }
            for block in &rows.blocks {
                let tensor =
                    model.get_mut(&block.name).ok_or_else(|| broken("an unknown tensor"))?;
                let Body::Rows(rows) = &block.body else { return Err(broken("a dense block")) };
                if !place(tensor, rows) {
                    return Err(broken("rows of another table"));
                }
            }
            // One shard decides for all where to stop and cut.
            if from == Seat(0) {
                pulled = Pulled { stop_at: meta.stop_at, cut_at: meta.cut_at };
            }
        }
        Ok(pulled)
    }

    /// Tells all shards that this worker pushes no more.
    ///
    /// # Errors
    /// A lost peer.
    pub fn finished(&self, step: Step) -> Result<()> {
        let by = Deadline::after(self.patience);
        let header = Header { lane: Lane::Request, kind: FINISHED, step, tag: 0 };
        (0..self.net.world()).try_for_each(|owner| self.net.send(Seat(owner), header, &[], by))
    }
}

/// The part of a block that an owner is concerned with, as rows.
fn restrict(block: &Block, tensor: &Tensor, owner: Seat, world: u32) -> Option<Block> {
    let owned = owned_rows(owner, tensor.rows() as u32, world);
    let rows = match &block.body {
        Body::Rows(rows) => rows.range(owned.start, owned.end),
        Body::Dense(values) => {
            let width = values.len() / tensor.rows().max(1);
            let values = values.slice(owned.start as usize * width, owned.end as usize * width);
            let (total, width) = (tensor.rows() as u32, width as u32);
            Rows { total, width, index: owned.collect(), values }
        }
    };
    Some(Block { name: block.name.clone(), body: Body::Rows(rows) })
}

/// What to want from an owner. A strict pull wants everything, optimiser state included.
fn wanted(
    needs: &Needs,
    everything: bool,
    model: &Model,
    owner: Seat,
    world: u32,
) -> Vec<(String, Option<Vec<u32>>)> {
    match needs {
        Needs::Rows(rows) if !everything => rows
            .iter()
            .map(|(name, rows)| {
                let total = model.get(name).map_or(0, |tensor| tensor.rows() as u32);
                let owned = owned_rows(owner, total, world);
                let from = rows.partition_point(|&row| row < owned.start);
                let to = rows.partition_point(|&row| row < owned.end);
                (name.clone(), Some(rows[from..to].to_vec()))
            })
            .collect(),
        _ => model
            .iter()
            .filter(|(_, tensor)| everything || tensor.role == Role::Weight)
            .map(|(name, _)| (name.to_string(), None))
            .collect(),
    }
}
