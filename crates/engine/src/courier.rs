//! The courier: sums buckets of blocks while the learner still computes the others (wait-free back-propagation,
//! Zhang et al., 2017; buckets as in Li et al., 2020). A thread of its own plays any number of sums at once.
//! Of all chunks that could leave, the one whose bucket is needed first leaves first: that of the older step,
//! and within a step that of the bucket emitted last, for what backward passes emit last the next forward
//! pass needs first (Jayarajan et al., 2019).
//!
//! Buckets are made of emitted shapes alone, so that all workers make the same ones. A chunk may wait to leave
//! while others are folded: once a topology has handed it on, only what comes back for it changes it.

use crate::exchange::scheduled::{Command, Event, Scheduled};
use crate::net::kinds::{BUCKETS, WAKE};
use crate::net::{Arrival, Net};
use crate::trace::{Tracer, microseconds};
use starlings_codec::{Codec, Shapes};
use starlings_core::{Block, Body, Deadline, Fault, Result, Seat, Step, Update};
use starlings_learn::Sink;
use starlings_topology::{Topology, moves};
use starlings_transport::{Header, Lane};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Blocks are gathered to at least this many bytes before they leave.
const BUCKET_BYTES: usize = 256 << 10;

/// Buckets that may wait either way: more than a step has, so that nobody waits with something to do.
const QUEUE: usize = 4096;

/// The tag's highest bit says that a chunk is the total.
const TOTAL: u32 = 1 << 31;

/// What the courier is told.
enum Post {
    /// Sum this bucket of this step.
    Bucket(u64, Step, Update),
    /// There is no more.
    End,
}

/// How the courier sums.
#[derive(Clone)]
pub struct Route {
    /// Links to all other seats.
    pub net: Arc<Net>,
    /// The seats that sum, in order.
    pub group: Vec<Seat>,
    /// Who talks to whom.
    pub topology: Arc<dyn Topology>,
    /// How numbers travel.
    pub codec: Arc<dyn Codec>,
    /// The blocks that the codec carries; all others travel as they are.
    pub shapes: Arc<Shapes>,
    /// How long to wait for a peer that is alive but silent.
    pub patience: Duration,
    /// Where spans are recorded.
    pub tracer: Tracer,
}

/// A worker's end of the courier.
pub struct Courier {
    net: Arc<Net>,
    posts: SyncSender<Post>,
    sums: Receiver<Result<(u64, Update)>>,
    /// Buckets posted so far.
    posted: u64,
    thread: Option<JoinHandle<()>>,
}

impl Courier {
    /// Starts the courier's thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(route: Route) -> Result<Courier> {
        let (posts, inbox) = sync_channel(QUEUE);
        let (results, sums) = sync_channel(QUEUE);
        let net = route.net.clone();
        let run = move || {
            let mut round = Round::new(route);
            if let Err(fault) = round.run(&inbox, &results) {
                // Nobody is left to tell when the worker itself has gone.
                let _ = results.send(Err(fault));
            }
        };
        let thread = std::thread::Builder::new().name("courier".to_string()).spawn(run)?;
        Ok(Courier { net, posts, sums, posted: 0, thread: Some(thread) })
    }

    /// A sink for the blocks of a step.
    #[must_use]
    pub fn sink(&self, step: Step) -> Satchel {
        Satchel {
            net: self.net.clone(),
            posts: self.posts.clone(),
            next: self.posted,
            step,
            bucket: Update::default(),
            bytes: 0,
            sent: Arc::default(),
        }
    }

    /// The sums of all buckets of a step, in the order of emission. `count` is what its sink has posted.
    ///
    /// # Errors
    /// What went wrong in the courier.
    pub fn collect(&mut self, count: u64, by: Deadline) -> Result<Vec<Update>> {
        let mut sums: BTreeMap<u64, Update> = BTreeMap::new();
        while (sums.len() as u64) < count {
            let left = by.left().unwrap_or_default();
            match self.sums.recv_timeout(left) {
                Ok(Ok((bucket, sum))) => drop(sums.insert(bucket, sum)),
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(Fault::peer(None, "a bucket was not summed in time")),
            }
        }
        self.posted += count;
        Ok(sums.into_values().collect())
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        let _ = self.posts.send(Post::End);
        let _ = wake(&self.net);
        if let Some(thread) = self.thread.take() {
            // It ends with the net, or with the message above; a panic there has been reported.
            let _ = thread.join();
        }
    }
}

fn wake(net: &Net) -> Result<()> {
    let header = Header { lane: Lane::Exchange, kind: WAKE, step: Step(0), tag: 0 };
    net.send(net.seat(), header, &[], Deadline::after_ms(1_000))
}

