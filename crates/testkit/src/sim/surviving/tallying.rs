//! One member of a simulated job: sums with the real machine, concludes with the real functions, and computes nothing
//! but tallies. It does what a worker does around them (`engine/src/recovery`), event by event.

use super::{Frame, Scenario};
use starlings_cluster::deal::Deal;
use starlings_codec::Codec;
use starlings_core::{Block, Epoch, Seat, Step, Update, planted};
use starlings_engine::choices::{raw, summing};
use starlings_engine::exchange::scheduled::{Command, Event, Scheduled};
use starlings_engine::recovery::Leases;
use starlings_engine::recovery::fence::{Passage, passage};
use starlings_engine::recovery::resolve::{Resolution, Standing, resolve};
use starlings_topology::{Topology, moves};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One step's sum, read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contribution {
    /// Whose contributions are in it, as bits.
    pub who: u64,
    /// The epoch in which it was made.
    pub epoch: u64,
    /// How often the rows of each shard are in it.
    pub rows: Vec<i64>,
}

/// A model: all sums so far, and what is owed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Results {
    /// The sums by step.
    pub sums: Vec<Contribution>,
    leases: Leases,
}

impl Results {
    /// Shards whose rows are still owed, and for how many steps.
    #[must_use]
    pub fn owed(&self) -> BTreeMap<u32, usize> {
        self.leases.owed_shards()
    }
}

/// What a member does next.
enum Phase {
    /// It waits for a lineup.
    Idle,
    /// It says how far it is.
    Standing(Summing),
    /// It waits for the model of a peer.
    Behind(Resolution),
    /// It computes.
    Computing,
    /// It sums a step.
    Merging(Summing),
    /// It waits for all to be done.
    Ending(Summing),
    /// It is done.
    Done,
}

/// A sum in progress.
struct Summing {
    machine: Scheduled,
    begun: bool,
    sum: u64,
}

/// What came of letting a member do all it can.
#[derive(Default)]
pub(super) struct Done {
    pub(super) frames: Vec<(Seat, Epoch, Frame)>,
    /// Steps that all have, with their sums.
    pub(super) reported: Vec<(u64, Contribution)>,
    /// It begins to compute, in that epoch.
    pub(super) computes: Option<Epoch>,
    /// The first seat sends the model home.
    pub(super) delivers: bool,
    pub(super) finished: bool,
    /// Everyone who had a model is gone.
    pub(super) restarted: bool,
}

/// A member at work.
pub(super) struct Working {
    topology: Arc<dyn Topology>,
    codec: Arc<dyn Codec>,
    reweighs: bool,
    steps: u64,
    shards: u32,
    me: Seat,
    epoch: Option<Epoch>,
    seats: Vec<Seat>,
    /// Whether its links to them are open.
    linked: bool,
    deal: Deal,
    pub(super) results: Results,
    has_model: bool,
    held: BTreeSet<u32>,
    pending: bool,
    phase: Phase,
    sums: u64,
    early: Vec<(Epoch, Seat, Frame)>,
}

impl Working {
    pub(super) fn first(scenario: &Scenario, me: Seat, seats: &[Seat], deal: &Deal) -> Working {
        let at = seats.iter().position(|seat| *seat == me).expect("a lineup names its receiver");
        let mut working = Working::newcomer(scenario, me, deal[at].clone());
        working.has_model = true;
        working
    }

    pub(super) fn newcomer(scenario: &Scenario, me: Seat, shards: Vec<u32>) -> Working {
        Working {
            topology: summing(scenario.topology, "").expect("it is in the catalogue"),
            codec: raw(),
            reweighs: scenario.reweighs,
            steps: scenario.steps,
            shards: scenario.shards,
            me,
            epoch: None,
            seats: Vec::new(),
            linked: false,
            deal: Deal::new(),
            results: Results::default(),
            has_model: false,
            held: shards.into_iter().collect(),
            pending: false,
            phase: Phase::Idle,
            sums: 0,
            early: Vec::new(),
        }
    }

    /// The epoch in which it has a seat.
    pub(super) fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Closes its links to the others of its epoch, if they are open: says who they are.
    pub(super) fn unlink(&mut self) -> Vec<Seat> {
        match std::mem::take(&mut self.linked) {
            true => self.seats.iter().copied().filter(|seat| *seat != self.me).collect(),
            false => Vec::new(),
        }
    }

    /// Whether a lineup of that epoch is news.
    pub(super) fn awaits(&self, epoch: Epoch) -> bool {
        self.epoch.is_none_or(|now| now < epoch) && !matches!(self.phase, Phase::Done)
    }

