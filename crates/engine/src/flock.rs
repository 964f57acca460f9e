//! A flock for a caller's own loop: join, merge, leave. The engine's own workers stand on the same parts.

#[cfg(feature = "modules")]
mod modules;
pub(crate) mod surviving;

use crate::all_to_all::all_to_all;
use crate::choices::{self, Carriage, raw, summing};
use crate::exchange::packet::Losses;
use crate::member::{JoinOptions, Member};
use crate::merge::{MergeOptions, Merger};
use crate::net::Net;
use crate::net::kinds;
use crate::node::Order;
use crate::recovery::Regroup;
use crate::rules::Rule;
use crate::table::{Table, TableOptions};
use starlings_cluster::checkpoint::Store;
use starlings_cluster::control::Control;
use starlings_cluster::coordinator::Coordinator;
use starlings_cluster::manifest::{Fingerprint, Manifest};
use starlings_cluster::membership::{self, Wish};
use starlings_cluster::protocol::{FromClient, Message};
use starlings_codec::Shapes;
use starlings_consistency::Gate;
use starlings_core::{
    Block, Body, Deadline, Epoch, Fault, Model, Result, Rows, Seat, Step, Update, Values,
};
use starlings_data::{shard_rows, shard_start};
use starlings_topology::{Shuffle, Topology};
use starlings_transport::Ticket;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use surviving::{Offer, Progress};

/// How sums are made.
#[derive(Clone)]
pub struct FlockOptions {
    /// How to join.
    pub join: JoinOptions,
    /// Who talks to whom.
    pub topology: Arc<dyn Topology>,
    /// How contributions travel.
    pub carriage: Carriage,
    /// Rows and columns of the matrices that blocks stand for. Only blocks named here are compressed.
    pub shapes: Shapes,
    /// How long to wait for a peer that is alive but makes no progress.
    pub patience: Duration,
}

impl FlockOptions {
    /// Joins the coordinator at `host:port` with a ticket; sums travel raw around a ring.
    ///
    /// # Errors
    /// When the address is none.
    pub fn new(coordinator: &str, ticket: Ticket) -> Result<FlockOptions> {
        let topology = summing("ring", "")?;
        let join = JoinOptions {
            coordinator: crate::launch::flock::resolve(coordinator)?,
            ticket,
            host: crate::member::host_name(),
            stop: crate::stop::Stop::new(),
            patience: Duration::from_secs(30),
            ticket_path: None,
        };
        let (carriage, shapes) = (Carriage::Numbers(raw()), Shapes::new());
        let patience = Duration::from_secs(600);
        Ok(FlockOptions { join, topology, carriage, shapes, patience })
    }
}

/// A seat in a flock whose loop is the caller's own.
pub struct Flock {
    member: Member,
    net: Arc<Net>,
    merger: Merger,
    exact: Merger,
    steps: u64,
    table: Option<Table>,
    shuffle: Box<dyn Shuffle>,
    shuffles: u64,
    options: FlockOptions,
    regroup: Box<dyn Regroup>,
    survives: bool,
    /// The rank that this member began with.
    first: Seat,
    participants: Vec<Seat>,
    progress: Progress,
}

/// The block that names whose contributions are in a sum.
const MEMBERS: &str = "starlings.members";

/// What sums over a net.
fn mergers(net: &Arc<Net>, options: &FlockOptions) -> (Merger, Merger) {
    let exact = MergeOptions::exact(kinds::WORLD, net, options.topology.clone(), options.patience);
    let carriage = options.carriage.clone();
    let shapes = Arc::new(options.shapes.clone());
    let lossy = MergeOptions { kind: kinds::SUMS, carriage, shapes, ..exact.clone() };
    let merger = |options: MergeOptions| {
        let shared = net.shared_sum(options.kind, &options.group);
        Merger::new(net.clone(), options).through(shared)
    };
    (merger(lossy), merger(exact))
}

