//! Simulates whole jobs whose members die, freeze, thaw, lose links, fail, leave and join, and whose coordinator stands
//! still or is followed by another, with the real machines: the coordinator's [`Membership`] and what it leaves to the
//! next (`Unfinished`), the exchange's `Scheduled`, and what members conclude (`resolve`, `Leases`).
//!
//! The oracle: member i contributes 2^i, so a sum names its contributors, and a one for each shard whose rows it
//! used, so a sum names its rows. A model is the list of all sums so far.
//!
//! | | what must hold |
//! |---|---|
//! | I1 | all who finish hold the same model |
//! | I2 | every sum has exactly the contributions of the members of one epoch, and every row of every step is used once, in that step or (reweighing) soon after |
//! | I3 | whatever happened, the job ends soon after things are calm again, and completes if enough are left |
//! | I4 | what one member has reported as done is never undone or changed |
//! | I5 | epochs only grow, and nothing of an older one counts, also from members that were taken for dead and were not |
//! | I6 | nobody is taken for dead who is not, whoever else stands still |
//! | I7 | everyone who is there at the end is told so, nobody twice, and whoever wants to leave may |
//! | I8 | no epoch has fewer members than the job needs |
//! | I9 | whoever is gone is forgotten |
//! | I10 | a job that is done has its model at home, unless all who had it are gone |
//!
//! All of it holds over a coordinator that is killed, too. Only what its death takes with it is read differently: what it
//! had heard and not written, nobody has said; who was only waiting for a seat is there again when it asks again; who
//! went before it heard that it had been given a seat is missed by the next one; and a job that had not begun cannot
//! begin if one of those it asked for is gone by then.

mod ears;
mod line;
mod oracle;
mod restart;
mod scenario;
mod tallying;

pub use oracle::Outcome;
pub use scenario::{Crash, Failure, Scenario, When};
pub use tallying::{Contribution, Results};

