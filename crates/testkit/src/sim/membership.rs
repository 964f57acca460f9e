//! Simulates a coordinator's membership machine with members that join, beat, finish, are killed or freeze.
//! The oracle: the job completes when nobody fails; otherwise one who failed is named, every survivor is told
//! once, and in time.

use super::network::{Happening, Network, Weather};
use starlings_cluster::membership::{Command, Event, Membership, Options, Verdict, Wish};
use starlings_cluster::roster::MemberId;
use starlings_core::{Epoch, Rng, Seat, Step};

/// How a member fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Its process dies: its connection closes.
    Killed,
    /// It falls silent: nothing closes.
    Frozen,
}

/// What crosses the virtual network.
#[derive(Clone, Debug)]
pub enum Message {
    /// To the coordinator.
    Said(Event),
    /// To a member.
    Told(Verdict),
    /// To a member: everyone has a seat, given in the order in which they came.
    Start(Vec<Seat>),
    /// A member's or the coordinator's own alarm clock.
    Alarm,
}

/// One seed's scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Members.
    pub world: u32,
    /// When each member is done, after the start.
    pub work_ms: u64,
    /// Who fails, how, and when.
    pub failures: Vec<(Seat, Failure, u64)>,
}

/// What a run showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Whether the job completed, and when; false means aborted.
    pub ended: Option<(bool, u64)>,
    /// Members named as failed, with the time.
    pub blamed: Vec<(Seat, u64)>,
    /// What each member was told at the end.
    pub told: Vec<Vec<Verdict>>,
}

