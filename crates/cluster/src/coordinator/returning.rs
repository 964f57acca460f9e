//! The shell of a coordinator that takes over from another: what it makes of the journal, and how it receives members that
//! come back, those that never heard of their seats, and whoever submitted the job.

use super::{Desk, Happening, KEPT_MAX, RETURN_MS, peers, waiting};
use crate::journal::Record;
use crate::membership::{Membership, Options};
use crate::protocol::{Assignment, Lineup, ToClient, ToWorker};
use crate::roster::MemberId;
use crate::succession::{Ending, Unfinished};
use starlings_core::{Deadline, Epoch, Event, Fault, Seat, failpoint};

/// Every coordinator numbers its members from so much higher on: whoever was known to one before it keeps its number.
const NUMBERS_APART: u64 = 1_000_000;

impl Desk {
    /// Goes on with what another coordinator has left. Gives the last number of a member.
    pub(super) fn take_over(&mut self, unfinished: Option<Unfinished>, options: Options) -> u64 {
        let Some(Unfinished { job, last, ending, heirs, mut losses }) = unfinished else {
            return 0;
        };
        losses.drain(..losses.len().saturating_sub(KEPT_MAX));
        self.losses = losses.clone();
        let wish = job.1.clone();
        self.job = Some(job);
        self.missing = Some(Deadline::after_ms(RETURN_MS));
        // The coordinator that wrote of these may have been gone before it told; what was heard is not heard twice.
        losses.into_iter().for_each(|report| self.tell_event(&Event::Fault(report)));
        // Whoever has not been told of the end comes, and must find somebody.
        self.stays = ending.is_some().then(|| Deadline::after_ms(options.return_ms));
        self.remember(&Record::TakenOver);
        match (ending, last) {
            (Some(Ending::Complete), _) => self.complete(None),
            (Some(Ending::Stopped { reason }), _) => self.complete(Some(reason)),
            (Some(Ending::GivenUp { blame, reason }), _) => {
                self.verdict = Some((Fault::new(blame, reason.clone()), Deadline::after_ms(0)));
                self.last_word = Some(self.last_words(blame, reason));
            }
            (None, Some(last)) => self.membership = Membership::resumed(options, 0, wish, last),
            (None, None) => self.feed(Happening::Submit(wish)),
        }
        NUMBERS_APART * (heirs + 1)
    }

    /// A member of a coordinator before this one is here again.
    pub(super) fn take_back(&mut self, id: u64, member: u64, epoch: Epoch) {
        if let Some(word) = self.last_word.clone() {
            return self.tell_worker(id, word);
        }
        let known = self.membership.keeps_seat_of(MemberId(member))
            && !self.connections.contains_key(&member);
        if !known {
            let message = "the flock has gone on without this worker".to_string();
            self.tell_worker(id, ToWorker::LeftBehind { message });
            return self.forget(id);
        }
        self.call_again(id, member);
        failpoint!("resume-returned");
        // Before anything else follows from its return: it hears of every lineup once.
        if let Some((_, lineup)) = self.news(MemberId(member), epoch) {
            self.tell_worker(member, ToWorker::Regroup(Box::new(lineup)));
        }
        self.feed(Happening::Returned { member: MemberId(member) });
    }

    /// A member that was given a seat by a coordinator before this one, and never heard of it. Gives whether it is one.
    pub(super) fn seat_again(&mut self, id: u64, pid: u32, address: &str) -> bool {
        let unaware = self.membership.unaware(pid, address);
        let Some((member, seat)) = unaware.map(|info| (info.member, info.seat)) else {
            return false;
        };
        self.call_again(id, member.0);
        match self.membership.begins_late(member) {
            Some(shards) => {
                self.prepare(member, shards);
                if let Some((_, lineup)) = self.news(member, Epoch(0)) {
                    self.tell_worker(member.0, ToWorker::Regroup(Box::new(lineup)));
                }
            }
            None => self.assign_again(member, seat),
        }
        self.feed(Happening::Returned { member });
        true
    }

    fn assign_again(&mut self, member: MemberId, seat: Seat) {
        let roster = self.membership.roster().map_or(Vec::new(), |roster| roster.infos());
        let Some(assignment) = self.assignment(member, seat, Epoch(0)) else { return };
        let assignment = Assignment { roster: peers(&roster), ..assignment };
        self.tell_worker(member.0, ToWorker::Assign(Box::new(assignment)));
    }

    /// A connection is that of a member known by another number.
    fn call_again(&mut self, id: u64, member: u64) {
        if let Some(control) = self.connections.remove(&id) {
            self.alias.insert(id, member);
            self.connections.insert(member, control);
        }
    }

    /// The lineup of a member that has not heard of one after this epoch.
    fn news(&self, member: MemberId, epoch: Epoch) -> Option<(Seat, Lineup)> {
        let (seat, roster) = self.membership.news_since(member, epoch)?;
        let (epoch, deal, roster) = (roster.epoch, roster.deal.clone(), peers(&roster.infos()));
        Some((seat, Lineup { seat, epoch, roster, deal }))
    }

    /// A model is here. It has arrived when whoever submitted the job has it: what is kept for it dies with this process.
    pub(super) fn relay_model(&mut self, member: MemberId, model: ToClient, within_ms: u64) {
        if self.submitter.is_none() && self.missing.is_some() {
            self.kept.retain(|message| !matches!(message, ToClient::Model(_)));
            self.kept.push(model);
            return self.kept_of.push(member);
        }
        self.tell_submitter(model, within_ms);
        failpoint!("model-relayed");
        self.feed(Happening::Delivered { member });
    }

    /// Whoever submitted the job is here again, and is told what it has missed.
    pub(super) fn take_back_submitter(&mut self, id: u64, within_ms: u64) {
        (self.submitter, self.missing) = (Some(id), None);
        self.tell_client(id, ToClient::Accepted { job_id: self.ticket.job }, within_ms);
        for message in std::mem::take(&mut self.kept) {
            self.tell_client(id, message, within_ms);
        }
        let now = self.now();
        if let Some(shortage) = self.membership.shortage(now) {
            self.tell_event(&waiting(shortage));
        }
        for member in std::mem::take(&mut self.kept_of) {
            self.feed(Happening::Delivered { member });
        }
    }
}
