//! Simulates a sharded parameter server with the real machine ([`Shard`]): workers of different speeds push
//! and pull over a virtual network under every gate. The oracle: every update counts once or is counted as dropped, no
//! read is staler than the gate allows, all stop and cut at one step, nobody waits for ever.

use super::network::{Happening, Network, Weather};
use crate::tally::{TABLE, Tally};
use starlings_consistency::{Blending, CONSISTENCIES, Gate};
use starlings_core::{Block, Body, Entry, Model, Result, Rng, Seat, Step, Update};
use starlings_engine::exchange::ownership::Ownership;
use starlings_engine::exchange::served::{Asks, Command, Event, News, Office, Shard, WantedRows};
use starlings_engine::rules::{Learned, Rule};
use starlings_learn::{Facts, Learner, Moment, Place};
use std::sync::{Arc, Mutex};

/// The gates of owners.
const SERVED_GATES: [&str; 4] = ["bsp", "ssp", "async", "backup-workers"];

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub enum Message {
    /// To a shard.
    Request(Event),
    /// From a shard: rows and news.
    Rows {
        /// The step of the pull that this answers; none for rows that come unasked.
        answers: Option<Step>,
        /// The rows.
        rows: Vec<Block>,
        /// Where the flock is.
        news: News,
    },
}

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// The gate's name.
    pub gate: &'static str,
    /// Its bound, for gates that have one.
    pub bound: i64,
    /// Whether owners send fresh rows by themselves, for gates that can.
    pub push: bool,
    /// Workers that a step does not wait for, for gates that leave some out.
    pub spare: i64,
    /// Seats.
    pub world: u32,
    /// Steps of each worker.
    pub steps: u64,
    /// A worker that asks everyone to stop, and the step at which it does.
    pub stop: Option<(Seat, u64)>,
    /// The step at which seat 0 asks for a cut.
    pub cut: Option<u64>,
    /// A worker that falls silent, and the step at which it does: nobody is told.
    pub dead: Option<(Seat, u64)>,
    /// How many times slower than the others seat 0 is.
    pub slowness: u64,
}

/// What a run showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Steps each worker came to.
    pub steps: Vec<u64>,
    /// Whether each worker came to its end.
    pub over: Vec<bool>,
    /// Steps before which each worker made a cut.
    pub cuts: Vec<Vec<u64>>,
    /// Contributions that each worker pushed.
    pub pushes: Vec<u64>,
    /// The final table, owner by owner.
    pub tables: Vec<Vec<i64>>,
    /// Contributions that each shard has dropped.
    pub dropped: Vec<u64>,
    /// What each shard applied: steps, and how many contributions at once.
    pub applied: Vec<Vec<(u64, i64)>>,
    /// Largest lead over the slowest with which a worker started a step.
    pub lead_max: u64,
    /// Pulls that were sent.
    pub pulls: u64,
}

/// What a worker is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// What arrives waits until it looks.
    Computing,
    /// It waits for answers, or to be allowed to start.
    Opening,
    /// It waits for the rows of a cut.
    Cutting,
    /// It waits for the others to have theirs.
    Cut,
    Over,
}

struct Worker {
    step: u64,
    phase: Phase,
    /// Answers that are still to come.
    answers: u32,
    /// What has arrived and was not looked at.
    inbox: Vec<(Seat, Message)>,
    table: Vec<i64>,
    /// The slowest clock, as each owner last told.
    slowest: Vec<u64>,
    /// Owners that have been asked before.
    asked: Vec<bool>,
    news: News,
    cuts: Vec<u64>,
    pushes: u64,
}

/// What a shard has applied: steps, and how many contributions at once.
type Notes = Arc<Mutex<Vec<(u64, i64)>>>;

/// A learner's rule that notes what it applies.
struct Noting {
    rule: Learned,
    notes: Notes,
}

impl Rule for Noting {
    fn prepare(&self, model: &mut Model) {
        self.rule.prepare(model);
    }

    fn apply(&self, model: &mut Model, update: &Update, moment: &Moment) -> Result<()> {
        let counts = update.rows(TABLE).and_then(|rows| rows.values.as_i64());
        let count = counts.and_then(|counts| counts.first().copied()).unwrap_or(0);
        self.notes.lock().expect("nobody panics while noting").push((moment.step.0, count));
        self.rule.apply(model, update, moment)
    }
}

