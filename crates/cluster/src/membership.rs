//! The life of one job as its coordinator sees it, as a pure machine: gather members, give them seats,
//! start, watch, end. Events and the time go in, commands come out; a shell with sockets obeys them and a
//! simulator can, too (the manner of openraft's engine). Only this machine decides who is dead, so that all
//! survivors hear the same.
//!
//! Law: at most one of [`Command::Complete`] and [`Command::Abort`] is ever given, and with it every
//! member of a roster that still listens is told exactly once. A member's death is reported once.
//!
//! A job that can survive has epochs: whenever a member dies, leaves or is ready to join, those who still work
//! get a new roster and a new deal of the shards, and frames of the old epoch count for nothing. Epochs only
//! grow, and a member that was left out of one never returns under its old name.

mod accusing;
mod leaving;
mod losing;
mod returning;
mod waiting;

pub use crate::words::{Command, Event, Options, Shortage, Verdict, Wish};

use crate::delivery::{Delivery, Next};
use crate::detector::Detector;
use crate::roster::suspicion;
use crate::roster::{Accusation, MemberId, MemberInfo, Placed, Progress, Roster, Standing};
use crate::silence::Silences;
use accusing::can_wait;
use leaving::Heirless;
use returning::Written;
use starlings_core::{Blame, Epoch, FaultReport, Seat, Step, planted};
use std::net::SocketAddr;
use waiting::Short;

/// The machine.
#[derive(Clone, Debug)]
pub struct Membership {
    options: Options,
    detector: Detector<MemberId>,
    /// Members without a seat, in the order of arrival.
    lobby: Vec<MemberInfo>,
    /// Those of them who were told what to read.
    preparing: Vec<MemberId>,
    /// Members of a coordinator before this one that have not returned, and until when they may.
    absent: (Vec<MemberId>, u64),
    /// When something was last heard, be it only the clock, and how many pauses were excused since there was something to judge.
    awake: (u64, u32),
    /// What the next coordinator would know.
    written: Written,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// No job yet.
    Idle,
    /// Members are still missing.
    Gathering { wish: Wish, by: u64 },
    /// The job runs.
    Running(Box<Run>),
    /// Complete or aborted; the roster remains for those who ask.
    Ended(Option<Roster>),
}

#[derive(Clone, Debug)]
struct Run {
    wish: Wish,
    roster: Roster,
    accusations: Vec<Accusation>,
    /// Members whose connections closed, and until when a witness may say in which step they are missed.
    closed: Vec<(MemberId, u64)>,
    /// Whether this epoch began because the accusations of the last one went around in a circle.
    met_again: bool,
    /// Links between members that carry nothing any more.
    silences: Silences,
    /// Whether somebody has finished: all steps are made, whoever is lost from now on.
    is_done: bool,
    /// The first epoch in which somebody has.
    done_in: Option<Epoch>,
    /// Where the result is.
    delivery: Delivery,
    /// Why and until when everyone was asked to end politely.
    stop: Option<(String, u64)>,
    /// Where there are fewer workers than the job can do with.
    short: Option<Short>,
    /// The last worker, where it must go and a newcomer is on its way to whom it can give the model. Several, where nobody
    /// knows yet who else is there.
    heirless: Vec<Heirless>,
}

/// What a member is given up for.
struct Charge<'a> {
    how: &'a str,
    /// Its own word, if it gave one.
    blame: Option<Blame>,
    /// Whether it may come again, as new, should it be there after all.
    returns: bool,
}

impl Charge<'_> {
    fn lost(how: &str) -> Charge<'_> {
        Charge { how, blame: None, returns: true }
    }
}

impl Run {
    fn new(wish: Wish, roster: Roster) -> Run {
        let (accusations, closed, silences, delivery) = Default::default();
        let (is_done, done_in, stop, short, heirless) = Default::default();
        Run {
            wish,
            roster,
            accusations,
            closed,
            met_again: false,
            silences,
            is_done,
            done_in,
            delivery,
            stop,
            short,
            heirless,
        }
    }

