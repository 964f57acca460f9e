//! The blocking shell of sums: performs the machines' sends and feeds them what arrives.

mod meeting;
mod tiers;
mod weighing;

pub(crate) use tiers::near;

use crate::choices::{Carriage, raw};
use crate::exchange::collected::{Collected, Sitting};
use crate::exchange::cut::{Part, cut};
use crate::exchange::packet::{Address, Losses, Packer};
use crate::exchange::scheduled::{
    Command, Event, Landing, Lent, Scheduled, Work, after_all, before_all,
};
use crate::net::{Arrival, Berths, Net};
use crate::shared_sum::{LateUpdate, SharedSum};
use crate::spare::Spare;
use starlings_codec::{Codec, Law, Next, Residuals, Rounds, Shapes};
use starlings_core::{
    Block, Body, Deadline, Fault, Kind, Result, Seat, Step, Update, Values, failpoint,
};
use starlings_topology::{Act, Move, Pattern, Topology, moves};
use starlings_transport::shared::Turn;
use starlings_transport::{Header, Lane};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Between workers of one machine, chunks that a seat sends before it has the totals of the first of them: while there are few,
/// what is sent is still in the caches when its total takes its place.
const ABROAD_MAX: usize = 8;

/// Sums that a step has at most, each of which draws from a number of its own.
const SUMS_MAX: u64 = 1 << 16;

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
    way: Way,
    patience: Duration,
    /// Sums that have been sent over links, which names their frames.
    count: u64,
    /// What the next sum's codec draws from: the same on all seats, over every transport, and after a resume.
    draw: u64,
    scratch: Vec<u8>,
    bytes_raw: u64,
    /// Tensors of f32, which factors may stand for.
    single: Arc<BTreeSet<String>>,
    /// Where all seats of the group share a host.
    shared: Option<SharedSum>,
    /// Where the group that this seat sums with first shares a host.
    near: Option<SharedSum>,
    /// Whether the sum in progress leaves its contribution as it is, and what it has to give back.
    keeps: bool,
    kept: Option<Update>,
    spare: Spare,
    /// Once this seat is about to leave: sums since nothing is held back any more.
    parting: Option<u32>,
    /// What is to be done to the numbers of the sum in progress.
    work: Option<Arc<dyn Work>>,
}

/// How a merger brings contributions together.
enum Way {
    /// Partial sums are folded on the way, each number encoded by itself.
    Played(Arc<dyn Codec>, Arc<Shapes>),
    /// Contributions go whole to whoever folds them.
    Collected(Box<Packer>),
    /// A few played sums instead of one.
    Rounds(Box<dyn Rounds>, Box<Way>),
}

/// How a merger sums.
#[derive(Clone)]
pub struct MergeOptions {
    /// Distinguishes this group's sums from those of other groups that this seat is in.
    pub kind: u8,
    /// The seats that sum, this one included, in order.
    pub group: Vec<Seat>,
    /// Who talks to whom.
    pub topology: Arc<dyn Topology>,
    /// How numbers travel.
    pub carriage: Carriage,
    /// The matrices that blocks stand for; blocks without one are statistics, and travel as they are.
    pub shapes: Arc<Shapes>,
    /// Tensors of f32: factors that stand for them are f64 themselves.
    pub single: Arc<BTreeSet<String>>,
    /// The seed of a codec's noise.
    pub seed: u64,
    /// How long to wait for a peer that is alive but silent about this sum.
    pub patience: Duration,
}

impl MergeOptions {
    /// Sums of numbers as they are, over all seats of a net.
    #[must_use]
    pub fn exact(kind: u8, net: &Net, topology: Arc<dyn Topology>, patience: Duration) -> Self {
        let group = (0..net.world()).map(Seat).collect();
        let (carriage, shapes, single) = (Carriage::Numbers(raw()), Arc::default(), Arc::default());
        MergeOptions { kind, group, topology, carriage, shapes, single, seed: 0, patience }
    }
}

