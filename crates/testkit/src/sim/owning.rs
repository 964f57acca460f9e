//! Simulates owners of rows that are lost, with the real machines: [`Shard`]s with their backups under a barrier, and what
//! members conclude from what is left ([`locate`]). Members die at any moment, also one after another, also while the
//! others take their seats anew; newcomers come.
//!
//! The oracle: a step trebles every row that it touches and adds numbers that name contributor, step and row, so that a
//! step that is lost, doubled, out of order or of other contributors is seen in the bits, and so is a state that did
//! not come along. What a worker reads before step k is the model of exactly k steps; what anybody was shown is never taken
//! back; the model goes back to a checkpoint only when an owner was lost together with its backup.

use super::network::{Happening, Network, Weather};
use super::serving::{Message, no_facts};
use crate::tally::Tally;
use starlings_consistency::Blending;
use starlings_core::{
    Block, Body, Kind, Model, Result, Rng, Role, Rows, Seat, Step, Tensor, Update, Values,
};
use starlings_engine::choices::gate;
use starlings_engine::exchange::ownership::Ownership;
use starlings_engine::exchange::served::{Asks, Command, Event, Office, Shard, WantedRows};
use starlings_engine::recovery::owners::{Telling, locate};
use starlings_engine::rules::Rule;
use starlings_learn::Moment;
use std::collections::BTreeMap;
use std::sync::Arc;

const TABLE: &str = "table";
/// The state beside it: how often a row was touched.
const TOUCHES: &str = "table.touches";
const ROWS: u32 = 11;
/// No job has more epochs.
const EPOCHS_MAX: u64 = 40;

/// What the members that are left have learned, and what a run showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Epochs until the end.
    pub epochs: u64,
    /// Epochs that began with a model put together from owners and backups.
    pub rebuilt: u64,
    /// Of these, those that took a step of some owner back.
    pub taken_back: u64,
    /// Epochs that began from the beginning: an owner was lost with its backup.
    pub restored: u64,
    /// Epochs that began while some still had a seat in an older one.
    pub mixed: u64,
}

/// Order and number of steps can be read from what it makes of a row.
struct Trebling;

impl Rule for Trebling {
    fn prepare(&self, model: &mut Model) {
        model.set(TOUCHES, Tensor::zeros(Kind::I64, &[ROWS as usize, 1], Role::State));
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<()> {
        let Some(rows) = update.rows(TABLE) else { return Ok(()) };
        let values = rows.values.as_i64().unwrap_or(&[]);
        for (&row, &value) in rows.index.iter().zip(values) {
            let number = &mut model.i64_mut(TABLE)[row as usize];
            *number = number.wrapping_mul(3).wrapping_add(value);
            model.i64_mut(TOUCHES)[row as usize] += 1;
        }
        Ok(())
    }
}

/// What a member adds to a row in a step; most touch only some rows.
fn adds(member: u64, step: u64, row: u32) -> Option<i64> {
    // Millions are asked for: a product mixes well enough, and is quick.
    let key = (member << 40) ^ (step << 20) ^ u64::from(row);
    let mixed = (key ^ (key >> 7)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 61 > 2).then_some((mixed >> 20) as i64)
}

/// The model after the steps of a history: who contributed to each.
fn reference(history: &[Vec<u64>]) -> Model {
    let mut model = fresh();
    let (mut table, mut touches) = (vec![0_i64; ROWS as usize], vec![0; ROWS as usize]);
    for (step, members) in (0..).zip(history) {
        for row in 0..ROWS {
            let added = members.iter().filter_map(|&it| adds(it, step, row));
            if let Some(sum) = added.reduce(i64::wrapping_add) {
                let number = &mut table[row as usize];
                *number = number.wrapping_mul(3).wrapping_add(sum);
                touches[row as usize] += 1;
            }
        }
    }
    (*model.i64_mut(TABLE), *model.i64_mut(TOUCHES)) = (table, touches);
    model
}

fn fresh() -> Model {
    use starlings_learn::{Learner, Place};
    let tally = Tally { size: ROWS };
    let mut model = tally.init(&no_facts(), Place::WHOLE).expect("a tally always starts");
    Trebling.prepare(&mut model);
    model
}

/// One member, whatever seat it has, and the shard it last ran.
struct Member {
    name: u64,
    shard: Option<(Shard, u64, u32)>,
}

/// What is known of an epoch.
#[derive(Clone)]
struct Era {
    names: Vec<u64>,
    /// Who contributed to each step before it.
    before: Vec<Vec<u64>>,
    /// The step before which somebody has read the whole model.
    shown: u64,
}

impl Era {
    /// Who contributed to each of so many steps, if the last of them are of this epoch.
    fn history(&self, steps: u64) -> Vec<Vec<u64>> {
        let mut history = self.before.clone();
        history.resize(steps as usize, self.names.clone());
        history
    }
}

/// A job under way.
struct Job {
    seed: u64,
    rng: Rng,
    steps: u64,
    members: Vec<Member>,
    newcomers: u64,
    eras: BTreeMap<u64, Era>,
    epoch: u64,
    outcome: Outcome,
}

/// Runs one seed and checks every invariant.
///
/// # Panics
/// With the seed, when one does not hold.
pub fn check(seed: u64) -> Outcome {
    let mut rng = Rng::named(seed, "owning scenario", &[]);
    let world = 1 + rng.below(5);
    let members = (0..world).map(|name| Member { name, shard: None }).collect();
    let (steps, newcomers) = (4 + rng.below(12), rng.below(3));
    let (eras, epoch, outcome) = (BTreeMap::new(), 0, Outcome::default());
    let mut job = Job { seed, rng, steps, members, newcomers, eras, epoch, outcome };
    job.begin(Vec::new());
    (0..job.members.len()).for_each(|seat| job.sit_down(seat, &fresh()));
    while job.work() {
        job.regroup();
        assert!(job.epoch < EPOCHS_MAX, "seed {seed}: the job never ends");
    }
    job.outcome.epochs = job.epoch + 1;
    job.outcome
}

impl Job {
    /// A new epoch of those who are there.
    fn begin(&mut self, before: Vec<Vec<u64>>) {
        let names = self.members.iter().map(|member| member.name).collect();
        let shown = before.len() as u64;
        self.eras.insert(self.epoch, Era { names, before, shown });
    }