    /// Whether something of that epoch counts now.
    fn passes(&self, of: Epoch) -> bool {
        self.epoch.is_some_and(|now| passage(of, now) == Passage::Passes)
    }

    pub(super) fn steps(&self) -> u64 {
        self.results.sums.len() as u64
    }

    /// A new lineup.
    pub(super) fn gather(&mut self, epoch: Epoch, seats: Vec<Seat>, deal: Deal) {
        (self.epoch, self.seats, self.deal, self.linked) = (Some(epoch), seats, deal, true);
        self.early.retain(|(of, _, _)| passage(*of, epoch) != Passage::Refused);
        self.sums = 0;
        let width = Standing::width(self.shards);
        let mut numbers = vec![0; width * self.seats.len()];
        let steps = self.has_model.then_some(self.steps());
        let held = self.held.clone();
        let standing = Standing { steps, held, ..Standing::default() };
        standing.write(&mut numbers[width * self.place().index()..][..width]);
        self.phase = Phase::Standing(self.summing(vec![Block::counts("standings", numbers)]));
    }

    /// A peer is lost. Says whom to accuse, if that matters now, and in which step.
    pub(super) fn lose(&mut self, lost: Seat) -> Option<(Seat, u64)> {
        let at = self.seats.iter().position(|seat| *seat == lost)?;
        if matches!(self.phase, Phase::Idle | Phase::Done) {
            return None;
        }
        self.phase = Phase::Idle;
        Some((Seat(at as u32), self.steps()))
    }

    pub(super) fn receive(&mut self, epoch: Epoch, from: Seat, frame: Frame) {
        // Frames of an older epoch are refused; those of a newer one wait for its lineup.
        if self.epoch.is_none_or(|now| passage(epoch, now) != Passage::Refused) {
            self.early.push((epoch, from, frame));
        }
    }

    /// The contribution is computed, if it is still wanted.
    pub(super) fn computed(&mut self, epoch: Epoch) {
        if self.epoch != Some(epoch) || !matches!(self.phase, Phase::Computing) {
            return;
        }
        let mut rows = vec![0; self.shards as usize];
        for &shard in &self.held {
            rows[shard as usize] = 1 + self.results.leases.due(shard) as i64;
        }
        let who = Block::counts("who", vec![1 << self.me.0]);
        self.phase = Phase::Merging(self.summing(vec![who, Block::counts("rows", rows)]));
    }

    pub(super) fn advance(&mut self) -> Done {
        let mut done = Done::default();
        loop {
            let phase = std::mem::replace(&mut self.phase, Phase::Idle);
            let (next, more) = self.act(phase, &mut done);
            self.phase = next;
            if !more {
                return done;
            }
        }
    }

    /// Does what the phase says; says whether the next phase may have something to do at once.
    fn act(&mut self, phase: Phase, done: &mut Done) -> (Phase, bool) {
        match phase {
            Phase::Standing(mut summing) => match self.play(&mut summing, done) {
                Some(sum) => self.conclude(&sum, done),
                None => (Phase::Standing(summing), false),
            },
            Phase::Behind(resolution) => {
                let source = resolution.from.map(|(_, source)| self.seats[source.index()]);
                let state = self.early.iter().position(|(epoch, from, frame)| {
                    self.passes(*epoch) && Some(*from) == source && matches!(frame, Frame::State(_))
                });
                let Some(at) = state else { return (Phase::Behind(resolution), false) };
                if let (_, _, Frame::State(results)) = self.early.remove(at) {
                    (self.results, self.has_model) = (results, true);
                }
                (self.take_shards(&resolution, done), true)
            }
            Phase::Merging(mut summing) => match self.play(&mut summing, done) {
                Some(sum) => (self.finish_step(&sum, done), true),
                None => (Phase::Merging(summing), false),
            },
            Phase::Ending(mut summing) => match self.play(&mut summing, done) {
                Some(_) => {
                    self.report(self.steps().checked_sub(1), done);
                    done.finished = true;
                    (Phase::Done, false)
                }
                None => (Phase::Ending(summing), false),
            },
            waiting => (waiting, false),
        }
    }