impl Merger {
    /// A merger over a group that this seat belongs to.
    ///
    /// # Panics
    /// If this seat is not in the group.
    #[must_use]
    pub fn new(net: Arc<Net>, options: MergeOptions) -> Merger {
        let me = options.group.iter().position(|&seat| seat == net.seat());
        let me = Seat(me.expect("a seat sums within its own group") as u32);
        let way = Way::of(&options, me);
        let MergeOptions { kind, group, topology, patience, single, .. } = options;
        Merger {
            net,
            single,
            kind,
            group,
            me,
            topology,
            way,
            patience,
            count: 0,
            draw: 0,
            scratch: Vec::new(),
            bytes_raw: 0,
            shared: None,
            near: None,
            keeps: false,
            kept: None,
            spare: Spare::default(),
            parting: None,
            work: None,
        }
    }

    /// Plays dense sums of exact numbers through shared memory, where there is some; all else goes over links.
    #[must_use]
    pub fn through(mut self, shared: Option<SharedSum>) -> Merger {
        self.shared = shared;
        self
    }

    /// The next sums are those of this step: what their codec draws at random follows from the step and from which of its
    /// sums it is. Whoever never says so has all its sums in one step.
    pub fn begin(&mut self, step: Step) {
        self.draw = step.0 * SUMS_MAX;
    }

    /// The number of the next sum, where groups that change sum under one kind: it tells their frames apart.
    #[must_use]
    pub fn numbered(mut self, count: u64) -> Merger {
        self.count = count;
        self
    }

