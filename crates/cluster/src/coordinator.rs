//! The coordinator's shell: sockets, threads and the clock around the pure membership machine. It serves one
//! job: lets workers in, hands out seats, relays events and the model to whoever submitted the job, and ends.
//!
//! With a journal it may be killed at any moment: another one takes over its job, its ticket and its last epoch, on the
//! same address or another. Workers go on meanwhile, and return when they find it.

mod returning;
mod status;

use crate::bytes::Bytes;
use crate::control::Control;
use crate::deal::Deal;
use crate::journal::{Journal, Record};
use crate::membership::{
    Command, Event as Happening, Membership, Options, Shortage, Verdict, Wish,
};
use crate::protocol::{
    Assignment, FromClient, FromWorker, Lineup, Message, Peer, ToClient, ToWorker, Token,
};
use crate::roster::{MemberId, MemberInfo};
use crate::succession::{Unfinished, awaited};
use starlings_core::{Blame, Deadline, Epoch, Event, Fault, FaultReport, Result, Seat, failpoint};
use starlings_transport::{
    Gatekeeper, JobAuthority, Link, Listener, Purpose, Security, Ticket, Verdict as Door,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Messages that may wait for the coordinator before its readers stop reading.
const INBOX_MAX: usize = 1024;
const TICK: Duration = Duration::from_millis(50);
/// Between two looks at whether the door is closed.
const CLOSING: Duration = Duration::from_millis(5);
const SEND_MS: u64 = 2_000;
const MODEL_MS: u64 = 60_000;
/// How long survivors may take to say what they saw, once the job is over without success.
const LAST_WORDS_MS: u64 = 1_500;

/// Messages that are kept for whoever submitted the job.
const KEPT_MAX: usize = 1_000;
/// How long whoever submitted the job may take to return to a new coordinator.
const RETURN_MS: u64 = 60_000;

/// A coordinator that listens.
pub struct Coordinator {
    listener: Listener,
    ticket: Ticket,
    authority: Option<JobAuthority>,
    options: Options,
    journal: Option<Journal>,
    /// A job to go on with, and its last epoch, if it had begun.
    unfinished: Option<Unfinished>,
}

/// What reaches the coordinator's one loop.
enum Input {
    Connected(u64, Control, IpAddr),
    Said(u64, Message),
    Closed(u64),
}

impl Coordinator {
    /// Listens at an address, with TLS or (on this machine only) without. The ticket lets others in.
    ///
    /// # Errors
    /// The address is taken, or beyond this machine without TLS.
    pub fn bind(address: SocketAddr, tls: bool, options: Options) -> Result<Coordinator> {
        let mut ticket = Ticket::random()?;
        let authority = tls.then(|| JobAuthority::new(ticket.job)).transpose()?;
        ticket.ca = authority.as_ref().map(JobAuthority::certificate);
        Coordinator::listen(address, ticket, authority, options)
    }

    /// As [`bind`](Coordinator::bind), and remembers in a journal what another coordinator needs to take over.
    ///
    /// # Errors
    /// As `bind`; another coordinator has the journal; or a failing disk.
    pub fn durable(
        address: SocketAddr,
        tls: bool,
        options: Options,
        path: &Path,
    ) -> Result<Coordinator> {
        let coordinator = Coordinator::bind(address, tls, options)?;
        let (mut journal, _) = Journal::open(path)?;
        journal.clear()?;
        if let Some(authority) = &coordinator.authority {
            journal.append(&Record::Authority(Bytes(authority.key())))?;
        }
        // On disk before anyone has the ticket: whoever joins may wait at the next coordinator.
        journal.append(&Record::Opened { job: coordinator.ticket.job })?;
        Ok(Coordinator { journal: Some(journal), ..coordinator })
    }

    /// Takes over from a coordinator that is gone: its unfinished job, or its waiting for one.
    ///
    /// # Errors
    /// There is no such job, another coordinator has its journal, or the address is taken.
    pub fn resume(
        address: SocketAddr,
        ticket: Ticket,
        options: Options,
        path: &Path,
    ) -> Result<Coordinator> {
        let (journal, records) = Journal::open(path)?;
        let awaited = awaited(&records);
        let (key, unfinished) = Unfinished::read(records);
        let authority = key.map(|key| JobAuthority::again(ticket.job, &key.0)).transpose()?;
        failpoint!("resume-read");
        let wrong =
            |what: String| Fault::caller(what).hint("leave out --resume to wait for a new job");
        if awaited.is_some_and(|job| job != ticket.job) {
            let what = format!("{} tells of another job than the ticket does", path.display());
            return Err(wrong(what));
        }
        if unfinished.is_none() && awaited.is_none() {
            return Err(wrong(format!("{} tells of no unfinished job", path.display())));
        }
        let coordinator = Coordinator::listen(address, ticket, authority, options)?;
        failpoint!("resume-listening");
        Ok(Coordinator { journal: Some(journal), unfinished, ..coordinator })
    }

    fn listen(
        address: SocketAddr,
        mut ticket: Ticket,
        authority: Option<JobAuthority>,
        options: Options,
    ) -> Result<Coordinator> {
        let security = match &authority {
            Some(authority) => Security::Tls(authority.issue("coordinator", &[address.ip()])?),
            None => Security::Plain,
        };
        let (token, job) = (ticket.token.clone(), ticket.job);
        let gatekeeper: Gatekeeper = Arc::new(move |hello| {
            if hello.token != token {
                Door::WrongToken
            } else if hello.job != job || hello.purpose != Purpose::Control {
                Door::OtherJob
            } else {
                Door::Accept
            }
        });
        let listener = Listener::bind(address, &security, gatekeeper)?;
        ticket.address = Some(listener.local_addr());
        let (journal, unfinished) = (None, None);
        Ok(Coordinator { listener, ticket, authority, options, journal, unfinished })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// What lets others in. Secret.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Serves until the one job has ended, or until `stop` says so before a job came.
    ///
    /// # Errors
    /// The fault that ended the job.
    pub fn run(self, stop: &dyn Fn() -> bool) -> Result<()> {
        let (sender, inbox) = sync_channel(INBOX_MAX);
        let mut desk = Desk::new(self.ticket, self.authority, self.options);
        desk.journal = self.journal;
        let first = desk.take_over(self.unfinished, self.options);
        let listener = &self.listener;
        std::thread::scope(|scope| {
            let over = std::sync::atomic::AtomicBool::new(false);
            let over = Arc::new(over);
            let accepting = over.clone();
            let door = scope.spawn(move || accept_all(listener, first, &sender, &accepting));
            let ended = desk.serve(&inbox, stop);
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            desk.send_away_the_last(&inbox, &|| door.is_finished());
            // Readers that still want to say something must not wait for ever.
            drop(inbox);
            desk.close();
            ended
        })
    }
}

/// Lets callers in and starts a reader for each.
fn accept_all(
    listener: &Listener,
    first: u64,
    sender: &SyncSender<Input>,
    over: &std::sync::atomic::AtomicBool,
) {
    let mut count = first;
    while !over.load(std::sync::atomic::Ordering::Relaxed) {
        let Ok(Some((link, _, from))) = listener.accept(Deadline::after(TICK)) else { continue };
        let link: Arc<dyn Link> = Arc::new(link);
        let control = Control::new(link);
        count += 1;
        let (id, inbox) = (count, sender.clone());
        if inbox.send(Input::Connected(id, control.clone(), from.ip())).is_err() {
            return;
        }
        let reader = std::thread::Builder::new().name(format!("control {id}"));
        let started = reader.spawn(move || read_all(id, &control, &inbox));
        if started.is_err() && sender.send(Input::Closed(count)).is_err() {
            return;
        }
    }
}

fn read_all(id: u64, control: &Control, inbox: &SyncSender<Input>) {
    loop {
        match control.receive(Deadline::after_ms(60_000)) {
            Ok(None) => {}
            Ok(Some(message)) => {
                if inbox.send(Input::Said(id, message)).is_err() {
                    return;
                }
            }
            Err(_) => {
                // The loop may be over already: then nobody needs to know.
                let _ = inbox.send(Input::Closed(id));
                return;
            }
        }
    }
}

/// The coordinator's one loop and all it knows.
struct Desk {
    membership: Membership,
    ticket: Ticket,
    authority: Option<JobAuthority>,
    peer_token: Token,
    begun: Instant,
    connections: BTreeMap<u64, Control>,
    /// Those who have been welcomed and have said nothing yet.
    silent: BTreeSet<u64>,
    submitter: Option<u64>,
    job: Option<(String, Wish, Option<Bytes>)>,
    /// The newest losses, of coordinators before this one, too. Most of them were survived.
    losses: Vec<FaultReport>,
    hints: BTreeMap<String, String>,
    /// Survivors that were told of the end and have not yet said what they saw.
    awaited: BTreeSet<u64>,
    /// The fault that ended the job, told to its submitter after the survivors' last words.
    verdict: Option<(Fault, Deadline)>,
    end: Option<Result<()>>,
    /// Who must act, once the job is over without success.
    blame: Blame,
    /// Whether somebody has asked to stop: Ctrl-C in a terminal reaches this process and the one who submitted the job.
    asked_to_stop: bool,
    /// Why the job is to end, once it is.
    stopping: Option<String>,
    journal: Option<Journal>,
    /// Connections of members that were seated by a coordinator before this one.
    alias: BTreeMap<u64, u64>,
    /// Until when whoever submitted the job may return, and what it is to be told then.
    missing: Option<Deadline>,
    kept: Vec<ToClient>,
    /// Members whose model is kept.
    kept_of: Vec<MemberId>,
    /// What members are told that come back when the job is over.
    last_word: Option<ToWorker>,
    /// Until when such members may come, where a coordinator before this one has ended the job.
    stays: Option<Deadline>,
}

impl Desk {
    fn new(ticket: Ticket, authority: Option<JobAuthority>, options: Options) -> Desk {
        let secret = blake3::derive_key("starlings peer token 1", ticket.token.reveal().as_bytes());
        #[expect(
            clippy::disallowed_methods,
            reason = "the coordinator's shell gives the machine its time"
        )]
        let begun = Instant::now();
        Desk {
            membership: Membership::new(options),
            ticket,
            authority,
            peer_token: Token(secret),
            begun,
            connections: BTreeMap::new(),
            silent: BTreeSet::new(),
            submitter: None,
            job: None,
            losses: Vec::new(),
            blame: Blame::Peer(None),
            asked_to_stop: false,
            stopping: None,
            hints: BTreeMap::new(),
            awaited: BTreeSet::new(),
            verdict: None,
            end: None,
            journal: None,
            alias: BTreeMap::new(),
            missing: None,
            kept: Vec::new(),
            kept_of: Vec::new(),
            last_word: None,
            stays: None,
        }
    }

    /// On disk before anyone hears of it. Gives up the job where that is not possible.
    fn remember(&mut self, record: &Record) -> bool {
        let Some(journal) = &mut self.journal else { return true };
        match journal.append(record) {
            Ok(()) => true,
            Err(fault) => {
                self.verdict.get_or_insert((fault, Deadline::after_ms(LAST_WORDS_MS)));
                false
            }
        }
    }

    fn serve(&mut self, inbox: &Receiver<Input>, stop: &dyn Fn() -> bool) -> Result<()> {
        let mut stopping = false;
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(input) => self.take(input),
                Err(_) => self.feed(Happening::Tick),
            }
            if stop() && !stopping {
                stopping = true;
                if self.job.is_none() {
                    let message = "the coordinator was stopped before a job came".to_string();
                    for id in self.connections.keys().copied().collect::<Vec<u64>>() {
                        let (blame, message) = (Blame::Interrupted, message.clone());
                        self.tell_worker(id, ToWorker::Abort { blame, message, fault: None });
                    }
                    self.remember(&Record::Ended);
                    return Err(Fault::interrupted("stopped before a job came"));
                }
                self.stop_as_asked();
            }
            self.stop_waiting();
            self.close_when_all_have_spoken();
            if self.missing.is_some_and(|by| by.passed()) {
                self.missing = None;
                self.stop("the one who submitted the job is gone");
            }
            // The result of a job is for whoever submitted it: it may return until its time is up.
            if self.missing.is_none()
                && self.stays.is_none_or(|by| by.passed())
                && let Some(end) = self.end.take()
            {
                self.send_away_the_silent();
                self.remember(&Record::Ended);
                return end;
            }
        }
    }

    /// Two who ask are one request; whoever is in a hurry ends its own process.
    fn stop_as_asked(&mut self) {
        if !std::mem::replace(&mut self.asked_to_stop, true) {
            self.stop("stopped, as asked");
        }
    }

    fn stop(&mut self, reason: &str) {
        self.stopping.get_or_insert_with(|| reason.to_string());
        self.feed(Happening::Stop { blame: Blame::Interrupted, reason: reason.to_string() });
    }

    /// A job that is to end and has too few workers has no step to finish: those who are left wait for others, and would until
    /// their time to end politely is up.
    fn stop_waiting(&mut self) {
        if self.stopping.is_some() && self.membership.shortage(self.now()).is_some() {
            let reason = self.stopping.take().expect("it was there");
            self.feed(Happening::Stop { blame: Blame::Interrupted, reason });
        }
    }

    fn close_when_all_have_spoken(&mut self) {
        let over = |(_, by): &mut (Fault, Deadline)| self.awaited.is_empty() || by.passed();
        if let Some((fault, _)) = self.verdict.take_if(over) {
            let mut failed = ToClient::failed(&fault);
            if let ToClient::Failed { message, fault: loss, .. } = &mut failed {
                *loss = self.loss_in(message);
            }
            self.tell_submitter(failed, SEND_MS);
            self.end = Some(Err(fault));
        }
    }

    fn close(&self) {
        self.connections.values().for_each(Control::close);
    }

    /// Whoever came in the last moment has not said what it wants, and would look for another coordinator.
    fn send_away_the_silent(&mut self) {
        for id in std::mem::take(&mut self.silent) {
            let word = self.last_word.clone().unwrap_or(ToWorker::Done);
            self.tell_worker(id, word);
        }
    }

    /// Whoever was let in while the job ended, and until the door is closed, is told so, too.
    fn send_away_the_last(&mut self, inbox: &Receiver<Input>, is_closed: &dyn Fn() -> bool) {
        loop {
            let is_last = is_closed();
            while let Ok(input) = inbox.try_recv() {
                if matches!(input, Input::Connected(..)) {
                    self.take(input);
                }
            }
            self.send_away_the_silent();
            if is_last {
                return;
            }
            std::thread::sleep(CLOSING);
        }
    }

    fn take(&mut self, input: Input) {
        if let Input::Said(id, _) | Input::Closed(id) = &input {
            self.silent.remove(id);
        }
        match input {
            Input::Connected(id, control, from) => {
                let welcome = self.welcome(id, from);
                self.connections.insert(id, control);
                self.silent.insert(id);
                self.tell_worker(id, ToWorker::Welcome(welcome));
            }
            Input::Said(id, Message::FromWorker(said)) => self.worker_said(self.name(id), said),
            Input::Said(id, Message::FromClient(said)) => self.client_said(id, said),
            // Only a peer that broke the protocol says anything else.
            Input::Said(id, _) => self.forget(self.name(id)),
            Input::Closed(id) => {
                let id = self.alias.remove(&id).unwrap_or(id);
                self.connections.remove(&id);
                self.awaited.remove(&id);
                if self.submitter == Some(id) {
                    self.stop("the one who submitted the job is gone");
                }
                self.feed(Happening::Left { member: MemberId(id) });
            }
        }
        self.feed(Happening::Tick);
    }

    /// Who speaks on a connection.
    fn name(&self, id: u64) -> u64 {
        self.alias.get(&id).copied().unwrap_or(id)
    }

    /// Credentials for a worker's own listener.
    fn welcome(&self, id: u64, from: IpAddr) -> Option<Bytes> {
        let identity = self.authority.as_ref()?.issue(&format!("worker {id}"), &[from]).ok()?;
        serde_json::to_vec(&identity).ok().map(Bytes)
    }

    fn worker_said(&mut self, id: u64, said: FromWorker) {
        let member = MemberId(id);
        match said {
            // What happened without the others is not what happened.
            FromWorker::Event(_) if !self.membership.is_seated(member) => {}
            FromWorker::Model(_) if !self.membership.may_deliver(member) => {}
            FromWorker::Ready { host, pid, address } => {
                if let Some(word) = self.last_word.clone() {
                    return self.tell_worker(id, word);
                }
                if self.seat_again(id, pid, &address) {
                    return;
                }
                self.feed(Happening::Joined { member, host, pid, address });
            }
            FromWorker::Beat { step, phase, waits, bytes } => {
                self.feed(Happening::Phase { member, step, phase, waits, bytes });
            }
            FromWorker::Event(text) => self.tell_submitter(ToClient::Event(text), SEND_MS),
            FromWorker::Accuse { epoch, seat, phase, step } => {
                self.feed(Happening::Accuse { by: member, epoch, seat, phase, step });
            }
            FromWorker::Unheard { epoch, seats } => {
                self.feed(Happening::Unheard { by: member, epoch, seats });
            }
            FromWorker::Failed { epoch, blame, message, hint } => {
                self.awaited.remove(&id);
                if let Some(hint) = hint {
                    self.hints.insert(message.clone(), hint);
                }
                self.feed(Happening::Failed { member, epoch, blame, message });
            }
            FromWorker::Model(bytes) => {
                failpoint!("model-received");
                self.relay_model(member, ToClient::Model(bytes), MODEL_MS);
            }
            FromWorker::Finished { epoch, holds } => {
                self.awaited.remove(&id);
                self.feed(Happening::Finished { member, epoch, holds });
            }
            FromWorker::Return { member, epoch } => self.take_back(id, member, epoch),
            FromWorker::Prepared => self.feed(Happening::Prepared { member }),
            FromWorker::Leave => self.feed(Happening::Leave { member }),
            FromWorker::Part { .. } => self.forget(id),
        }
    }

    fn client_said(&mut self, id: u64, said: FromClient) {
        match said {
            FromClient::Submit { job, wish, survey } => {
                let is_known = self
                    .job
                    .as_ref()
                    .is_some_and(|(known, ..)| *known == job && self.missing.is_some());
                if is_known && self.submitter.is_none() {
                    // The coordinator before this one took the job and could not say so any more.
                    return self.take_back_submitter(id, MODEL_MS);
                }
                if self.submitter.is_some() || self.job.is_some() {
                    let busy = Fault::caller("this coordinator has a job already")
                        .hint("start another coordinator for another job");
                    return self.tell_client(id, ToClient::failed(&busy), SEND_MS);
                }
                let record = Record::Submitted {
                    job: job.clone(),
                    wish: wish.clone(),
                    survey: survey.clone(),
                };
                if !self.remember(&record) {
                    return;
                }
                failpoint!("submitted");
                self.submitter = Some(id);
                self.job = Some((job, wish.clone(), survey));
                self.tell_client(id, ToClient::Accepted { job_id: self.ticket.job }, SEND_MS);
                self.feed(Happening::Submit(wish));
            }
            FromClient::Return { job_id } => {
                if job_id == self.ticket.job && self.submitter.is_none() && self.job.is_some() {
                    self.take_back_submitter(id, MODEL_MS);
                }
            }
            FromClient::Stop => self.stop_as_asked(),
            FromClient::Status => {
                let status = self.status();
                self.tell_client(id, ToClient::Status(status), SEND_MS);
            }
        }
    }

    /// Milliseconds since it began.
    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn feed(&mut self, happening: Happening) {
        let now = self.now();
        let mut commands = Vec::new();
        self.membership.on(now, happening, &mut commands);
        let records = self.membership.unwritten(&commands);
        let written = records.iter().all(|record| self.remember(record));
        // The next coordinator would not know of it. Only the end is told all the same: there is no need for a next one.
        if !written && !self.membership.ended() {
            return;
        }
        // Members are told of the end before it is, and who ended it is told with the end.
        let ends = |command: &Command| match command {
            Command::Abort { blame, .. } => Some(*blame),
            _ => None,
        };
        self.blame = commands.iter().find_map(ends).unwrap_or(self.blame);
        for command in commands {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Waiting(shortage) => self.tell_event(&waiting(shortage)),
            Command::Seat { .. } => {}
            Command::Start { epoch, roster } => self.start(epoch, &roster),
            Command::Prepare { member, shards } => self.prepare(member, shards),
            Command::Regroup { epoch, roster, deal } => self.regroup(epoch, &roster, &deal),
            Command::Tell { member, verdict } => {
                let message = match verdict {
                    Verdict::Stop => ToWorker::Stop,
                    Verdict::Deliver => ToWorker::Deliver,
                    Verdict::Done => ToWorker::Done,
                    Verdict::Released => ToWorker::Released,
                    Verdict::GivenUp { reason: message, returns: true } => {
                        ToWorker::LeftBehind { message }
                    }
                    Verdict::GivenUp { reason: message, returns: false } => {
                        ToWorker::Abort { blame: Blame::Peer(None), message, fault: None }
                    }
                    Verdict::Abort { reason } => {
                        self.awaited.insert(member.0);
                        self.last_words(self.blame, reason)
                    }
                };
                self.tell_worker(member.0, message);
            }
            Command::Forget { member } => self.forget(member.0),
            Command::Fault(report) => {
                self.tell_event(&Event::Fault(report.clone()));
                // Of endlessly many only the newest can be why a job ends.
                if self.losses.len() == KEPT_MAX {
                    self.losses.remove(0);
                }
                self.losses.push(report);
            }
            Command::Complete { stopped } => self.complete(stopped),
            Command::Abort { blame, reason } => {
                self.last_word = Some(self.last_words(blame, reason.clone()));
                self.tell_why(blame, &reason);
                let mut fault = Fault::new(blame, reason.clone());
                if let Some(hint) = self.hints.get(&reason) {
                    fault = fault.hint(hint.clone());
                }
                self.verdict = Some((fault, Deadline::after_ms(LAST_WORDS_MS)));
            }
        }
    }

    /// What a member is told of a job that is over without success: why, and whose loss that was. A loss that the others survived
    /// is not why.
    fn last_words(&self, blame: Blame, message: String) -> ToWorker {
        let fault = self.loss_in(&message);
        ToWorker::Abort { blame, message, fault }
    }

    /// The loss with which the reason for an end begins.
    fn loss_in(&self, reason: &str) -> Option<FaultReport> {
        let mut losses = self.losses.iter().rev();
        losses.find(|loss| reason.starts_with(&loss.message)).cloned()
    }

    /// A wait that ended in vain is a fault that nobody has been told of yet.
    fn tell_why(&mut self, blame: Blame, reason: &str) {
        let is_told = self.loss_in(reason).is_some_and(|loss| loss.message == reason);
        if matches!(blame, Blame::Peer(_)) && !is_told {
            let (phase, message) = ("waiting for workers".to_string(), reason.to_string());
            let report = FaultReport { phase, message, ..FaultReport::default() };
            self.tell_event(&Event::Fault(report));
        }
    }

    fn complete(&mut self, stopped: Option<String>) {
        self.last_word = Some(ToWorker::Done);
        match stopped {
            None => {
                failpoint!("job-done");
                self.tell_submitter(ToClient::Done, SEND_MS);
                self.end = Some(Ok(()));
            }
            Some(why) => {
                let fault = Fault::interrupted(why);
                self.tell_submitter(ToClient::failed(&fault), SEND_MS);
                self.end = Some(Err(fault));
            }
        }
    }

    fn assignment(&self, member: MemberId, seat: Seat, epoch: Epoch) -> Option<Assignment> {
        let (job, wish, survey) = self.job.clone()?;
        Some(Assignment {
            job,
            job_id: self.ticket.job,
            seat,
            epoch,
            roster: Vec::new(),
            peer_token: self.peer_token.clone(),
            survey,
            survives: wish.least.is_some(),
            deal: wish.deal,
            member: member.0,
            durable: self.journal.is_some(),
        })
    }

    fn start(&mut self, epoch: Epoch, roster: &[MemberInfo]) {
        let peers = peers(roster);
        for info in roster {
            let Some(assignment) = self.assignment(info.member, info.seat, epoch) else { return };
            let assignment = Assignment { roster: peers.clone(), ..assignment };
            failpoint!("assigning");
            self.tell_worker(info.member.0, ToWorker::Assign(Box::new(assignment)));
        }
    }

    fn prepare(&mut self, member: MemberId, shards: Vec<u32>) {
        let Some(assignment) = self.assignment(member, Seat(u32::MAX), Epoch(0)) else { return };
        let assignment = Assignment { deal: vec![shards], ..assignment };
        self.tell_worker(member.0, ToWorker::Prepare(Box::new(assignment)));
    }

    fn regroup(&mut self, epoch: Epoch, roster: &[MemberInfo], deal: &Deal) {
        let peers = peers(roster);
        for info in roster {
            let (seat, roster, deal) = (info.seat, peers.clone(), deal.clone());
            let lineup = Lineup { seat, epoch, roster, deal };
            failpoint!("announcing");
            self.tell_worker(info.member.0, ToWorker::Regroup(Box::new(lineup)));
        }
        failpoint!("announced");
    }

    fn tell_event(&mut self, event: &Event) {
        if let Ok(text) = serde_json::to_string(event) {
            self.tell_submitter(ToClient::Event(text), SEND_MS);
        }
    }

    fn tell_submitter(&mut self, message: ToClient, within_ms: u64) {
        match self.submitter {
            Some(id) => self.tell_client(id, message, within_ms),
            // What happens on the way is of no interest later; a model, a fault and the end are.
            None if self.missing.is_some() => {
                let passing = |text: &str| {
                    let kinds = [
                        r#""event":"step""#,
                        r#""event":"epoch""#,
                        // Whoever returns is told how long it waits from then on.
                        r#""event":"waiting""#,
                    ];
                    kinds.iter().any(|kind| text.contains(kind))
                };
                match &message {
                    ToClient::Event(text) if passing(text) || self.kept.len() >= KEPT_MAX => {}
                    _ => self.kept.push(message),
                }
            }
            None => {}
        }
    }

    fn tell_client(&mut self, id: u64, message: ToClient, within_ms: u64) {
        self.tell(id, &Message::ToClient(message), within_ms);
    }

    fn tell_worker(&mut self, id: u64, message: ToWorker) {
        self.tell(id, &Message::ToWorker(message), SEND_MS);
    }

    /// Whoever does not take a message in time is gone: its reader will say so.
    fn tell(&mut self, id: u64, message: &Message, within_ms: u64) {
        let Some(control) = self.connections.get(&id) else { return };
        if control.send(message, Deadline::after_ms(within_ms)).is_err() {
            control.close();
        }
    }

    fn forget(&mut self, id: u64) {
        self.awaited.remove(&id);
        if let Some(control) = self.connections.remove(&id) {
            control.close();
        }
    }
}

fn waiting(Shortage { have, want, seconds_left }: Shortage) -> Event {
    let then = "the job ends with exit code 3".to_string();
    Event::Waiting { have, want, seconds_left: Some(seconds_left), then }
}

fn peers(roster: &[MemberInfo]) -> Vec<Peer> {
    let peer = |info: &MemberInfo| Peer {
        seat: info.seat,
        host: info.host.clone(),
        pid: info.pid,
        address: info.address.clone(),
    };
    roster.iter().map(peer).collect()
}

#[cfg(test)]
mod tests;
