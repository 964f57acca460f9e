//! The line to the coordinator. Where another coordinator may follow a lost one, the line is taken up again with
//! whoever answers: at the address that the ticket tells, or at the old one. Meanwhile work goes on; only what needs an
//! answer waits.

use super::{JoinOptions, enter, welcome};
use starlings_cluster::control::Control;
use starlings_cluster::protocol::{Assignment, FromWorker, Message};
use starlings_core::{Blame, Deadline, Epoch, Fault, Result, Seat};
use starlings_transport::{Hello, PROTOCOL_VERSION, Purpose, TlsIdentity, connect_unless};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long another coordinator may take to be there.
const RETURN_MS: u64 = 60_000;
/// How long the first call at an address may take; each further one twice as long.
const CALL_FIRST: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(100);
/// How long another coordinator may take to be there for a member that was asked to leave.
const PARTING_MS: u64 = 1_000;
const SEND_MS: u64 = 2_000;

/// A line to whoever coordinates.
pub(super) struct Line {
    options: JoinOptions,
    control: Mutex<Control>,
    changed: Condvar,
    /// What a coordinator is told by a member that has no seat yet.
    ready: Mutex<Option<FromWorker>>,
    /// Whether a member without a seat has read what it was told to read. Another coordinator does not know.
    prepared: AtomicBool,
    /// Who this member is to the coordinator.
    member: AtomicU64,
    durable: AtomicBool,
    /// The last lineup it has.
    pub(super) epoch: AtomicU32,
    /// That it has finished, once it has said so.
    finished: Mutex<Option<FromWorker>>,
    /// The model that was sent home. It may have been lost with the coordinator that had it.
    sent: Mutex<Option<FromWorker>>,
    /// Whom it saw vanish last. A coordinator that was not there could not hear it.
    accused: Mutex<Option<FromWorker>>,
    over: AtomicBool,
}

impl Line {
    pub(super) fn new(options: &JoinOptions, control: Control) -> Line {
        Line {
            options: options.clone(),
            control: Mutex::new(control),
            changed: Condvar::new(),
            ready: Mutex::new(None),
            prepared: AtomicBool::new(false),
            member: AtomicU64::new(0),
            // Until the coordinator says otherwise another one may follow it, where there is a ticket to find it by.
            durable: AtomicBool::new(options.ticket_path.is_some()),
            epoch: AtomicU32::new(0),
            finished: Mutex::new(None),
            sent: Mutex::new(None),
            accused: Mutex::new(None),
            over: AtomicBool::new(false),
        }
    }

    /// Asks for a seat; of every coordinator that follows, too, until this member has one.
    pub(super) fn ask(&self, ready: FromWorker) -> Result<()> {
        *enter(&self.ready) = Some(ready.clone());
        // A coordinator that has died since is noticed by whoever waits for its answer, and the next one is asked.
        self.mention(ready)
    }

    /// From now on a lost coordinator may be followed by another, to whom this member is known by that name once it has a
    /// seat. No coordinator but this one knows of a newcomer: the next one is asked for a seat again.
    pub(super) fn settle(&self, assignment: &Assignment, is_newcomer: bool) {
        let Assignment { member, durable, epoch, .. } = *assignment;
        if !is_newcomer {
            self.seated();
        }
        self.member.store(member, Ordering::Relaxed);
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.durable.store(durable, Ordering::Relaxed);
    }

    /// Every coordinator knows this member from now on.
    pub(super) fn seated(&self) {
        *enter(&self.ready) = None;
    }

    /// Another coordinator has told a newcomer what to read. What it has read serves as well: whatever else its seat needs
    /// it reads then.
    pub(super) fn prepare_again(&self, assignment: &Assignment) {
        self.member.store(assignment.member, Ordering::Relaxed);
        if self.prepared.load(Ordering::Relaxed) {
            // One that is gone again is followed by yet another.
            let _ = self.mention(FromWorker::Prepared);
        }
    }

    /// The connection of the moment.
    pub(super) fn control(&self) -> Control {
        enter(&self.control).clone()
    }

    /// Says something, now or to the next coordinator.
    pub(super) fn say(&self, said: FromWorker, within_ms: u64) -> Result<()> {
        if matches!(said, FromWorker::Finished { .. }) {
            *enter(&self.finished) = Some(said.clone());
        }
        if matches!(said, FromWorker::Model(_)) && self.returns() {
            *enter(&self.sent) = Some(said.clone());
        }
        if said == FromWorker::Prepared {
            self.prepared.store(true, Ordering::Relaxed);
        }
        let message = Message::FromWorker(said);
        let by = Deadline::after_ms(if self.returns() { RETURN_MS } else { 0 });
        loop {
            let Err(fault) = self.control().send(&message, Deadline::after_ms(within_ms)) else {
                return Ok(());
            };
            if by.passed() || !self.returns() {
                return Err(fault);
            }
            let waited = self.changed.wait_timeout(enter(&self.control), PAUSE);
            drop(waited);
        }
    }