    /// This seat's place among those who sum.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.me
    }

    /// How many seats sum.
    #[must_use]
    pub fn seats(&self) -> u32 {
        self.group.len() as u32
    }

    /// Bytes that the chunks sent so far have in memory.
    #[must_use]
    pub fn bytes_raw(&self) -> u64 {
        self.bytes_raw
    }

    /// What this seat's codec has lost so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        match &self.way {
            Way::Played(..) => Losses::new(),
            Way::Collected(packer) => packer.save(),
            Way::Rounds(rounds, _) => rounds.save(),
        }
    }

    /// Takes back what was lost: this seat's own, or that of seats that are gone.
    pub fn restore(&mut self, losses: Losses, own: bool) {
        match &mut self.way {
            Way::Played(..) => {}
            Way::Collected(packer) => packer.restore(losses, own),
            Way::Rounds(rounds, _) if own => rounds.restore(losses),
            Way::Rounds(rounds, _) => {
                // What warms the start is this seat's own; residuals of others are added to it.
                let mut sum = Residuals::default();
                let kept = rounds.save();
                sum.add(kept.clone());
                sum.add(losses);
                rounds.restore(kept.into_iter().chain(sum.save()).collect());
            }
        }
    }

    /// Whether this seat's codec holds something back that later sums bring.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        let holds_back = match &self.way {
            Way::Played(..) => false,
            Way::Collected(packer) => packer.holds_back(),
            Way::Rounds(..) => true,
        };
        holds_back && self.group.len() > 1
    }

    /// This seat is about to leave: what its codec has held back goes with its next contribution, which loses nothing.
    /// Where the codec needs all seats for that, with the next [plain](Merger::merge_plainly) one.
    pub fn part(&mut self) {
        if self.parting.is_none() {
            self.parting = Some(0);
            if let Way::Collected(packer) = &mut self.way {
                packer.part();
            }
        }
    }

    /// Whether all seats have what this one had held back: they took part in a sum after the one that brought it.
    #[must_use]
    pub fn parted(&self) -> bool {
        self.parting.is_some_and(|sums| sums > 1)
    }

    /// Whether a seat that leaves needs the others to make a [plain](Merger::merge_plainly) sum with it.
    #[must_use]
    pub fn parts_together(&self) -> bool {
        matches!(self.way, Way::Rounds(..))
    }

    /// Sums an update over the group. All seats get the same bits.
    ///
    /// # Errors
    /// A lost peer, named with what was being waited for; an abort; or a peer that broke the protocol.
    pub fn merge(&mut self, update: Update) -> Result<Update> {
        let merged = self.merge_by(update, false)?;
        self.draw += 1;
        // Rounds hold back until all seats agree not to.
        if let Some(sums) = self.parting.as_mut()
            && (*sums > 0 || !matches!(self.way, Way::Rounds(..)))
        {
            *sums += 1;
        }
        Ok(merged)
    }

    /// Begins a sum that is made where it is used. Gives the update back where it must be summed first, on all seats
    /// alike.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    pub fn merge_late(&mut self, update: Update) -> Result<Result<LateUpdate<'_>, Update>> {
        let is_exact = matches!(&self.way, Way::Played(codec, _) if codec.law() == Law::Exact);
        let Some(shared) = self.shared.as_mut().filter(|_| is_exact && SharedSum::takes(&update))
        else {
            return Ok(Err(update));
        };
        let (net, by) = (&self.net, Deadline::after(self.patience));
        let interrupted = || net.try_next(Lane::Control, |_| false).err();
        failpoint!("before-shared-sum");
        let bytes = update.bytes() as u64;
        let late = shared.sum_late(update, by, &interrupted)?;
        if late.is_ok() {
            self.bytes_raw += bytes;
            net.shared(bytes);
            self.draw += 1;
            self.parting = self.parting.map(|sums| sums + 1);
        }
        Ok(late)
    }

    /// As [`merge`](Merger::merge), with work on the numbers before and after.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    pub fn merge_working(&mut self, mut update: Update, work: Arc<dyn Work>) -> Result<Update> {
        let is_played = matches!(&self.way, Way::Played(codec, _) if codec.is_memory());
        let by_links = is_played && self.shared.is_none() && self.near.is_none();
        let is_doubled = by_links && self.is_doubled(&update);
        if by_links && self.group.len() > 1 && !is_doubled {
            self.work = Some(work);
            return self.merge(update);
        }
        before_all(&*work, &mut update);
        let mut merged = if is_doubled { self.doubled(update)? } else { self.merge(update)? };
        after_all(&*work, &mut merged);
        Ok(merged)
    }

    /// As [`merge`](Merger::merge), without the codec, which all seats must have agreed on. What seats that are about to leave
    /// had held back goes with it.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    pub fn merge_plainly(&mut self, update: Update) -> Result<Update> {
        let merged = self.merge_by(update, true)?;
        self.draw += 1;
        self.parting = self.parting.map(|sums| sums + 1);
        Ok(merged)
    }

    fn merge_by(&mut self, mut update: Update, plainly: bool) -> Result<Update> {
        // The way is set aside while it is used, for sums are made with the rest of the merger.
        let mut way = std::mem::replace(&mut self.way, Way::plain());
        let alone = self.group.len() == 1;
        let merged = match &mut way {
            Way::Collected(packer) if alone => {
                packer.claim_all(&mut update);
                Ok(multiplied_out(update))
            }
            Way::Rounds(rounds, inner) if alone || plainly => {
                let mut update = multiplied_out(update);
                if alone || self.parting.is_some() {
                    flush(&mut **rounds, &mut update);
                }
                if alone { Ok(update) } else { self.by(inner, update) }
            }
            _ if alone => Ok(multiplied_out(update)),
            way => self.by(way, update),
        };
        self.way = way;
        merged
    }

    /// As [`merge`](Merger::merge), but the update stays as it is, [`contribution`](Merger::contribution) gives it back in any case,
    /// and the sum is made in the vectors of `room` that have its shape. Numbers that travel as they are take no copy for it.
    ///
    /// # Errors
    /// As [`merge`](Merger::merge).
    pub fn merge_beside(&mut self, update: Update, room: Update) -> Result<Update> {
        if self.group.len() == 1 {
            // Alone the sum is the contribution itself.
            self.spare.keep(room);
            let sum = self.spare.copied(&update);
            self.kept = Some(update);
            return self.merge(sum);
        }
        match &mut self.shared {
            Some(shared) => shared.offer(room),
            None => self.spare.keep(room),
        }
        self.keeps = matches!(self.way, Way::Played(..));
        self.kept = (!self.keeps).then(|| update.clone());
        let merged = self.merge(update);
        self.keeps = false;
        merged
    }

    /// What this seat contributed to the last [`merge_beside`](Merger::merge_beside).
    pub fn contribution(&mut self) -> Option<Update> {
        self.kept.take().or_else(|| self.shared.as_mut().and_then(SharedSum::contribution))
    }

    fn by(&mut self, way: &mut Way, update: Update) -> Result<Update> {
        match way {
            Way::Played(codec, shapes) => {
                let (codec, shapes) = (codec.clone(), shapes.clone());
                self.play(multiplied_out(update), codec, &shapes)
            }
            Way::Collected(packer) => {
                self.weigh(&update, packer)?;
                if packer.weighs() && self.group.len() > 2 {
                    return self.collect_each(update, packer);
                }
                self.collect(update, packer, false)
            }
            Way::Rounds(rounds, inner) => {
                let world = self.group.len() as u32;
                let update = multiplied_out(update);
                let plain = self.bytes_dense(inner, &update);
                let mut next = rounds.first(update, self.draw, world);
                // What travels is counted sum by sum; what it stands for is what one sum of it as it is would have sent.
                self.bytes_raw += plain;
                loop {
                    let thin = self.bytes_dense(inner, &next);
                    let sum = self.by(inner, next)?;
                    self.bytes_raw = self.bytes_raw.saturating_sub(thin);
                    match rounds.next(sum) {
                        Next::Sum(update) => next = update,
                        Next::Done(update) => return Ok(update),
                    }
                }
            }
        }
    }

    /// Bytes of dense numbers that this seat sends, or leaves in shared memory, in a sum of an update as it is.
    fn bytes_dense(&self, way: &Way, update: &Update) -> u64 {
        let world = self.group.len() as u32;
        let dense = |part: &Part| match &update.blocks[part.block].body {
            Body::Dense(values) => (part.to - part.from) * values.kind().bytes(),
            _ => 0,
        };
        let chunks: Vec<u64> = cut(update, self.topology.grain(world))
            .iter()
            .map(|parts| parts.iter().map(dense).sum::<usize>() as u64)
            .collect();
        let all: u64 = chunks.iter().sum();
        let sent = |moves: &[Move]| -> u64 {
            let sends = |it: &&Move| matches!(it.act, Act::SendPartial | Act::SendTotal);
            moves.iter().filter(sends).map(|it| chunks[it.chunk]).sum()
        };
        if !matches!(way, Way::Played(..)) {
            return all * u64::from(world - 1);
        }
        if SharedSum::takes(update) {
            if self.shared.is_some() && self.turns(update).is_some() {
                return all;
            }
            if self.near.is_some() && !self.keeps {
                let tier = self.topology.tier(self.me, world, chunks.len());
                return 2 * all + tier.map_or(0, |tier| sent(&tier.between));
            }
        }
        sent(&moves(&self.topology.pattern(self.me, world, chunks.len()), self.me, world))
    }

    /// Plays a topology's moves, of which the codec carries the blocks that `shapes` names.
    fn play(&mut self, update: Update, codec: Arc<dyn Codec>, shapes: &Shapes) -> Result<Update> {
        if self.shared.is_some()
            && codec.law() == Law::Exact
            && SharedSum::takes(&update)
            && let Some(turns) = self.turns(&update)
            && let Some(shared) = &mut self.shared
        {
            let (net, by) = (&self.net, Deadline::after(self.patience));
            let interrupted = || net.try_next(Lane::Control, |_| false).err();
            failpoint!("before-shared-sum");
            self.bytes_raw += update.bytes() as u64;
            net.shared(update.bytes() as u64);
            return shared.sum(update, &turns, by, &interrupted);
        }
        if !self.keeps
            && codec.law() == Law::Exact
            && SharedSum::takes(&update)
            && let Some(near) = self.near.take()
        {
            return self.play_in_tiers(near, update, codec);
        }
        let count = self.next_count();
        let (topology, me, world) = (self.topology.clone(), self.me, self.group.len() as u32);
        let room = self.keeps.then(|| self.spare.room_like(&update));
        let mut machine = Scheduled::new(update, codec, topology.grain(world), |chunks| {
            moves(&topology.pattern(me, world, chunks), me, world)
        })
        .compressing(shapes);
        if let Some(room) = room {
            machine = machine.keeping(room);
        }
        if let Some(work) = self.work.take() {
            machine = machine.working(work);
        }
        let outcome = self.drive(&mut machine, count);
        for (from, payload) in machine.spent_last() {
            self.net.recycle(self.group[from.index()], payload);
        }
        let (sum, contribution) = machine.take_both();
        self.kept = self.kept.take().or(contribution);
        outcome.map(|()| sum)
    }

    /// Performs what the machine wants done, until its sum is complete.
    fn drive(&mut self, machine: &mut Scheduled, count: Step) -> Result<()> {
        let by = Deadline::after(self.patience);
        let mut commands = Vec::new();
        // What is to be done, the first at the end.
        let mut pending: Vec<Command> = Vec::new();
        machine.on(Event::Begin, &mut commands);
        // What this seat is the first to send: in the order of chunks on every seat, so that whoever holds back has sent what
        // the others wait for.
        let mut first: VecDeque<Command> = commands.drain(..).collect();
        let abroad_max = if self.net.is_near() { ABROAD_MAX } else { usize::MAX };
        loop {
            // What has just been folded is warm: it leaves before what was wanted earlier.
            pending.extend(commands.drain(..).rev());
            if pending.is_empty() && machine.abroad() < abroad_max {
                pending.extend(first.pop_front());
            }
            let arrived = match pending.pop() {
                Some(Command::Send { to, chunk, total }) => {
                    let mut scratch = std::mem::take(&mut self.scratch);
                    self.bytes_raw += machine.bytes_raw(chunk);
                    let (bytes, lent) = machine.payload_and_lend(chunk, &mut scratch);
                    let (to, header) = (self.group[to.index()], self.header(chunk, total, count));
                    let berths = &mut self.berths(lent, count);
                    let sent = self.net.send_beside(to, (header, bytes), by, berths);
                    self.scratch = scratch;
                    sent?;
                    machine.sent(chunk);
                    failpoint!("chunk-sent");
                    self.arrived(count, machine.lend())
                }
                Some(Command::Done) if pending.is_empty() && first.is_empty() => return Ok(()),
                // The others still wait for what this seat has not sent yet.
                Some(Command::Done) => {
                    pending.insert(0, Command::Done);
                    pending.extend(first.drain(..).rev());
                    continue;
                }
                Some(Command::Fail { seat, phase, why }) => {
                    return Err(self.fail(seat, phase, &why));
                }
                None => self.awaited(count, by, machine.lend()).map(Some),
            };
            let arrived = arrived.map_err(|fault| self.explain(fault, machine.waiting()))?;
            let Some(landing) = arrived else { continue };
            failpoint!("chunk-arrived");
            match landing {
                Landing { from, chunk, total, placed: 0, rest: payload } => {
                    machine.on(Event::Frame { from, chunk, total, payload }, &mut commands);
                }
                landing => machine.land(landing, &mut commands),
            }
            for (from, payload) in machine.spent() {
                self.net.recycle(self.group[from.index()], payload);
            }
        }
    }

    /// In which order the topology adds the numbers of each block, so that shared memory gives the same bits as links;
    /// `None` where it adds partial sums to partial sums.
    fn turns(&self, update: &Update) -> Option<Vec<Vec<Turn>>> {
        let world = self.group.len() as u32;
        // Of two, either may be the first.
        if world == 2 {
            return Some(Vec::new());
        }
        let mut turns = vec![Vec::new(); update.blocks.len()];
        for (chunk, parts) in cut(update, self.topology.grain(world)).iter().enumerate() {
            let order = self.topology.order(world, chunk)?;
            let order: Vec<usize> = order.into_iter().map(Seat::index).collect();
            for part in parts {
                turns[part.block].push(Turn { end: part.to, order: order.clone() });
            }
        }
        Some(turns)
    }

    /// Sums each block by the way that is cheapest for it (Zhang et al., 2017: HybComm): factors go to everyone, who
    /// multiplies them out; of all else, where there are any, everyone folds a share.
    fn collect_each(&mut self, update: Update, packer: &mut Packer) -> Result<Update> {
        let world = self.group.len() as u32;
        let is_factors = |block: &Block| matches!(block.body, Body::Factors(_));
        let everyone = self.topology.pattern(self.me, world, 1) == Pattern::Everyone;
        if !everyone || !update.blocks.iter().any(is_factors) {
            return self.collect(update, packer, false);
        }
        let places: Vec<bool> = update.blocks.iter().map(is_factors).collect();
        let (told, folded) = update.blocks.into_iter().partition(is_factors);
        let told = self.collect(Update { blocks: told }, packer, false)?;
        packer.address(false);
        let folded = self.collect(Update { blocks: folded }, packer, true);
        packer.address(true);
        let (mut told, mut folded) = (told.blocks.into_iter(), folded?.blocks.into_iter());
        let next = |is_told: bool| if is_told { told.next() } else { folded.next() };
        Ok(Update { blocks: places.into_iter().filter_map(next).collect() })
    }

    /// Which kind of numbers the tensor of this name has.
    fn stands_for(&self, name: &str) -> Kind {
        if self.single.contains(name) { Kind::F32 } else { Kind::F64 }
    }

    /// Contributions go whole to everyone or to owners, as the topology says; or to owners in any case.
    fn collect(&mut self, update: Update, packer: &mut Packer, owned: bool) -> Result<Update> {
        let count = self.next_count();
        let (topology, me, world) = (self.topology.clone(), self.me, self.group.len() as u32);
        let sitting = Sitting { count: self.draw, me, world };
        let owners = |chunks| match topology.pattern(me, world, chunks) {
            Pattern::Everyone if !owned => None,
            Pattern::Owners(owners) => Some(owners),
            // A topology of moves folds on the way: contributions go to owners in turn instead.
            Pattern::Moves(_) | Pattern::Everyone => {
                Some((0..chunks).map(|c| Seat(c as u32 % world)).collect())
            }
        };
        let mut machine = Collected::new(update, sitting, topology.grain(world), owners);
        let by = Deadline::after(self.patience);
        let mut commands = Vec::new();
        machine.on(Event::Begin, packer, &mut commands);
        loop {
            for command in commands.drain(..) {
                match command {
                    Command::Send { to, chunk, total } => {
                        self.bytes_raw += machine.bytes_raw(chunk, |name| self.stands_for(name));
                        let bytes = machine.payload(chunk, total);
                        self.send(to, (chunk, total, count), bytes, by)?;
                    }
                    Command::Done => return Ok(machine.take()),
                    Command::Fail { seat, phase, why } => return Err(self.fail(seat, phase, &why)),
                }
            }
            let event = self.arrival(count, by).map_err(|f| self.explain(f, machine.waiting()))?;
            machine.on(event, packer, &mut commands);
        }
    }

    fn next_count(&mut self) -> Step {
        self.count += 1;
        Step(self.count - 1)
    }

    fn send(
        &self,
        to: Seat,
        (chunk, total, count): (usize, bool, Step),
        bytes: &[u8],
        by: Deadline,
    ) -> Result<()> {
        self.net.send(self.group[to.index()], self.header(chunk, total, count), bytes, by)
    }

    fn header(&self, chunk: usize, total: bool, count: Step) -> Header {
        let tag = chunk as u32 | if total { TOTAL } else { 0 };
        Header { lane: Lane::Exchange, kind: self.kind, step: count, tag }
    }

    /// What a machine lends, for frames of this sum.
    fn berths<'a>(&'a self, lent: Lent<'a>, count: Step) -> Chunks<'a> {
        Chunks { lent, group: &self.group, kind: self.kind, count }
    }

    fn fail(&self, seat: Seat, phase: String, why: &str) -> Fault {
        let seat = self.group[seat.index()];
        Fault::peer(Some(seat), format!("{seat} on {} {why}", self.net.host(seat))).during(phase)
    }

    /// The next frame of this sum. A peer may be one sum ahead: its frames wait in the lane.
    fn arrival(&self, count: Step, by: Deadline) -> Result<Event> {
        let mine =
            |arrival: &Arrival| arrival.header.kind == self.kind && arrival.header.step == count;
        let Landing { from, chunk, total, rest: payload, .. } =
            self.landing(self.net.next(Lane::Exchange, mine, by)?)?;
        Ok(Event::Frame { from, chunk, total, payload })
    }

    /// As [`Merger::arrival`], of which some may lie in the memory that was lent.
    fn awaited(&self, count: Step, by: Deadline, lent: Lent<'_>) -> Result<Landing> {
        let mine =
            |arrival: &Arrival| arrival.header.kind == self.kind && arrival.header.step == count;
        let berths = &mut self.berths(lent, count);
        self.landing(self.net.next_into(Lane::Exchange, mine, by, berths)?)
    }

    /// A frame of this sum that is here already.
    fn arrived(&self, count: Step, lent: Lent<'_>) -> Result<Option<Landing>> {
        let mine =
            |arrival: &Arrival| arrival.header.kind == self.kind && arrival.header.step == count;
        let berths = &mut self.berths(lent, count);
        let arrival = self.net.try_next_into(Lane::Exchange, mine, berths)?;
        arrival.map(|arrival| self.landing(arrival)).transpose()
    }

    fn landing(&self, arrival: Arrival) -> Result<Landing> {
        let from = self.group.iter().position(|&seat| seat == arrival.from);
        let Some(from) = from else {
            let what = format!("{} is not in this group", arrival.from);
            return Err(Fault::peer(Some(arrival.from), what));
        };
        let tag = arrival.header.tag;
        let (chunk, total) = ((tag & !TOTAL) as usize, tag & TOTAL != 0);
        let Arrival { payload: rest, placed, .. } = arrival;
        Ok(Landing { from: Seat(from as u32), chunk, total, placed, rest })
    }

    fn explain(&self, fault: Fault, waiting: Option<(Seat, usize)>) -> Fault {
        match waiting {
            Some((peer, chunk)) => {
                let peer = self.group[peer.index()];
                let host = self.net.host(peer);
                fault.during(format!("waiting for chunk {chunk} from {peer} on {host}"))
            }
            None => fault,
        }
    }
}