/// A run under way.
struct Run<'a> {
    scenario: &'a Scenario,
    gate: Arc<dyn Gate>,
    owners: Arc<Ownership>,
    network: Network<Message>,
    workers: Vec<Worker>,
    lead_max: u64,
    pulls: u64,
}

const TALLY: Tally = Tally { size: 13 };

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "serving scenario", &[]);
        let gate = SERVED_GATES[rng.below(SERVED_GATES.len() as u64) as usize];
        let world = 1 + rng.below(5) as u32;
        let stop =
            (rng.below(3) == 0).then(|| (Seat(rng.below(u64::from(world)) as u32), rng.below(15)));
        Scenario {
            seed,
            gate,
            bound: rng.below(5) as i64,
            push: rng.below(2) == 0,
            spare: rng.below(3) as i64,
            world,
            steps: 5 + rng.below(20),
            stop,
            cut: (rng.below(3) == 0).then(|| rng.below(15)),
            dead: None,
            slowness: 1 + rng.below(10),
        }
    }

    /// Runs it to the end of all events.
    ///
    /// # Panics
    /// When a read is staler than the gate allows, or a shard complains.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 0 };
        let worker = || Worker {
            step: 0,
            phase: Phase::Computing,
            answers: 0,
            inbox: Vec::new(),
            table: vec![0; TALLY.size as usize],
            slowest: vec![0; self.world as usize],
            asked: vec![false; self.world as usize],
            news: News::default(),
            cuts: Vec::new(),
            pushes: 0,
        };
        let mut run = Run {
            scenario: self,
            gate: self.built_gate(),
            owners: Arc::new(Ownership::of(&start(), self.world)),
            network: Network::new(self.seed, self.world, weather),
            workers: (0..self.world).map(|_| worker()).collect(),
            lead_max: 0,
            pulls: 0,
        };
        let notes: Vec<Notes> = (0..self.world).map(|_| Arc::default()).collect();
        let mut shards: Vec<Shard> =
            notes.iter().zip(0..).map(|(notes, seat)| run.shard(Seat(seat), notes)).collect();
        for seat in (0..self.world).map(Seat) {
            run.network.at(0, seat, Happening::Wake);
        }
        while let Some((seat, happening)) = run.network.happens() {
            match happening {
                Happening::Wake => run.open(seat),
                Happening::Message { message: Message::Request(event), .. } => {
                    run.serve(seat, &mut shards[seat.index()], event);
                }
                Happening::Message { message, from } => {
                    run.workers[seat.index()].inbox.push((from, message));
                    run.look(seat);
                }
                Happening::Lost { .. } | Happening::Crash => unreachable!("nobody crashes here"),
            }
        }
        let own = |(seat, shard): (usize, &Shard)| {
            let all = shard.model().i64(TABLE);
            let owned = run.owners.rows(TABLE, Seat(seat as u32));
            owned.into_iter().map(|row| all[row as usize]).collect()
        };
        let noted = |notes: &Notes| notes.lock().expect("nobody panics while noting").clone();
        Outcome {
            steps: run.workers.iter().map(|worker| worker.step).collect(),
            over: run.workers.iter().map(|worker| worker.phase == Phase::Over).collect(),
            cuts: run.workers.iter().map(|worker| worker.cuts.clone()).collect(),
            pushes: run.workers.iter().map(|worker| worker.pushes).collect(),
            tables: shards.iter().enumerate().map(own).collect(),
            dropped: shards.iter().map(Shard::dropped).collect(),
            applied: notes.iter().map(noted).collect(),
            lead_max: run.lead_max,
            pulls: run.pulls,
        }
    }

    /// The gate of this scenario.
    ///
    /// # Panics
    /// If the catalogue has no such gate.
    #[must_use]
    pub fn built_gate(&self) -> Arc<dyn Gate> {
        let entry =
            Entry::find("consistency", CONSISTENCIES, self.gate).expect("the catalogue has it");
        let mut given = toml::Table::new();
        let known: [(&str, toml::Value); 3] = [
            ("bound", self.bound.into()),
            ("push", self.push.into()),
            ("spare", self.spare.into()),
        ];
        for (name, value) in known {
            if entry.params.iter().any(|param| param.name == name) {
                given.insert(name.to_string(), value);
            }
        }
        let params = entry.check("consistency", &given).expect("allowed");
        (entry.build)(&params).expect("builds").gate.into()
    }

    /// Contributions that complete a step.
    #[must_use]
    pub fn quorum(&self) -> u32 {
        self.built_gate().quorum(self.world)
    }
}

