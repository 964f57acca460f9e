//! Members that lost their links to others, and what follows from their words.

use super::{Charge, Command, Event, Membership, Run, Stage};
use crate::roster::{Accusation, MemberId, Progress, Standing, Suspicion, suspicion};
use starlings_core::{Blame, Seat};

/// Pauses of the coordinator that are excused while something waits for its judgement. One that is starved for good must judge
/// some day.
const EXCUSES_MAX: u32 = 3;

const CLOSED: &str = "its connection closed";

/// Whether what follows from an event is the same when a member is known to be gone only a moment later.
pub(super) fn can_wait(event: &Event) -> bool {
    match event {
        Event::Beat { .. } | Event::Phase { .. } | Event::Tick => true,
        Event::Left { .. } | Event::Accuse { .. } | Event::Unheard { .. } => true,
        Event::Failed { blame, .. } => matches!(blame, Blame::Peer(_)),
        _ => false,
    }
}

impl Membership {
    /// A member has lost its connection to another.
    pub(super) fn accuse(&mut self, now: u64, by: MemberId, against: Seat, progress: Progress) {
        let Stage::Running(run) = &mut self.stage else { return };
        let exists = against.index() < run.roster.placed.len();
        let Some(witness) = run.roster.find(by) else { return };
        let by = witness.info.seat;
        // One word of each against each: a stubborn witness costs no memory.
        let repeated = run.accusations.iter().any(|it| it.by == by && it.against == against);
        if exists && !repeated && by != against && witness.standing == Standing::Running {
            run.accusations.push(Accusation { at: now, by, against, progress });
        }
    }

    /// A member's connection closed. Peers that wait for it see the same at about the same time, and know the step.
    pub(super) fn left(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        if let Stage::Running(run) = &mut self.stage
            && run.roster.running() > 1
            && let Some(placed) = run.roster.find(member)
            && placed.standing == Standing::Running
        {
            let seat = placed.info.seat;
            if !run.accusations.iter().any(|it| it.by == seat || it.against == seat) {
                run.closed.push((member, now.saturating_add(self.options.witness_ms)));
                return;
            }
        }
        self.lost(now, member, CLOSED, out);
    }

    /// Whether somebody has said where a member is missed whose connection closed, or nobody has in time.
    pub(super) fn have_witnesses_spoken(&self, now: u64) -> bool {
        let Stage::Running(run) = &self.stage else { return false };
        let is_missed = |member: MemberId| {
            let of = |seat: Seat| run.roster.placed.get(seat.index()).map(|it| it.info.member);
            run.accusations.iter().any(|it| of(it.against) == Some(member))
        };
        run.closed.iter().any(|&(member, by)| now >= by || is_missed(member))
    }

    /// Gives up all whose connections closed: the next lineup is to be without every one of them.
    pub(super) fn bury_the_closed(&mut self, now: u64, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        for (member, _) in std::mem::take(&mut run.closed) {
            self.lost(now, member, CLOSED, out);
        }
    }

    /// What was said while the coordinator itself stood still is heard only now, one word after the other: its pause
    /// counts neither against an accused whose own word is still to come nor against one who is on its way back.
    pub(super) fn excuse_own_pause(&mut self, now: u64) {
        let (awake_at, excused) = &mut self.awake;
        let pause = now.saturating_sub(std::mem::replace(awake_at, now));
        let is_accused = matches!(&self.stage, Stage::Running(run) if !run.accusations.is_empty());
        if !is_accused && self.absent.0.is_empty() {
            *excused = 0;
            return;
        }
        if pause <= self.options.grace_ms / 2 || *excused == EXCUSES_MAX {
            return;
        }
        *excused += 1;
        if !self.absent.0.is_empty() {
            self.absent.1 = self.absent.1.saturating_add(pause);
        }
        if let Stage::Running(run) = &mut self.stage {
            run.accusations.iter_mut().for_each(|it| it.at = it.at.saturating_add(pause));
        }
    }

    /// What the accusations come to, once the first of them is old enough for all to have spoken.
    pub(super) fn due_suspicion(&self, now: u64, run: &Run) -> Option<Suspicion> {
        let is_due = |it: &Accusation| now >= it.at.saturating_add(self.options.grace_ms);
        suspicion(&run.accusations).filter(|_| run.accusations.iter().any(is_due))
    }

    /// Gives the suspect up. Where nobody can say who it is, all meet again: whoever is dead does not come, and a link
    /// that is cut cannot be had by either of its ends, who then accuse each other. Only once in a row, so that it ends.
    pub(super) fn act_on(&mut self, now: u64, suspicion: Suspicion, out: &mut Vec<Command>) {
        let Stage::Running(run) = &self.stage else { return };
        let may_meet = run.wish.least.is_some() && !run.met_again && !run.is_over();
        if suspicion.is_circular && may_meet {
            self.regroup(now, Vec::new(), out);
            if let Stage::Running(run) = &mut self.stage {
                run.met_again = true;
            }
            return;
        }
        let how = format!("{} lost its connection to it", suspicion.by);
        self.condemn(now, suspicion.against, Charge::lost(&how), out);
    }
}