use super::network::{Happening, Network, Weather};
use ears::Ears;
use line::{LIVES_APART, Line};
use restart::{Desk, options};
use starlings_cluster::deal::Deal;
use starlings_cluster::membership::{Command, Event, Membership, Verdict, Wish};
use starlings_cluster::roster::{MemberId, MemberInfo, Standing};
use starlings_core::{Blame, Epoch, Seat, Step};
use tallying::Working;

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub enum Message {
    /// To the coordinator.
    Said(Event),
    /// To the next coordinator: a member by its old name is here again, and has the lineup of that epoch.
    Returns(MemberId, Epoch),
    /// To the coordinator, for whoever watches the job: a step that all have, with its sum.
    Reported(u64, Contribution),
    /// From the coordinator: a verdict.
    Told(Verdict),
    /// From the coordinator: read these shards.
    Prepare(Vec<u32>),
    /// From the coordinator: a lineup (members by seat) and its deal.
    Lineup(Epoch, Vec<Seat>, Deal),
    /// From the coordinator: it has closed the connection.
    Closed,
    /// From the next coordinator: the others have gone on without this member.
    LeftBehind,
    /// The coordinator of that number is gone.
    Gone(u32),
    /// Between members of an epoch.
    Peer(Epoch, Frame),
    /// Between members: the link of that epoch is closed.
    Parted(Epoch),
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
    /// A newcomer has read its shards, in that life of it.
    Read(u64),
    /// A member calls the coordinator.
    Call,
    /// The coordinator is about to die, as the scenario has it there.
    Crash(usize),
    /// Another coordinator takes over.
    Heir,
    /// Whoever goes on stands still for so long; whoever stands still goes on.
    Thaw(u64),
    /// Something else befalls a member.
    Befalls(Failure),
    /// A link that carried nothing for a moment carries everything again.
    Heals(Seat),
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

const TICK_MS: u64 = 50;
const BEAT_MS: u64 = 100;
const HORIZON_MS: u64 = 400_000;
/// How long a run goes on after the job: what was under way still arrives.
const AFTERWARDS_MS: u64 = 1_000;
/// The same where one coordinator may still follow another.
const AFTERWARDS_RESTART_MS: u64 = 10_000;
/// How long a flock that is too small waits for more.
const JOIN_MS: u64 = 4_000;
/// Frames of an epoch that turn up again in the next one, at most.
const ECHOES_MAX: usize = 4;

impl Scenario {
    /// Runs one seed and checks every invariant.
    ///
    /// # Panics
    /// With the seed, when one does not hold.
    pub fn check(seed: u64) -> Outcome {
        let scenario = Scenario::of(seed);
        let outcome = scenario.run(false);
        if let Err(why) = outcome.check(&scenario) {
            let (ended, epochs) = (outcome.ended, outcome.epochs);
            panic!("seed {seed}: {why} in {scenario:?}\n{ended:?} after {epochs} epochs");
        }
        outcome
    }

    /// What the coordinators of a seed heard and did, line by line, for whoever plays it again.
    #[must_use]
    pub fn story(seed: u64) -> Vec<String> {
        Scenario::of(seed).run(true).story.unwrap_or_default()
    }

    fn run(&self, is_told: bool) -> Outcome {
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 200 };
        let count = self.world + self.newcomers.len() as u32;
        let mut flock = Simulated {
            scenario: self,
            network: Network::new(self.seed, count + 1, weather),
            home: Seat(count),
            membership: Membership::new(options()),
            desk: Desk::default(),
            asleep: Asleep::default(),
            stopping: false,
            members: (0..count).map(|_| Life::default()).collect(),
            outcome: Outcome { story: is_told.then(Vec::new), ..Outcome::default() },
        };
        flock.begin();
        let afterwards =
            if self.crashes.is_empty() { AFTERWARDS_MS } else { AFTERWARDS_RESTART_MS };
        while let Some((seat, happening)) = flock.network.happens() {
            let horizon = flock.outcome.ended.map_or(HORIZON_MS, |(_, end)| end + afterwards);
            if flock.network.now() > horizon || flock.outcome.broken.is_some() {
                break;
            }
            if seat == flock.home {
                flock.coordinate(happening);
            } else {
                flock.live(seat, happening);
            }
        }
        for member in &mut flock.members {
            if let (true, Some(working)) = (member.counts || member.counted, &member.working) {
                flock.outcome.models.push(working.results.clone());
            }
        }
        flock.outcome
    }
}

/// Whether somebody stands still, and what has arrived meanwhile.
#[derive(Default)]
struct Asleep {
    is: bool,
    later: Vec<Happening<Message>>,
}

/// One member.
#[derive(Default)]
struct Life {
    working: Option<Working>,
    early: Vec<(Epoch, Seat, Frame)>,
    /// Frames that an old connection will bring once more.
    echoes: Vec<(Epoch, Seat, Frame)>,
    /// Peers that cannot be reached.
    cut: Vec<Seat>,
    /// What it hears of its peers.
    ears: Ears,
    /// Its line to the coordinator.
    line: Line,
    exiled: bool,
    /// When it has beaten last.
    beaten: u64,
    /// Whether it has come.
    awake: bool,
    /// Whether the coordinator has told it something, or closed its connection.
    answered: bool,
    asleep: Asleep,
    finished: bool,
    /// Whether the coordinator has closed its connection.
    forgotten: bool,
    /// Whether the coordinator has heard that it has finished.
    counts: bool,
    /// Whether a coordinator before this one has.
    counted: bool,
    over: bool,
}

struct Simulated<'a> {
    scenario: &'a Scenario,
    network: Network<Message>,
    home: Seat,
    membership: Membership,
    /// What is around it.
    desk: Desk,
    asleep: Asleep,
    /// Whether the last who worked was asked to leave.
    stopping: bool,
    members: Vec<Life>,
    outcome: Outcome,
}