    /// Says something that is of no use later.
    pub(super) fn mention(&self, said: FromWorker) -> Result<()> {
        let sent = self.control().send(&Message::FromWorker(said), Deadline::after_ms(SEND_MS));
        if self.returns() { Ok(()) } else { sent }
    }

    /// Says who vanished, to the next coordinator, too: it need not wait for one whom others saw die.
    pub(super) fn accuse(&self, accusation: FromWorker) {
        *enter(&self.accused) = Some(accusation.clone());
        let _ = self.mention(accusation);
    }

    /// Takes the line up again, where there may be someone to answer. Whoever has no seat yet waits no longer than for the first
    /// answer: nobody would miss it, and the job may be over.
    pub(super) fn take_up(&self, fault: Fault) -> Result<()> {
        let is_unseated = self.is_unseated();
        let patience = Duration::from_millis(RETURN_MS);
        let patience = if is_unseated { self.options.patience.min(patience) } else { patience };
        let (mut by, mut unanswered) = (Deadline::after(patience), None);
        let mut is_leaving = false;
        while self.returns() && !by.passed() && !self.is_let_go() {
            if self.options.stop.asked() && !is_leaving {
                (is_leaving, by) = (true, Deadline::after_ms(PARTING_MS));
            }
            match self.call_again() {
                Ok(control) => {
                    self.go_on_with(control);
                    return Ok(());
                }
                Err(why) => unanswered = Some(why).filter(|_| is_unseated),
            }
            let waited = self.changed.wait_timeout(enter(&self.control), PAUSE);
            drop(waited);
        }
        // Nobody answers any more: whatever is still to be said is not worth another wait.
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        Err(unanswered.unwrap_or(fault))
    }

    /// Says to another coordinator what the one before it may have taken along.
    fn go_on_with(&self, control: Control) {
        *enter(&self.control) = control;
        self.changed.notify_all();
        if let Some(model) = enter(&self.sent).clone() {
            let model = Message::FromWorker(model);
            let _ = self.control().send(&model, Deadline::after_ms(RETURN_MS));
        }
        if let Some(accusation) = enter(&self.accused).clone() {
            let _ = self.mention(accusation);
        }
        if let Some(finished) = enter(&self.finished).clone() {
            let _ = self.mention(finished);
        }
    }

    /// Nothing more is to be said.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.control().close();
        self.changed.notify_all();
    }

    /// Whether it has no seat yet.
    pub(super) fn is_unseated(&self) -> bool {
        enter(&self.ready).is_some()
    }

    /// Whether it was asked to stop before it had a seat: nobody would miss it.
    fn is_let_go(&self) -> bool {
        self.options.stop.asked() && self.is_unseated()
    }

    /// Whether this member was asked to leave, and nobody was there to be told.
    pub(super) fn is_left_alone(&self) -> bool {
        self.over.load(Ordering::Relaxed) && self.options.stop.asked()
    }

    fn returns(&self) -> bool {
        self.durable.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed)
    }

    fn call_again(&self) -> Result<Control> {
        let control = call(&self.options, self.options.address(), Duration::from_secs(1))?;
        welcome(&control)?;
        let member = self.member.load(Ordering::Relaxed);
        let epoch = Epoch(self.epoch.load(Ordering::Relaxed));
        let ready = enter(&self.ready).clone();
        let back = Message::FromWorker(ready.unwrap_or(FromWorker::Return { member, epoch }));
        control.send(&back, Deadline::after_ms(SEND_MS))?;
        Ok(control)
    }
}

/// A coordinator that has let this member in, where it is, and the credentials that it gave.
pub(super) struct Welcomed {
    pub(super) control: Control,
    pub(super) address: SocketAddr,
    pub(super) identity: Option<TlsIdentity>,
}

/// Calls until a coordinator lets this member in. One that dies meanwhile may be followed by another, where the ticket tells.
pub(super) fn knock(options: &JoinOptions) -> Result<Welcomed> {
    let by = Deadline::after(options.patience);
    let (mut address, mut patience) = (options.coordinator, CALL_FIRST);
    let mut first = None;
    loop {
        let is_asked_for = address == options.coordinator;
        let slice = by.left().map_or(Duration::ZERO, |left| left.min(patience));
        let called = call(options, address, slice);
        let why = match called.and_then(|control| Ok((welcome(&control)?, control))) {
            Ok((identity, control)) => return Ok(Welcomed { control, address, identity }),
            Err(fault) => fault,
        };
        // Nobody there, or gone again: worth another call. A refusal is not; but who was asked for may yet answer.
        let is_refused = !matches!(why.blame(), Blame::Peer(_));
        if is_refused && is_asked_for {
            return Err(why);
        }
        if options.stop.asked() {
            return Err(Fault::interrupted("stopped while calling the coordinator"));
        }
        // Whoever was asked for is named: elsewhere there may have been no time left for a call.
        let first = first.get_or_insert(why);
        if by.passed() {
            return Err(first.clone());
        }
        address = if is_asked_for { options.address() } else { options.coordinator };
        patience *= 2;
        std::thread::sleep(PAUSE.min(by.left().unwrap_or_default()));
    }
}