/// What a machine lends to the links, for frames of its sum.
struct Chunks<'a> {
    lent: Lent<'a>,
    group: &'a [Seat],
    kind: u8,
    count: Step,
}

impl Berths for Chunks<'_> {
    fn berth(&mut self, from: Seat, header: &Header, length: usize) -> Option<&mut [u8]> {
        let Header { lane, kind, step, tag } = *header;
        if (lane, kind, step) != (Lane::Exchange, self.kind, self.count) {
            return None;
        }
        let from = self.group.iter().position(|&seat| seat == from)?;
        let chunk = ((tag & !TOTAL) as usize, tag & TOTAL != 0);
        self.lent.room(Seat(from as u32), chunk, length)
    }
}

impl Way {
    /// Played sums of numbers as they are.
    fn plain() -> Way {
        Way::Played(raw(), Arc::default())
    }

    fn of(options: &MergeOptions, me: Seat) -> Way {
        let world = options.group.len() as u32;
        let everyone = options.topology.pattern(me, world, 1) == Pattern::Everyone;
        let packed = |carriage: Carriage| {
            let address = Address { seed: options.seed, seat: me.0, world, everyone };
            Way::Collected(Box::new(Packer::new(carriage, options.shapes.clone(), &address)))
        };
        match &options.carriage {
            Carriage::Numbers(codec) if !everyone => {
                Way::Played(codec.clone(), options.shapes.clone())
            }
            Carriage::Rounds(rounds) => {
                let numbers = || Carriage::Numbers(raw());
                let inner = if everyone { packed(numbers()) } else { Way::plain() };
                Way::Rounds(rounds.begin_seat(&options.shapes), Box::new(inner))
            }
            carriage => packed(carriage.clone()),
        }
    }
}

/// Adds what a codec of several sums has held back onto an update.
fn flush(rounds: &mut dyn Rounds, update: &mut Update) {
    let mut state = rounds.save();
    let mut residuals = Residuals::default();
    residuals.add(state.clone());
    for name in residuals.save().keys() {
        state.remove(name);
    }
    residuals.flush(update);
    state.extend(residuals.save());
    rounds.restore(state);
}

/// Factors as the matrices they are, for sums that fold on the way.
fn multiplied_out(mut update: Update) -> Update {
    for Block { body, .. } in &mut update.blocks {
        if let Body::Factors(factors) = body {
            let mut matrix = vec![0.0; factors.rows as usize * factors.width as usize];
            factors.add_to(&mut matrix);
            *body = Body::Dense(Values::F64(matrix));
        }
    }
    update
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