impl Simulated<'_> {
    fn begin(&mut self) {
        let Scenario { world, shards, least, .. } = *self.scenario;
        let most = self.members.len() as u32;
        let deal = (0..world).map(|w| (0..shards).filter(|s| s % world == w).collect()).collect();
        self.alarm(TICK_MS, self.home, Alarm::Beat);
        for &(time, pause) in &self.scenario.pauses {
            self.alarm(time, self.home, Alarm::Thaw(pause));
        }
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
                Failure::Frozen(pause) => self.alarm(time, seat, Alarm::Thaw(pause)),
                other => self.alarm(time, seat, Alarm::Befalls(other)),
            }
        }
        self.open(Wish { workers: world, most, least: Some(least), deal, stall_ms: 600_000 });
    }

    fn alarm(&mut self, time: u64, seat: Seat, alarm: Alarm) {
        let message = Message::Alarm(alarm);
        self.network.at(time, seat, Happening::Message { from: seat, message });
    }

    /// When so many milliseconds of a member's own clock have passed.
    fn later(&self, seat: Seat, own_ms: u64) -> u64 {
        self.network.now() + (own_ms * self.scenario.paces[seat.index()]).div_ceil(100)
    }

    fn feed(&mut self, event: Event) {
        let (now, mut commands) = (self.network.now() - self.desk.begun, Vec::new());
        if !matches!(event, Event::Tick | Event::Beat { .. } | Event::Phase { .. }) {
            self.outcome.tell(self.network.now(), &event);
        }
        self.membership.on(now, event, &mut commands);
        for command in &commands {
            self.outcome.tell(self.network.now(), command);
        }
        if !self.write(&commands) {
            return;
        }
        for command in commands {
            self.obey(command);
            if !self.desk.is_up {
                return;
            }
        }
        self.check_forgotten();
    }

    /// I9: whoever is watched is here.
    fn check_forgotten(&mut self) {
        let Some(roster) = self.membership.roster().filter(|_| !self.membership.ended()) else {
            return;
        };
        let here = |member: MemberId| {
            let mut seated = roster.placed.iter().chain(&roster.past);
            seated.any(|placed| {
                placed.info.member == member
                    && matches!(placed.standing, Standing::Running | Standing::Finished)
            })
        };
        let waits = |member| self.membership.lobby().iter().any(|info| info.member == member);
        let gone = self.membership.watched().find(|&member| !here(member) && !waits(member));
        if let Some(member) = gone {
            self.outcome
                .breaks(format!("I9: member {} is gone and still watched", place(member).0));
        }
    }

    /// I7: whoever wants to leave may, unless it is done anyway.
    fn check_answered(&mut self, seat: Seat) {
        let it = &self.members[seat.index()];
        let later = self.membership.awaits_heir(self.name(seat));
        if !it.answered && !it.finished && !later && self.outcome.ended.is_none() {
            self.outcome.breaks(format!("I7: member {} may not leave", seat.0));
        }
    }

    fn coordinate(&mut self, happening: Happening<Message>) {
        if let Happening::Message { message, .. } = &happening {
            let is_over = self.outcome.ended.is_some() && self.scenario.crashes.is_empty();
            if matches!(message, Message::Alarm(Alarm::Beat)) && !self.asleep.is && !is_over {
                self.alarm(self.network.now() + TICK_MS, self.home, Alarm::Beat);
            }
            if self.befalls_home(message) {
                return;
            }
        }
        if !self.desk.is_up {
            return;
        }
        if let Happening::Message { message: Message::Alarm(Alarm::Thaw(pause)), .. } = happening {
            self.asleep.is = !self.asleep.is;
            if self.asleep.is {
                return self.alarm(self.network.now() + pause, self.home, Alarm::Thaw(0));
            }
            for happening in std::mem::take(&mut self.asleep.later) {
                self.coordinate(happening);
            }
            return;
        }
        if self.asleep.is {
            self.asleep.later.push(happening);
            return;
        }
        match happening {
            Happening::Message { from, message: Message::Said(event) } => self.heed(from, event),
            Happening::Message { from, message: Message::Returns(member, epoch) } => {
                self.take_back(from, member, epoch);
            }
            // Whoever was taken for dead is not heard any more, whatever it believes.
            Happening::Message { from, message: Message::Reported(step, sum) }
                if self.membership.is_seated(self.name(from)) =>
            {
                self.outcome.report(step, sum);
            }
            Happening::Lost { seat } => {
                let member = self.name(seat);
                if self.disconnect(member) {
                    self.feed(Event::Left { member });
                }
            }
            Happening::Message { message: Message::Alarm(Alarm::Beat), .. } => {
                self.take_back_submitter();
                if self.desk.is_up {
                    self.feed(Event::Tick);
                }
                self.close_when_known();
            }
            _ => {}
        }
    }

    /// The coordinator hears a member.
    fn heed(&mut self, from: Seat, event: Event) {
        // Whoever is seated again does not know its old name yet; its connection does.
        let event = match event {
            Event::Leave { .. } => Event::Leave { member: self.name(from) },
            Event::Left { .. } => Event::Left { member: self.name(from) },
            event => event,
        };
        match event {
            Event::Joined { .. } => return self.receive(from, event),
            Event::Left { member } if !self.disconnect(member) => return,
            Event::Delivered { .. } => return self.relay_model(from, event),
            _ => {}
        }
        let leaves = matches!(event, Event::Leave { .. });
        if matches!(event, Event::Finished { .. }) {
            // Nor does the work of one who did not return in time.
            let counts = self.membership.may_deliver(self.name(from));
            self.members[from.index()].counts = counts;
            self.outcome.is_done |= counts;
        }
        self.feed(event);
        if leaves && self.desk.is_up {
            self.check_answered(from);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Start { epoch, roster } => {
                let deal = self.membership.roster().map(|roster| roster.deal.clone());
                self.announce(epoch, &roster, &deal.unwrap_or_default());
            }
            Command::Regroup { epoch, roster, deal } => self.announce(epoch, &roster, &deal),
            Command::Waiting(_) | Command::Seat { .. } => {}
            _ if !self.acts() => {}
            Command::Prepare { member, shards } => self.tell(member, Message::Prepare(shards)),
            Command::Tell { member, verdict } => {
                self.members[place(member).index()].answered = true;
                self.stopping |= verdict == Verdict::Stop;
                let is_last = !matches!(verdict, Verdict::Stop | Verdict::Deliver);
                if is_last && self.reaches(member) {
                    *self.outcome.told.entry(place(member)).or_default() += 1;
                }
                self.tell(member, Message::Told(verdict));
            }
            Command::Forget { member } => {
                let it = &mut self.members[place(member).index()];
                (it.answered, it.forgotten) = (true, true);
                self.tell(member, Message::Closed);
                self.disconnect(member);
            }
            Command::Fault(report) => {
                let host = report.host.as_deref().and_then(|host| host.strip_prefix("host-"));
                let seat: Option<u32> = host.and_then(|number| number.parse().ok());
                let seat = seat.expect("hosts are numbered");
                // I6 over a restart: whoever went before it heard that the last coordinator had given it a seat is missed by
                // the next one.
                if !self.members[seat as usize].line.left_unaware {
                    self.outcome.blame(self.scenario, Seat(seat));
                }
            }
            Command::Complete { stopped } => {
                self.check_delivered(stopped.is_some());
                self.note_end(true);
                self.end(true);
            }
            Command::Abort { .. } => {
                self.check_given_up();
                self.note_end(false);
                self.end(false);
            }
        }
    }

    /// I3: a job is given up only when fewer work than it needs.
    fn check_given_up(&mut self) {
        let placed = self.membership.roster().map_or(&[][..], |roster| &roster.placed);
        let working = placed.iter().filter(|placed| placed.standing == Standing::Running).count();
        if working as u32 >= self.scenario.least && !self.stopping {
            self.outcome.breaks(format!("I3: the job is given up while {working} work"));
        }
    }

    /// I10: the model is here, or nobody can be asked for it.
    fn check_delivered(&mut self, stopped: bool) {
        let holder = self.members.iter().position(|it| it.counts && !it.forgotten);
        if let (false, false, Some(member)) = (stopped, self.outcome.delivered, holder) {
            self.outcome.breaks(format!("I10: the model is lost, and member {member} has it"));
        }
    }

    fn announce(&mut self, epoch: Epoch, roster: &[MemberInfo], deal: &Deal) {
        let members: Vec<MemberId> = roster.iter().map(|info| info.member).collect();
        let seats: Vec<Seat> = members.iter().map(|member| place(*member)).collect();
        self.outcome.announce(self.scenario, epoch.0, &seats);
        for member in members {
            if !self.acts() {
                return;
            }
            self.tell(member, Message::Lineup(epoch, seats.clone(), deal.clone()));
        }
    }

    fn end(&mut self, complete: bool) {
        if self.outcome.ended.is_some() {
            self.outcome.breaks("I7: a job ends once".to_string());
        }
        self.outcome.ended = Some((complete, self.network.now()));
    }

    fn live(&mut self, seat: Seat, happening: Happening<Message>) {
        let it = &mut self.members[seat.index()];
        if it.over {
            return;
        }
        if let Happening::Message { message: Message::Alarm(Alarm::Thaw(pause)), .. } = happening {
            return self.freeze_or_thaw(seat, pause);
        }
        if it.asleep.is {
            it.asleep.later.push(happening);
            return;
        }
        match happening {
            Happening::Wake => {
                self.call(seat);
                self.alarm(self.later(seat, BEAT_MS), seat, Alarm::Beat);
            }
            Happening::Message { from, message: Message::Alarm(alarm) } => {
                self.ring(from, alarm);
            }
            Happening::Message { from, message } if from == self.home => {
                if !it.exiled {
                    self.hear(seat, message);
                }
            }
            Happening::Message { from, message } => self.meet(seat, from, message),
            Happening::Lost { seat: lost } => {
                it.cut.push(lost);
                self.lose(seat, lost);
            }
            Happening::Crash => {}
        }
    }

    fn freeze_or_thaw(&mut self, seat: Seat, pause: u64) {
        let it = &mut self.members[seat.index()];
        it.asleep.is = !it.asleep.is;
        if it.asleep.is {
            self.alarm(self.network.now() + pause, seat, Alarm::Thaw(0));
            return;
        }
        // It does not know that it stood still: everything comes at once.
        for happening in std::mem::take(&mut it.asleep.later) {
            self.live(seat, happening);
        }
    }

    /// A member's alarm clock rings.
    fn ring(&mut self, seat: Seat, alarm: Alarm) {
        match alarm {
            Alarm::Beat => {
                self.listen(seat);
                let step = self.members[seat.index()].working.as_ref().map_or(0, Working::steps);
                let (member, step, phase) = (self.name(seat), Step(step), String::from("a step"));
                self.mention(seat, Event::Phase { member, step, phase, waits: true, bytes: 0 });
                self.alarm(self.later(seat, BEAT_MS), seat, Alarm::Beat);
            }
            Alarm::Read(life) => {
                if life == self.members[seat.index()].line.lives {
                    self.say(seat, Event::Prepared { member: self.name(seat) });
                }
            }
            Alarm::Call => self.call(seat),
            Alarm::Computed(epoch) => {
                if let Some(working) = &mut self.members[seat.index()].working {
                    working.computed(epoch);
                    self.advance(seat);
                }
            }
            // Whoever has not come yet has nothing to say.
            Alarm::Befalls(Failure::Leaves | Failure::Fails)
                if !self.members[seat.index()].awake => {}
            Alarm::Befalls(Failure::Leaves) => {
                self.members[seat.index()].line.leaves = true;
                self.say(seat, Event::Leave { member: self.name(seat) });
            }
            Alarm::Befalls(Failure::Exiled) => self.members[seat.index()].exiled = true,
            Alarm::Befalls(Failure::Fails) => {
                let message = String::from("its disk is full");
                let blame = Blame::Machine;
                let working = self.members[seat.index()].working.as_ref();
                let epoch = working.and_then(Working::epoch).unwrap_or(Epoch(0));
                self.say(seat, Event::Failed { member: self.name(seat), epoch, blame, message });
                // It does not go before it has said so.
                match self.members[seat.index()].line.to {
                    Some(_) => self.go(seat),
                    None => self.members[seat.index()].line.has_failed = true,
                }
            }
            Alarm::Befalls(Failure::Cut(other)) => {
                for (here, there) in [(seat, other), (other, seat)] {
                    self.members[here.index()].cut.push(there);
                    if !self.members[here.index()].asleep.is {
                        self.lose(here, there);
                    }
                }
            }
            Alarm::Befalls(Failure::Silent(other)) => {
                self.members[seat.index()].ears.deaf.push(other);
                self.members[other.index()].ears.deaf.push(seat);
            }
            Alarm::Befalls(Failure::Unheard(other)) => {
                self.members[other.index()].ears.deaf.push(seat);
            }
            Alarm::Befalls(Failure::Blinks(other, pause)) => {
                for (here, there) in [(seat, other), (other, seat)] {
                    self.members[here.index()].ears.muffled.push((there, Vec::new()));
                    self.alarm(self.network.now() + pause, here, Alarm::Heals(there));
                }
            }
            Alarm::Heals(peer) => {
                let muffled = &mut self.members[seat.index()].ears.muffled;
                let Some(at) = muffled.iter().position(|(of, _)| *of == peer) else { return };
                for message in muffled.remove(at).1 {
                    self.meet(seat, peer, message);
                }
            }
            Alarm::Befalls(Failure::Killed | Failure::Frozen(_)) | Alarm::Thaw(_) => {}
            Alarm::Crash(_) | Alarm::Heir => {}
        }
    }

    /// A member beats, listens to its peers, and says whom it does not hear. What is between two beats of a peer is
    /// heard at the next look, so that beats need not cross the network one by one.
    fn listen(&mut self, seat: Seat) {
        let now = self.network.now();
        let beats: Vec<u64> = self.members.iter().map(|it| it.beaten).collect();
        let it = &mut self.members[seat.index()];
        it.beaten = now;
        let Some(epoch) = it.working.as_ref().and_then(Working::epoch) else { return };
        let seats = it.ears.unheard(now, &beats);
        if it.ears.told || !seats.is_empty() {
            it.ears.told = !seats.is_empty();
            self.mention(seat, Event::Unheard { by: self.name(seat), epoch, seats });
        }
    }

    /// A member hears from the coordinator.
    fn hear(&mut self, seat: Seat, message: Message) {
        match message {
            Message::Prepare(shards) => {
                let working = Working::newcomer(self.scenario, seat, shards);
                self.members[seat.index()].working = Some(working);
                self.settle(seat);
                let time = self.network.draw(500);
                let life = self.members[seat.index()].line.lives;
                self.alarm(self.later(seat, time), seat, Alarm::Read(life));
            }
            Message::Told(Verdict::Stop) => {}
            Message::Told(Verdict::Deliver) => {
                self.say(seat, Event::Delivered { member: self.name(seat) });
            }
            Message::LeftBehind => self.be_left_behind(seat),
            Message::Gone(number) => self.hang_up(seat, number),
            Message::Told(_) | Message::Closed => self.go(seat),
            Message::Lineup(epoch, seats, deal) => self.regroup(seat, epoch, seats, deal),
            _ => {}
        }
    }

    /// A member takes its seat in a new epoch.
    fn regroup(&mut self, seat: Seat, epoch: Epoch, seats: Vec<Seat>, deal: Deal) {
        self.settle(seat);
        let it = &mut self.members[seat.index()];
        if it.line.has_failed {
            return;
        }
        let first = || Working::first(self.scenario, seat, &seats, &deal);
        if !it.working.get_or_insert_with(first).awaits(epoch) {
            return;
        }
        self.part(seat);
        let it = &mut self.members[seat.index()];
        let Some(working) = &mut it.working else { return };
        working.gather(epoch, seats.clone(), deal);
        it.ears.turn(self.network.now(), &seats);
        // Whoever called before this member knew its seat has called until it did. Frames of old connections that
        // turn up now are the network's last word on an epoch that is over.
        let echoes = it.echoes.drain(..).filter(|(of, _, _)| *of < epoch);
        for (of, from, frame) in it.early.drain(..).chain(echoes) {
            working.receive(of, from, frame);
        }
        match seats.iter().copied().find(|peer| it.cut.contains(peer)) {
            // A link that cannot be had is a lost one.
            Some(peer) => self.lose(seat, peer),
            None => self.advance(seat),
        }
    }

    /// A member hears from a peer.
    fn meet(&mut self, seat: Seat, from: Seat, message: Message) {
        let echoes = self.network.draw(4) == 0;
        let it = &mut self.members[seat.index()];
        if it.cut.contains(&from) || it.ears.deaf.contains(&from) {
            return;
        }
        if let Some((_, later)) = it.ears.muffled.iter_mut().find(|(of, _)| *of == from) {
            later.push(message);
            return;
        }
        match message {
            Message::Peer(epoch, frame) => {
                if echoes && it.echoes.len() < ECHOES_MAX {
                    it.echoes.push((epoch, from, frame.clone()));
                }
                match &mut it.working {
                    Some(working) => working.receive(epoch, from, frame),
                    None => it.early.push((epoch, from, frame)),
                }
                self.advance(seat);
            }
            Message::Parted(epoch)
                if it.working.as_ref().is_some_and(|it| it.epoch() == Some(epoch)) =>
            {
                self.lose(seat, from);
            }
            _ => {}
        }
    }

    /// A link broke: whoever needs it closes its others, says so and waits for a new lineup.
    fn lose(&mut self, seat: Seat, lost: Seat) {
        let Some(working) = &mut self.members[seat.index()].working else { return };
        let Some(epoch) = working.epoch() else { return };
        if let Some((accused, step)) = working.lose(lost) {
            self.part(seat);
            let (by, phase) = (self.name(seat), String::from("the merge"));
            self.mention(seat, Event::Accuse { by, epoch, seat: accused, phase, step: Step(step) });
        }
    }

    /// A member closes its links to the others of its epoch.
    fn part(&mut self, seat: Seat) {
        let Some(working) = &mut self.members[seat.index()].working else { return };
        let Some(epoch) = working.epoch() else { return };
        for peer in working.unlink() {
            self.network.send(seat, peer, Message::Parted(epoch));
        }
    }

    /// A member ends: its connections close.
    fn go(&mut self, seat: Seat) {
        self.part(seat);
        self.mention(seat, Event::Left { member: self.name(seat) });
        self.members[seat.index()].over = true;
    }

    /// Lets a member do all it can do now.
    fn advance(&mut self, seat: Seat) {
        let it = &mut self.members[seat.index()];
        let Some(working) = it.working.as_mut().filter(|_| !it.line.has_failed) else { return };
        let done = working.advance();
        for (to, epoch, frame) in done.frames {
            let cut = self.members[seat.index()].cut.contains(&to);
            if !cut {
                self.network.send(seat, to, Message::Peer(epoch, frame));
            }
        }
        if done.restarted {
            self.outcome.reported.clear();
            // Where nobody has made a step, because some never heard of their seats, nothing is lost by beginning anew.
            let has_steps = |it: &Life| it.working.as_ref().is_some_and(|it| it.steps() > 0);
            let lost = self.desk.number == 0 || self.members.iter().any(has_steps);
            self.outcome.restarts += u32::from(lost);
        }
        for (step, sum) in done.reported {
            self.tell_home(seat, Message::Reported(step, sum));
        }
        if let Some(epoch) = done.computes {
            let time = self.network.draw(300);
            self.alarm(self.later(seat, time), seat, Alarm::Computed(epoch));
        }
        if done.delivers {
            self.say(seat, Event::Delivered { member: self.name(seat) });
        }
        if done.finished && !self.members[seat.index()].finished {
            if let Some((last, later)) = self.scenario.last
                && !self.members.iter().any(|it| it.finished)
            {
                self.network.at(self.network.now() + later, last, Happening::Crash);
            }
            self.members[seat.index()].finished = true;
            let working = self.members[seat.index()].working.as_ref();
            let epoch = working.and_then(Working::epoch).unwrap_or(Epoch(0));
            self.say(seat, Event::Finished { member: self.name(seat), epoch, holds: true });
        }
    }
}

/// Whose name this is, in whichever of its lives.
fn place(member: MemberId) -> Seat {
    Seat(((member.0 - 1) % LIVES_APART) as u32)
}