    /// Whether newcomers are of any use: not when the work is about to end or has been brought to its end by one.
    fn takes_newcomers(&self) -> bool {
        let done = self.is_done && !planted!("newcomer-after-end");
        self.wish.least.is_some() && self.stop.is_none() && !done
    }

    /// Whether nobody works any more, and the work was brought to its end.
    fn is_over(&self) -> bool {
        let is_done = self.is_done || self.roster.all_ended();
        self.delivery.is_begun() || (self.roster.running() == 0 && is_done)
    }
}

impl Membership {
    /// A machine without members or job.
    #[must_use]
    pub fn new(options: Options) -> Membership {
        let detector = Detector::new(options.detector);
        let (lobby, preparing, stage) = (Vec::new(), Vec::new(), Stage::Idle);
        let (absent, awake, written) = ((Vec::new(), 0), (0, 0), Written::default());
        Membership { options, detector, lobby, preparing, absent, awake, written, stage }
    }

    /// Takes one event; adds what is to be done to `out`. `now` is in milliseconds and never runs backwards.
    pub fn on(&mut self, now: u64, event: Event, out: &mut Vec<Command>) {
        if matches!(self.stage, Stage::Ended(_)) {
            return;
        }
        self.excuse_own_pause(now);
        if !can_wait(&event) {
            self.bury_the_closed(now, out);
            // With the last of them the job may be over.
            if self.ended() {
                return;
            }
        }
        match event {
            Event::Submit(wish) => self.submit(now, wish, out),
            Event::Joined { member, host, pid, address } => {
                let seat = Seat(u32::MAX);
                self.joined(now, MemberInfo { member, seat, host, pid, address }, out);
            }
            Event::Beat { member } => self.detector.beat(now, member),
            Event::Phase { member, step, phase, waits, bytes } => {
                self.phase(now, member, Progress { step, phase, waits, bytes, since: now });
            }
            Event::Prepared { member } => self.prepared(now, member, out),
            Event::Leave { member } => self.leave(now, member, out),
            Event::Left { member } => self.left(now, member, out),
            Event::Finished { member, epoch, holds } => {
                self.finished(now, member, (epoch, holds), out);
            }
            Event::Delivered { member } => self.delivered(now, member),
            Event::Failed { member, epoch, blame, message } => {
                let blame = match blame {
                    Blame::Peer(Some(_)) if !self.is_current(epoch) => Blame::Peer(None),
                    blame => blame,
                };
                self.failed(now, member, (blame, message), out);
            }
            Event::Unheard { by, epoch, seats } => self.unheard(now, by, (epoch, &seats)),
            Event::Accuse { by, epoch, seat, phase, step } => {
                self.detector.beat(now, by);
                if self.is_current(epoch) || planted!("old-accusation") {
                    self.accuse(now, by, seat, Progress::at(step, phase));
                }
            }
            Event::Returned { member } => self.returned(now, member, out),
            Event::Tick => {}
            Event::Stop { blame, reason } => self.stop(now, blame, reason, out),
        }
        self.check_deadlines(now, out);
    }

