//! Who sends the result home. The first seat sends it before anyone may leave; should it be lost with what it sent, or not be
//! heard any more, the others still hold the result: they stay until it has arrived, and one after the other is asked
//! for it, the lowest seat first.

use crate::roster::{MemberId, Placed, Roster, Standing};
use starlings_core::planted;
use std::collections::BTreeSet;

/// Where the result is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Delivery {
    arrived: bool,
    /// Members that can send it.
    holders: BTreeSet<MemberId>,
    /// Those of them that were asked for it.
    asked: BTreeSet<MemberId>,
    /// Whom the job waits for, and until when.
    awaited: Option<(MemberId, u64)>,
}

/// What is to be done when all have finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Nothing more can come.
    Over,
    /// The one who was asked last may still send it.
    Wait,
    /// Another one is to be asked.
    Ask(MemberId),
}

impl Delivery {
    /// A member has finished and can send the result.
    pub(crate) fn hold(&mut self, member: MemberId) {
        self.holders.insert(member);
    }

    /// Whether a member can send the result.
    pub(crate) fn is_held_by(&self, member: MemberId) -> bool {
        self.holders.contains(&member)
    }

    /// The result is here.
    pub(crate) fn arrive(&mut self) {
        self.arrived = true;
    }

    /// Whether somebody was asked: nobody works any more.
    pub(crate) fn is_begun(&self) -> bool {
        self.awaited.is_some()
    }

    /// What is to be done next. Nobody is asked twice, so that this ends.
    pub(crate) fn next(&mut self, now: u64, roster: &Roster, patience_ms: u64) -> Next {
        if self.arrived || planted!("model-only-with-first") {
            return Next::Over;
        }
        let here = roster.placed.iter().chain(&roster.past).filter(|it| is_here(it));
        let stays = |member| here.clone().any(|placed| placed.info.member == member);
        if self.awaited.is_some_and(|(member, by)| now < by && stays(member)) {
            return Next::Wait;
        }
        let able =
            |member: &MemberId| self.holders.contains(member) && !self.asked.contains(member);
        let Some(member) = here.clone().map(|placed| placed.info.member).find(able) else {
            return Next::Over;
        };
        self.asked.insert(member);
        self.awaited = Some((member, now.saturating_add(patience_ms)));
        Next::Ask(member)
    }
}

fn is_here(placed: &Placed) -> bool {
    placed.standing == Standing::Finished
}
