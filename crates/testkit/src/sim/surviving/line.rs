//! A member's line to the coordinator, as `engine/src/member/line.rs` keeps it: when the coordinator is gone the member
//! calls until another one answers, says who it is, and says again what the old one may have heard in vain. What it
//! mentions meanwhile is lost, what it has to say waits.

use super::{Alarm, Life, Message, Simulated, Working};
use starlings_cluster::membership::Event;
use starlings_cluster::roster::MemberId;
use starlings_core::{Epoch, Seat};

/// How long a member waits before it calls again.
const CALL_MS: u64 = 100;
/// Names of a seat's lives are so far apart: members that come again have new ones.
pub(super) const LIVES_APART: u64 = 1_000_000;

/// A member's line.
#[derive(Default)]
pub(super) struct Line {
    /// The coordinator at its other end, by number.
    pub(super) to: Option<u32>,
    /// Whether it has been told its name: until then it asks for a seat.
    settled: bool,
    /// How often it has come.
    pub(super) lives: u64,
    /// How it is called, by number.
    pub(super) member: u64,
    sent: Option<Event>,
    accused: Option<Event>,
    finished: Option<Event>,
    /// Whether it was asked to leave.
    pub(super) leaves: bool,
    /// What waits for the next coordinator.
    held: Vec<Event>,
    /// Whether it has failed, and waits to say so.
    pub(super) has_failed: bool,
    /// Whether it has gone without a word, since it knew of no seat.
    pub(super) left_unaware: bool,
}

impl Simulated<'_> {
    /// How a member is called.
    pub(super) fn name(&self, seat: Seat) -> MemberId {
        MemberId(self.members[seat.index()].line.member)
    }

    /// Says something, now or to the next coordinator.
    pub(super) fn say(&mut self, seat: Seat, event: Event) {
        let line = &mut self.members[seat.index()].line;
        match event {
            Event::Finished { .. } => line.finished = Some(event.clone()),
            Event::Delivered { .. } => line.sent = Some(event.clone()),
            _ => {}
        }
        match line.to {
            Some(_) => self.tell_home(seat, Message::Said(event)),
            None => line.held.push(event),
        }
    }

    /// Says something that is of no use later.
    pub(super) fn mention(&mut self, seat: Seat, event: Event) {
        if matches!(event, Event::Accuse { .. }) {
            self.members[seat.index()].line.accused = Some(event.clone());
        }
        self.tell_home(seat, Message::Said(event));
    }

    /// What is said to a coordinator that is gone gets lost, also before that is noticed.
    pub(super) fn tell_home(&mut self, seat: Seat, message: Message) {
        let it = &self.members[seat.index()];
        if !it.exiled && self.desk.is_up && it.line.to == Some(self.desk.number) {
            self.network.send(seat, self.home, message);
        }
    }

    /// A member is told its name.
    pub(super) fn settle(&mut self, seat: Seat) {
        self.members[seat.index()].line.settled = true;
    }

    /// The coordinator of that number is gone.
    pub(super) fn hang_up(&mut self, seat: Seat, number: u32) {
        let line = &mut self.members[seat.index()].line;
        if line.to == Some(number) {
            line.to = None;
            self.call(seat);
        }
    }

    /// A member calls whoever coordinates, until somebody answers.
    pub(super) fn call(&mut self, seat: Seat) {
        let it = &mut self.members[seat.index()];
        // Nobody would miss one that knows of no seat and was asked to leave, or cannot go on.
        if (it.line.leaves || it.line.has_failed) && !it.line.settled {
            (it.over, it.line.left_unaware) = (true, true);
        }
        if it.exiled || it.over {
            return;
        }
        if !self.desk.is_up {
            return self.alarm(self.later(seat, CALL_MS), seat, Alarm::Call);
        }
        it.line.to = Some(self.desk.number);
        if it.line.settled {
            self.come_back(seat);
        } else {
            it.line.member = u64::from(seat.0) + 1 + LIVES_APART * it.line.lives;
            it.line.lives += 1;
            it.awake = true;
            let (host, address) = (format!("host-{}", seat.0), String::new());
            let member = MemberId(it.line.member);
            let joined = Event::Joined { member, host, pid: seat.0, address };
            self.tell_home(seat, Message::Said(joined));
        }
    }

    /// A member that has a name says who it is, and what the coordinator before this one may not have left.
    fn come_back(&mut self, seat: Seat) {
        // What waits is said by other threads than what is said again.
        let waiting_first = self.network.draw(2) == 0;
        let it = &mut self.members[seat.index()];
        let epoch = it.working.as_ref().and_then(Working::epoch).unwrap_or(Epoch(0));
        let Line { member, sent, accused, finished, held, has_failed, .. } = &mut it.line;
        let (member, has_failed) = (MemberId(*member), *has_failed);
        let held = std::mem::take(held);
        let again = [&*sent, accused, finished].into_iter().flatten().cloned().collect();
        let order = if waiting_first { [held, again] } else { [again, held] };
        self.tell_home(seat, Message::Returns(member, epoch));
        for event in order.concat() {
            self.tell_home(seat, Message::Said(event));
        }
        if has_failed {
            self.go(seat);
        }
    }

    /// The others have gone on without a member. One that had no seat comes again, as new.
    pub(super) fn be_left_behind(&mut self, seat: Seat) {
        let it = &self.members[seat.index()];
        let seated = it.finished || it.working.as_ref().is_some_and(|it| it.epoch().is_some());
        if seated || it.line.leaves || it.line.has_failed {
            return self.go(seat);
        }
        let it = &mut self.members[seat.index()];
        let (lives, ears) = (it.line.lives, std::mem::take(&mut it.ears));
        let (cut, beaten) = (std::mem::take(&mut it.cut), it.beaten);
        let line = Line { lives, ..Line::default() };
        *it = Life { line, ears, cut, beaten, awake: true, ..Life::default() };
        // I7 over a restart: whoever comes again is another member, and is told of the end for itself.
        self.outcome.told.remove(&seat);
        self.call(seat);
    }
}
