//! A job whose coordinator may be followed by another: what must be on disk before anyone hears of it, the machine that goes
//! on from there, and members that come back to it.

use super::{Command, Membership, Options, Run, Short, Stage, Verdict, Wish};
use crate::journal::Record;
use crate::roster::{MemberId, MemberInfo, Placed, Roster, Standing};
use crate::succession::LastEpoch;
use starlings_core::{Epoch, Seat, planted};
use std::collections::BTreeSet;

/// What is on disk.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    epoch: Option<Epoch>,
    finished: BTreeSet<MemberId>,
    is_stopping: bool,
}

impl Membership {
    /// A machine that goes on with a job whose coordinator is gone: its last epoch stands, and whoever of its members
    /// does not return in time is lost.
    #[must_use]
    pub fn resumed(options: Options, now: u64, wish: Wish, last: LastEpoch) -> Membership {
        let LastEpoch { epoch, roster, since, deal, finished, done_in, stopping, short_after } =
            last;
        let done: BTreeSet<MemberId> = finished.iter().map(|(info, _)| info.member).collect();
        let place = |info: MemberInfo, since: Epoch| {
            let standing = match done.contains(&info.member) {
                true => Standing::Finished,
                false if done_in.is_some_and(|epoch| since > epoch) => Standing::Departed,
                false => Standing::Running,
            };
            Placed { info, standing, progress: None, since }
        };
        let placed: Vec<Placed> =
            roster.into_iter().zip(since).map(|(info, since)| place(info, since)).collect();
        let seated = |info: &MemberInfo| placed.iter().any(|it| it.info.member == info.member);
        let past = finished.iter().map(|(info, _)| info).filter(|info| !seated(info));
        let past: Vec<Placed> = past.map(|info| place(info.clone(), Epoch(0))).collect();
        let seated = placed.iter().filter(|it| it.standing != Standing::Departed);
        let absent = seated.chain(&past).map(|placed| placed.info.member).collect();
        let least = wish.least.unwrap_or(0) as usize;
        let mut run = Run::new(wish, Roster { epoch, placed, deal, past });
        (run.is_done, run.done_in) = (!finished.is_empty(), done_in);
        for (info, _) in finished.iter().filter(|(_, holds)| *holds) {
            run.delivery.hold(info.member);
        }
        // Nobody was told of a lineup of too few.
        if run.roster.running() < least && !run.is_done {
            let by = now.saturating_add(options.join_ms);
            run.short = Some(Short { by, after: short_after });
        }
        let is_stopping = stopping.is_some();
        run.stop = stopping.map(|reason| (reason, now.saturating_add(options.stop_ms)));
        let mut membership = Membership::new(options);
        membership.written = Written { epoch: Some(epoch), finished: done, is_stopping };
        membership.absent = (absent, now.saturating_add(options.return_ms));
        membership.stage = Stage::Running(Box::new(run));
        membership
    }

    /// What has changed since this was last asked and must be on disk before these commands are obeyed.
    pub fn unwritten(&mut self, commands: &[Command]) -> Vec<Record> {
        let ending = commands.iter().find_map(|command| match command {
            Command::Complete { stopped: None } => Some(Record::Complete),
            Command::Complete { stopped: Some(reason) } => {
                Some(Record::Stopped { reason: reason.clone() })
            }
            Command::Abort { blame, reason } => {
                Some(Record::GivenUp { blame: *blame, reason: reason.clone() })
            }
            _ => None,
        });
        // Losses first: whoever submitted the job may hear of them only from the next coordinator.
        let lost = commands.iter().filter_map(|command| match command {
            Command::Fault(report) => Some(Record::Lost(report.clone())),
            _ => None,
        });
        let mut records: Vec<Record> = lost.collect();
        if let Some(ending) = ending {
            records.push(ending);
            return records;
        }
        let Stage::Running(run) = &self.stage else { return records };
        for placed in run.roster.placed.iter().chain(&run.roster.past) {
            let member = placed.info.member;
            if placed.standing == Standing::Finished && self.written.finished.insert(member) {
                let (epoch, holds) = (run.done_in, run.delivery.is_held_by(member));
                records.push(Record::Finished { member, epoch: epoch.unwrap_or_default(), holds });
            }
        }
        // Also one of too few, of which nobody is told: who has left is not missed by the next coordinator.
        if self.written.epoch.replace(run.roster.epoch) != Some(run.roster.epoch) {
            let (epoch, roster, deal) =
                (run.roster.epoch, run.roster.infos(), run.roster.deal.clone());
            records.push(Record::Epoch { epoch, roster, deal });
        }
        if let Some((reason, _)) = run.stop.as_ref().filter(|_| !self.written.is_stopping) {
            self.written.is_stopping = true;
            records.push(Record::Stopping { reason: reason.clone() });
        }
        records
    }