const TICK_MS: u64 = 50;
const BEAT_MS: u64 = 100;
/// A survivor names the dead within this time of their death.
const NAMED_WITHIN_MS: u64 = 2_000;
const HORIZON_MS: u64 = 100_000;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::named(seed, "membership scenario", &[]);
        let world = 1 + rng.below(6) as u32;
        let work_ms = 500 + rng.below(4_000);
        let mut failures = Vec::new();
        if rng.below(3) > 0 {
            for seat in 0..rng.below(u64::from(world) + 1) as u32 {
                let how = if rng.below(2) == 0 { Failure::Killed } else { Failure::Frozen };
                failures.push((Seat(seat), how, 2_000 + rng.below(work_ms)));
            }
        }
        Scenario { seed, world, work_ms, failures }
    }

    /// Runs it.
    #[must_use]
    pub fn run(&self) -> Outcome {
        let weather = Weather { delay_ms_max: 20, notice_ms_max: 100 };
        let home = Seat(self.world);
        let mut network: Network<Message> = Network::new(self.seed, self.world + 1, weather);
        let mut membership = Membership::new(Options::default());
        let mut outcome = Outcome::default();
        let mut commands = Vec::new();
        membership.on(0, Event::Submit(Wish::fixed(self.world)), &mut commands);
        network.at(TICK_MS, home, Happening::Message { from: home, message: Message::Alarm });
        for seat in (0..self.world).map(Seat) {
            let time = network.draw(500);
            network.at(time, seat, Happening::Wake);
        }
        let mut members: Vec<Member> = (0..self.world).map(|_| Member::default()).collect();
        for &(seat, how, time) in &self.failures {
            // A frozen member stays in the network; it only stops doing anything.
            members[seat.index()].fails = Some((how, time));
            if how == Failure::Killed {
                network.at(time, seat, Happening::Crash);
            }
        }
        while let Some((seat, happening)) = network.happens() {
            if network.now() > HORIZON_MS {
                break;
            }
            if seat == home {
                let event = match happening {
                    Happening::Message { message: Message::Said(event), .. } => event,
                    Happening::Lost { seat } => Event::Left { member: member(seat) },
                    _ => {
                        if outcome.ended.is_none() {
                            let time = network.now() + TICK_MS;
                            let alarm = Happening::Message { from: home, message: Message::Alarm };
                            network.at(time, home, alarm);
                        }
                        Event::Tick
                    }
                };
                membership.on(network.now(), event, &mut commands);
                for command in commands.drain(..) {
                    obey(command, home, &mut network, &mut outcome);
                }
            } else {
                self.live(seat, &mut members[seat.index()], happening, &mut network);
            }
        }
        outcome.told = members.into_iter().map(|member| member.told).collect();
        outcome
    }

    /// What a member does.
    fn live(
        &self,
        seat: Seat,
        it: &mut Member,
        happening: Happening<Message>,
        network: &mut Network<Message>,
    ) {
        let (now, home) = (network.now(), Seat(self.world));
        if it.fails.is_some_and(|(how, time)| how == Failure::Frozen && now >= time) || it.over {
            return;
        }
        match happening {
            Happening::Wake => {
                let (host, address) = (format!("host-{}", seat.0), String::new());
                let joined = Event::Joined { member: member(seat), host, pid: seat.0, address };
                network.send(seat, home, Message::Said(joined));
                network.at(
                    now + BEAT_MS,
                    seat,
                    Happening::Message { from: seat, message: Message::Alarm },
                );
            }
            Happening::Message { message: Message::Start(seated), .. } => {
                (it.done_at, it.seated) = (Some(now + self.work_ms), seated);
            }
            Happening::Message { message: Message::Told(verdict), .. } => {
                it.told.push(verdict);
                it.over = true;
            }
            Happening::Message { message: Message::Alarm, .. } => {
                let said = if it.done_at.is_some_and(|time| now >= time) && !it.finished {
                    it.finished = true;
                    Event::Finished { member: member(seat), epoch: Epoch(0), holds: false }
                } else {
                    let (step, phase) = (Step(now / 10), "computation".to_string());
                    Event::Phase { member: member(seat), step, phase, waits: true, bytes: 0 }
                };
                network.send(seat, home, Message::Said(said));
                network.at(
                    now + BEAT_MS,
                    seat,
                    Happening::Message { from: seat, message: Message::Alarm },
                );
            }
            // Under a barrier a survivor notices a lost peer at once and says so.
            Happening::Lost { seat: peer }
                if it.done_at.is_some() && peer != home && !it.finished =>
            {
                let (phase, step) = ("the merge".to_string(), Step(now / 10));
                let (by, epoch) = (member(seat), Epoch(0));
                let rank = it.seated.iter().position(|&it| it == peer).expect("it has a seat");
                let accused = Seat(rank as u32);
                let said = Event::Accuse { by, epoch, seat: accused, phase, step };
                network.send(seat, home, Message::Said(said));
            }
            _ => {}
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Member {
    fails: Option<(Failure, u64)>,
    done_at: Option<u64>,
    /// Who sits on each seat.
    seated: Vec<Seat>,
    finished: bool,
    over: bool,
    told: Vec<Verdict>,
}

/// Members join in any order, so a member's id is not its rank; ids start at 1.
fn member(seat: Seat) -> MemberId {
    MemberId(u64::from(seat.0) + 1)
}

fn place(member: MemberId) -> Seat {
    Seat(member.0 as u32 - 1)
}

fn obey(command: Command, home: Seat, network: &mut Network<Message>, outcome: &mut Outcome) {
    match command {
        Command::Start { roster, .. } => {
            let seated: Vec<Seat> = roster.iter().map(|info| place(info.member)).collect();
            for &seat in &seated {
                network.send(home, seat, Message::Start(seated.clone()));
            }
        }
        Command::Tell { member, verdict } => {
            network.send(home, place(member), Message::Told(verdict))
        }
        Command::Fault(report) => {
            let host = report.host.expect("a fault names its host");
            let seat = host.strip_prefix("host-").and_then(|number| number.parse().ok());
            outcome.blamed.push((Seat(seat.expect("hosts are numbered")), network.now()));
        }
        Command::Complete { .. } => end(outcome, true, network.now()),
        Command::Abort { .. } => end(outcome, false, network.now()),
        Command::Waiting(_)
        | Command::Prepare { .. }
        | Command::Regroup { .. }
        | Command::Seat { .. }
        | Command::Forget { .. } => {}
    }
}

fn end(outcome: &mut Outcome, complete: bool, now: u64) {
    assert!(outcome.ended.is_none(), "a job ends once");
    outcome.ended = Some((complete, now));
}

/// Runs one seed and checks every invariant.
///
/// # Panics
/// With the seed, when one does not hold.
pub fn check(seed: u64) {
    let scenario = Scenario::of(seed);
    let outcome = scenario.run();
    let (complete, _) =
        outcome.ended.unwrap_or_else(|| panic!("seed {seed}: {scenario:?} never ends"));
    if scenario.failures.is_empty() {
        assert!(complete, "seed {seed}: aborted although nobody failed");
    }
    for (seat, time) in &outcome.blamed {
        let failure = scenario.failures.iter().find(|(failed, ..)| failed == seat);
        let (_, _, when) =
            failure.unwrap_or_else(|| panic!("seed {seed}: {seat} is blamed and lives"));
        assert!(
            *time <= when + NAMED_WITHIN_MS,
            "seed {seed}: {seat} died at {when}, named at {time}"
        );
    }
    assert!(complete || !outcome.blamed.is_empty(), "seed {seed}: aborted and nobody is named");
    for seat in (0..scenario.world).map(Seat) {
        let failed = scenario.failures.iter().any(|(failed, ..)| *failed == seat);
        let told = &outcome.told[seat.index()];
        assert!(told.len() <= 1, "seed {seed}: {seat} is told twice");
        if !failed {
            let right = matches!(
                (told.first(), complete),
                (Some(Verdict::Done), true) | (Some(Verdict::Abort { .. }), false)
            );
            assert!(right, "seed {seed}: {seat} was told {told:?}, complete: {complete}");
        }
    }
}
