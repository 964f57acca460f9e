//! Coordinators that are killed and followed by others, as `cluster/src/coordinator.rs` is and does: what is on disk before
//! anyone hears of it, what the next one makes of it, and how members that come back are received. What is pure in that
//! is the same code (`cluster/src/succession.rs`).
//!
//! Whoever submitted the job is here, too, as the time at which it finds the next coordinator: until then a job that has
//! ended has a coordinator.

use super::scenario::{Crash, When};
use super::{Alarm, Happening, JOIN_MS, Message, Simulated, place};
use starlings_cluster::journal::Record;
use starlings_cluster::membership::{Command, Event, Membership, Options, Verdict, Wish};
use starlings_cluster::roster::{MemberId, Roster};
use starlings_cluster::succession::{Ending, Unfinished};
use starlings_core::{Epoch, Seat};
use std::collections::BTreeSet;

/// What is around the machine of one coordinator.
#[derive(Default)]
pub(super) struct Desk {
    /// Which coordinator this is.
    pub(super) number: u32,
    pub(super) is_up: bool,
    /// When its clock began.
    pub(super) begun: u64,
    /// What is on disk.
    journal: Vec<Record>,
    /// Members that are connected.
    connections: BTreeSet<MemberId>,
    /// How it is about to die, and what it still does before.
    dying: Option<(Crash, u64)>,
    /// How it dies when it hears of the end of the work.
    doomed: Option<Crash>,
    /// The last crash.
    crashed: Option<Crash>,
    /// When whoever submitted the job is here.
    submitter_at: u64,
    /// Models that it keeps for whoever submitted the job.
    kept: Vec<Event>,
    /// What members are told that come back when the job is over.
    last_word: Option<Verdict>,
    /// Until when such members may come.
    stays_until: u64,
}

/// How long things may take.
pub(super) fn options() -> Options {
    Options { join_ms: JOIN_MS, ..Options::default() }
}

