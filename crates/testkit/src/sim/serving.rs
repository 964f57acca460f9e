//! Simulates a sharded parameter server with the real machine ([`Shard`]): workers of different speeds push
//! and pull over a virtual network under every gate. The oracle: every update counts once, no read is staler
//! than the gate allows, nobody waits for ever.

use super::network::{Happening, Network, Weather};
use crate::tally::{TABLE, Tally};
use starlings_consistency::{Blending, CONSISTENCIES, Gate};
use starlings_core::{Body, Entry, Model, Rng, Seat, Step, Update};
use starlings_engine::exchange::ownership::Ownership;
use starlings_engine::exchange::served::{Asks, Command, Event, Office, Shard, WantedRows};
use starlings_engine::rules::Learned;
use starlings_learn::{Facts, Learner, Moment, Place};
use std::sync::Arc;

/// Gates under which every contribution is applied.
const SERVED_GATES: [&str; 3] = ["bsp", "ssp", "async"];

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub enum Message {
    /// To a shard.
    Request(Event),
    /// From a shard: the step it is for, the sum of the rows read, and where to stop.
    Answer {
        /// The step of the pull.
        step: Step,
        /// The sum of all rows in the answer.
        total: i64,
        /// All stop before this step.
        stop_at: Option<u64>,
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
    /// Seats.
    pub world: u32,
    /// Steps of each worker.
    pub steps: u64,
    /// A worker that asks everyone to stop, and the step at which it does.
    pub stop: Option<(Seat, u64)>,
    /// How many times slower than the others seat 0 is.
    pub slowness: u64,
}

/// What a run showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Steps each worker made.
    pub steps: Vec<u64>,
    /// The final table.
    pub table: Vec<i64>,
    /// Largest lead that any shard allowed.
    pub lead_max: u64,
}

