//! The life of one job as its coordinator sees it, as a pure machine: gather members, give them seats,
//! start, watch, end. Events and the time go in, commands come out; a shell with sockets obeys them and a
//! simulator can, too (the manner of openraft's engine). Only this machine decides who is dead, so that all
//! survivors hear the same.
//!
//! Law: at most one of [`Command::Complete`] and [`Command::Abort`] is ever given, and with it every
//! member of the roster that still listens is told exactly once. A member's death is reported once.
//!
//! Today a death ends the job. Epochs and rosters are there so that survivors can go on in a later one.

use crate::detector::{self, Detector};
use crate::roster::{Accusation, MemberId, MemberInfo, Placed, Progress, Roster, Standing};
use crate::roster::{culprit, last_known};
use starlings_core::{Blame, Epoch, FaultReport, Seat, Step};

/// What happened. Events of members that are not known are ignored.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// A job wants to run. Only the first is heard: a machine runs one job.
    Submit {
        /// How many workers it needs.
        workers: u32,
    },
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
    },
    /// A member's connection closed.
    Left {
        /// Whose.
        member: MemberId,
    },
    /// A member has done its work.
    Finished {
        /// Who.
        member: MemberId,
    },
    /// A member reports its own end. One that blames a peer is taken as accusing it.
    Failed {
        /// Who.
        member: MemberId,
        /// Who must act.
        blame: Blame,
        /// The whole message.
        message: String,
    },
    /// A survivor lost its peer.
    Accuse {
        /// The survivor.
        by: MemberId,
        /// The peer.
        seat: Seat,
        /// What the survivor was doing.
        phase: String,
        /// In which step.
        step: Step,
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

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Not everyone is here yet.
    Waiting {
        /// Members here.
        have: u32,
        /// Members needed.
        want: u32,
    },
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
    /// All are done: go.
    Done,
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
    /// For an accused member that still beats to be found dead by other means.
    pub grace_ms: u64,
    /// How silence is judged.
    pub detector: detector::Options,
}