impl Simulated<'_> {
    /// The first coordinator begins.
    pub(super) fn open(&mut self, wish: Wish) {
        self.desk.is_up = true;
        for (at, crash) in self.scenario.crashes.iter().enumerate() {
            match crash.when {
                When::At(time) => self.alarm(time, self.home, Alarm::Crash(at)),
                When::End => self.desk.doomed = Some(*crash),
                When::Fresh(_) => {}
            }
        }
        let (job, survey) = (String::new(), None);
        self.desk.journal.push(Record::Submitted { job, wish: wish.clone(), survey });
        self.feed(Event::Submit(wish));
    }

    /// Writes to disk. Gives whether the coordinator is still there.
    fn remember(&mut self, record: Record) -> bool {
        let acts = self.acts();
        if acts {
            if let Record::Epoch { epoch, roster, .. } = &record {
                let seats: Vec<Seat> = roster.iter().map(|info| place(info.member)).collect();
                self.outcome.note(epoch.0, &seats);
            }
            self.desk.journal.push(record);
        }
        acts
    }

    /// The coordinator does one thing more, unless it dies before.
    pub(super) fn acts(&mut self) -> bool {
        match &mut self.desk.dying {
            Some((crash, 0)) => {
                let crash = *crash;
                self.crash(crash);
            }
            Some((_, left)) => *left -= 1,
            None => {}
        }
        self.desk.is_up
    }

    /// Whether there is a connection to a member. At the first coordinator everyone who is told something has one, or is
    /// gone.
    pub(super) fn reaches(&self, member: MemberId) -> bool {
        self.desk.number == 0 || self.desk.connections.contains(&member)
    }

    /// Says something to a member, where there is a connection.
    pub(super) fn tell(&mut self, member: MemberId, message: Message) {
        if self.reaches(member) {
            self.network.send(self.home, place(member), message);
        }
    }

    /// A connection closes: gives whether there was one.
    pub(super) fn disconnect(&mut self, member: MemberId) -> bool {
        self.desk.connections.remove(&member) || self.desk.number == 0
    }

    /// Whatever befalls the coordinator itself. Gives whether it was that.
    pub(super) fn befalls_home(&mut self, message: &Message) -> bool {
        match message {
            Message::Alarm(Alarm::Crash(at)) => {
                let crash = self.scenario.crashes[*at];
                // A job that has ended is not gone on with, unless whoever submitted it does not know.
                let ended = self.outcome.ended.is_some() && self.desk.number == 0;
                if !self.desk.is_up || ended {
                    return true;
                }
                self.desk.dying = Some((crash, crash.acts));
                if crash.acts == 0 {
                    self.crash(crash);
                }
            }
            Message::Alarm(Alarm::Heir) => self.succeed(),
            Message::Said(Event::Delivered { .. } | Event::Finished { .. }) if self.desk.is_up => {
                let Some(crash) = self.desk.doomed.take() else { return false };
                self.desk.dying = Some((crash, crash.acts));
                if crash.acts == 0 {
                    self.crash(crash);
                    return true;
                }
                return false;
            }
            _ => return !self.desk.is_up,
        }
        true
    }

    /// The coordinator is killed.
    fn crash(&mut self, crash: Crash) {
        self.close();
        self.desk.crashed = Some(crash);
        let now = self.network.now();
        self.outcome.tell(now, &crash);
        self.alarm(now + crash.pause_ms, self.home, Alarm::Heir);
        let Unfinished { last, ending, .. } = self.left();
        // What a coordinator has heard and not written, nobody has said.
        let is_written = |seat: Seat| {
            let mut finished = last.iter().flat_map(|last| &last.finished);
            ending == Some(Ending::Complete) || finished.any(|(info, _)| place(info.member) == seat)
        };
        for (at, it) in self.members.iter_mut().enumerate() {
            it.counted |= it.counts && is_written(Seat(at as u32));
            (it.answered, it.counts) = (false, false);
        }
        self.outcome.is_done = self.members.iter().any(|it| it.counted);
        // Nobody knows any more who was only waiting for a seat: they ask again, and are there when they do.
        let finished = last.iter().flat_map(|last| last.finished.iter().map(|(info, _)| info));
        let roster = last.iter().flat_map(|last| &last.roster);
        let known: BTreeSet<Seat> = roster.chain(finished).map(|info| place(info.member)).collect();
        self.outcome.told.retain(|seat, count| *count > 0 || known.contains(seat));
        // The model may have been lost with the one who had it.
        self.outcome.delivered = ending == Some(Ending::Complete);
        self.stopping = last.is_some_and(|last| last.stopping.is_some());
    }

    /// The process of the coordinator ends: its connections close.
    fn close(&mut self) {
        (self.desk.is_up, self.desk.dying) = (false, None);
        let asleep = std::mem::take(&mut self.asleep);
        let ticks = |it: &Happening<Message>| {
            matches!(it, Happening::Message { message: Message::Alarm(Alarm::Beat), .. })
        };
        // The clock goes on, whoever looks at it.
        if asleep.later.iter().any(ticks) {
            self.alarm(self.network.now(), self.home, Alarm::Beat);
        }
        self.network.replace(self.home, &Message::Gone(self.desk.number));
    }

    /// A coordinator whose job has ended stays until whoever submitted it knows.
    pub(super) fn close_when_known(&mut self) {
        let (desk, now) = (&self.desk, self.network.now());
        let known = now >= desk.submitter_at.max(desk.stays_until);
        if desk.number > 0 && desk.is_up && known && self.outcome.ended.is_some() {
            self.close();
        }
    }

    /// A model is here. It has arrived when whoever submitted the job has it: what is kept for it dies with the coordinator.
    pub(super) fn relay_model(&mut self, from: Seat, delivered: Event) {
        if self.network.now() < self.desk.submitter_at {
            return self.desk.kept.push(delivered);
        }
        self.outcome.delivered |= self.membership.may_deliver(self.name(from));
        self.feed(delivered);
    }

    /// Whoever submitted the job is here again.
    pub(super) fn take_back_submitter(&mut self) {
        if self.network.now() < self.desk.submitter_at {
            return;
        }
        for delivered in std::mem::take(&mut self.desk.kept) {
            if let (true, Event::Delivered { member }) = (self.desk.is_up, &delivered) {
                self.relay_model(place(*member), delivered);
            }
        }
    }

    /// What is on disk.
    fn left(&self) -> Unfinished {
        let (_, unfinished) = Unfinished::read(self.desk.journal.clone());
        unfinished.expect("the job was submitted before anything else")
    }

    /// Another coordinator takes over.
    fn succeed(&mut self) {
        let (now, before) = (self.network.now(), std::mem::take(&mut self.desk));
        let submitter_ms = before.crashed.map_or(0, |crash| crash.submitter_ms);
        self.desk = Desk {
            number: before.number + 1,
            is_up: true,
            begun: now,
            journal: before.journal,
            doomed: before.doomed,
            submitter_at: now + submitter_ms,
            ..Desk::default()
        };
        self.outcome.followed = (self.outcome.followed.0 + 1, now);
        if self.desk.number == 1 {
            for (at, crash) in self.scenario.crashes.iter().enumerate() {
                if let When::Fresh(time) = crash.when {
                    self.alarm(now + time, self.home, Alarm::Crash(at));
                }
            }
        }
        let Unfinished { job: (_, wish, _), last, ending, .. } = self.left();
        self.outcome.tell(now, &("another coordinator", &last, &ending));
        self.membership = Membership::new(options());
        self.desk.journal.push(Record::TakenOver);
        match (ending, last) {
            (Some(ending), _) => self.end_again(&ending),
            (None, Some(last)) => self.membership = Membership::resumed(options(), 0, wish, last),
            (None, None) => self.feed(Event::Submit(wish)),
        }
    }

    /// A coordinator before this one has ended the job, and not all may have been told.
    fn end_again(&mut self, ending: &Ending) {
        let (now, is_complete) = (self.network.now(), !matches!(ending, Ending::GivenUp { .. }));
        self.desk.stays_until = now + options().return_ms;
        self.outcome.ended.get_or_insert((is_complete, now));
        self.note_end(is_complete);
    }

    /// The job is over.
    pub(super) fn note_end(&mut self, is_complete: bool) {
        let given_up = || Verdict::Abort { reason: String::new() };
        self.desk.last_word = Some(if is_complete { Verdict::Done } else { given_up() });
    }

    /// Says the last word to one who comes when all is over. Gives whether it is.
    fn tell_last_word(&mut self, from: Seat) -> bool {
        let Some(word) = self.desk.last_word.clone().filter(|_| self.desk.number > 0) else {
            return false;
        };
        *self.outcome.told.entry(from).or_default() += 1;
        self.members[from.index()].answered = true;
        self.network.send(self.home, from, Message::Told(word));
        true
    }

    /// A member asks for a seat.
    pub(super) fn receive(&mut self, from: Seat, joined: Event) {
        let Event::Joined { member, pid, address, .. } = &joined else { return };
        if self.outcome.ended.is_none() {
            self.outcome.told.insert(from, 0);
        }
        if self.tell_last_word(from) {
            return;
        }
        match self.membership.unaware(*pid, address).map(|info| info.member) {
            Some(known) => self.seat_again(from, known),
            None => {
                self.desk.connections.insert(*member);
                self.feed(joined);
            }
        }
    }

    /// A member was given a seat by a coordinator before this one, and never heard of it.
    fn seat_again(&mut self, from: Seat, member: MemberId) {
        self.desk.connections.insert(member);
        self.members[from.index()].line.member = member.0;
        match self.membership.begins_late(member) {
            Some(shards) => {
                if self.acts() {
                    self.tell(member, Message::Prepare(shards));
                }
                self.tell_news(member, Epoch(0));
            }
            None => {
                let Some(roster) = self.membership.roster().cloned() else { return };
                self.tell_lineup(member, &roster);
            }
        }
        if self.desk.is_up {
            self.feed(Event::Returned { member });
        }
    }

    /// A member of a coordinator before this one is here again.
    pub(super) fn take_back(&mut self, from: Seat, member: MemberId, epoch: Epoch) {
        self.outcome.tell(self.network.now(), &("is here again", member, epoch));
        if !self.acts() || self.tell_last_word(from) {
            return;
        }
        if !self.membership.keeps_seat_of(member) || self.desk.connections.contains(&member) {
            self.check_left_behind(from);
            *self.outcome.told.entry(from).or_default() += 1;
            self.members[from.index()].answered = true;
            return self.network.send(self.home, from, Message::LeftBehind);
        }
        self.desk.connections.insert(member);
        self.tell_news(member, epoch);
        if self.desk.is_up {
            self.feed(Event::Returned { member });
        }
    }

    /// Tells a member of the lineup that it has not heard of.
    fn tell_news(&mut self, member: MemberId, epoch: Epoch) {
        if let Some((_, roster)) = self.membership.news_since(member, epoch) {
            let roster = roster.clone();
            self.outcome.check_enough(self.scenario, roster.placed.len());
            self.tell_lineup(member, &roster);
        }
    }

    fn tell_lineup(&mut self, member: MemberId, roster: &Roster) {
        if self.acts() {
            let seats = roster.placed.iter().map(|placed| place(placed.info.member)).collect();
            self.tell(member, Message::Lineup(roster.epoch, seats, roster.deal.clone()));
        }
    }

    /// I6 over a restart: nobody who had a seat and kept it is sent away by the next coordinator. Whoever asked to leave
    /// may have been let go without having heard of it, and whoever came when the work was done, too.
    fn check_left_behind(&mut self, seat: Seat) {
        let it = &self.members[seat.index()];
        let seated = it.finished || it.working.as_ref().is_some_and(|it| it.epoch().is_some());
        let late = seat.0 >= self.scenario.world && self.outcome.is_done;
        if seated && !late && !it.line.leaves && !self.scenario.may_be_blamed(seat) {
            self.outcome.breaks(format!("I6: member {} is sent away by the next one", seat.0));
        }
    }

    /// What must be on disk before anyone hears of it. Gives whether the coordinator is still there.
    pub(super) fn write(&mut self, commands: &[Command]) -> bool {
        let records = self.membership.unwritten(commands);
        records.into_iter().all(|record| self.remember(record))
    }
}