impl Flock {
    /// Joins a flock and waits until everyone has a seat.
    ///
    /// # Errors
    /// A refused ticket, a coordinator that is not there, or not enough members in time.
    pub fn join(options: &FlockOptions) -> Result<Flock> {
        let member = Member::join(&options.join)?;
        if member.newcomer && !member.unlinked {
            return Err(Fault::peer(
                None,
                "the flock has begun, and its loop cannot be caught up with",
            )
            .hint("join before all seats are taken"));
        }
        let net = member.net.clone();
        let (merger, exact) = mergers(&net, options);
        let unlinked = member.unlinked;
        let mut flock = Flock {
            merger,
            exact,
            steps: 0,
            table: None,
            shuffle: choices::shuffle()?,
            shuffles: 0,
            options: options.clone(),
            regroup: member.regrouping(),
            survives: member.assignment.survives,
            first: member.assignment.seat,
            participants: Vec::new(),
            progress: Progress::default(),
            net,
            member,
        };
        if unlinked {
            // Those who are left begin in the next epoch.
            let lost = Fault::peer(None, "someone was lost before the flock was complete");
            let world = flock.world();
            flock.recover(lost, &Losses::new(), world)?;
        }
        Ok(flock)
    }

    /// This member's rank: another one after members were lost.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.net.seat()
    }

    /// How many members there are now.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.net.world()
    }

    /// Whose contributions are in the last [`merge`](Flock::merge), by the ranks that members began with.
    #[must_use]
    pub fn participants(&self) -> &[Seat] {
        &self.participants
    }

    /// Sums blocks over all members into `sums`, whose vectors serve where they have the shape of the blocks; the blocks stay as
    /// they are. All members call it with the same names and shapes, and all get the same bits. When a member is lost the
    /// others finish the same sum: with the contributions of those who are left, or, where one of them has the complete result
    /// already, with that. That blocks stay is all that this needs, so that it costs next to nothing; a sum that
    /// overwrote them could not be begun again.
    ///
    /// # Errors
    /// The coordinator's verdict, when the flock is over; or a lost member, where the host does not let flocks survive.
    pub fn merge(&mut self, blocks: &mut Vec<Block>, sums: &mut Vec<Block>) -> Result<()> {
        let mut update = Update { blocks: std::mem::take(blocks) };
        update.blocks.push(self.name());
        let mut offer = Offer::Beside(update, Update { blocks: std::mem::take(sums) });
        let merged = self.merged(&mut offer);
        if let Offer::Beside(mut update, _) = offer {
            update.blocks.pop();
            *blocks = update.blocks;
        }
        *sums = merged?;
        Ok(())
    }

    /// As [`merge`](Flock::merge), of blocks that can be made again: `make` is called for each attempt at the sum, which is one unless
    /// a member is lost. The sum is made in place of them: it takes no second vector, and as little time as one that would be
    /// lost.
    ///
    /// # Errors
    /// As [`merge`](Flock::merge).
    pub fn merge_made(&mut self, make: impl Fn() -> Vec<Block>) -> Result<Vec<Block>> {
        let name = self.name();
        let contribution = |_: Seat| {
            let mut blocks = make();
            blocks.push(name.clone());
            Update { blocks }
        };
        self.merged(&mut Offer::Made(&contribution))
    }

    fn merged(&mut self, offer: &mut Offer<'_>) -> Result<Vec<Block>> {
        self.steps += 1;
        let mut sum = self.sum(true, offer)?;
        self.participants = sum.blocks.pop().map(|block| named(&block)).unwrap_or_default();
        Ok(sum.blocks)
    }

    /// A block whose sum names who took part in it.
    fn name(&self) -> Block {
        // Sixty-two to a word, so that sums of bits stay positive.
        let mut members = vec![0; self.first.index() / 62 + 1];
        members[self.first.index() / 62] = 1 << (self.first.index() % 62);
        members.resize(self.words(), 0);
        Block::counts(MEMBERS, members)
    }

    /// Words that name everyone who began.
    fn words(&self) -> usize {
        self.member.assignment.roster.len().div_ceil(62)
    }

    /// Gives everyone the blocks of rank 0. All members call it with the same names and shapes.
    ///
    /// # Errors
    /// A lost member.
    pub fn broadcast(&mut self, blocks: &mut Vec<Block>) -> Result<()> {
        let mine = Update { blocks: std::mem::take(blocks) };
        let contribution = |seat: Seat| {
            let mut update = mine.clone();
            if seat != Seat(0) {
                update.blocks.iter_mut().for_each(silence);
            }
            update
        };
        *blocks = self.sum(false, &mut Offer::Made(&contribution))?.blocks;
        Ok(())
    }

    /// Everyone has something else for everyone: `parts[s]` goes to rank s, and what comes back has at place s what
    /// rank s had for this member (the shuffle of MapReduce). All members call it together.
    ///
    /// # Errors
    /// As many parts as members are needed; a lost member.
    pub fn shuffle(&mut self, parts: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let world = self.world();
        if parts.len() != world as usize {
            let what = format!("a shuffle among {world} has {} parts", parts.len());
            return Err(Fault::caller(what).hint("give one part for each rank, empty or not"));
        }
        let step = Step(self.shuffles);
        self.shuffles += 1;
        let by = Deadline::after(self.options.patience);
        all_to_all(&self.net, &*self.shuffle, parts, (kinds::SHUFFLED, step), by)
    }

    /// Opens the flock's table: `rows` × `width` zeros that live at owners. All members open it alike, once;
    /// `gate` says how stale a pull may be, `rule` what becomes of a push ([`crate::choices::rule`]).
    ///
    /// # Errors
    /// When it is open already.
    pub fn open_table(
        &mut self,
        (rows, width): (u32, u32),
        gate: Arc<dyn Gate>,
        rule: Arc<dyn Rule>,
    ) -> Result<()> {
        if self.table.is_some() {
            return Err(Fault::caller("the flock's table is open already"));
        }
        let (carriage, patience) = (self.options.carriage.clone(), self.options.patience);
        let options = TableOptions { rows, width, gate, rule, carriage, patience };
        self.table = Some(Table::open(&self.net, options)?);
        Ok(())
    }

    /// Adds rows to the table. One push is one step of this member's clock: under BSP a pull waits until all
    /// members have pushed as often as this one.
    ///
    /// # Errors
    /// A table that is not open, rows outside it, or a lost member.
    pub fn push(&mut self, rows: Rows) -> Result<()> {
        self.table()?.push(rows)
    }

    /// Reads rows of the table (increasing row numbers).
    ///
    /// # Errors
    /// A table that is not open, rows outside it, or a lost member.
    pub fn pull(&mut self, rows: &[u32]) -> Result<Rows> {
        self.table()?.pull(rows)
    }

    fn table(&mut self) -> Result<&mut Table> {
        self.table.as_mut().ok_or_else(|| Fault::caller("open_table comes before push and pull"))
    }

    /// The rows, out of `total`, that are this member's: every row belongs to exactly one.
    #[must_use]
    pub fn lease_rows(&self, total: u64) -> Range<u64> {
        let (seat, world) = (starlings_core::Shard(self.seat().0), self.world());
        let from = shard_start(total, world, seat);
        from..from + shard_rows(total, world, seat)
    }

    /// Writes a checkpoint of a model that all members hold alike: whole or not at all, on return complete.
    ///
    /// # Errors
    /// A lost member or a failing disk.
    pub fn checkpoint(&mut self, folder: &Path, model: &Model) -> Result<()> {
        let step = Step(self.steps);
        if self.seat() == Seat(0) {
            let store = Store::new(folder, 3)?;
            let parts = vec![store.write_model(step, model)?];
            store.commit(&Manifest {
                step,
                epoch: Epoch(0),
                workers: self.world(),
                shards: self.world(),
                fingerprint: Fingerprint::default(),
                written_by: env!("CARGO_PKG_VERSION").to_string(),
                progress: serde_json::Value::Null,
                parts,
            })?;
        }
        // Nobody goes on before it is complete.
        self.barrier("done")
    }

    /// Leaves when all are done.
    ///
    /// # Errors
    /// A member that failed meanwhile.
    pub fn leave(mut self) -> Result<()> {
        let closed = self.table.as_ref().map_or(Ok(()), Table::close);
        let outcome = closed.and_then(|()| self.barrier("leave")).map(|()| self.net.leave());
        self.net.close();
        self.member.leave(outcome.map(|()| None))
    }

    fn barrier(&mut self, name: &str) -> Result<()> {
        let word = |_: Seat| Update { blocks: vec![Block::counts(name, vec![1])] };
        self.sum(false, &mut Offer::Made(&word)).map(|_| ())
    }
}