impl Run<'_> {
    fn shard(&self, seat: Seat, notes: &Notes) -> Shard {
        let (rule, notes) = (Learned(Arc::new(TALLY)), notes.clone());
        let office = Office {
            rule: Arc::new(Noting { rule, notes }),
            gate: self.gate.clone(),
            blending: Arc::new(Blending::Plain),
            owners: self.owners.clone(),
            seat,
            pushers: self.seats().collect(),
        };
        Shard::new(office, start(), Step(0))
    }

    fn seats(&self) -> impl Iterator<Item = Seat> + use<> {
        (0..self.scenario.world).map(Seat)
    }

    fn serve(&mut self, seat: Seat, shard: &mut Shard, event: Event) {
        let mut commands = Vec::new();
        shard.on(event, &mut commands);
        for command in commands {
            let (to, answers, rows, news) = match command {
                Command::Answer { to, step, rows, news } => (to, Some(step), rows, news),
                Command::Fresh { to, rows, news } => (to, None, rows, news),
                Command::Mirror { .. } | Command::Mirrored { .. } => {
                    unreachable!("nobody is lost here, and nobody has a backup")
                }
                Command::Fail(why) => panic!("seed {}: {why}", self.scenario.seed),
            };
            self.network.send(seat, to, Message::Rows { answers, rows, news });
        }
    }

    /// What a worker asks for along with its pull.
    fn asks(&self, seat: Seat) -> Asks {
        let (scenario, worker) = (self.scenario, &self.workers[seat.index()]);
        let stop = scenario.stop.is_some_and(|(who, when)| who == seat && worker.step >= when);
        let due = scenario.cut.is_some_and(|when| worker.step >= when);
        Asks { stop, cut: due && seat == Seat(0) && worker.cuts.is_empty(), after: 0 }
    }

    /// Whether a worker starts its step without asking whom it has asked before.
    fn silent(&self, seat: Seat) -> bool {
        let Asks { stop, cut, .. } = self.asks(seat);
        self.gate.pushes() && !stop && !cut
    }

    /// A worker is about to start a step, or at its end.
    fn open(&mut self, seat: Seat) {
        let scenario = self.scenario;
        let step = self.workers[seat.index()].step;
        if scenario.dead.is_some_and(|(who, when)| who == seat && step >= when) {
            return;
        }
        if step >= scenario.steps {
            return self.end(seat);
        }
        let (asks, silent) = (self.asks(seat), self.silent(seat));
        self.workers[seat.index()].phase = Phase::Opening;
        for owner in self.seats() {
            let asked =
                std::mem::replace(&mut self.workers[seat.index()].asked[owner.index()], true);
            if !(silent && asked) {
                self.pull(seat, owner, asks, Vec::new());
            }
        }
        self.look(seat);
    }

    fn pull(&mut self, seat: Seat, owner: Seat, asks: Asks, due: Vec<u64>) {
        let worker = &mut self.workers[seat.index()];
        worker.answers += 1;
        self.pulls += 1;
        let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
        let event = Event::Pull { from: seat, step: Step(worker.step), wanted, asks, due };
        self.network.send(seat, owner, Message::Request(event));
    }

    /// A worker that waits takes what has come, and goes on if it may.
    fn look(&mut self, seat: Seat) {
        let worker = &mut self.workers[seat.index()];
        if !matches!(worker.phase, Phase::Opening | Phase::Cutting) {
            return;
        }
        for (from, message) in std::mem::take(&mut worker.inbox) {
            worker.take(from, message, self.scenario.seed);
        }
        if worker.answers > 0 {
            return;
        }
        match worker.phase {
            Phase::Cutting => self.have_cut(seat),
            _ => self.decide(seat),
        }
    }

    /// All answers are here: the flock may have gone on, or stop, or cut; or else the step may start.
    fn decide(&mut self, seat: Seat) {
        let silent = self.silent(seat);
        let worker = &mut self.workers[seat.index()];
        let (step, news) = (worker.step, worker.news);
        if silent && !worker.slowest.iter().all(|&slowest| self.gate.fresh(Step(step), slowest)) {
            return;
        }
        let skips = self.gate.quorum(self.scenario.world) < self.scenario.world;
        if skips && news.slowest > step && news.slowest != u64::MAX {
            worker.step = news.slowest;
            return self.open(seat);
        }
        let reached = |at: Option<u64>| at.is_some_and(|at| at <= step);
        let cut = news.cut_at.filter(|&at| worker.cuts.last().is_none_or(|&last| at > last));
        if reached(cut) {
            worker.phase = Phase::Cutting;
            for owner in self.seats() {
                let due = vec![step; self.scenario.world as usize];
                self.pull(seat, owner, Asks::default(), due);
            }
            return;
        }
        if reached(news.stop_at) {
            return self.end(seat);
        }
        self.work(seat);
    }

    /// The rows of a cut are here. Nobody goes on before all have them.
    fn have_cut(&mut self, seat: Seat) {
        let world = u64::from(self.scenario.world);
        let quorum = u64::from(self.scenario.quorum());
        let worker = &mut self.workers[seat.index()];
        let step = worker.step;
        let counts = step * quorum..=step * world;
        assert!(
            worker.table.iter().all(|&count| counts.contains(&(count as u64))),
            "seed {}: {seat} cut at {step} and read {:?}",
            self.scenario.seed,
            worker.table
        );
        worker.cuts.push(step);
        worker.phase = Phase::Cut;
        if self.workers.iter().all(|worker| worker.phase == Phase::Cut) {
            let tables: Vec<&Vec<i64>> = self.workers.iter().map(|worker| &worker.table).collect();
            let same = tables.iter().all(|table| *table == tables[0]);
            assert!(same, "seed {}: cuts differ: {tables:?}", self.scenario.seed);
            let now = self.network.now();
            for seat in self.seats() {
                self.workers[seat.index()].phase = Phase::Computing;
                self.network.at(now, seat, Happening::Wake);
            }
        }
    }

    fn end(&mut self, seat: Seat) {
        self.workers[seat.index()].phase = Phase::Over;
        for owner in self.seats() {
            let finished = Message::Request(Event::Finished { from: seat });
            self.network.send(seat, owner, finished);
        }
    }

    /// A worker may start: check what it has read, push, and come back after some time.
    fn work(&mut self, seat: Seat) {
        let (scenario, world) = (self.scenario, u64::from(self.scenario.world));
        let step = self.workers[seat.index()].step;
        self.check_read(seat, step);
        let others = self.workers.iter().filter(|worker| worker.phase != Phase::Over);
        let slowest = others.map(|worker| worker.step).min().unwrap_or(step);
        self.lead_max = self.lead_max.max(step - slowest);
        let moment = Moment { step: Step(step), pass: 0, seed: 0, rows: world };
        for owner in self.seats() {
            for (update, last) in self.parts(owner) {
                let push = Event::Push { from: seat, moment, update, last };
                self.network.send(seat, owner, Message::Request(push));
            }
        }
        let worker = &mut self.workers[seat.index()];
        worker.phase = Phase::Computing;
        worker.step += 1;
        worker.pushes += 1;
        let pace = if seat == Seat(0) { 10 * scenario.slowness } else { 10 };
        let time = self.network.now() + 1 + self.network.draw(pace);
        self.network.at(time, seat, Happening::Wake);
    }

    /// A contribution to the rows of an owner, in one part or two: all but the last must not count as a step.
    fn parts(&mut self, owner: Seat) -> Vec<(Update, bool)> {
        let rows = self.owners.rows(TABLE, owner);
        if self.network.draw(2) == 0 {
            return vec![(TALLY.adds(rows, 1), true)];
        }
        if self.gate.lead_max() == Some(0) {
            // What is held for a step is folded block by block, and there is only one.
            return vec![(Update::default(), false), (TALLY.adds(rows, 1), true)];
        }
        let (front, back) = rows.split_at(rows.len() / 2);
        vec![(TALLY.adds(front.to_vec(), 1), false), (TALLY.adds(back.to_vec(), 1), true)]
    }

    /// Each push adds 1 to every row, so that a row counts the pushes that were seen.
    fn check_read(&self, seat: Seat, step: u64) {
        let oldest = match self.gate.lead_max() {
            Some(bound) => step.saturating_sub(bound) * u64::from(self.scenario.quorum()),
            // A worker's own pushes went the same way as its pull.
            None => self.workers[seat.index()].pushes,
        };
        let table = &self.workers[seat.index()].table;
        assert!(
            table.iter().all(|&seen| seen as u64 >= oldest),
            "seed {}: {seat} read a model staler than {} allows at step {step}: {table:?}",
            self.scenario.seed,
            self.scenario.gate
        );
    }
}

