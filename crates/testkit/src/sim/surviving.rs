//! Simulates whole jobs whose members die, freeze, thaw, lose links, leave and join, with the real machines: the
//! coordinator's [`Membership`], the exchange's [`Scheduled`], and what members conclude ([`resolve`]).
//!
//! The oracle: member i contributes 2^i, so a sum names its contributors, and a one for each shard whose rows it
//! used, so a sum names its rows. A model is the list of all sums so far.
//! I1 all who finish hold the same model. I2 every sum has exactly the contributions of the members of one epoch, and
//! every row of every step is used once, in that step or (reweighing) soon after. I3 whatever happened, the job ends
//! soon after things are calm again. I4 what one member has reported as done is never undone or changed. I5 nothing of
//! an older epoch counts, also from members that were taken for dead and were not.

use super::network::{Happening, Network, Weather};
use super::tallying::{Contribution, Results, Working};
use starlings_cluster::deal::Deal;
use starlings_cluster::membership::{Command, Event, Membership, Options, Verdict, Wish};
use starlings_cluster::roster::MemberId;
use starlings_core::{Epoch, Rng, Seat, Step};
use std::collections::BTreeMap;

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub enum Message {
    /// To the coordinator, in an epoch.
    Said(Epoch, Event),
    /// From the coordinator: a verdict.
    Told(Verdict),
    /// From the coordinator: read these shards.
    Prepare(Vec<u32>),
    /// From the coordinator: a lineup (members by seat) and its deal.
    Lineup(Epoch, Vec<Seat>, Deal),
    /// Between members of an epoch.
    Peer(Epoch, Frame),
    /// An alarm clock.
    Alarm(Alarm),
}

/// What alarm clocks are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alarm {
    /// The coordinator looks around, or a member beats.
    Beat,
    /// A member has computed its contribution, in that epoch.
    Computed(Epoch),
    /// A newcomer has read its shards.
    Read,
    /// A member that stood still goes on.
    Thaw,
    /// A member is asked to leave.
    Leave,
    /// The link between this member and another breaks.
    Cut(Seat),
}

/// What members send each other.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A part of a sum.
    Part {
        /// Which sum of the epoch: 0 is that of standings.
        sum: u64,
        /// The chunk.
        chunk: usize,
        /// Whether it is the total.
        total: bool,
        /// Its bytes.
        payload: Vec<u8>,
    },
    /// The model, for one who is behind.
    State(Results),
}

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// How members sum.
    pub topology: &'static str,
    /// Members at the start.
    pub world: u32,
    /// Members that come later, and when.
    pub newcomers: Vec<u64>,
    /// Whether a step is finished without the rows of the lost.
    pub reweighs: bool,
    /// Steps of the job.
    pub steps: u64,
    /// Virtual shards.
    pub shards: u32,
    /// Who fails, how and when.
    pub failures: Vec<(Seat, Failure, u64)>,
}

/// What happens to a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Its process dies.
    Killed,
    /// It stands still for so long.
    Frozen(u64),
    /// Its link to another breaks.
    Cut(Seat),
    /// It leaves politely.
    Leaves,
}