struct Worker {
    step: u64,
    answers: u32,
    total: i64,
    stop_at: Option<u64>,
    over: bool,
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
            world,
            steps: 5 + rng.below(20),
            stop,
            slowness: 1 + rng.below(10),
        }
    }

    /// Runs it to the end of all events.
    ///
    /// # Panics
    /// When a worker still waits after the last event, or a shard complains.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 0 };
        let mut network: Network<Message> = Network::new(self.seed, self.world, weather);
        let mut shards: Vec<Shard> = (0..self.world).map(|seat| self.shard(Seat(seat))).collect();
        let worker = || Worker { step: 0, answers: 0, total: 0, stop_at: None, over: false };
        let mut workers: Vec<Worker> = (0..self.world).map(|_| worker()).collect();
        for seat in (0..self.world).map(Seat) {
            network.at(0, seat, Happening::Wake);
        }
        while let Some((seat, happening)) = network.happens() {
            match happening {
                Happening::Wake => self.pull_or_end(seat, &mut workers[seat.index()], &mut network),
                Happening::Message { message: Message::Request(event), .. } => {
                    self.serve(seat, &mut shards[seat.index()], event, &mut network);
                }
                Happening::Message { message: Message::Answer { step, total, stop_at }, from } => {
                    let worker = &mut workers[seat.index()];
                    assert_eq!(
                        step.0, worker.step,
                        "seed {}: an answer to another step",
                        self.seed
                    );
                    worker.answers += 1;
                    worker.total += total;
                    if from == Seat(0) {
                        worker.stop_at = stop_at;
                    }
                    if worker.answers == self.world {
                        self.work(seat, worker, &mut network);
                    }
                }
                Happening::Lost { .. } | Happening::Crash => unreachable!("nobody crashes here"),
            }
        }
        assert!(
            workers.iter().all(|worker| worker.over),
            "seed {}: a worker hangs in {self:?}",
            self.seed
        );
        let mut table = Vec::new();
        for (seat, shard) in shards.iter().enumerate() {
            let all = shard.model().i64(TABLE);
            let owned = self.owners().rows(TABLE, Seat(seat as u32));
            table.extend(owned.into_iter().map(|row| all[row as usize]));
        }
        Outcome {
            steps: workers.iter().map(|worker| worker.step).collect(),
            table,
            lead_max: shards.iter().map(Shard::lead_max).max().unwrap_or(0),
        }
    }

    fn shard(&self, seat: Seat) -> Shard {
        let office = Office {
            rule: Arc::new(Learned(Arc::new(TALLY))),
            gate: self.built_gate(),
            blending: Arc::new(Blending::Plain),
            owners: Arc::new(self.owners()),
            seat,
            pushers: (0..self.world).map(Seat).collect(),
        };
        Shard::new(office, start(), Step(0))
    }

    fn owners(&self) -> Ownership {
        Ownership::of(&start(), self.world)
    }

    /// The gate of this scenario.
    #[must_use]
    pub fn built_gate(&self) -> Arc<dyn Gate> {
        let entry = Entry::find("consistency", CONSISTENCIES, self.gate).expect("the catalogue has it");
        let mut given = toml::Table::new();
        if entry.params.iter().any(|param| param.name == "bound") {
            given.insert("bound".to_string(), self.bound.into());
        }
        let params = entry.check("consistency", &given).expect("allowed");
        (entry.build)(&params).expect("builds").gate.into()
    }

    fn pull_or_end(&self, seat: Seat, worker: &mut Worker, network: &mut Network<Message>) {
        (worker.answers, worker.total) = (0, 0);
        let stop = self.stop.is_some_and(|(who, when)| who == seat && worker.step >= when);
        for owner in (0..self.world).map(Seat) {
            let event = if worker.step < self.steps {
                let asks = Asks { stop, ..Asks::default() };
                let wanted = [(TABLE.to_string(), WantedRows::Owned)].into();
                let due = Vec::new();
                Event::Pull { from: seat, step: Step(worker.step), wanted, asks, due }
            } else {
                worker.over = true;
                Event::Finished { from: seat }
            };
            network.send(seat, owner, Message::Request(event));
        }
    }

    /// All answers are here: check what was read, push, and come back after some time.
    fn work(&self, seat: Seat, worker: &mut Worker, network: &mut Network<Message>) {
        if worker.stop_at == Some(worker.step) {
            worker.over = true;
            for owner in (0..self.world).map(Seat) {
                network.send(seat, owner, Message::Request(Event::Finished { from: seat }));
            }
            return;
        }
        let step = worker.step;
        // Each push adds 1 to every row, so the sum of the rows counts the pushes that were seen.
        let oldest = match self.built_gate().lead_max() {
            Some(bound) => step.saturating_sub(bound) * u64::from(self.world),
            None => step,
        };
        let seen = worker.total as u64;
        assert!(
            seen >= oldest * u64::from(TALLY.size),
            "seed {}: {seat} read a model staler than {} allows at step {step}",
            self.seed,
            self.gate
        );
        for owner in (0..self.world).map(Seat) {
            let moment = Moment { step: Step(step), pass: 0, seed: 0, rows: 1 };
            let update = self.part(owner);
            let push = Event::Push { from: seat, moment, update, last: true };
            network.send(seat, owner, Message::Request(push));
        }
        worker.step += 1;
        let pace = if seat == Seat(0) { 10 * self.slowness } else { 10 };
        let time = network.now() + 1 + network.draw(pace);
        network.at(time, seat, Happening::Wake);
    }

    fn part(&self, owner: Seat) -> Update {
        TALLY.adds(self.owners().rows(TABLE, owner), 1)
    }

    fn serve(&self, seat: Seat, shard: &mut Shard, event: Event, network: &mut Network<Message>) {
        let mut commands = Vec::new();
        shard.on(event, &mut commands);
        for command in commands {
            match command {
                Command::Answer { to, step, rows, news } => {
                    let total = rows.iter().map(|block| total(&block.body)).sum();
                    let stop_at = news.stop_at;
                    network.send(seat, to, Message::Answer { step, total, stop_at });
                }
                // These workers ask before every step, and so learn nothing from what comes unasked.
                Command::Fresh { .. } => {}
                Command::Fail(why) => panic!("seed {}: {why}", self.seed),
            }
        }
    }
}

fn total(body: &Body) -> i64 {
    match body {
        Body::Rows(rows) => rows.values.as_i64().unwrap_or(&[]).iter().sum(),
        Body::Dense(_) | Body::Factors(_) => 0,
    }
}

fn start() -> Model {
    TALLY.init(&no_facts(), Place::WHOLE).expect("a tally always starts")
}

fn no_facts() -> Facts {
    let schema = starlings_data::Schema {
        columns: Vec::new(),
        encoding: starlings_data::Encoding::OneHot,
        features: 1,
        target: starlings_data::Target::None,
        label: None,
    };
    Facts { rows: 1, schema, shards: 1, seed: 0, epochs: None, batch: 1 }
}

/// Runs one seed and checks every invariant.
///
/// # Panics
/// With the seed, when one does not hold.
pub fn check(seed: u64) {
    let scenario = Scenario::of(seed);
    let outcome = scenario.run();
    let pushes: u64 = outcome.steps.iter().sum();
    assert!(
        outcome.table.iter().all(|&count| count as u64 == pushes),
        "seed {seed}: {pushes} pushes but the table says {:?}",
        outcome.table
    );
    if let Some(bound) = scenario.built_gate().lead_max() {
        assert!(outcome.lead_max <= bound, "seed {seed}: a lead of {} > {bound}", outcome.lead_max);
    }
    let all_alike = outcome.steps.iter().all(|&steps| steps == outcome.steps[0]);
    assert!(all_alike, "seed {seed}: workers stopped at different steps {:?}", outcome.steps);
}