/// Gathers the blocks of one step into buckets. A bucket leaves when it is full and another block comes, or is known to be
/// still computed: the last one stays for the worker itself, for nothing is computed beside it.
pub struct Satchel {
    net: Arc<Net>,
    posts: SyncSender<Post>,
    next: u64,
    step: Step,
    bucket: Update,
    bytes: usize,
    sent: Arc<std::sync::Mutex<Sent>>,
}

/// What a satchel has posted, and what it still holds.
#[derive(Debug, Default)]
pub struct Sent {
    /// Buckets posted.
    pub buckets: u64,
    /// Blocks that were gathered and not posted.
    pub held: Update,
    /// Bytes posted, as they are in memory.
    pub bytes: u64,
}

impl Satchel {
    /// Where to read, once the sink is gone, what it has done.
    #[must_use]
    pub fn sent(&self) -> Arc<std::sync::Mutex<Sent>> {
        self.sent.clone()
    }
}

impl Sink for Satchel {
    fn take(&mut self, block: Block) -> Option<Block> {
        // Only dense blocks have the same size on all workers.
        let Body::Dense(_) = &block.body else { return Some(block) };
        self.pause();
        self.bytes += block.bytes();
        self.bucket.blocks.push(block);
        None
    }

    fn pause(&mut self) {
        if self.bytes < BUCKET_BYTES {
            return;
        }
        let bucket = std::mem::take(&mut self.bucket);
        if let Ok(mut sent) = self.sent.lock() {
            sent.buckets += 1;
            sent.bytes += self.bytes as u64;
        }
        // A courier that is gone has left its fault where the worker will look for the sums.
        let _ = self.posts.send(Post::Bucket(self.next, self.step, bucket));
        let _ = wake(&self.net);
        (self.next, self.bytes) = (self.next + 1, 0);
    }
}

/// Takes the buckets out of an update that a satchel would post of it. What it would hold comes first in what is left.
pub(crate) fn buckets(update: &mut Update) -> Vec<Update> {
    let is_dense = |block: &Block| matches!(block.body, Body::Dense(_));
    let (dense, others): (Vec<Block>, Vec<Block>) =
        std::mem::take(&mut update.blocks).into_iter().partition(is_dense);
    let (mut posted, mut bucket, mut bytes) = (Vec::new(), Update::default(), 0);
    for block in dense {
        if bytes >= BUCKET_BYTES {
            posted.push(std::mem::take(&mut bucket));
            bytes = 0;
        }
        bytes += block.bytes();
        bucket.blocks.push(block);
    }
    update.blocks = bucket.blocks.into_iter().chain(others).collect();
    posted
}

impl Drop for Satchel {
    fn drop(&mut self) {
        if let Ok(mut sent) = self.sent.lock() {
            sent.held = std::mem::take(&mut self.bucket);
        }
    }
}

/// A chunk that may leave. The greatest leaves first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Outgoing {
    /// Older steps first, and within a step younger buckets.
    urgency: (std::cmp::Reverse<u64>, u64),
    /// Then in the order of the topology.
    order: std::cmp::Reverse<u64>,
    bucket: u64,
    to: Seat,
    chunk: usize,
    total: bool,
}

/// One bucket on its way.
struct Sum {
    machine: Scheduled,
    step: Step,
    began: u64,
}

/// The courier's work.
struct Round {
    route: Route,
    me: Seat,
    active: BTreeMap<u64, Sum>,
    /// Frames of buckets that peers have begun and this seat has not.
    early: BTreeMap<u64, Vec<Event>>,
    outgoing: BinaryHeap<Outgoing>,
    /// The bucket that this seat begins next.
    begun: u64,
    order: u64,
    scratch: Vec<u8>,
}

impl Round {
    fn new(route: Route) -> Round {
        let me = route.group.iter().position(|&seat| seat == route.net.seat()).unwrap_or(0);
        let (active, early, outgoing) = (BTreeMap::new(), BTreeMap::new(), BinaryHeap::new());
        let (me, begun, order, scratch) = (Seat(me as u32), 0, 0, Vec::new());
        Round { route, me, active, early, outgoing, begun, order, scratch }
    }

    fn run(
        &mut self,
        inbox: &Receiver<Post>,
        results: &SyncSender<Result<(u64, Update)>>,
    ) -> Result<()> {
        let mine = |arrival: &Arrival| matches!(arrival.header.kind, BUCKETS | WAKE);
        loop {
            let mut commands = Vec::new();
            while let Ok(post) = inbox.try_recv() {
                match post {
                    Post::End => return Ok(()),
                    Post::Bucket(bucket, step, update) => {
                        self.begin(bucket, step, update, &mut commands);
                    }
                }
            }
            self.perform(commands, results)?;
            let arrival = match self.outgoing.is_empty() {
                true => Some(self.route.net.next(Lane::Exchange, mine, patience())?),
                false => self.route.net.try_next(Lane::Exchange, mine)?,
            };
            match arrival {
                Some(arrival) if arrival.header.kind == BUCKETS => {
                    self.frame(arrival, results)?;
                }
                Some(_) => {}
                None => self.send_one()?,
            }
        }
    }