    /// All have said how far they are.
    fn conclude(&mut self, sum: &Update, done: &mut Done) -> (Phase, bool) {
        let width = Standing::width(self.shards);
        let standings: Vec<Standing> =
            sum.i64("standings").chunks_exact(width).map(Standing::read).collect();
        let resolution = resolve(&standings, &self.deal, self.shards);
        let Some((_, source)) = resolution.from else {
            // Nobody has a model: all begin anew.
            done.restarted = true;
            (self.results, self.has_model) = (Results::default(), true);
            return (self.take_shards(&resolution, done), true);
        };
        let me = self.place();
        if me == source {
            for behind in &resolution.behind {
                let state = Frame::State(self.results.clone());
                done.frames.push((self.seats[behind.index()], self.now(), state));
            }
        }
        match resolution.behind.contains(&me) {
            true => (Phase::Behind(resolution), true),
            false => (self.take_shards(&resolution, done), true),
        }
    }

    fn take_shards(&mut self, resolution: &Resolution, done: &mut Done) -> Phase {
        let dealt = self.deal[self.place().index()].iter().copied().collect();
        self.pending = self.reweighs && resolution.from.is_some();
        if self.pending {
            self.results.leases.lack(resolution.missing());
            self.held = resolution.shards_of(self.place()).into_iter().collect();
        } else {
            self.results.leases.lack(vec![]);
            self.held = dealt;
        }
        self.next_step(done)
    }

    fn finish_step(&mut self, sum: &Update, done: &mut Done) -> Phase {
        let step = self.steps();
        let (who, rows) = (sum.i64("who")[0] as u64, sum.i64("rows").to_vec());
        self.results.sums.push(Contribution { who, epoch: self.now().0.into(), rows });
        self.results.leases.done(Step(step));
        // Whoever has this step has had the one before it from everyone.
        let had = if planted!("report-early") { Some(step) } else { step.checked_sub(1) };
        self.report(had, done);
        if std::mem::take(&mut self.pending) {
            self.results.leases.lack(vec![]);
            self.held = self.deal[self.place().index()].iter().copied().collect();
        }
        self.next_step(done)
    }

    fn report(&self, step: Option<u64>, done: &mut Done) {
        if let Some(step) = step {
            done.reported.push((step, self.results.sums[step as usize].clone()));
        }
    }

    fn next_step(&mut self, done: &mut Done) -> Phase {
        if self.steps() == self.steps {
            done.delivers = self.place() == Seat(0);
            return Phase::Ending(self.summing(vec![Block::counts("end", vec![1])]));
        }
        done.computes = self.epoch;
        Phase::Computing
    }

    fn now(&self) -> Epoch {
        self.epoch.expect("only members of an epoch work")
    }

    fn place(&self) -> Seat {
        let at = self.seats.iter().position(|seat| *seat == self.me);
        Seat(at.expect("a lineup names its receiver") as u32)
    }

    fn summing(&mut self, blocks: Vec<Block>) -> Summing {
        let (me, world, codec) = (self.place(), self.seats.len() as u32, self.codec.clone());
        let grain = self.topology.grain(world);
        let machine = Scheduled::new(Update { blocks }, codec, grain, |chunks| {
            moves(&self.topology.pattern(me, world, chunks), me, world)
        });
        self.sums += 1;
        Summing { machine, begun: false, sum: self.sums - 1 }
    }

    /// Feeds a sum all that has arrived for it.
    fn play(&mut self, summing: &mut Summing, done: &mut Done) -> Option<Update> {
        let mut events = Vec::new();
        if !std::mem::replace(&mut summing.begun, true) {
            events.push(Event::Begin);
        }
        let (sum, now) = (summing.sum, self.now());
        for (of, from, frame) in std::mem::take(&mut self.early) {
            match frame {
                Frame::Part { sum: which, chunk, total, payload }
                    if which == sum && self.passes(of) =>
                {
                    let at = self.seats.iter().position(|seat| *seat == from);
                    let from = Seat(at.expect("I5: only members of an epoch speak in it") as u32);
                    events.push(Event::Frame { from, chunk, total, payload });
                }
                frame => self.early.push((of, from, frame)),
            }
        }
        let (mut scratch, mut over) = (Vec::new(), None);
        for event in events {
            let mut commands = Vec::new();
            summing.machine.on(event, &mut commands);
            for command in commands {
                match command {
                    Command::Send { to, chunk, total } => {
                        let payload = summing.machine.payload(chunk, &mut scratch).to_vec();
                        let part = Frame::Part { sum, chunk, total, payload };
                        done.frames.push((self.seats[to.index()], now, part));
                    }
                    // Others may still wait for what is to be sent after this.
                    Command::Done => over = Some(summing.machine.sum().clone()),
                    Command::Fail { why, .. } => panic!("I2: a sum broke: {why}"),
                }
            }
        }
        over
    }
}
