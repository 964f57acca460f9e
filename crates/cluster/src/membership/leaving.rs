//! Members that must go, and say so in time: the others go on without them. The last one stays until a newcomer has the
//! model.

use super::{Command, Membership, Stage, Verdict};
use crate::roster::{MemberId, Placed, Standing};
use starlings_core::{Blame, Step, planted};

/// Why a job ends whose last worker must go.
const LAST_LEAVES: &str = "the last worker was asked to leave";

/// A last worker that must go, and does as soon as somebody else has the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heirless {
    member: MemberId,
    /// Until when somebody may come.
    by: u64,
    /// Its step when somebody came: whoever is at this step has the model.
    step: Option<Step>,
}

impl Membership {
    /// Whether this member must go and stays only until a newcomer has the model.
    #[must_use]
    pub fn awaits_heir(&self, member: MemberId) -> bool {
        let Stage::Running(run) = &self.stage else { return false };
        run.heirless.iter().any(|heirless| heirless.member == member)
    }

    /// A member must go: the others go on without it. The last one that has the model stays until a newcomer has it, too;
    /// where there is none it cannot go, so the job ends politely.
    pub(super) fn leave(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        self.detector.beat(now, member);
        let waits = self.lobby.iter().any(|info| info.member == member);
        let Stage::Running(run) = &mut self.stage else {
            return self.lost(now, member, "it left", out);
        };
        if waits && !planted!("lobby-may-not-leave") {
            out.push(Command::Tell { member, verdict: Verdict::Released });
            return self.lost(now, member, "it left", out);
        }
        // Whoever has not returned to a new coordinator may be gone.
        let absent = &self.absent.0;
        let is_here = |it: &&Placed| !absent.contains(&it.info.member);
        let has_heir =
            run.roster.placed.iter().filter(is_here).any(|it| it.has_model_beside(member));
        let alone = !has_heir || run.wish.least.is_none();
        let to_come = !self.preparing.is_empty() || run.roster.running() > 1;
        let Some(placed) = run.roster.find(member) else { return };
        if placed.standing != Standing::Running {
            return;
        }
        if alone && run.wish.least.is_some() && to_come && run.stop.is_none() {
            let by = now.saturating_add(self.options.join_ms);
            // Where others have not returned yet to a new coordinator, several may have to wait for them.
            if !run.heirless.iter().any(|heirless| heirless.member == member) {
                run.heirless.push(Heirless { member, by, step: None });
            }
            return;
        }
        // All have been asked to end: so does this one.
        if alone && run.stop.is_some() {
            return;
        }
        if alone {
            return self.stop(now, Blame::Interrupted, LAST_LEAVES.to_string(), out);
        }
        self.release(now, member, out);
    }

    /// Whether a job that somebody asks to stop for the first time ends already, because its last worker must go: Ctrl-C in a
    /// terminal reaches workers, too, and theirs may be heard first.
    pub(super) fn is_stopped_by_last(&mut self, blame: Blame, reason: &str) -> bool {
        let Stage::Running(run) = &mut self.stage else { return false };
        let why = run.stop.as_mut().map(|(why, _)| why);
        let Some(why) = why.filter(|it| *it == LAST_LEAVES && blame == Blame::Interrupted) else {
            return false;
        };
        *why = reason.to_string();
        true
    }

    /// The others go on without a member that must go.
    fn release(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        let Some(placed) = run.roster.find(member) else { return };
        if !planted!("leaver-stays") {
            placed.standing = Standing::Departed;
        }
        out.push(Command::Tell { member, verdict: Verdict::Released });
        self.detector.forget(member);
        self.regroup(now, Vec::new(), out);
    }

    /// The last worker goes as soon as somebody else has the model, or ends the job if nobody comes.
    pub(super) fn release_the_last(&mut self, now: u64, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        for heirless in std::mem::take(&mut run.heirless) {
            let still = self.release_if_inherited(now, heirless, out);
            if let Stage::Running(run) = &mut self.stage {
                run.heirless.extend(still);
            }
        }
    }

    /// Gives back who has to go on waiting.
    fn release_if_inherited(
        &mut self,
        now: u64,
        mut heirless: Heirless,
        out: &mut Vec<Command>,
    ) -> Option<Heirless> {
        let Stage::Running(run) = &mut self.stage else { return None };
        let Heirless { member, by, .. } = heirless;
        let leaver = run.roster.find(member).filter(|it| it.standing == Standing::Running)?;
        let own = leaver.progress.as_ref().map_or(Step(0), |it| it.step);
        if run.stop.is_some() {
            return None;
        }
        if run.roster.running() == 1 {
            heirless.step = None;
            if self.preparing.is_empty() || now >= by {
                self.stop(now, Blame::Interrupted, LAST_LEAVES.to_string(), out);
                return None;
            }
            return Some(heirless);
        }
        let step = *heirless.step.get_or_insert(own);
        let has_it = |it: &Placed| {
            let there = it.progress.as_ref().is_some_and(|progress| progress.step >= step);
            it.info.member != member && it.standing == Standing::Running && there
        };
        if run.roster.placed.iter().any(has_it) {
            self.release(now, member, out);
            return None;
        }
        Some(heirless)
    }
}