    /// Whether a member of a coordinator before this one may take its seat again.
    #[must_use]
    pub fn keeps_seat_of(&self, member: MemberId) -> bool {
        self.is_absent(member) && self.may_deliver(member)
    }

    /// Whether a member has a seat: what others say happened without those who have one. One who was left behind may wake up
    /// and go on as if nothing had happened.
    #[must_use]
    pub fn is_seated(&self, member: MemberId) -> bool {
        let placed = self.roster().map_or(&[][..], |roster| &roster.placed);
        let seated = |it: &Standing| matches!(it, Standing::Running | Standing::Finished);
        placed.iter().any(|placed| placed.info.member == member && seated(&placed.standing))
    }

    /// Whether a member of a coordinator before this one has not returned yet.
    pub(super) fn is_absent(&self, member: MemberId) -> bool {
        self.absent.0.contains(&member)
    }

    /// The lineup of a member that has not heard of one after this epoch, and its seat there. Nobody hears of a lineup of
    /// too few.
    #[must_use]
    pub fn news_since(&self, member: MemberId, epoch: Epoch) -> Option<(Seat, &Roster)> {
        let Stage::Running(run) = &self.stage else { return None };
        if run.roster.epoch <= epoch || run.short.is_some() {
            return None;
        }
        let placed = run.roster.placed.iter().find(|placed| placed.info.member == member)?;
        Some((placed.info.seat, &run.roster))
    }

    /// The member that a coordinator before this one had seated, where it never heard of that and asks for a seat again.
    #[must_use]
    pub fn unaware(&self, pid: u32, address: &str) -> Option<&MemberInfo> {
        let roster = self.roster()?;
        if roster.epoch > Epoch(0) && planted!("unaware-seated-twice") {
            return None;
        }
        let mut infos = roster.placed.iter().map(|placed| &placed.info);
        infos.find(|info| {
            self.keeps_seat_of(info.member) && info.pid == pid && info.address == address
        })
    }

    /// A member that never heard of its seat begins as a newcomer does, where others have begun without it. Gives what it
    /// reads for that.
    pub fn begins_late(&mut self, member: MemberId) -> Option<Vec<u32>> {
        let Stage::Running(run) = &mut self.stage else { return None };
        let epoch = run.roster.epoch;
        let placed = run.roster.find(member).filter(|_| epoch > Epoch(0))?;
        // It has no model yet, and may not be left alone with the work.
        placed.since = epoch;
        let seat = placed.info.seat;
        Some(run.roster.deal.get(seat.index()).cloned().unwrap_or_default())
    }

    pub(super) fn returned(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        let (absent, _) = &mut self.absent;
        let Some(at) = absent.iter().position(|it| *it == member) else { return };
        absent.remove(at);
        let Some(roster) = self.roster() else { return };
        let mut known = roster.placed.iter().chain(&roster.past);
        let address = known.find(|placed| placed.info.member == member);
        let address = address.map_or(String::new(), |placed| placed.info.address.clone());
        self.watch(now, member, &address);
        let Stage::Running(run) = &self.stage else { return };
        // It may not have heard that all were asked to end.
        if run.stop.is_some() {
            out.push(Command::Tell { member, verdict: Verdict::Stop });
        }
        // The last coordinator may have died between writing that somebody had finished in an older epoch and the lineup
        // of those who have not: they would wait for it in vain.
        let is_there = |standing| run.roster.placed.iter().any(|it| it.standing == standing);
        let is_older = run.done_in.is_some_and(|done| done < run.roster.epoch);
        if is_older && is_there(Standing::Finished) && is_there(Standing::Running) {
            self.regroup(now, Vec::new(), out);
        }
    }
}
