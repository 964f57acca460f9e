//! One coordinator after another: what the journal of the first tells the second. Pure, so that the simulator runs the same
//! code as the coordinator's shell.

use crate::bytes::Bytes;
use crate::deal::Deal;
use crate::journal::Record;
use crate::membership::Wish;
use crate::roster::{MemberId, MemberInfo};
use starlings_core::{Blame, Epoch, FaultReport, JobId, planted};
use std::collections::BTreeMap;

/// What another coordinator has left.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfinished {
    /// The job as text, whom it needs, and what is known of its data.
    pub job: (String, Wish, Option<Bytes>),
    /// The last epoch, if there was one.
    pub last: Option<LastEpoch>,
    /// How the job ended, where not all may have been told.
    pub ending: Option<Ending>,
    /// How many coordinators have taken over before.
    pub heirs: u64,
    /// Who was lost, in order.
    pub losses: Vec<FaultReport>,
}

/// The last epoch of a coordinator that is gone.
#[derive(Clone, PartialEq, Debug)]
pub struct LastEpoch {
    /// Which.
    pub epoch: Epoch,
    /// Everyone, in the order of their seats.
    pub roster: Vec<MemberInfo>,
    /// The epoch in which each of them got its first seat.
    pub since: Vec<Epoch>,
    /// The shards of each seat.
    pub deal: Deal,
    /// Members of this epoch or an earlier one that have done their work, and whether they can send the result.
    pub finished: Vec<(MemberInfo, bool)>,
    /// The first epoch in which one of them has.
    pub done_in: Option<Epoch>,
    /// Why everyone was asked to end politely, if they were.
    pub stopping: Option<String>,
    /// The loss after which fewer were left than the job needs, as it was told.
    pub short_after: Option<String>,
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ending {
    /// All members are done.
    Complete,
    /// All members have ended politely, as asked.
    Stopped {
        /// Why.
        reason: String,
    },
    /// The job is over without success.
    GivenUp {
        /// Who must act.
        blame: Blame,
        /// Why.
        reason: String,
    },
}

/// The job that a coordinator waited for when it was lost, where none had come.
#[must_use]
pub fn awaited(records: &[Record]) -> Option<JobId> {
    records.iter().fold(None, |awaited, record| match record {
        Record::Opened { job } => Some(*job),
        Record::Submitted { .. } | Record::Ended => None,
        _ => awaited,
    })
}

impl Unfinished {
    /// Reads a journal: the key of the job's authority, and what is to be gone on with.
    #[must_use]
    pub fn read(records: Vec<Record>) -> (Option<Bytes>, Option<Unfinished>) {
        let (mut authority, mut unfinished, mut past) = (None, None, Past::default());
        for record in records {
            match (record, &mut unfinished) {
                (Record::Authority(key), _) => authority = Some(key),
                (Record::Submitted { job, wish, survey }, _) => {
                    let (job, last, ending) = ((job, wish, survey), None, None);
                    let (heirs, losses) = (0, Vec::new());
                    unfinished = Some(Unfinished { job, last, ending, heirs, losses });
                }
                (Record::Ended, _) => unfinished = None,
                (record, Some(unfinished)) => unfinished.add(record, &mut past),
                (_, None) => {}
            }
        }
        (authority, unfinished)
    }

    fn add(&mut self, record: Record, past: &mut Past) {
        match record {
            Record::Epoch { epoch, roster, deal } => {
                let newest = past.lost.last().map(|report| report.message.clone());
                self.losses.append(&mut past.lost);
                if self.last.is_some() && planted!("epoch-not-durable") {
                    return;
                }
                let since = roster.iter().map(|info| past.since(info, epoch)).collect();
                let short_after = self.short_after(roster.len(), newest);
                let before = self.last.take();
                let (finished, done_in, stopping) = before
                    .map_or((vec![], None, None), |it| (it.finished, it.done_in, it.stopping));
                self.last = Some(LastEpoch {
                    epoch,
                    roster,
                    since,
                    deal,
                    finished,
                    done_in,
                    stopping,
                    short_after,
                });
            }
            Record::Finished { member, epoch, holds } => {
                if let (Some(last), Some((info, _))) = (&mut self.last, past.seen.get(&member)) {
                    last.done_in = Some(epoch);
                    last.finished.push((info.clone(), holds));
                }
            }
            Record::Stopping { reason } => {
                if let Some(last) = &mut self.last {
                    last.stopping = Some(reason);
                }
            }
            Record::Complete => self.end(Ending::Complete, past),
            Record::Stopped { reason } => self.end(Ending::Stopped { reason }, past),
            Record::GivenUp { blame, reason } => self.end(Ending::GivenUp { blame, reason }, past),
            Record::TakenOver => {
                self.heirs += 1;
                past.lost.clear();
            }
            Record::Lost(report) => past.lost.push(report),
            Record::Authority(_)
            | Record::Submitted { .. }
            | Record::Ended
            | Record::Opened { .. } => {}
        }
    }

