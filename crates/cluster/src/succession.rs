//! One coordinator after another: what the journal of the first tells the second, and how members that come back are
//! received. Pure, so that the simulator runs the same code as the coordinator's shell.

use crate::bytes::Bytes;
use crate::deal::Deal;
use crate::journal::Record;
use crate::membership::{Membership, Wish};
use crate::roster::{MemberId, MemberInfo, Roster, Standing};
use starlings_core::{Epoch, Seat};

/// What another coordinator has left.
#[derive(Clone, PartialEq, Debug)]
pub struct Unfinished {
    /// The job as text, whom it needs, and what is known of its data.
    pub job: (String, Wish, Option<Bytes>),
    /// The last epoch, if there was one.
    pub last: Option<(Epoch, Vec<MemberInfo>, Deal)>,
    /// Whether all members are done.
    pub complete: bool,
}

impl Unfinished {
    /// Reads a journal: the key of the job's authority, and what is to be gone on with.
    #[must_use]
    pub fn read(records: Vec<Record>) -> (Option<Bytes>, Option<Unfinished>) {
        let (mut authority, mut unfinished) = (None, None);
        for record in records {
            match (record, &mut unfinished) {
                (Record::Authority(key), _) => authority = Some(key),
                (Record::Submitted { job, wish, survey }, _) => {
                    let (job, last) = ((job, wish, survey), None);
                    unfinished = Some(Unfinished { job, last, complete: false });
                }
                (Record::Ended, _) => unfinished = None,
                (Record::Epoch { epoch, roster, deal }, Some(unfinished)) => {
                    unfinished.last = Some((epoch, roster, deal));
                }
                (Record::Complete, Some(unfinished)) => unfinished.complete = true,
                (Record::Epoch { .. } | Record::Complete, None) => {}
            }
        }
        (authority, unfinished)
    }
}

impl Membership {
    /// Whether a member of a coordinator before this one still has its seat.
    #[must_use]
    pub fn keeps_seat_of(&self, member: MemberId) -> bool {
        let placed = self.roster().map_or(&[][..], |roster| &roster.placed);
        let mut seated = placed.iter().filter(|placed| placed.standing == Standing::Running);
        seated.any(|placed| placed.info.member == member)
    }

    /// The lineup of a member that has not heard of one after this epoch, and its seat there.
    #[must_use]
    pub fn news_since(&self, member: MemberId, epoch: Epoch) -> Option<(Seat, &Roster)> {
        let roster = self.roster().filter(|roster| roster.epoch > epoch)?;
        let placed = roster.placed.iter().find(|placed| placed.info.member == member)?;
        Some((placed.info.seat, roster))
    }

    /// The member that a coordinator before this one had seated, where it never heard of that and asks for a seat again.
    #[must_use]
    pub fn unaware(
        &self,
        pid: u32,
        address: &str,
        is_here: impl Fn(MemberId) -> bool,
    ) -> Option<&MemberInfo> {
        let roster = self.roster().filter(|roster| roster.epoch == Epoch(0))?;
        let mut infos = roster.placed.iter().map(|placed| &placed.info);
        infos.find(|info| !is_here(info.member) && info.pid == pid && info.address == address)
    }
}