/// Calls a coordinator.
pub(crate) fn call(
    options: &JoinOptions,
    address: SocketAddr,
    patience: Duration,
) -> Result<Control> {
    let hello = Hello {
        purpose: Purpose::Control,
        job: options.ticket.job,
        epoch: Epoch(0),
        seat: Seat(0),
        token: options.ticket.token.clone(),
        version: PROTOCOL_VERSION,
    };
    let security = options.ticket.security();
    let is_over = || options.stop.asked();
    let link = connect_unless(address, &hello, &security, Deadline::after(patience), &is_over)?;
    Ok(Control::new(std::sync::Arc::new(link)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;
    use starlings_cluster::protocol::ToWorker;
    use starlings_transport::{Gatekeeper, Link, Listener, Security, TcpLink, Ticket, Verdict};
    use std::sync::Arc;

    fn door(verdict: Verdict) -> Listener {
        let gatekeeper: Gatekeeper = Arc::new(move |_| verdict);
        Listener::bind("127.0.0.1:0".parse().unwrap(), &Security::Plain, gatekeeper).unwrap()
    }

    fn let_in(door: &Listener) -> TcpLink {
        door.accept(Deadline::after_ms(20_000)).unwrap().expect("somebody calls").0
    }

    fn options(ticket: &Ticket, coordinator: SocketAddr) -> JoinOptions {
        JoinOptions {
            coordinator,
            ticket: ticket.clone(),
            host: "here".to_string(),
            stop: Stop::new(),
            patience: Duration::from_secs(20),
            ticket_path: None,
        }
    }

    #[test]
    fn a_coordinator_that_dies_while_it_is_called_is_followed_by_whom_the_ticket_tells() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ticket");
        let (first, heir) = (door(Verdict::Accept), door(Verdict::Accept));
        let mut ticket = Ticket::random().unwrap();
        ticket.address = Some(first.local_addr());
        ticket.save(&path).unwrap();
        let options = options(&ticket, first.local_addr());
        let options = JoinOptions { ticket_path: Some(path.clone()), ..options };
        std::thread::scope(|scope| {
            let knocking = scope.spawn(|| knock(&options));
            // It was let in, and is never welcomed.
            let_in(&first).close();
            drop(first);
            ticket.address = Some(heir.local_addr());
            ticket.save(&path).unwrap();
            let control = Control::new(Arc::new(let_in(&heir)));
            let welcome = Message::ToWorker(ToWorker::Welcome(None));
            control.send(&welcome, Deadline::after_ms(5_000)).unwrap();
            let welcomed = knocking.join().unwrap().unwrap();
            assert_eq!(welcomed.address, heir.local_addr());
        });
    }

    #[test]
    fn who_has_no_seat_does_not_look_for_another_coordinator_for_longer_than_its_patience() {
        let folder = tempfile::tempdir().unwrap();
        let (door, ticket) = (door(Verdict::Accept), Ticket::random().unwrap());
        let options = JoinOptions {
            patience: Duration::from_millis(200),
            ticket_path: Some(folder.path().join("ticket")),
            ..options(&ticket, door.local_addr())
        };
        let control = call(&options, door.local_addr(), Duration::from_secs(20)).unwrap();
        let line = Line::new(&options, control);
        let address = "127.0.0.1:1".to_string();
        line.ask(FromWorker::Ready { host: "here".to_string(), pid: 1, address }).unwrap();
        // The job is over, and its coordinator is gone without a word.
        drop(door);
        let by = Deadline::after_ms(20_000);
        let fault = line.take_up(Fault::peer(None, "the line is dead")).unwrap_err();
        assert!(!by.passed() && fault.message().contains("no coordinator answered"), "{fault}");
    }

    #[test]
    fn whoever_refuses_is_not_called_again() {
        let (door, ticket) = (door(Verdict::WrongToken), Ticket::random().unwrap());
        let options = options(&ticket, door.local_addr());
        std::thread::scope(|scope| {
            let knocking = scope.spawn(|| knock(&options));
            while !knocking.is_finished() {
                assert!(door.accept(Deadline::after_ms(20)).unwrap().is_none());
            }
            let Err(refused) = knocking.join().unwrap() else { panic!("it was let in") };
            assert_eq!(refused.blame(), Blame::Caller);
        });
    }

    #[test]
    fn whoever_was_asked_for_is_named_when_nobody_answers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ticket");
        let mut ticket = Ticket::random().unwrap();
        ticket.address = Some("127.0.0.1:1".parse().unwrap());
        ticket.save(&path).unwrap();
        let options = JoinOptions {
            patience: Duration::from_secs(1),
            ticket_path: Some(path),
            ..options(&ticket, "127.0.0.1:2".parse().unwrap())
        };
        let Err(fault) = knock(&options) else { panic!("it was let in") };
        assert!(fault.message().contains("127.0.0.1:2: "), "{fault}");
    }
}
