//! What the membership machine hears and says.

use crate::deal::Deal;
use crate::detector;
use crate::roster::{MemberId, MemberInfo};
use serde::{Deserialize, Serialize};
use starlings_core::{Blame, Epoch, FaultReport, Seat, Step};

/// What happened. Events of members that are not known are ignored.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A job wants to run. Only the first is heard: a machine runs one job.
    Submit(Wish),
    /// A member is connected, and its peers can reach it.
    Joined {
        /// Who.
        member: MemberId,
        /// Its host.
        host: String,
        /// Its process there.
        pid: u32,
        /// Where its peers reach it.
        address: String,
    },
    /// A sign of life.
    Beat {
        /// Whose.
        member: MemberId,
    },
    /// A sign of life with progress.
    Phase {
        /// Whose.
        member: MemberId,
        /// The step in progress.
        step: Step,
        /// What is being done.
        phase: String,
        /// Whether that is waiting for others.
        waits: bool,
        /// Bytes sent so far.
        bytes: u64,
    },
    /// A member without a seat has read what it would work on.
    Prepared {
        /// Who.
        member: MemberId,
    },
    /// A member must go, and says so in time.
    Leave {
        /// Who.
        member: MemberId,
    },
    /// A member's connection closed.
    Left {
        /// Whose.
        member: MemberId,
    },
    /// A member has done its work, together with all others of its epoch.
    Finished {
        /// Who.
        member: MemberId,
        /// The epoch in which it did.
        epoch: Epoch,
        /// Whether it has the result, and can send it if asked.
        holds: bool,
    },
    /// The result has arrived.
    Delivered {
        /// Who sent it.
        member: MemberId,
    },
    /// A member reports its own end. One that blames a peer of this epoch is taken as accusing it.
    Failed {
        /// Who.
        member: MemberId,
        /// The epoch in which it failed: in another the seat that it blames is someone else's.
        epoch: Epoch,
        /// Who must act.
        blame: Blame,
        /// The whole message.
        message: String,
    },
    /// A survivor lost its peer.
    Accuse {
        /// The survivor.
        by: MemberId,
        /// The epoch in which it did: in another the seat is someone else's.
        epoch: Epoch,
        /// The peer.
        seat: Seat,
        /// What the survivor was waiting for.
        phase: String,
        /// In which step.
        step: Step,
    },
    /// A member hears nothing of these peers, though no link has broken. Whoever is not listed is heard (again).
    Unheard {
        /// The member.
        by: MemberId,
        /// The epoch in which they had these seats.
        epoch: Epoch,
        /// The peers.
        seats: Vec<Seat>,
    },
    /// A member that a coordinator before this one had seated is connected again.
    Returned {
        /// Who.
        member: MemberId,
    },
    /// Time passed. Must come several times within the detector's timeout.
    Tick,
    /// Someone asked for the end: politely at first, at once the second time.
    Stop {
        /// Who must act; [`Blame::Interrupted`] when a person asked.
        blame: Blame,
        /// Why.
        reason: String,
    },
}

/// What a job wants of its members.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wish {
    /// Workers at the start.
    pub workers: u32,
    /// Workers that it takes at most, if more come later.
    pub most: u32,
    /// Workers without whom it waits; `None`: whoever is lost, the job is.
    pub least: Option<u32>,
    /// The shards of each seat at the start; empty where the job's plan deals them itself.
    pub deal: Deal,
    /// How long a member may be at the same thing without waiting for others before it is given up.
    pub stall_ms: u64,
}

impl Wish {
    /// A job of so many workers that ends with the first of them.
    #[must_use]
    pub fn fixed(workers: u32) -> Wish {
        let (most, least, deal, stall_ms) = (workers, None, Deal::new(), u64::MAX);
        Wish { workers, most, least, deal, stall_ms }
    }
}

/// A job that waits for workers: should not enough come in time, it is given up.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Shortage {
    /// Members here.
    pub have: u32,
    /// Members needed.
    pub want: u32,
    /// For how many more seconds it waits.
    pub seconds_left: f64,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Not everyone is here yet, or not enough are left.
    Waiting(Shortage),
    /// A member has its place.
    Seat {
        /// Who.
        member: MemberId,
        /// Where.
        seat: Seat,
    },
    /// Everyone has a place: send the roster to all of them and begin.
    Start {
        /// The epoch that begins.
        epoch: Epoch,
        /// Everyone, in the order of their seats.
        roster: Vec<MemberInfo>,
    },
    /// A member may take a seat as soon as it has read these shards.
    Prepare {
        /// Who.
        member: MemberId,
        /// What it would have.
        shards: Vec<u32>,
    },
    /// Members have changed: send the new roster and the new deal to all who are in it.
    Regroup {
        /// The epoch that begins.
        epoch: Epoch,
        /// Everyone, in the order of their seats.
        roster: Vec<MemberInfo>,
        /// The shards of each seat.
        deal: Deal,
    },
    /// Tell one member something.
    Tell {
        /// Whom.
        member: MemberId,
        /// What.
        verdict: Verdict,
    },
    /// A member is no longer part of this: close its connection and hear nothing more of it.
    Forget {
        /// Who.
        member: MemberId,
    },
    /// A member failed: publish it. At most once for each member.
    Fault(FaultReport),
    /// The job is done. Everyone has been told.
    Complete {
        /// Why it ended early, if someone asked for that.
        stopped: Option<String>,
    },
    /// The job is over without success. Everyone who listens has been told.
    Abort {
        /// Who must act: decides the exit code.
        blame: Blame,
        /// Why.
        reason: String,
    },
}

/// What a member is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// End politely: finish the step, write a checkpoint, report that you are done.
    Stop,
    /// All are done, and the result is missing: send it.
    Deliver,
    /// All are done: go.
    Done,
    /// The others go on without you, as you asked: go.
    Released,
    /// The others go on without you, or cannot without you, since you were taken for lost: go.
    GivenUp {
        /// Why.
        reason: String,
        /// Whether it may come again, as new.
        returns: bool,
    },
    /// The job is over without success: go.
    Abort {
        /// Why.
        reason: String,
    },
}

/// How long things may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// For all members to join after the job was submitted.
    pub join_ms: u64,
    /// For all members to end politely after being asked to.
    pub stop_ms: u64,
    /// For a member that was asked for the result to send it.
    pub deliver_ms: u64,
    /// For members to return to a new coordinator.
    pub return_ms: u64,
    /// For an accused member that still beats to be found dead by other means.
    pub grace_ms: u64,
    /// For those who are left to say in which step they miss a member whose connection closed: its own last word may be
    /// hundreds of steps old.
    pub witness_ms: u64,
    /// For a link between two members to be heard again once one of them has reported that it is silent.
    pub silence_ms: u64,
    /// For the path to a member on another host to be found again. After a link was down for a moment, a host asks anew for
    /// the address of its neighbour; a question that got lost is repeated only after a second (RFC 1122, 2.3.2.1), and
    /// until then nothing leaves it.
    pub path_ms: u64,
    /// How silence is judged.
    pub detector: detector::Options,
}

impl Default for Options {
    fn default() -> Options {
        let detector = detector::Options::default();
        let (join_ms, stop_ms, deliver_ms, return_ms) = (60_000, 30_000, 60_000, 5_000);
        let (grace_ms, silence_ms, path_ms) =
            (detector.timeout_ms, detector.timeout_ms / 2, detector.timeout_ms / 2);
        Options {
            join_ms,
            stop_ms,
            deliver_ms,
            return_ms,
            grace_ms,
            witness_ms: 200,
            silence_ms,
            path_ms,
            detector,
        }
    }
}