const TICK_MS: u64 = 50;
const BEAT_MS: u64 = 100;
const HORIZON_MS: u64 = 400_000;
const CALM_AFTER_MS: u64 = 20_000;
/// Once nothing fails any more a job is over within this time.
const ENDS_WITHIN_MS: u64 = 60_000;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "surviving scenario", &[]);
        let topology = ["ring", "tree", "halving-doubling", "star"][rng.below(4) as usize];
        let world = 1 + rng.below(6) as u32;
        let newcomers = (0..rng.below(3)).map(|_| rng.below(CALM_AFTER_MS)).collect::<Vec<_>>();
        let everyone = u64::from(world) + newcomers.len() as u64;
        let mut failures = Vec::new();
        for seat in 0..everyone as u32 {
            let time = 300 + rng.below(CALM_AFTER_MS);
            let other = Seat(rng.below(everyone) as u32);
            match rng.below(8) {
                0..3 => failures.push((Seat(seat), Failure::Killed, time)),
                3 => failures.push((Seat(seat), Failure::Frozen(100 + rng.below(8_000)), time)),
                4 if other != Seat(seat) => failures.push((Seat(seat), Failure::Cut(other), time)),
                5 => failures.push((Seat(seat), Failure::Leaves, time)),
                _ => {}
            }
        }
        let (reweighs, steps) = (rng.below(2) == 0, 5 + rng.below(60));
        let shards = 1 + rng.below(12) as u32;
        Scenario { seed, topology, world, newcomers, reweighs, steps, shards, failures }
    }

    /// Runs one seed and checks every invariant.
    ///
    /// # Panics
    /// With the seed, when one does not hold.
    #[must_use]
    pub fn check(seed: u64) -> Outcome {
        let scenario = Scenario::of(seed);
        let outcome = scenario.run();
        let what = |why: &str| {
            format!(
                "seed {seed}: {why} in {scenario:?}\n{:?} after {} epochs",
                outcome.ended, outcome.epochs
            )
        };
        let Some((complete, time)) = outcome.ended else { panic!("{}", what("the job hangs")) };
        let calm = scenario.failures.iter().map(|(_, _, time)| *time).max().unwrap_or(0);
        let allowed = calm.max(CALM_AFTER_MS) + ENDS_WITHIN_MS;
        assert!(time <= allowed, "{}", what("the job ends late"));
        // A leaver, a killed or a cut member is gone; whoever is neither can bring the job to its end.
        let lost = scenario.can_lose_all();
        assert!(complete || lost, "{}", what("the job is given up"));
        outcome.check_models(&scenario).unwrap_or_else(|why| panic!("{}", what(&why)));
        outcome
    }

    /// Whether everyone who is there from the start may be gone, one way or another.
    fn can_lose_all(&self) -> bool {
        let harmed = |seat: u32| {
            self.failures.iter().any(|(who, how, _)| {
                *who == Seat(seat) || matches!(how, Failure::Cut(other) if *other == Seat(seat))
            })
        };
        (0..self.world).all(harmed)
    }

    fn run(&self) -> Outcome {
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 200 };
        let count = self.world + self.newcomers.len() as u32;
        let mut flock = Simulated {
            scenario: self,
            network: Network::new(self.seed, count + 1, weather),
            home: Seat(count),
            membership: Membership::new(Options::default()),
            members: (0..count).map(|_| Life::default()).collect(),
            outcome: Outcome::default(),
        };
        flock.begin();
        while let Some((seat, happening)) = flock.network.happens() {
            if flock.network.now() > HORIZON_MS {
                break;
            }
            if seat == flock.home {
                flock.coordinate(happening);
            } else {
                flock.live(seat, happening);
            }
        }
        for member in &mut flock.members {
            if let (true, Some(working)) = (member.finished, &member.working) {
                flock.outcome.models.push(working.results.clone());
            }
        }
        flock.outcome
    }
}

/// What a run showed.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether the job completed, and when.
    pub ended: Option<(bool, u64)>,
    /// Epochs that were announced.
    pub epochs: u32,
    /// How often everyone who had a model was gone, and those who were left began anew.
    pub restarts: u32,
    /// The models of all who finished.
    pub models: Vec<Results>,
    /// What was reported as done, by step.
    pub reported: BTreeMap<u64, Contribution>,
    /// Members by epoch.
    rosters: BTreeMap<u32, u64>,
    /// A step that was reported twice with different sums.
    contradiction: Option<u64>,
}

