//! Members that are lost or fail: who is told of it, and how the others go on.

use super::{Charge, Command, Membership, Stage, Verdict};
use crate::roster::{MemberId, MemberInfo, Progress, Standing, last_known};
use starlings_core::{Blame, FaultReport, Seat};

/// What members did of whom a new coordinator has never heard.
const UNHEARD_OF: &str = "the change of coordinators";

impl Membership {
    /// Reports one member's failure. The others go on without it, unless the job cannot or the failure would be
    /// theirs, too.
    pub(super) fn condemn(
        &mut self,
        now: u64,
        seat: Seat,
        charge: Charge<'_>,
        out: &mut Vec<Command>,
    ) {
        if let Some(reason) = self.report_loss(seat, &charge, out) {
            self.go_on_without(now, seat, (charge.blame, reason), out);
        }
    }

    /// Whoever has not returned to a new coordinator is lost. All of them are named by the seats of the roster that is on disk:
    /// whoever submitted the job knows no other.
    pub(super) fn give_up_the_absent(&mut self, now: u64, out: &mut Vec<Command>) {
        let how = "it did not return to a new coordinator";
        let absent = std::mem::take(&mut self.absent.0);
        let Stage::Running(run) = &self.stage else { return };
        let survives = run.wish.least.is_some();
        let seat_of = |member: &MemberId| {
            let mut placed = run.roster.placed.iter();
            let placed = placed.find(|placed| placed.info.member == *member)?;
            (survives && placed.standing == Standing::Running).then_some(placed.info.seat)
        };
        let seats: Vec<Seat> = absent.iter().filter_map(seat_of).collect();
        let others: Vec<MemberId> =
            absent.iter().filter(|member| seat_of(member).is_none()).copied().collect();
        for member in others {
            self.lost(now, member, how, out);
        }
        // Of several that are lost at once, the one after whom too few are left.
        let Stage::Running(run) = &self.stage else { return };
        let least = run.wish.least.unwrap_or(0).max(1) as usize;
        let spare = run.roster.running().saturating_sub(least);
        let mut lost = Vec::new();
        for seat in seats {
            lost.extend(self.report_loss(seat, &Charge::lost(how), out).map(|it| (seat, it)));
        }
        if let Some((seat, reason)) = lost.into_iter().take(spare + 1).next_back() {
            self.go_on_without(now, seat, (None, reason), out);
        }
    }

    /// Tells of a loss, and the lost one, should it be there after all. Gives what was told; nothing of one that is dead already.
    fn report_loss(
        &mut self,
        seat: Seat,
        Charge { how, blame, returns }: &Charge<'_>,
        out: &mut Vec<Command>,
    ) -> Option<String> {
        let is_resumed = self.absent.1 > 0;
        let Stage::Running(run) = &mut self.stage else { return None };
        let survives = run.wish.least.is_some();
        let placed = &mut run.roster.placed[seat.index()];
        // While the others wait for the result, the dead are still on the roster.
        if placed.standing == Standing::Dead {
            return None;
        }
        placed.standing = Standing::Dead;
        self.absent.0.retain(|it| *it != placed.info.member);
        let (progress, seen_by) = last_known(placed, &run.accusations);
        // Whoever asks later is told the same.
        let bytes = placed.progress.as_ref().map_or(0, |own| own.bytes);
        placed.progress = progress.clone().map(|progress| Progress { bytes, ..progress });
        let MemberInfo { member, host, pid, .. } = placed.info.clone();
        let (step, phase) = match progress {
            Some(progress) => (Some(progress.step), progress.phase),
            None if is_resumed => (None, UNHEARD_OF.to_owned()),
            None => (None, "starting".to_owned()),
        };
        let during = step.map_or(phase.clone(), |step| format!("{step}, {phase}"));
        let verb = if blame.is_some() { "failed" } else { "was lost" };
        let message = format!("{seat} on {host} (process {pid}) {verb} in {during}: {how}");
        let (rank, host, reason) = (Some(seat), Some(host), message.clone());
        out.push(Command::Fault(FaultReport { rank, host, phase, step, seen_by, message }));
        if blame.is_none() {
            // It may be there all the same, and wonder.
            let what = if survives { "the flock goes on without" } else { "the job ends with" };
            let reason = format!("{what} this worker: {reason}");
            let returns = *returns && survives;
            out.push(Command::Tell { member, verdict: Verdict::GivenUp { reason, returns } });
        }
        self.forget(member, out);
        Some(reason)
    }

    fn go_on_without(
        &mut self,
        now: u64,
        seat: Seat,
        (blame, reason): (Option<Blame>, String),
        out: &mut Vec<Command>,
    ) {
        let theirs_too = matches!(blame, Some(Blame::Caller | Blame::Interrupted));
        let Stage::Running(run) = &self.stage else { return };
        let survives = run.wish.least.is_some();
        if survives && run.is_over() {
            self.complete_if_done(now, out);
        } else if survives && !theirs_too && run.roster.running() > 0 {
            let was_short = run.short.is_some();
            self.regroup(now, Vec::new(), out);
            if let Stage::Running(run) = &mut self.stage
                && let Some(short) = run.short.as_mut().filter(|_| !was_short)
            {
                short.after = Some(reason);
            }
        } else {
            self.abort(blame.unwrap_or(Blame::Peer(Some(seat))), reason, out);
        }
    }
}