    fn begin(
        &mut self,
        bucket: u64,
        step: Step,
        update: Update,
        commands: &mut Vec<(u64, Command)>,
    ) {
        let (topology, me) = (self.route.topology.clone(), self.me);
        let world = self.route.group.len() as u32;
        let codec = self.route.codec.clone();
        let mut machine = Scheduled::new(update, codec, topology.grain(world), |chunks| {
            moves(&topology.pattern(me, world, chunks), me, world)
        })
        .compressing(&self.route.shapes);
        let mut wanted = Vec::new();
        machine.on(Event::Begin, &mut wanted);
        for event in self.early.remove(&bucket).unwrap_or_default() {
            machine.on(event, &mut wanted);
        }
        self.begun = bucket + 1;
        commands.extend(wanted.into_iter().map(|command| (bucket, command)));
        self.active.insert(bucket, Sum { machine, step, began: microseconds() });
    }

    fn frame(
        &mut self,
        arrival: Arrival,
        results: &SyncSender<Result<(u64, Update)>>,
    ) -> Result<()> {
        let (bucket, tag) = (arrival.header.step.0, arrival.header.tag);
        let from = self.route.group.iter().position(|&seat| seat == arrival.from);
        let from = Seat(from.map_or(u32::MAX, |at| at as u32));
        let (chunk, total) = ((tag & !TOTAL) as usize, tag & TOTAL != 0);
        let event = Event::Frame { from, chunk, total, payload: arrival.payload };
        let mut commands = Vec::new();
        match self.active.get_mut(&bucket) {
            Some(sum) => sum.machine.on(event, &mut commands),
            // A peer may be a few buckets ahead, and never speaks of one that is done.
            None if (self.begun..self.begun + QUEUE as u64).contains(&bucket) => {
                self.early.entry(bucket).or_default().push(event);
            }
            None => {
                let seat = arrival.from;
                let what = format!("{seat} on {} sums another bucket", self.route.net.host(seat));
                return Err(Fault::peer(Some(seat), what));
            }
        }
        let commands = commands.into_iter().map(|command| (bucket, command)).collect();
        self.perform(commands, results)
    }

    fn perform(
        &mut self,
        commands: Vec<(u64, Command)>,
        results: &SyncSender<Result<(u64, Update)>>,
    ) -> Result<()> {
        for (bucket, command) in commands {
            match command {
                Command::Send { to, chunk, total } => {
                    let step = self.active.get(&bucket).map_or(0, |sum| sum.step.0);
                    self.order += 1;
                    let urgency = (std::cmp::Reverse(step), bucket);
                    let order = std::cmp::Reverse(self.order);
                    self.outgoing.push(Outgoing { urgency, order, bucket, to, chunk, total });
                }
                Command::Done => {
                    // Its last totals must leave before the sum is handed over.
                    while self.outgoing.iter().any(|outgoing| outgoing.bucket == bucket) {
                        self.send_one()?;
                    }
                    let Some(sum) = self.active.remove(&bucket) else { continue };
                    self.route.tracer.ends("wire", "sum of a bucket", sum.step, sum.began);
                    // A worker that is gone wants no sum.
                    let _ = results.send(Ok((bucket, sum.machine.take())));
                }
                Command::Fail { seat, phase, why } => {
                    let seat = self.route.group.get(seat.index()).copied().unwrap_or(seat);
                    let what = format!("{seat} on {} {why}", self.route.net.host(seat));
                    return Err(Fault::peer(Some(seat), what).during(phase));
                }
            }
        }
        Ok(())
    }

    fn send_one(&mut self) -> Result<()> {
        let Some(Outgoing { bucket, to, chunk, total, .. }) = self.outgoing.pop() else {
            return Ok(());
        };
        let Some(sum) = self.active.get(&bucket) else { return Ok(()) };
        let tag = chunk as u32 | if total { TOTAL } else { 0 };
        let header = Header { lane: Lane::Exchange, kind: BUCKETS, step: Step(bucket), tag };
        let began = if self.route.tracer.is_on() { microseconds() } else { 0 };
        let bytes = sum.machine.payload(chunk, &mut self.scratch);
        let by = Deadline::after(self.route.patience);
        self.route.net.send(self.route.group[to.index()], header, bytes, by)?;
        self.route.tracer.ends("wire", "send", sum.step, began);
        Ok(())
    }
}

/// A courier waits as long as its worker computes: the worker has the deadline.
fn patience() -> Deadline {
    Deadline::after(Duration::from_secs(3600 * 24))
}

#[cfg(test)]
#[path = "courier_tests.rs"]
mod tests;