impl Outcome {
    fn check_models(&self, scenario: &Scenario) -> Result<(), String> {
        if self.restarts > 0 && !scenario.can_lose_all() {
            return Err("I4: some who had a model were left".to_string());
        }
        if let Some(step) = self.contradiction {
            return Err(format!("I4: {step} was reported twice with different sums"));
        }
        let Some(first) = self.models.first() else { return Ok(()) };
        let same = |other: &Results| other.sums == first.sums && other.owed() == first.owed();
        if !self.models.iter().all(same) {
            return Err("I1: models differ".to_string());
        }
        for (step, sum) in &self.reported {
            if first.sums.get(*step as usize) != Some(sum) {
                return Err(format!("I4: {step} was reported and is not in the model"));
            }
        }
        let mut rows = vec![0; scenario.shards as usize];
        for (step, sum) in first.sums.iter().enumerate() {
            let roster = self.rosters.get(&(sum.epoch as u32));
            if roster.is_none_or(|members| *members != sum.who) {
                return Err(format!("I2: step {step} has the contributions of {:b}", sum.who));
            }
            rows.iter_mut().zip(&sum.rows).for_each(|(total, count)| *total += count);
            if !scenario.reweighs && sum.rows.iter().any(|&count| count != 1) {
                return Err(format!("I2: rows of step {step}: {:?}", sum.rows));
            }
        }
        for (shard, owed) in &first.owed() {
            rows[*shard as usize] += *owed as i64;
        }
        match rows.iter().all(|&count| count == scenario.steps as i64) {
            true => Ok(()),
            false => Err(format!("I2: rows are used {rows:?} times in {} steps", scenario.steps)),
        }
    }
}

/// One member.
#[derive(Default)]
struct Life {
    working: Option<Working>,
    early: Vec<(Epoch, Seat, Frame)>,
    /// Peers that cannot be reached.
    cut: Vec<Seat>,
    frozen: bool,
    /// What arrived while it stood still.
    later: Vec<Happening<Message>>,
    finished: bool,
    over: bool,
}

struct Simulated<'a> {
    scenario: &'a Scenario,
    network: Network<Message>,
    home: Seat,
    membership: Membership,
    members: Vec<Life>,
    outcome: Outcome,
}