    fn sit_down(&mut self, seat: usize, model: &Model) {
        let world = self.members.len() as u32;
        let office = Office {
            rule: Arc::new(Trebling),
            gate: gate("bsp", "").expect("the catalogue has it"),
            blending: Arc::new(Blending::Plain),
            owners: Arc::new(Ownership::of(model, world)),
            seat: Seat(seat as u32),
            pushers: (0..world).map(Seat).collect(),
        };
        let start = Step(self.eras[&self.epoch].before.len() as u64);
        let shard = Shard::new(office, model.clone(), start).backed_up(world);
        self.members[seat].shard = Some((shard, self.epoch, world));
    }

    /// Steps until the end, or until somebody is lost. Says whether the job goes on.
    fn work(&mut self) -> bool {
        let world = self.members.len() as u32;
        let (era, seed) = (self.eras[&self.epoch].clone(), self.rng.below(u64::MAX));
        let mut round = Round::new(seed, era, self.steps);
        let losses = if world > 1 { self.rng.below(3) } else { 0 };
        let first = self.rng.below(40 * self.steps);
        for _ in 0..losses {
            let (seat, later) = (self.rng.below(u64::from(world)), self.rng.below(60));
            round.network.at(first + later, Seat(seat as u32), Happening::Crash);
        }
        while let Some((seat, happening)) = round.network.happens() {
            let shard = &mut self.members[seat.index()].shard.as_mut().expect("all have seats").0;
            round.happens(seat, happening, shard).unwrap_or_else(|why| {
                panic!("seed {}: {why} in epoch {}", self.seed, self.epoch);
            });
        }
        if let Some(era) = self.eras.get_mut(&self.epoch) {
            era.shown = round.era.shown;
        }
        if !round.crashed.contains(&true) {
            self.check_end(&round);
            return false;
        }
        let mut crashed = round.crashed.iter();
        self.members.retain(|_| crashed.next() == Some(&false));
        !self.members.is_empty()
    }

    /// Nobody was lost: all have come to the end, and every row is that of all steps.
    fn check_end(&self, round: &Round) {
        let over = round.workers.iter().all(|worker| worker.phase == Phase::Over);
        assert!(over, "seed {}: somebody hangs in epoch {}", self.seed, self.epoch);
        let wanted = reference(&self.eras[&self.epoch].history(self.steps));
        for (member, seat) in self.members.iter().zip(0..) {
            let shard = &member.shard.as_ref().expect("all have seats").0;
            let same = shard.owners().rows(TABLE, Seat(seat)).into_iter().all(|row| {
                let at = |model: &Model, name: &str| model.i64(name)[row as usize];
                [TABLE, TOUCHES].iter().all(|name| at(shard.model(), name) == at(&wanted, name))
            });
            assert!(same, "seed {}: the rows of seat {seat} at the end", self.seed);
        }
    }