/// The ranks that a sum of bits names.
fn named(block: &Block) -> Vec<Seat> {
    let Body::Dense(Values::I64(words)) = &block.body else { return Vec::new() };
    let bits = words.iter().enumerate().flat_map(|(word, &bits)| {
        let set = (0..62).filter(move |bit| bits & (1 << bit) != 0);
        set.map(move |bit| Seat((word * 62 + bit) as u32))
    });
    bits.collect()
}

/// Zeros of the same shape.
fn silence(block: &mut Block) {
    match &mut block.body {
        Body::Dense(values) => *values = Values::zeros(values.kind(), values.len()),
        Body::Rows(rows) => *rows = Rows::none(rows.values.kind(), rows.total, rows.width),
        Body::Factors(factors) => (factors.left, factors.right) = (Vec::new(), Vec::new()),
    }
}

/// A coordinator in this process for a flock of other processes on this machine.
pub struct FlockHost {
    address: SocketAddr,
    ticket: Ticket,
    over: Arc<AtomicBool>,
    server: Option<JoinHandle<Result<()>>>,
    /// Closing it would end the flock: the coordinator serves whoever submitted.
    _client: Control,
}

impl FlockHost {
    /// Starts a coordinator on loopback for `workers` members.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn start(workers: u32) -> Result<FlockHost> {
        let (most, deal, stall_ms) = (workers, Vec::new(), u64::MAX);
        FlockHost::with(Wish { workers, most, least: Some(1), deal, stall_ms })
    }

    /// The same for a flock that ends with the first member that is lost.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn mortal(workers: u32) -> Result<FlockHost> {
        FlockHost::with(Wish::fixed(workers))
    }

    fn with(wish: Wish) -> Result<FlockHost> {
        let home = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let coordinator = Coordinator::bind(home, false, membership::Options::default())?;
        let (address, ticket) = (coordinator.address(), coordinator.ticket().clone());
        let over = Arc::new(AtomicBool::new(false));
        let ended = over.clone();
        let serve = move || coordinator.run(&|| ended.load(Ordering::Relaxed));
        let server = std::thread::Builder::new().name("coordinator".to_string()).spawn(serve)?;
        let client = crate::launch::flock::call(address, &ticket)?;
        let job =
            serde_json::to_string(&Order::Flock).map_err(|e| Fault::machine(e.to_string()))?;
        let submit = FromClient::Submit { job, wish, survey: None };
        client.send(&Message::FromClient(submit), Deadline::after_ms(10_000))?;
        Ok(FlockHost { address, ticket, over, server: Some(server), _client: client })
    }

    /// Where members join.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What lets them in. Save it to a file for other processes.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Whether the flock has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.server.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the flock has ended.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn wait(mut self) -> Result<()> {
        let ended = self.server.take().map(JoinHandle::join);
        ended.map_or(Ok(()), |ended| {
            ended.unwrap_or_else(|_| Err(Fault::machine("the coordinator panicked")))
        })
    }
}