    fn end(&mut self, ending: Ending, past: &mut Past) {
        self.losses.append(&mut past.lost);
        self.ending = Some(ending);
    }

    /// The loss after which too few are left, where that is so in an epoch of so many that began after this loss.
    fn short_after(&self, members: usize, newest: Option<String>) -> Option<String> {
        let least = self.job.1.least.unwrap_or(0) as usize;
        let before = self.last.as_ref().filter(|last| last.roster.len() < least);
        match before {
            _ if members >= least => None,
            Some(last) => last.short_after.clone(),
            None => newest,
        }
    }
}

/// Everyone who ever had a seat, and since when.
#[derive(Default)]
struct Past {
    seen: BTreeMap<MemberId, (MemberInfo, Epoch)>,
    /// Losses from which nothing has followed yet. Should nothing ever, nobody has heard of them, and the next coordinator
    /// misses the lost again and tells it.
    lost: Vec<FaultReport>,
}

impl Past {
    fn since(&mut self, info: &MemberInfo, epoch: Epoch) -> Epoch {
        let (_, since) = self.seen.entry(info.member).or_insert_with(|| (info.clone(), epoch));
        if planted!("since-forgotten") { Epoch(0) } else { *since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Seat;

    fn info(member: u64, seat: u32) -> MemberInfo {
        let (member, seat, pid) = (MemberId(member), Seat(seat), seat);
        MemberInfo { member, seat, host: "here".into(), pid, address: String::new() }
    }

    fn epoch(epoch: u32, roster: Vec<MemberInfo>) -> Record {
        Record::Epoch { epoch: Epoch(epoch), roster, deal: Deal::new() }
    }

    #[test]
    fn a_job_is_awaited_until_it_comes_or_the_coordinator_ends() {
        let opened = Record::Opened { job: JobId(7) };
        let submitted = Record::Submitted { job: "x".into(), wish: Wish::fixed(2), survey: None };
        let key = Record::Authority(Bytes(vec![1]));
        assert_eq!(awaited(&[key.clone(), opened.clone()]), Some(JobId(7)));
        assert_eq!(awaited(&[key]), None);
        assert_eq!(awaited(&[opened.clone(), submitted]), None);
        assert_eq!(awaited(&[opened, Record::Ended]), None);
    }

    #[test]
    fn the_last_epoch_counts_and_everyone_has_its_seat_since_its_first() {
        let wish = Wish::fixed(2);
        let records = vec![
            Record::Submitted { job: "x".into(), wish: wish.clone(), survey: None },
            epoch(0, vec![info(1, 0), info(2, 1)]),
            epoch(1, vec![info(1, 0), info(2, 1), info(7, 2)]),
            Record::Finished { member: MemberId(1), epoch: Epoch(0), holds: true },
            epoch(2, vec![info(2, 0), info(7, 1)]),
            Record::TakenOver,
        ];
        let (key, unfinished) = Unfinished::read(records.clone());
        assert_eq!(key, None);
        let unfinished = unfinished.unwrap();
        assert_eq!((&unfinished.job.1, unfinished.heirs), (&wish, 1));
        let last = unfinished.last.unwrap();
        assert_eq!((last.epoch, last.since), (Epoch(2), vec![Epoch(0), Epoch(1)]));
        assert_eq!(last.finished, [(info(1, 0), true)], "it is done, and has no seat any more");
        assert_eq!(last.done_in, Some(Epoch(0)));
        assert_eq!((last.stopping, unfinished.ending), (None, None));
        let ended = [records, vec![Record::Complete, Record::Ended]].concat();
        assert_eq!(Unfinished::read(ended), (None, None));
    }
}