    /// Those who are left, and perhaps others, put the model together and take seats anew; somebody may be lost meanwhile.
    fn regroup(&mut self) {
        loop {
            if self.newcomers > 0 && self.rng.below(2) == 0 {
                self.newcomers -= 1;
                self.members.push(Member { name: 100 + self.newcomers, shard: None });
            }
            self.rng.shuffle(&mut self.members);
            let history = self.located();
            let model = reference(&history);
            self.epoch += 1;
            self.begin(history);
            let count = self.members.len() as u64;
            if count == 1 || self.rng.below(4) > 0 {
                (0..self.members.len()).for_each(|seat| self.sit_down(seat, &model));
                return;
            }
            let seated = self.rng.below(count);
            (0..seated as usize).for_each(|seat| self.sit_down(seat, &model));
            self.outcome.mixed += u64::from(seated > 0);
            let lost = self.rng.below(count) as usize;
            self.members.remove(lost);
        }
    }

    /// Who has contributed to the model that is left, which is checked to the bit.
    fn located(&mut self) -> Vec<Vec<u64>> {
        let tellings: Vec<Option<Telling>> = self.members.iter().map(telling).collect();
        let Some(located) = locate(&tellings, true) else {
            self.check_lost(&tellings);
            self.outcome.restored += 1;
            return Vec::new();
        };
        self.outcome.rebuilt += 1;
        let (seed, step) = (self.seed, located.step);
        let era = &self.eras[&located.generation];
        assert!(step >= era.shown, "seed {seed}: {} was shown and is taken back", Step(era.shown));
        let history = era.history(step);
        let wanted = reference(&history);
        for (old, holder) in (0..).map(Seat).zip(&located.holders) {
            let (shard, ..) = self.members[holder.index()].shard.as_ref().expect("it has told");
            let model = shard.model_at(step).expect("nobody goes back by more than one step");
            for name in [TABLE, TOUCHES] {
                for row in shard.owners().rows(name, old) {
                    let at = |model: &Model| model.i64(name)[row as usize];
                    assert_eq!(at(&model), at(&wanted), "seed {seed}: row {row} of {old}, {name}");
                }
            }
        }
        let counts = |it: &&Telling| it.generation == located.generation;
        let ahead = tellings.iter().flatten().filter(counts).any(|it| it.own.max(it.kept) > step);
        self.outcome.taken_back += u64::from(ahead);
        history
    }

    /// The model is lost only with an owner and its backup, or with everyone who had a part of it.
    fn check_lost(&self, tellings: &[Option<Telling>]) {
        let newest = tellings.iter().flatten().map(|it| it.generation).max();
        let of_newest = || tellings.iter().flatten().filter(|it| Some(it.generation) == newest);
        let is_there = |seat: u32| of_newest().any(|it| it.seat.0 == seat);
        let world = of_newest().next().map_or(0, |it| it.world);
        let gone = (0..world).any(|seat| !is_there(seat) && !is_there((seat + 1) % world));
        assert!(gone || world == 0, "seed {}: nothing is lost in {tellings:?}", self.seed);
    }
}

fn telling(member: &Member) -> Option<Telling> {
    let (shard, generation, world) = member.shard.as_ref()?;
    let (seat, start, own, kept) = (shard.seat(), shard.start(), shard.complete(), shard.kept());
    Some(Telling { generation: *generation, seat, world: *world, start, own, kept })
}

/// What a worker is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Waking,
    Reading,
    Computing,
    Over,
}

struct Worker {
    step: u64,
    phase: Phase,
    answers: u32,
    table: Vec<i64>,
}

/// One epoch's work.
struct Round {
    network: Network<Message>,
    era: Era,
    owners: Ownership,
    workers: Vec<Worker>,
    /// Whether a worker has heard of a loss.
    stopped: Vec<bool>,
    /// When a shard stops that has heard of a loss: after its worker, or with it.
    shard_stops: Vec<u64>,
    crashed: Vec<bool>,
    /// From when on nothing arrives any more from one who is gone, at each of the others: a host may take along what it
    /// had not sent yet.
    silent: BTreeMap<(Seat, Seat), u64>,
    steps: u64,
}

