//! What a coordinator tells whoever asks how it is doing.

use super::Desk;
use crate::protocol::{MemberStatus, Status};
use crate::roster::Standing;
use starlings_core::Epoch;

impl Desk {
    /// What whoever asks is told.
    pub(super) fn status(&self) -> Status {
        let now = self.now();
        let lobby = self.membership.lobby().iter().map(|info| MemberStatus {
            seat: None,
            host: info.host.clone(),
            pid: info.pid,
            standing: "waiting".to_string(),
            heard_ms_ago: self.membership.silence_ms(now, info.member),
            ..MemberStatus::default()
        });
        let roster = self.membership.roster();
        let placed = roster.map_or(&[][..], |roster| &roster.placed);
        let past = roster.map_or(&[][..], |roster| &roster.past);
        let steps = placed.iter().filter_map(|placed| placed.progress.as_ref()).map(|it| it.step);
        let furthest = steps.max().unwrap_or_default();
        let wish = self.job.as_ref().map(|(_, wish, _)| wish);
        let patience_ms = wish.filter(|it| it.least.is_some()).map(|it| it.stall_ms);
        let seated = placed.iter().chain(past).map(|placed| {
            let running = placed.standing == Standing::Running;
            let progress = placed.progress.as_ref();
            let busy = progress.filter(|it| running && !it.waits);
            let busy_ms = busy.map(|it| now.saturating_sub(it.since));
            MemberStatus {
                seat: Some(placed.info.seat),
                host: placed.info.host.clone(),
                pid: placed.info.pid,
                standing: standing(&placed.standing).to_string(),
                step: progress.map(|progress| progress.step),
                phase: progress.map_or(String::new(), |progress| progress.phase.clone()),
                lag: progress.filter(|_| running).map(|it| furthest.0.saturating_sub(it.step.0)),
                bytes: progress.map_or(0, |progress| progress.bytes),
                busy_seconds: busy_ms.map_or(0, |busy_ms| busy_ms / 1000),
                patience_left_seconds: busy_ms
                    .zip(patience_ms)
                    .map(|(busy_ms, limit_ms)| limit_ms.saturating_sub(busy_ms).div_ceil(1000)),
                heard_ms_ago: self.membership.silence_ms(now, placed.info.member),
            }
        });
        Status {
            job_id: wish.map(|_| self.ticket.job),
            workers: wish.map_or(0, |wish| wish.workers),
            epoch: roster.map_or(Epoch(0), |roster| roster.epoch),
            patience_seconds: patience_ms.map(|limit_ms| limit_ms / 1000),
            waiting: self.membership.shortage(now),
            members: lobby.chain(seated).collect(),
        }
    }
}

fn standing(standing: &Standing) -> &'static str {
    match standing {
        Standing::Running => "running",
        Standing::Finished => "finished",
        Standing::Departed => "departed",
        Standing::Dead => "dead",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Happening;
    use crate::membership::{Options, Wish};
    use crate::roster::MemberId;
    use starlings_core::Step;
    use starlings_transport::Ticket;

    fn desk(wish: Wish, members: u64) -> Desk {
        let mut desk = Desk::new(Ticket::random().unwrap(), None, Options::default());
        desk.job = Some((String::new(), wish.clone(), None));
        desk.feed(Happening::Submit(wish));
        for member in (1..=members).map(MemberId) {
            let (host, address) = ("h".to_string(), "127.0.0.1:1".to_string());
            desk.feed(Happening::Joined { member, host, pid: 1, address });
        }
        desk
    }

    #[test]
    fn lag_is_in_steps_beside_how_long_ago_a_member_was_heard_and_when_it_is_given_up() {
        let wish = Wish { least: Some(1), stall_ms: 600_000, ..Wish::fixed(2) };
        let mut desk = desk(wish, 2);
        for (member, step, waits) in [(1, 12, true), (2, 5, false)] {
            let (member, step, phase) = (MemberId(member), Step(step), "a phase".to_string());
            desk.feed(Happening::Phase { member, step, phase, waits, bytes: 0 });
        }
        let status = desk.status();
        let lags: Vec<_> = status.members.iter().map(|member| member.lag).collect();
        assert_eq!(lags, [Some(0), Some(7)]);
        assert!(status.members.iter().all(|member| member.heard_ms_ago.is_some()));
        let [waits, works] = &status.members[..] else { panic!("{status:?}") };
        assert_eq!(waits.patience_left_seconds, None, "it waits for the other");
        let left = works.patience_left_seconds.unwrap();
        assert_eq!(
            works.busy_seconds + left,
            600,
            "it is given up when it has been busy for so long"
        );
        assert_eq!(status.waiting, None);
    }

    #[test]
    fn whoever_asks_is_told_until_when_workers_are_waited_for() {
        let desk = desk(Wish::fixed(3), 1);
        let status = desk.status();
        let shortage = status.waiting.unwrap();
        assert_eq!((shortage.have, shortage.want), (1, 3));
        assert!(shortage.seconds_left > 0.0 && shortage.seconds_left <= 60.0, "{shortage:?}");
        assert!(status.members[0].heard_ms_ago.is_some(), "{status:?}");
    }
}
