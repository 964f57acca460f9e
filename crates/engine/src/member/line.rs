//! The line to the coordinator. Where another coordinator may follow a lost one, the line is taken up again with
//! whoever answers: at the address that the ticket tells, or at the old one. Meanwhile work goes on; only what needs an
//! answer waits.

use super::{JoinOptions, enter, welcome};
use starlings_cluster::control::Control;
use starlings_cluster::protocol::{FromWorker, Message};
use starlings_core::{Deadline, Epoch, Fault, Result, Seat};
use starlings_transport::{Hello, PROTOCOL_VERSION, Purpose, connect};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// How long another coordinator may take to be there.
const RETURN_MS: u64 = 60_000;
const PAUSE: Duration = Duration::from_millis(100);
const SEND_MS: u64 = 2_000;

/// A line to whoever coordinates.
pub(super) struct Line {
    options: JoinOptions,
    control: Mutex<Control>,
    changed: Condvar,
    /// What a coordinator is told by a member that has no seat yet.
    ready: Mutex<Option<FromWorker>>,
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
        self.say(ready, SEND_MS)
    }

    /// From now on a lost coordinator may be followed by another, to whom this member is known by that name.
    pub(super) fn settle(&self, member: u64, durable: bool, epoch: Epoch) {
        *enter(&self.ready) = None;
        self.member.store(member, Ordering::Relaxed);
        self.epoch.store(epoch.0, Ordering::Relaxed);
        self.durable.store(durable, Ordering::Relaxed);
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

    /// Takes the line up again, where there may be someone to answer.
    pub(super) fn take_up(&self, fault: Fault) -> Result<()> {
        let by = Deadline::after_ms(RETURN_MS);
        while self.returns() && !by.passed() && !self.is_let_go() {
            if let Ok(control) = self.call_again() {
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
                return Ok(());
            }
            let waited = self.changed.wait_timeout(enter(&self.control), PAUSE);
            drop(waited);
        }
        // Nobody answers any more: whatever is still to be said is not worth another wait.
        self.over.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        Err(fault)
    }

    /// Nothing more is to be said.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.control().close();
        self.changed.notify_all();
    }

    /// Whether it was asked to stop before it had a seat: nobody would miss it.
    fn is_let_go(&self) -> bool {
        self.options.stop.asked() && enter(&self.ready).is_some()
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

/// Calls a coordinator.
pub(crate) fn call(
    options: &JoinOptions,
    address: std::net::SocketAddr,
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
    let link = connect(address, &hello, &security, Deadline::after(patience))?;
    Ok(Control::new(std::sync::Arc::new(link)))
}