    fn is_current(&self, epoch: Epoch) -> bool {
        self.roster().is_some_and(|roster| roster.epoch == epoch)
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

    /// Members whose silence would be noticed: those who wait for a seat, work, or have finished and are still here.
    pub fn watched(&self) -> impl Iterator<Item = MemberId> {
        self.detector.watched()
    }

    /// How long ago a member was last heard, in milliseconds, where its silence would be noticed.
    #[must_use]
    pub fn silence_ms(&self, now: u64, member: MemberId) -> Option<u64> {
        self.detector.silence_ms(now, member)
    }

    /// Whether the job is over.
    #[must_use]
    pub fn ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    fn submit(&mut self, now: u64, wish: Wish, out: &mut Vec<Command>) {
        if !matches!(self.stage, Stage::Idle) {
            return;
        }
        if wish.workers == 0 {
            self.abort(Blame::Caller, "a job needs at least one worker".into(), out);
            return;
        }
        self.stage = Stage::Gathering { wish, by: now.saturating_add(self.options.join_ms) };
        self.gather(now, out);
    }

    fn joined(&mut self, now: u64, info: MemberInfo, out: &mut Vec<Command>) {
        let seated = self.roster().is_some_and(|roster| {
            let mut known = roster.placed.iter().chain(&roster.past);
            known.any(|placed| placed.info.member == info.member)
        });
        if seated || self.lobby.iter().any(|waiting| waiting.member == info.member) {
            return;
        }
        self.watch(now, info.member, &info.address);
        self.lobby.push(info);
        self.gather(now, out);
        self.prepare(out);
    }

    /// Starts the job if everyone is here, or says how many are here.
    fn gather(&mut self, now: u64, out: &mut Vec<Command>) {
        let Stage::Gathering { wish, .. } = &self.stage else { return };
        if let Some(shortage) = self.shortage(now) {
            out.push(Command::Waiting(shortage));
            return;
        }
        let (want, wish) = (wish.workers, wish.clone());
        let mut placed = Vec::with_capacity(want as usize);
        for (seat, mut info) in (0..want).map(Seat).zip(self.lobby.drain(..want as usize)) {
            info.seat = seat;
            out.push(Command::Seat { member: info.member, seat });
            let (standing, progress, since) = (Standing::Running, None, Epoch(0));
            placed.push(Placed { info, standing, progress, since });
        }
        let (deal, past) = (wish.deal.clone(), Vec::new());
        let roster = Roster { epoch: Epoch(0), placed, deal, past };
        out.push(Command::Start { epoch: roster.epoch, roster: roster.infos() });
        self.stage = Stage::Running(Box::new(Run::new(wish, roster)));
        self.prepare(out);
    }

    /// Tells those who wait, as many as the job still takes, what to read before they can have a seat.
    fn prepare(&mut self, out: &mut Vec<Command>) {
        let Stage::Running(run) = &self.stage else { return };
        if !run.takes_newcomers() {
            return;
        }
        let room = (run.wish.most as usize).saturating_sub(run.roster.running());
        for info in self.lobby.iter().take(room) {
            if self.preparing.contains(&info.member) {
                continue;
            }
            self.preparing.push(info.member);
            let staying = run.roster.placed.iter().filter(|it| it.standing == Standing::Running);
            let was: Vec<Option<Seat>> =
                staying.map(|placed| Some(placed.info.seat)).chain([None]).collect();
            let shards = run.roster.next_deal(&was).pop().unwrap_or_default();
            out.push(Command::Prepare { member: info.member, shards });
        }
    }

    /// A newcomer is ready: it gets a seat in the next epoch, if the job still takes it.
    fn prepared(&mut self, now: u64, member: MemberId, out: &mut Vec<Command>) {
        self.detector.beat(now, member);
        let Stage::Running(run) = &self.stage else { return };
        let room = run.roster.running() < run.wish.most as usize && run.takes_newcomers();
        let at = self.lobby.iter().position(|info| info.member == member);
        let Some(at) = at.filter(|_| room && self.preparing.contains(&member)) else {
            // Whoever comes too late waits for another vacancy.
            self.preparing.retain(|it| *it != member);
            return;
        };
        let info = self.lobby.remove(at);
        self.preparing.retain(|it| *it != member);
        self.regroup(now, vec![info], out);
    }

    /// Begins the next epoch with those who still work, or waits for more of them.
    fn regroup(&mut self, now: u64, newcomers: Vec<MemberInfo>, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        let Some(least) = run.wish.least else { return };
        let have = run.roster.running() + newcomers.len();
        if have == 0 {
            return;
        }
        run.roster = run.roster.next(newcomers);
        run.met_again = false;
        if !planted!("accusations-kept") {
            run.accusations.clear();
        }
        if !planted!("silence-kept") {
            run.silences.clear();
        }
        // What is left to do when all steps are made needs nobody else.
        let is_done = run.is_done && !planted!("minimum-at-end");
        let is_short = (have as u32) < least && !is_done;
        if is_short && !planted!("below-minimum") {
            let by = now.saturating_add(self.options.join_ms);
            run.short.get_or_insert(Short { by, after: None });
            out.extend(self.shortage(now).map(Command::Waiting));
        } else {
            if !planted!("short-for-ever") {
                run.short = None;
            }
            let roster = &run.roster;
            let (epoch, deal) = (roster.epoch, roster.deal.clone());
            out.push(Command::Regroup { epoch, roster: roster.infos(), deal });
        }
        self.prepare(out);
    }

    /// Whoever is on another host is given the time that a path takes to be found again.
    fn watch(&mut self, now: u64, member: MemberId, address: &str) {
        let elsewhere = |it: SocketAddr| !it.ip().to_canonical().is_loopback();
        let path_ms = match address.parse().is_ok_and(elsewhere) {
            true => self.options.path_ms,
            false => 0,
        };
        self.detector.watch_patiently(now, member, path_ms);
    }

    fn phase(&mut self, now: u64, member: MemberId, progress: Progress) {
        self.detector.beat(now, member);
        let Stage::Running(run) = &mut self.stage else { return };
        if let Some(placed) = run.roster.find(member) {
            let before = placed.progress.take();
            let same = before.filter(|it| (it.step, &it.phase) == (progress.step, &progress.phase));
            let since = same.map_or(progress.since, |before| before.since);
            placed.progress = Some(Progress { since, ..progress });
        }
    }

    fn finished(
        &mut self,
        now: u64,
        member: MemberId,
        (epoch, holds): (Epoch, bool),
        out: &mut Vec<Command>,
    ) {
        self.detector.beat(now, member);
        let Stage::Running(run) = &mut self.stage else { return };
        let current = run.roster.epoch;
        let Some(placed) = run.roster.find(member) else { return };
        if placed.standing != Standing::Running {
            return;
        }
        placed.standing = Standing::Finished;
        if holds {
            run.delivery.hold(member);
        }
        // It got all it needed: whatever it thought it had lost, it had not.
        let seat = placed.info.seat;
        run.is_done = true;
        run.done_in = Some(run.done_in.map_or(epoch, |first| first.min(epoch)));
        run.accusations.retain(|accusation| accusation.by != seat);
        run.silences.report(now, seat, &[]);
        // Whoever came after the epoch that did the work has nothing left to do.
        let mut late = Vec::new();
        for placed in &mut run.roster.placed {
            if placed.standing == Standing::Running && placed.since > epoch {
                placed.standing = Standing::Departed;
                late.push(placed.info.member);
            }
        }
        for member in late {
            out.push(Command::Tell { member, verdict: Verdict::Released });
            self.detector.forget(member);
        }
        self.complete_if_done(now, out);
        // In a later epoch the others would wait for it in vain.
        if epoch < current && !planted!("finished-elsewhere") {
            self.regroup(now, Vec::new(), out);
        }
    }

    /// Whether a result of this member counts: it works or has finished, and was not given up since.
    #[must_use]
    pub fn may_deliver(&self, member: MemberId) -> bool {
        let Stage::Running(run) = &self.stage else { return false };
        let seated = |it: &Standing| matches!(it, Standing::Running | Standing::Finished);
        let mut placed = run.roster.placed.iter().chain(&run.roster.past);
        placed.any(|placed| placed.info.member == member && seated(&placed.standing))
    }

    fn delivered(&mut self, now: u64, member: MemberId) {
        self.detector.beat(now, member);
        let counts = self.may_deliver(member);
        if let Stage::Running(run) = &mut self.stage
            && counts
        {
            run.delivery.arrive();
        }
    }

    /// When all have finished and the result is here, or nobody can send it any more, the job is complete.
    fn complete_if_done(&mut self, now: u64, out: &mut Vec<Command>) {
        let is_awaited = !self.absent.0.is_empty();
        let Stage::Running(run) = &mut self.stage else { return };
        // Whoever has not returned to a new coordinator has to be told of the end, too, and may have the result.
        if !run.is_over() || is_awaited {
            return;
        }
        let stopped = run.stop.as_ref().map(|(reason, _)| reason.clone());
        if stopped.is_none() {
            match run.delivery.next(now, &run.roster, self.options.deliver_ms) {
                Next::Over => {}
                Next::Wait => return,
                Next::Ask(member) => {
                    out.push(Command::Tell { member, verdict: Verdict::Deliver });
                    return;
                }
            }
        }
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
            self.accuse(now, member, accused, Progress::at(step, message));
            return;
        }
        match &mut self.stage {
            Stage::Running(run) => {
                let Some(placed) = run.roster.find(member) else { return };
                match placed.standing {
                    Standing::Departed => return,
                    // What befalls it after its work does not undo that.
                    Standing::Finished => return self.lost(now, member, &message, out),
                    _ => {}
                }
                let seat = placed.info.seat;
                self.condemn(
                    now,
                    seat,
                    Charge { blame: Some(blame), ..Charge::lost(&message) },
                    out,
                );
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

    /// A member says whom it does not hear. Only who works hears at all, and only who is there can be heard.
    fn unheard(&mut self, now: u64, by: MemberId, (epoch, seats): (Epoch, &[Seat])) {
        self.detector.beat(now, by);
        if !self.is_current(epoch) {
            return;
        }
        let Stage::Running(run) = &mut self.stage else { return };
        let Some(witness) = run.roster.find(by).filter(|it| it.standing == Standing::Running)
        else {
            return;
        };
        let by = witness.info.seat;
        let placed = &run.roster.placed;
        let here = |seat: &Seat| {
            let standing = placed.get(seat.index()).map(|placed| placed.standing);
            matches!(standing, Some(Standing::Running | Standing::Finished))
        };
        let seats: Vec<Seat> = seats.iter().copied().filter(here).collect();
        run.silences.report(now, by, &seats);
    }

    /// Two who are heard here and do not hear each other cannot work together: one of them goes.
    fn part_the_unheard(&mut self, now: u64, out: &mut Vec<Command>) {
        let Stage::Running(run) = &mut self.stage else { return };
        let grace_ms = self.options.silence_ms;
        let member = |seat: Seat| run.roster.placed[seat.index()].info.member;
        let is_heard = |seat: Seat| {
            let silence = self.detector.silence_ms(now, member(seat));
            silence.is_some_and(|silence| silence < grace_ms)
        };
        let judged = run.silences.judge(now, grace_ms, is_heard);
        let judged = judged.into_iter().map(|(seat, witness)| (member(seat), member(witness)));
        for (gone, witness) in judged.collect::<Vec<_>>() {
            // Every loss may change all seats.
            let Stage::Running(run) = &mut self.stage else { return };
            let Some((host, progress)) = run.roster.find(witness).map(|it| {
                let step = it.progress.as_ref().map_or(Step(0), |progress| progress.step);
                (it.info.host.clone(), Progress::at(step, "a silent link".into()))
            }) else {
                continue;
            };
            let here = |it: &Placed| matches!(it.standing, Standing::Running | Standing::Finished);
            let at = |it: &Placed| it.info.member == gone && here(it);
            let Some(placed) = run.roster.placed.iter().find(|it| at(it)) else { continue };
            let seat = placed.info.seat;
            self.accuse(now, witness, seat, progress);
            let how = format!("the link between it and {host} is silent, and both are heard here");
            // Nobody could tell it when that link is good again.
            self.condemn(now, seat, Charge { returns: false, ..Charge::lost(&how) }, out);
        }
    }

    /// A member is gone, by a closed connection or by silence.
    fn lost(&mut self, now: u64, member: MemberId, how: &str, out: &mut Vec<Command>) {
        // Of several who fall silent together the first may have ended it all.
        if self.ended() {
            return;
        }
        if let Some(at) = self.lobby.iter().position(|info| info.member == member) {
            self.lobby.remove(at);
            self.preparing.retain(|it| *it != member);
            self.forget(member, out);
            self.gather(now, out);
            self.prepare(out);
            return;
        }
        let Stage::Running(run) = &mut self.stage else { return };
        if let Some(gone) = run.roster.past.iter_mut().find(|placed| placed.info.member == member) {
            if gone.standing == Standing::Finished {
                gone.standing = Standing::Departed;
                self.forget(member, out);
            }
            return;
        }
        let survives = run.wish.least.is_some();
        let Some(placed) = run.roster.find(member) else { return };
        let seat = placed.info.seat;
        match placed.standing {
            Standing::Finished => {
                placed.standing = Standing::Departed;
                self.forget(member, out);
            }
            Standing::Running => {
                // A witness that leaves after its testimony left because of what it saw, where a death ends all.
                let testified = run.accusations.iter().any(|accusation| accusation.by == seat);
                match suspicion(&run.accusations).map(|it| (it.against, it.by)) {
                    Some((accused, by)) if testified && accused != seat && !survives => {
                        // It is the other who failed: this one has gone because of it.
                        placed.standing = Standing::Departed;
                        self.forget(member, out);
                        let how = format!("{by} lost its connection to it");
                        self.condemn(now, accused, Charge::lost(&how), out);
                    }
                    _ => self.condemn(now, seat, Charge::lost(how), out),
                }
            }
            Standing::Departed | Standing::Dead => {}
        }
    }

    fn stop(&mut self, now: u64, blame: Blame, reason: String, out: &mut Vec<Command>) {
        if self.is_stopped_by_last(blame, &reason) {
            return;
        }
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
            self.lost(now, member, &format!("nothing was heard of it for {silence} ms"), out);
        }
        if now >= self.absent.1 {
            self.give_up_the_absent(now, out);
        }
        if self.have_witnesses_spoken(now) {
            self.bury_the_closed(now, out);
        }
        self.give_up_the_stuck(now, out);
        self.release_the_last(now, out);
        if !planted!("silence-ignored") {
            self.part_the_unheard(now, out);
        }
        let is_resumed = self.absent.1 > 0;
        if let Stage::Running(run) = &self.stage
            && (run.delivery.is_begun() || (is_resumed && run.is_over()))
        {
            self.complete_if_done(now, out);
        }
        match &self.stage {
            Stage::Gathering { by, .. } if now >= *by => self.give_up_waiting(now, out),
            Stage::Running(run) => {
                if let Some(suspicion) = self.due_suspicion(now, run) {
                    self.act_on(now, suspicion, out);
                } else if run.short.as_ref().is_some_and(|short| now >= short.by) {
                    self.give_up_waiting(now, out);
                } else if let Some((reason, _)) = run.stop.as_ref().filter(|(_, by)| now >= *by) {
                    let seconds = self.options.stop_ms as f64 / 1000.0;
                    let reason = format!("{reason}: not all workers ended within {seconds} s");
                    self.abort(Blame::Interrupted, reason, out);
                }
            }
            _ => {}
        }
    }

    /// Slowness is reported, not punished; but whoever beats and yet does nothing holds up all others for ever.
    fn give_up_the_stuck(&mut self, now: u64, out: &mut Vec<Command>) {
        let Stage::Running(run) = &self.stage else { return };
        if run.wish.least.is_none() {
            return;
        }
        let limit = run.wish.stall_ms;
        let stuck = run.roster.placed.iter().find(|placed| {
            let long = |it: &Progress| !it.waits && now.saturating_sub(it.since) >= limit;
            placed.standing == Standing::Running && placed.progress.as_ref().is_some_and(long)
        });
        if let Some(seat) = stuck.map(|placed| placed.info.seat) {
            let how = format!("it made no progress for {} s", limit / 1000);
            self.condemn(now, seat, Charge::lost(&how), out);
        }
    }

    fn abort(&mut self, blame: Blame, reason: String, out: &mut Vec<Command>) {
        self.end(&Verdict::Abort { reason: reason.clone() }, out);
        out.push(Command::Abort { blame, reason });
    }

    /// Tells everyone concerned and ends: those in a roster, and those who were waiting for a seat.
    fn end(&mut self, verdict: &Verdict, out: &mut Vec<Command>) {
        let concerned: Vec<MemberId> = match &self.stage {
            Stage::Running(run) => {
                let waiting = self.lobby.iter().map(|info| info.member);
                run.roster.listeners().into_iter().chain(waiting).collect()
            }
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
mod accusing_tests;
#[cfg(test)]
mod delivery_tests;
#[cfg(test)]
mod ending_tests;
#[cfg(test)]
mod losing_tests;
#[cfg(test)]
mod path_tests;
#[cfg(test)]
mod returning_tests;
#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
#[cfg(test)]
mod waiting_tests;