impl Simulated<'_> {
    fn begin(&mut self) {
        let Scenario { world, shards, .. } = *self.scenario;
        let most = self.members.len() as u32;
        let deal = (0..world).map(|w| (0..shards).filter(|s| s % world == w).collect()).collect();
        self.alarm(TICK_MS, self.home, Alarm::Beat);
        for seat in 0..world {
            let time = self.network.draw(200);
            self.network.at(time, Seat(seat), Happening::Wake);
        }
        for (at, &time) in self.scenario.newcomers.iter().enumerate() {
            self.network.at(1_000 + time, Seat(world + at as u32), Happening::Wake);
        }
        for &(seat, how, time) in &self.scenario.failures {
            match how {
                Failure::Killed => self.network.at(time, seat, Happening::Crash),
                Failure::Frozen(_) => self.alarm(time, seat, Alarm::Thaw),
                Failure::Cut(other) => self.alarm(time, seat, Alarm::Cut(other)),
                Failure::Leaves => self.alarm(time, seat, Alarm::Leave),
            }
        }
        self.feed(Event::Submit(Wish {
            workers: world,
            most,
            least: Some(1),
            deal,
            stall_ms: 600_000,
        }));
    }

    fn alarm(&mut self, time: u64, seat: Seat, alarm: Alarm) {
        let message = Message::Alarm(alarm);
        self.network.at(time, seat, Happening::Message { from: seat, message });
    }

    fn feed(&mut self, event: Event) {
        let (now, mut commands) = (self.network.now(), Vec::new());
        self.membership.on(now, event, &mut commands);
        for command in commands {
            self.obey(command);
        }
    }

    fn coordinate(&mut self, happening: Happening<Message>) {
        match happening {
            Happening::Message { message: Message::Said(epoch, event), .. } => {
                let stale = matches!(event, Event::Accuse { .. })
                    && self.membership.roster().is_none_or(|roster| roster.epoch != epoch);
                if !stale {
                    self.feed(event);
                }
            }
            Happening::Lost { seat } => self.feed(Event::Left { member: id(seat) }),
            Happening::Message { message: Message::Alarm(Alarm::Beat), .. } => {
                if self.outcome.ended.is_none() {
                    self.alarm(self.network.now() + TICK_MS, self.home, Alarm::Beat);
                }
                self.feed(Event::Tick);
            }
            _ => {}
        }
    }

    fn obey(&mut self, command: Command) {
        let home = self.home;
        match command {
            Command::Start { epoch, roster } => {
                let seats: Vec<Seat> = roster.iter().map(|info| place(info.member)).collect();
                let deal = self.membership.roster().map(|roster| roster.deal.clone());
                self.announce(epoch, &seats, deal.unwrap_or_default());
            }
            Command::Regroup { epoch, roster, deal } => {
                let seats: Vec<Seat> = roster.iter().map(|info| place(info.member)).collect();
                self.announce(epoch, &seats, deal);
            }
            Command::Prepare { member, shards } => {
                self.network.send(home, place(member), Message::Prepare(shards));
            }
            Command::Tell { member, verdict } => {
                self.network.send(home, place(member), Message::Told(verdict));
            }
            Command::Complete { .. } => self.end(true),
            Command::Abort { .. } => self.end(false),
            Command::Waiting { .. }
            | Command::Seat { .. }
            | Command::Forget { .. }
            | Command::Fault(_) => {}
        }
    }

    fn announce(&mut self, epoch: Epoch, seats: &[Seat], deal: Deal) {
        self.outcome.epochs += 1;
        let mask = seats.iter().map(|seat| 1 << seat.0).sum();
        self.outcome.rosters.insert(epoch.0, mask);
        for &seat in seats {
            let lineup = Message::Lineup(epoch, seats.to_vec(), deal.clone());
            self.network.send(self.home, seat, lineup);
        }
    }

    fn end(&mut self, complete: bool) {
        assert!(self.outcome.ended.is_none(), "a job ends once");
        self.outcome.ended = Some((complete, self.network.now()));
    }

    fn say(&mut self, seat: Seat, event: Event) {
        let epoch = self.members[seat.index()].working.as_ref().map_or(Epoch(0), Working::epoch);
        self.network.send(seat, self.home, Message::Said(epoch, event));
    }

    fn live(&mut self, seat: Seat, happening: Happening<Message>) {
        let now = self.network.now();
        let it = &mut self.members[seat.index()];
        if it.over {
            return;
        }
        if let Happening::Message { message: Message::Alarm(Alarm::Thaw), .. } = happening {
            return self.freeze_or_thaw(seat);
        }
        if it.frozen {
            it.later.push(happening);
            return;
        }
        match happening {
            Happening::Wake => {
                let (host, address) = (format!("host-{}", seat.0), String::new());
                self.say(seat, Event::Joined { member: id(seat), host, pid: seat.0, address });
                self.alarm(now + BEAT_MS, seat, Alarm::Beat);
            }
            Happening::Message { from, message } => self.hear(seat, from, message),
            Happening::Lost { seat: lost } => {
                self.members[seat.index()].cut.push(lost);
                self.lose(seat, lost);
            }
            Happening::Crash => {}
        }
    }

    fn freeze_or_thaw(&mut self, seat: Seat) {
        let pause = self.scenario.failures.iter().find_map(|(who, how, _)| match how {
            Failure::Frozen(pause) if *who == seat => Some(*pause),
            _ => None,
        });
        let it = &mut self.members[seat.index()];
        it.frozen = !it.frozen;
        if it.frozen {
            self.alarm(self.network.now() + pause.unwrap_or(0), seat, Alarm::Thaw);
            return;
        }
        // It does not know that it stood still: everything comes at once.
        for happening in std::mem::take(&mut it.later) {
            self.live(seat, happening);
        }
    }

    fn hear(&mut self, seat: Seat, from: Seat, message: Message) {
        let now = self.network.now();
        match message {
            Message::Alarm(Alarm::Beat) => {
                let step = self.members[seat.index()].working.as_ref().map_or(0, Working::steps);
                let phase = String::from("a step");
                let (member, waits, bytes) = (id(seat), true, 0);
                self.say(seat, Event::Phase { member, step: Step(step), phase, waits, bytes });
                self.alarm(now + BEAT_MS, seat, Alarm::Beat);
            }
            Message::Alarm(Alarm::Leave) => self.say(seat, Event::Leave { member: id(seat) }),
            Message::Alarm(Alarm::Cut(other)) => {
                for (here, there) in [(seat, other), (other, seat)] {
                    self.members[here.index()].cut.push(there);
                    self.lose(here, there);
                }
            }
            Message::Alarm(Alarm::Read) => self.say(seat, Event::Prepared { member: id(seat) }),
            Message::Prepare(shards) => {
                let working = Working::newcomer(self.scenario, seat, shards);
                self.members[seat.index()].working = Some(working);
                let time = now + self.network.draw(500);
                self.alarm(time, seat, Alarm::Read);
            }
            Message::Told(Verdict::Stop) => {}
            Message::Told(_) => self.members[seat.index()].over = true,
            Message::Lineup(epoch, seats, deal) => {
                let working = self.members[seat.index()]
                    .working
                    .get_or_insert_with(|| Working::first(self.scenario, seat, &seats, &deal));
                working.gather(epoch, seats.clone(), deal);
                // Whoever called before this member knew its seat has called until it did.
                for (epoch, from, frame) in std::mem::take(&mut self.members[seat.index()].early) {
                    if let Some(working) = &mut self.members[seat.index()].working {
                        working.receive(epoch, from, frame);
                    }
                }
                let gone: Vec<Seat> = self.members[seat.index()].cut.clone();
                match seats.iter().find(|peer| gone.contains(peer)) {
                    // A link that cannot be had is a lost one.
                    Some(&peer) => self.lose(seat, peer),
                    None => self.advance(seat),
                }
            }
            Message::Peer(epoch, frame) => {
                if self.members[seat.index()].cut.contains(&from) {
                    return;
                }
                let it = &mut self.members[seat.index()];
                match &mut it.working {
                    Some(working) => working.receive(epoch, from, frame),
                    None => it.early.push((epoch, from, frame)),
                }
                self.advance(seat);
            }
            Message::Alarm(Alarm::Computed(epoch)) => {
                if let Some(working) = &mut self.members[seat.index()].working {
                    working.computed(epoch);
                    self.advance(seat);
                }
            }
            Message::Said(..) | Message::Alarm(Alarm::Thaw) => {}
        }
    }

    /// A link broke: whoever needs it says so and waits for a new lineup.
    fn lose(&mut self, seat: Seat, lost: Seat) {
        let Some(working) = &mut self.members[seat.index()].working else { return };
        if let Some((accused, step)) = working.lose(lost) {
            let (by, phase) = (id(seat), String::from("the merge"));
            self.say(seat, Event::Accuse { by, seat: accused, phase, step: Step(step) });
        }
    }

    /// Lets a member do all it can do now.
    fn advance(&mut self, seat: Seat) {
        let now = self.network.now();
        let Some(working) = &mut self.members[seat.index()].working else { return };
        let done = working.advance();
        for (to, epoch, frame) in done.frames {
            let cut = self.members[seat.index()].cut.contains(&to);
            if !cut {
                self.network.send(seat, to, Message::Peer(epoch, frame));
            }
        }
        if done.restarted {
            self.outcome.reported.clear();
            self.outcome.restarts += 1;
        }
        for (step, sum) in done.reported {
            let known = self.outcome.reported.entry(step).or_insert_with(|| sum.clone());
            if *known != sum {
                self.outcome.contradiction = Some(step);
            }
        }
        if let Some(epoch) = done.computes {
            let time = now + self.network.draw(300);
            self.alarm(time, seat, Alarm::Computed(epoch));
        }
        if done.finished && !self.members[seat.index()].finished {
            self.members[seat.index()].finished = true;
            let epoch =
                self.members[seat.index()].working.as_ref().map_or(Epoch(0), Working::epoch);
            self.say(seat, Event::Finished { member: id(seat), epoch });
        }
    }
}

fn id(seat: Seat) -> MemberId {
    MemberId(u64::from(seat.0) + 1)
}

fn place(member: MemberId) -> Seat {
    Seat(member.0 as u32 - 1)
}