impl Drop for FlockHost {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::{call, welcome};
    use starlings_cluster::protocol::FromWorker;

    #[test]
    fn whoever_vanishes_before_all_are_linked_is_gone_without() {
        let host = FlockHost::start(3).unwrap();
        let options =
            FlockOptions::new(&host.address().to_string(), host.ticket().clone()).unwrap();
        std::thread::scope(|scope| {
            // It takes a seat, at an address where nobody listens, and is gone.
            let ghost = scope.spawn(|| {
                let control = call(&options.join, host.address(), options.join.patience).unwrap();
                welcome(&control).unwrap();
                let address = "127.0.0.1:1".to_string();
                let ready = FromWorker::Ready { host: "ghost".to_string(), pid: 1, address };
                control.send(&Message::FromWorker(ready), Deadline::after_ms(5_000)).unwrap();
                control.receive(Deadline::after_ms(20_000)).unwrap();
            });
            let member = || {
                let mut flock = Flock::join(&options).unwrap();
                let mut blocks = vec![Block::dense("ones", vec![1.0; 4])];
                let mut sums = Vec::new();
                flock.merge(&mut blocks, &mut sums).unwrap();
                let sum = Update { blocks: sums }.f64("ones").to_vec();
                let (world, names) = (flock.world(), flock.participants().len());
                flock.leave().unwrap();
                (sum, world, names)
            };
            let members = [scope.spawn(member), scope.spawn(member)];
            for member in members {
                assert_eq!(member.join().unwrap(), (vec![2.0; 4], 2, 2));
            }
            ghost.join().unwrap();
        });
    }
}
