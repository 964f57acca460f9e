//! Who takes part: the members of one epoch in the order of their seats, and what is last known of each.

use crate::deal::{Deal, deal_again};
use serde::{Deserialize, Serialize};
use starlings_core::{Epoch, Seat, Step, planted};

/// Members of earlier epochs that are remembered for those who ask.
const PAST_MAX: usize = 64;

/// A member's identity at the coordinator, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MemberId(pub u64);

/// A member with its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Who.
    pub member: MemberId,
    /// Its place.
    pub seat: Seat,
    /// Its host.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// Where its peers reach it.
    pub address: String,
}

/// What is last known of a member's work.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The step in progress.
    pub step: Step,
    /// What was being done.
    pub phase: String,
    /// Whether that is waiting for others.
    pub waits: bool,
    /// Bytes sent so far.
    pub bytes: u64,
    /// Since when it is at this, in the coordinator's milliseconds.
    pub since: u64,
}

impl Progress {
    /// What a witness saw.
    pub(crate) fn at(step: Step, phase: String) -> Progress {
        Progress { step, phase, waits: true, bytes: 0, since: 0 }
    }
}

/// What a member of the roster is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Working.
    Running,
    /// It reported that it is done, and is still connected.
    Finished,
    /// It reported that it is done or that it must go, and then left.
    Departed,
    /// Lost, or failed by its own word.
    Dead,
}

/// A survivor's word against a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Accusation {
    pub(crate) at: u64,
    pub(crate) by: Seat,
    pub(crate) against: Seat,
    pub(crate) progress: Progress,
}

/// One member of the roster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Who and where.
    pub info: MemberInfo,
    /// What it is doing.
    pub standing: Standing,
    /// How far it was when last heard of.
    pub progress: Option<Progress>,
    /// The epoch in which it got its first seat.
    pub since: Epoch,
}

impl Placed {
    /// Whether it works beside another and has the model, too: a newcomer is given it when its first step begins.
    pub(crate) fn has_model_beside(&self, other: MemberId) -> bool {
        let begun = self.progress.as_ref().is_some_and(|progress| progress.step > Step(0));
        let is_other = self.info.member != other && self.standing == Standing::Running;
        is_other && (begun || self.since == Epoch(0))
    }
}

/// The members of one epoch, in the order of their seats.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roster {
    /// Which epoch.
    pub epoch: Epoch,
    /// Its members; the index is the seat.
    pub placed: Vec<Placed>,
    /// The shards of each seat; empty where the job's plan deals them itself.
    pub deal: Deal,
    /// Members of earlier epochs who are not in this one.
    pub past: Vec<Placed>,
}

impl Roster {
    /// Everyone's place.
    #[must_use]
    pub fn infos(&self) -> Vec<MemberInfo> {
        self.placed.iter().map(|placed| placed.info.clone()).collect()
    }

    pub(crate) fn find(&mut self, member: MemberId) -> Option<&mut Placed> {
        self.placed.iter_mut().find(|placed| placed.info.member == member)
    }

    /// Those who still listen: neither dead nor departed.
    pub(crate) fn listeners(&self) -> Vec<MemberId> {
        let listening =
            self.placed.iter().chain(&self.past).filter(|placed| match placed.standing {
                Standing::Running | Standing::Finished => true,
                Standing::Departed => planted!("told-twice"),
                Standing::Dead => false,
            });
        listening.map(|placed| placed.info.member).collect()
    }

    pub(crate) fn running(&self) -> usize {
        self.placed.iter().filter(|placed| placed.standing == Standing::Running).count()
    }

    /// Whether everyone in it has finished or left politely.
    pub(crate) fn all_ended(&self) -> bool {
        let ended =
            |placed: &Placed| matches!(placed.standing, Standing::Finished | Standing::Departed);
        self.placed.iter().all(ended)
    }