impl Worker {
    fn take(&mut self, from: Seat, message: Message, seed: u64) {
        let Message::Rows { answers, rows, news } = message else {
            unreachable!("requests go to shards");
        };
        if let Some(step) = answers {
            assert_eq!(step.0, self.step, "seed {seed}: an answer to another step");
            self.answers -= 1;
        }
        for block in &rows {
            let Body::Rows(rows) = &block.body else { unreachable!("owners send rows") };
            let counts = rows.values.as_i64().unwrap_or(&[]);
            for (&row, &count) in rows.index.iter().zip(counts) {
                let mine = &mut self.table[row as usize];
                assert!(count >= *mine, "seed {seed}: {from} told an older number of row {row}");
                *mine = count;
            }
        }
        let slowest = &mut self.slowest[from.index()];
        *slowest = news.slowest.max(*slowest);
        if from == Seat(0) {
            self.news = news;
        }
    }
}

fn start() -> Model {
    TALLY.init(&no_facts(), Place::WHOLE).expect("a tally always starts")
}

pub(super) fn no_facts() -> Facts {
    let schema = starlings_data::Schema {
        columns: Vec::new(),
        encoding: starlings_data::Encoding::OneHot,
        features: 1,
        target: starlings_data::Target::None,
        label: None,
    };
    Facts { rows: 1, schema, shards: 1, seed: 0, epochs: None, steps: None, batch: 1 }
}