impl Default for Options {
    fn default() -> Options {
        let detector = detector::Options::default();
        Options { join_ms: 60_000, stop_ms: 30_000, grace_ms: detector.timeout_ms, detector }
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Membership {
    options: Options,
    detector: Detector<MemberId>,
    /// Members without a seat, in the order of arrival.
    lobby: Vec<MemberInfo>,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// No job yet.
    Idle,
    /// Members are still missing.
    Gathering { want: u32, by: u64 },
    /// The job runs.
    Running(Run),
    /// Complete or aborted; the roster remains for those who ask.
    Ended(Option<Roster>),
}

#[derive(Clone, Debug)]
struct Run {
    roster: Roster,
    accusations: Vec<Accusation>,
    /// Why and until when everyone was asked to end politely.
    stop: Option<(String, u64)>,
}

impl Membership {
    /// A machine without members or job.
    #[must_use]
    pub fn new(options: Options) -> Membership {
        let detector = Detector::new(options.detector);
        Membership { options, detector, lobby: Vec::new(), stage: Stage::Idle }
    }

    /// Takes one event; adds what is to be done to `out`. `now` is in milliseconds and never runs backwards.
    pub fn on(&mut self, now: u64, event: Event, out: &mut Vec<Command>) {
        if matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        match event {
            Event::Submit { workers } => self.submit(now, workers, out),
            Event::Joined { member, host, pid, address } => {
                let seat = Seat(u32::MAX);
                self.joined(now, MemberInfo { member, seat, host, pid, address }, out);
            }
            Event::Beat { member } => self.detector.beat(now, member),
            Event::Phase { member, step, phase } => {
                self.phase(now, member, Progress { step, phase })
            }
            Event::Left { member } => self.lost(member, "its connection closed", out),
            Event::Finished { member } => self.finished(now, member, out),
            Event::Failed { member, blame, message } => {
                self.failed(now, member, (blame, message), out)
            }
            Event::Accuse { by, seat, phase, step } => {
                self.detector.beat(now, by);
                self.accuse(now, by, seat, Progress { step, phase });
            }
            Event::Tick => {}
            Event::Stop { blame, reason } => self.stop(now, blame, reason, out),
        }
        self.check_deadlines(now, out);
    }

    /// The roster, once the job has started; also after its end.
    #[must_use]
    pub fn roster(&self) -> Option<&Roster> {
        match &self.stage {
            Stage::Running(run) => Some(&run.roster),
            Stage::Ended(roster) => roster.as_ref(),
            Stage::Idle | Stage::Gathering { .. } => None,
        }
    }

    /// Members that wait without a seat, in the order of arrival.
    #[must_use]
    pub fn lobby(&self) -> &[MemberInfo] {
        &self.lobby
    }

    /// Whether the job is over.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    fn submit(&mut self, now: u64, want: u32, out: &mut Vec<Command>) {
        if !matches!(self.stage, Stage::Idle) {
            return;
        }
        if want == 0 {
            self.abort(Blame::Caller, "a job needs at least one worker".into(), out);
            return;
        }
        self.stage = Stage::Gathering { want, by: now.saturating_add(self.options.join_ms) };
        self.gather(out);
    }

    fn joined(&mut self, now: u64, info: MemberInfo, out: &mut Vec<Command>) {
        let seated = self.roster().is_some_and(|roster| {
            roster.placed.iter().any(|placed| placed.info.member == info.member)
        });
        if seated || self.lobby.iter().any(|waiting| waiting.member == info.member) {
            return;
        }
        self.detector.watch(now, info.member);
        self.lobby.push(info);
        self.gather(out);
    }

    /// Starts the job if everyone is here, or says how many are here.
    fn gather(&mut self, out: &mut Vec<Command>) {
        let Stage::Gathering { want, .. } = self.stage else { return };
        if self.lobby.len() < want as usize {
            out.push(Command::Waiting { have: self.lobby.len() as u32, want });
            return;
        }
        let mut placed = Vec::with_capacity(want as usize);
        for (seat, mut info) in (0..want).map(Seat).zip(self.lobby.drain(..want as usize)) {
            info.seat = seat;
            out.push(Command::Seat { member: info.member, seat });
            placed.push(Placed { info, standing: Standing::Running, progress: None });
        }
        let roster = Roster { epoch: Epoch(0), placed };
        out.push(Command::Start { epoch: roster.epoch, roster: roster.infos() });
        self.stage = Stage::Running(Run { roster, accusations: Vec::new(), stop: None });
    }

    fn phase(&mut self, now: u64, member: MemberId, progress: Progress) {
        self.detector.beat(now, member);
        let Stage::Running(run) = &mut self.stage else { return };
        if let Some(placed) = run.roster.find(member) {
            placed.progress = Some(progress);
        }
    }

    fn finished(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        self.detector.beat(now, member);
        let Stage::Running(run) = &mut self.stage else { return };
        let Some(placed) = run.roster.find(member) else { return };
        if placed.standing != Standing::Running {
            return;
        }
        placed.standing = Standing::Finished;
        // It got all it needed: whatever it thought it had lost, it had not.
        let seat = placed.info.seat;
        run.accusations.retain(|accusation| accusation.by != seat);
        self.complete_if_done(out);
    }

    fn complete_if_done(&mut self, out: &mut Vec<Command>) {
        let Stage::Running(run) = &self.stage else { return };
        if !run.roster.all_finished() {
            return;
        }
        let stopped = run.stop.as_ref().map(|(reason, _)| reason.clone());
        self.end(&Verdict::Done, out);
        out.push(Command::Complete { stopped });
    }

    fn failed(
        &mut self,
        now: u64,
        member: MemberId,
        (blame, message): (Blame, String),
        out: &mut Vec<Command>,
    ) {
        self.detector.beat(now, member);
        if let Blame::Peer(Some(accused)) = blame
            && let Stage::Running(run) = &mut self.stage
            && let Some(witness) = run.roster.find(member)
            && witness.info.seat != accused
        {
            let step = witness.progress.as_ref().map_or(Step(0), |progress| progress.step);
            self.accuse(now, member, accused, Progress { step, phase: message });
            return;
        }
        match &mut self.stage {
            Stage::Running(run) => {
                let Some(placed) = run.roster.find(member) else { return };
                if placed.standing == Standing::Departed {
                    return;
                }
                let seat = placed.info.seat;
                self.condemn(seat, &message, Some(blame), out);
            }
            Stage::Idle | Stage::Gathering { .. } => {
                let Some(at) = self.lobby.iter().position(|info| info.member == member) else {
                    return;
                };
                let info = self.lobby.remove(at);
                self.forget(member, out);
                if matches!(self.stage, Stage::Gathering { .. }) {
                    let reason =
                        format!("a worker on {} failed before the start: {message}", info.host);
                    out.push(Command::Fault(FaultReport {
                        rank: None,
                        host: Some(info.host),
                        phase: "joining".into(),
                        step: None,
                        seen_by: None,
                        message: reason.clone(),
                    }));
                    self.abort(blame, reason, out);
                }
            }
            Stage::Ended(_) => {}
        }
    }

    fn accuse(&mut self, now: u64, by: MemberId, against: Seat, progress: Progress) {
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

    /// A member is gone, by a closed connection or by silence.
    fn lost(&mut self, member: MemberId, how: &str, out: &mut Vec<Command>) {
        if let Some(at) = self.lobby.iter().position(|info| info.member == member) {
            self.lobby.remove(at);
            self.forget(member, out);
            self.gather(out);
            return;
        }
        let Stage::Running(run) = &mut self.stage else { return };
        let Some(placed) = run.roster.find(member) else { return };
        let seat = placed.info.seat;
        match placed.standing {
            Standing::Finished => {
                placed.standing = Standing::Departed;
                self.forget(member, out);
            }
            Standing::Running => {
                placed.standing = Standing::Dead;
                // A witness that leaves after its testimony left because of what it saw.
                let testified = run.accusations.iter().any(|accusation| accusation.by == seat);
                match culprit(&run.accusations).map(|it| (it.against, it.by)) {
                    Some((accused, by)) if testified && accused != seat => {
                        self.forget(member, out);
                        self.condemn(
                            accused,
                            &format!("{by} lost its connection to it"),
                            None,
                            out,
                        );
                    }
                    _ => self.condemn(seat, how, None, out),
                }
            }
            Standing::Departed | Standing::Dead => {}
        }
    }

    /// Reports one member's failure and ends the job. Blame is the member's own word, if it gave one.
    fn condemn(&mut self, seat: Seat, how: &str, blame: Option<Blame>, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        let placed = &mut run.roster.placed[seat.index()];
        placed.standing = Standing::Dead;
        let (progress, seen_by) = last_known(placed, &run.accusations);
        let MemberInfo { member, host, pid, .. } = placed.info.clone();
        let (step, phase) = match progress {
            Some(progress) => (Some(progress.step), progress.phase),
            None => (None, "starting".to_owned()),
        };
        let during = step.map_or(phase.clone(), |step| format!("{step}, {phase}"));
        let verb = if blame.is_some() { "failed" } else { "was lost" };
        let message = format!("{seat} on {host} (process {pid}) {verb} in {during}: {how}");
        let host = Some(host);
        let reason = message.clone();
        out.push(Command::Fault(FaultReport {
            rank: Some(seat),
            host,
            phase,
            step,
            seen_by,
            message,
        }));
        self.forget(member, out);
        self.abort(blame.unwrap_or(Blame::Peer(Some(seat))), reason, out);
    }

    fn stop(&mut self, now: u64, blame: Blame, reason: String, out: &mut Vec<Command>) {
        match &mut self.stage {
            Stage::Running(run) if run.stop.is_none() && blame == Blame::Interrupted => {
                run.stop = Some((reason, now.saturating_add(self.options.stop_ms)));
                let running =
                    run.roster.placed.iter().filter(|it| it.standing == Standing::Running);
                out.extend(running.map(|placed| Command::Tell {
                    member: placed.info.member,
                    verdict: Verdict::Stop,
                }));
            }
            _ => self.abort(blame, reason, out),
        }
    }

    fn check_deadlines(&mut self, now: u64, out: &mut Vec<Command>) {
        for member in self.detector.silent(now) {
            let silence = self.detector.silence_ms(now, member).unwrap_or_default();
            self.lost(member, &format!("nothing was heard of it for {silence} ms"), out);
        }
        match &self.stage {
            Stage::Gathering { want, by } if now >= *by => {
                let (have, seconds) = (self.lobby.len(), self.options.join_ms as f64 / 1000.0);
                let reason = format!("only {have} of {want} workers joined within {seconds} s");
                self.abort(Blame::Peer(None), reason, out);
            }
            Stage::Running(run) => {
                let due = run
                    .accusations
                    .iter()
                    .any(|it| now >= it.at.saturating_add(self.options.grace_ms));
                if let Some(accusation) = culprit(&run.accusations).filter(|_| due) {
                    let (accused, by) = (accusation.against, accusation.by);
                    let how = format!("{by} lost its connection to it");
                    self.condemn(accused, &how, None, out);
                } else if let Some((reason, _)) = run.stop.as_ref().filter(|(_, by)| now >= *by) {
                    let seconds = self.options.stop_ms as f64 / 1000.0;
                    let reason = format!("{reason}: not all workers ended within {seconds} s");
                    self.abort(Blame::Interrupted, reason, out);
                }
            }
            _ => {}
        }
    }

    fn abort(&mut self, blame: Blame, reason: String, out: &mut Vec<Command>) {
        self.end(&Verdict::Abort { reason: reason.clone() }, out);
        out.push(Command::Abort { blame, reason });
    }

    /// Tells everyone concerned and ends. Before the start those are the members that were waiting for it.
    fn end(&mut self, verdict: &Verdict, out: &mut Vec<Command>) {
        let concerned: Vec<MemberId> = match &self.stage {
            Stage::Running(run) => run.roster.listeners(),
            Stage::Idle | Stage::Gathering { .. } => {
                self.lobby.iter().map(|info| info.member).collect()
            }
            Stage::Ended(_) => unreachable!("no event is taken after the end"),
        };
        out.extend(
            concerned.into_iter().map(|member| Command::Tell { member, verdict: verdict.clone() }),
        );
        self.stage = match std::mem::replace(&mut self.stage, Stage::Ended(None)) {
            Stage::Running(run) => Stage::Ended(Some(run.roster)),
            _ => Stage::Ended(None),
        };
    }

    fn forget(&mut self, member: MemberId, out: &mut Vec<Command>) {
        if self.detector.forget(member) {
            out.push(Command::Forget { member });
        }
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