    /// The roster of the next epoch: those who still work, in their order, then the newcomers.
    pub(crate) fn next(&self, newcomers: Vec<MemberInfo>) -> Roster {
        let (staying, gone): (Vec<&Placed>, Vec<&Placed>) =
            self.placed.iter().partition(|placed| match placed.standing {
                Standing::Running => true,
                Standing::Finished => planted!("finished-in-lineup"),
                Standing::Departed | Standing::Dead => false,
            });
        let was: Vec<Option<Seat>> = staying
            .iter()
            .map(|placed| Some(placed.info.seat))
            .chain(newcomers.iter().map(|_| None))
            .collect();
        let epoch = Epoch(self.epoch.0 + u32::from(!planted!("epoch-reused")));
        let fresh = newcomers.into_iter().map(|info| Placed {
            info,
            standing: Standing::Running,
            progress: None,
            since: epoch,
        });
        let mut placed: Vec<Placed> = staying.into_iter().cloned().chain(fresh).collect();
        for (seat, placed) in placed.iter_mut().enumerate() {
            placed.info.seat = Seat(seat as u32);
        }
        let mut past = self.past.clone();
        past.extend(gone.into_iter().cloned());
        // A flock that changes for ever must not remember for ever; who still listens is kept.
        while past.len() > PAST_MAX
            && let Some(at) = past.iter().position(|placed| placed.standing != Standing::Finished)
        {
            past.remove(at);
        }
        let deal = self.next_deal(&was);
        Roster { epoch, placed, deal, past }
    }

    /// The deal among members who sat there before, or nowhere.
    pub(crate) fn next_deal(&self, was: &[Option<Seat>]) -> Deal {
        if self.deal.is_empty() {
            return Deal::new();
        }
        let had = |seat: &Option<Seat>| {
            seat.map_or(Vec::new(), |seat| self.deal.get(seat.index()).cloned().unwrap_or_default())
        };
        let kept: Deal = was.iter().map(had).collect();
        let orphans = self
            .deal
            .iter()
            .enumerate()
            .filter(|(seat, _)| !was.contains(&Some(Seat(*seat as u32))))
            .flat_map(|(_, shards)| shards.clone())
            .collect();
        deal_again(kept, orphans)
    }
}

/// Whom the accusations point to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Suspicion {
    pub(crate) against: Seat,
    pub(crate) by: Seat,
    /// Whether it is no more than the first of a circle of accusations: the suspect may only have seen others close
    /// their links.
    pub(crate) is_circular: bool,
}

/// Whom the accusations point to: the first accused who accuses nobody else. A peer of the dead closes its
/// own links and is then accused in turn, so whoever accuses another is a witness before a culprit. Where all
/// are witnesses, two who accuse each other have lost the link between them, and one of them must go; the others only
/// saw them close theirs. Where one of those two saw that first, too (it stood still when the link broke), the
/// accusations go around in a circle, and nobody can tell who began.
pub(crate) fn suspicion(accusations: &[Accusation]) -> Option<Suspicion> {
    let is_witness = |seat: Seat| accusations.iter().any(|other| other.by == seat);
    let innocent = accusations.iter().find(|accusation| !is_witness(accusation.against));
    let accuses = |by: Seat, against: Seat| {
        accusations.iter().any(|other| other.by == by && other.against == against)
    };
    let mutual = accusations.iter().find(|accusation| accuses(accusation.against, accusation.by));
    let is_blind = planted!("cut-blames-others");
    let certain = innocent.or(mutual.filter(|_| !is_blind));
    let suspect = certain.or(accusations.first())?;
    let (against, by) = (suspect.against, suspect.by);
    Some(Suspicion { against, by, is_circular: certain.is_none() && !is_blind })
}

/// The more precise of a member's own last word and what survivors saw: the later step wins; for the
/// same step the member knows best what it was doing. Also says which survivor is to be cited.
pub(crate) fn last_known(
    placed: &Placed,
    accusations: &[Accusation],
) -> (Option<Progress>, Option<Seat>) {
    let against = accusations.iter().filter(|accusation| accusation.against == placed.info.seat);
    // Of equal steps the first accusation counts: later ones are consequences.
    let seen = against.rev().max_by_key(|accusation| accusation.progress.step);
    let best = match (&placed.progress, seen) {
        (Some(own), Some(seen)) if seen.progress.step > own.step => Some(seen.progress.clone()),
        (Some(own), _) if !own.phase.is_empty() => Some(own.clone()),
        (own, seen) => seen.map(|seen| seen.progress.clone()).or_else(|| own.clone()),
    };
    (best, seen.map(|seen| seen.by))
}