impl Round {
    fn new(seed: u64, era: Era, steps: u64) -> Round {
        let (count, start) = (era.names.len(), era.before.len() as u64);
        let world = count as u32;
        let table = vec![0; ROWS as usize];
        let worker =
            || Worker { step: start, phase: Phase::Waking, answers: 0, table: table.clone() };
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 40 };
        let mut network = Network::new(seed, world, weather);
        (0..world).for_each(|seat| network.at(0, Seat(seat), Happening::Wake));
        Round {
            network,
            era,
            owners: Ownership::of(&fresh(), world),
            workers: (0..world).map(|_| worker()).collect(),
            stopped: vec![false; count],
            shard_stops: vec![u64::MAX; count],
            crashed: vec![false; count],
            silent: BTreeMap::new(),
            steps,
        }
    }

    fn happens(
        &mut self,
        seat: Seat,
        happening: Happening<Message>,
        shard: &mut Shard,
    ) -> std::result::Result<(), String> {
        let (at, now) = (seat.index(), self.network.now());
        match happening {
            Happening::Crash => {
                self.crashed[at] = true;
                for other in (0..self.workers.len() as u32).map(Seat) {
                    let last = now + self.network.draw(2) * self.network.draw(20);
                    self.silent.insert((seat, other), last);
                }
            }
            Happening::Message { from, .. }
                if self.silent.get(&(from, seat)).is_some_and(|&last| now >= last) => {}
            Happening::Lost { .. } => {
                self.stopped[at] = true;
                let later = now + self.network.draw(2) * self.network.draw(30);
                self.shard_stops[at] = self.shard_stops[at].min(later);
            }
            Happening::Message { message: Message::Request(event), .. } => {
                if now < self.shard_stops[at] {
                    self.serve(seat, shard, event)?;
                }
            }
            _ if self.stopped[at] => {}
            Happening::Wake => self.wake(seat),
            Happening::Message { message, .. } => self.read(seat, message)?,
        }
        Ok(())
    }

    fn serve(
        &mut self,
        from: Seat,
        shard: &mut Shard,
        event: Event,
    ) -> std::result::Result<(), String> {
        let mut commands = Vec::new();
        shard.on(event, &mut commands);
        for command in commands {
            let (to, message) = match command {
                Command::Answer { to, step, rows, news } => {
                    (to, Message::Rows { answers: Some(step), rows, news })
                }
                Command::Mirror { to, number, rows } => {
                    (to, Message::Request(Event::Mirror { from, number, rows }))
                }
                Command::Mirrored { to, number } => {
                    (to, Message::Request(Event::Mirrored { from, number }))
                }
                Command::Fresh { .. } => return Err("a barrier sent rows unasked".to_string()),
                Command::Fail(why) => return Err(why),
            };
            self.network.send(from, to, message);
        }
        Ok(())
    }

    /// A worker has computed, or is about to start a step.
    fn wake(&mut self, seat: Seat) {
        if self.workers[seat.index()].phase == Phase::Computing {
            self.push(seat);
        }
        let world = self.workers.len() as u32;
        let worker = &mut self.workers[seat.index()];
        let (step, over) = (worker.step, worker.step >= self.steps);
        worker.phase = if over { Phase::Over } else { Phase::Reading };
        worker.answers = if over { 0 } else { world };
        for owner in (0..world).map(Seat) {
            let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
            let (asks, due) = (Asks::default(), Vec::new());
            let event = match over {
                true => Event::Finished { from: seat },
                false => Event::Pull { from: seat, step: Step(step), wanted, asks, due },
            };
            self.network.send(seat, owner, Message::Request(event));
        }
    }

    fn push(&mut self, seat: Seat) {
        let world = self.workers.len() as u32;
        let worker = &mut self.workers[seat.index()];
        let (step, name) = (worker.step, self.era.names[seat.index()]);
        worker.step += 1;
        let moment = Moment { step: Step(step), pass: 0, seed: 0, rows: 1 };
        for owner in (0..world).map(Seat) {
            let (index, values): (Vec<u32>, Vec<i64>) =
                (self.owners.rows(TABLE, owner).into_iter())
                    .filter_map(|row| adds(name, step, row).map(|value| (row, value)))
                    .unzip();
            let rows = Rows { total: ROWS, width: 1, index, values: Values::I64(values) };
            let update = Update { blocks: vec![Block::rows(TABLE, rows)] };
            let event = Event::Push { from: seat, moment, update, last: true };
            self.network.send(seat, owner, Message::Request(event));
        }
    }

    /// A worker has read an owner's rows, and with the last of them the model of its step, to the bit.
    fn read(&mut self, seat: Seat, message: Message) -> std::result::Result<(), String> {
        let Message::Rows { rows, .. } = message else { return Ok(()) };
        let worker = &mut self.workers[seat.index()];
        for block in &rows {
            let Body::Rows(rows) = &block.body else { return Err("not rows".to_string()) };
            let values = rows.values.as_i64().unwrap_or(&[]);
            for (&row, &value) in rows.index.iter().zip(values) {
                worker.table[row as usize] = value;
            }
        }
        worker.answers -= 1;
        if worker.answers > 0 {
            return Ok(());
        }
        if worker.table != reference(&self.era.history(worker.step)).i64(TABLE) {
            return Err(format!("{seat} read another model than that of {}", Step(worker.step)));
        }
        worker.phase = Phase::Computing;
        self.era.shown = self.era.shown.max(worker.step);
        let time = self.network.now() + 1 + self.network.draw(10);
        self.network.at(time, seat, Happening::Wake);
        Ok(())
    }
}