/// Runs one seed and checks every invariant.
///
/// # Panics
/// With the seed, when one does not hold.
pub fn check(seed: u64) {
    let scenario = Scenario::of(seed);
    let outcome = scenario.run();
    assert!(outcome.over.iter().all(|over| *over), "seed {seed}: a worker hangs in {scenario:?}");
    let (world, quorum) = (i64::from(scenario.world), i64::from(scenario.quorum()));
    let pushes: u64 = outcome.pushes.iter().sum();
    for (table, dropped) in outcome.tables.iter().zip(&outcome.dropped) {
        assert!(
            table.iter().all(|&count| count as u64 + dropped == pushes),
            "seed {seed}: {pushes} pushes, {dropped} dropped, but the table says {table:?}"
        );
        assert!(quorum < world || *dropped == 0, "seed {seed}: a gate without spares drops");
    }
    let lead_max = scenario.built_gate().lead_max();
    if lead_max == Some(0) {
        let shards = outcome.applied.iter().zip(&outcome.tables);
        for (applied, _) in shards.filter(|(_, table)| !table.is_empty()) {
            let in_turn = applied
                .iter()
                .zip(0..)
                .all(|(&(step, count), at)| step == at && (quorum..=world).contains(&count));
            assert!(in_turn, "seed {seed}: a barrier applied {applied:?}");
        }
    }
    // A worker that is left out skips steps: its lead says nothing.
    if let Some(bound) = lead_max.filter(|_| quorum == world) {
        assert!(outcome.lead_max <= bound, "seed {seed}: a lead of {} > {bound}", outcome.lead_max);
    }
    let alike = outcome.steps.iter().all(|&steps| steps == outcome.steps[0]);
    assert!(alike, "seed {seed}: workers stopped at different steps {:?}", outcome.steps);
    let cuts = &outcome.cuts;
    assert!(cuts.iter().all(|steps| *steps == cuts[0]), "seed {seed}: cuts at {cuts:?}");
}
