//! A member of a flock: joins a coordinator, takes its seat, and is linked to all other seats. The shell under
//! both a worker process and a caller's own loop. Two threads serve it: one beats, one hears orders.

use crate::clock::Whereabouts;
use crate::neighbours::{Household, Neighbours};
use crate::net::Net;
use crate::stop::Stop;
use starlings_cluster::control::Control;
use starlings_cluster::protocol::{Assignment, FromWorker, Message, ToWorker};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Result, Seat};
use starlings_transport::{
    Gatekeeper, Hello, Link, Listener, PROTOCOL_VERSION, Purpose, Security, Ticket, TlsIdentity,
    Token, Verdict, connect,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

const BEAT: Duration = Duration::from_millis(100);
const SEND_MS: u64 = 2_000;
const MODEL_MS: u64 = 60_000;
/// How long the coordinator may take to say who fell; longer than its grace for an accused that still beats.
const VERDICT_MS: u64 = 2_500;
/// How long links to the other seats may take, from the moment all have their seats.
const MESH_MS: u64 = 20_000;

/// How to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Where the coordinator is.
    pub coordinator: SocketAddr,
    /// What lets this member in.
    pub ticket: Ticket,
    /// This host's name, for reports.
    pub host: String,
    /// Set when this member is asked to leave.
    pub stop: Stop,
    /// How long to wait for the coordinator to answer at all.
    pub patience: Duration,
}

/// This host's name, for reports.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What the coordinator has ordered.
#[derive(Default)]
struct Orders {
    state: Mutex<Ordered>,
    changed: Condvar,
}

#[derive(Default)]
struct Ordered {
    aborted: Option<Fault>,
    done: bool,
    over: bool,
    net: Option<Arc<Net>>,
}

/// A member with a seat.
pub struct Member {
    /// What the coordinator assigned.
    pub assignment: Assignment,
    /// Links to all other seats.
    pub net: Arc<Net>,
    /// Those of them that share this host's memory.
    pub neighbours: Arc<Neighbours>,
    /// Where this member is, for its heartbeat.
    pub whereabouts: Whereabouts,
    control: Control,
    orders: Arc<Orders>,
    threads: Vec<JoinHandle<()>>,
}

impl Member {
    /// Joins, waits until everyone has a seat, and links to all of them.
    ///
    /// # Errors
    /// A refused ticket or version (caller), a coordinator that is not there, or an abort.
    pub fn join(options: &JoinOptions) -> Result<Member> {
        let control = call(options)?;
        let identity = welcome(&control)?;
        let door: Arc<Mutex<Option<Door>>> = Arc::default();
        let security = identity.map_or(Security::Plain, Security::Tls);
        let home = SocketAddr::new(own_address(options.coordinator)?, 0);
        let listener = Listener::bind(home, &security, gatekeeper(door.clone()))?;
        let address = listener.local_addr().to_string();
        let ready =
            FromWorker::Ready { host: options.host.clone(), pid: std::process::id(), address };
        send(&control, ready, SEND_MS)?;
        let (orders, whereabouts) = (Arc::new(Orders::default()), Whereabouts::default());
        let mut threads = vec![start_beating(&control, &orders, &whereabouts)?];
        let assignment = assigned(&control, options)?;
        threads.push(start_hearing(&control, &orders, &options.stop)?);
        let expected = Door {
            job: assignment.job_id,
            epoch: assignment.epoch,
            token: Token::from_bytes(assignment.peer_token.0),
        };
        *enter(&door) = Some(expected.clone());
        let links = mesh(&assignment, &expected, &listener, &security, &orders)?;
        let hosts: Vec<String> = assignment.roster.iter().map(|peer| peer.host.clone()).collect();
        let Door { job, epoch, .. } = expected;
        let household = Household { job, epoch, seat: assignment.seat, hosts: &hosts };
        let by = Deadline::after_ms(MESH_MS);
        let neighbours = Neighbours::meet(&household, &links, &|| orders.check(), by)?;
        let net = Arc::new(Net::new(assignment.seat, hosts, links)?);
        orders.watch(net.clone());
        let neighbours = Arc::new(neighbours);
        net.settle(neighbours.clone());
        Ok(Member { assignment, net, neighbours, whereabouts, control, orders, threads })
    }

    /// Says something to the coordinator.
    ///
    /// # Errors
    /// The coordinator is gone.
    pub fn tell(&self, said: FromWorker) -> Result<()> {
        let within = if matches!(said, FromWorker::Model(_)) { MODEL_MS } else { SEND_MS };
        send(&self.control, said, within)
    }

    /// A handle that tells the coordinator things from another thread.
    pub fn teller(&self) -> impl Fn(FromWorker) + Send + Sync + use<> {
        let control = self.control.clone();
        // A coordinator that is gone is noticed by the thread that hears orders.
        move |said| drop(send(&control, said, SEND_MS))
    }

    /// Says how it ended and waits (not for long) for the coordinator's last word. A fault comes back as the
    /// coordinator knows it: it has heard all survivors.
    ///
    /// # Errors
    /// The fault that ended the job.
    pub fn leave(self, outcome: Result<()>) -> Result<()> {
        match outcome {
            // Being asked to stop and having stopped is a job well done.
            Ok(()) => self.tell(FromWorker::Finished).and_then(|()| self.orders.last_word(60_000)),
            Err(fault) if fault.blame() == Blame::Interrupted => {
                let told =
                    self.tell(FromWorker::Finished).and_then(|()| self.orders.last_word(60_000));
                told.and(Err(fault))
            }
            Err(fault) => {
                self.accuse(&fault);
                let _ = self.tell(FromWorker::failed(&fault));
                // The coordinator's last word goes to its client; this member names what it saw itself.
                let _ = self.orders.last_word(VERDICT_MS);
                Err(fault)
            }
        }
    }

    /// A lost peer as the coordinator sees it. It has heard all survivors and knows who fell first, while this
    /// member may only have seen another survivor leave.
    #[must_use]
    pub fn judged(&self, fault: Fault) -> Fault {
        if !matches!(fault.blame(), Blame::Peer(_)) {
            return fault;
        }
        self.accuse(&fault);
        match self.orders.last_word(VERDICT_MS) {
            Err(verdict) if matches!(verdict.blame(), Blame::Peer(Some(_))) => {
                let agree = verdict.blame() == fault.blame();
                if agree { fault } else { verdict.during(fault.message()) }
            }
            _ => fault,
        }
    }

    fn accuse(&self, fault: &Fault) {
        if let Blame::Peer(Some(seat)) = fault.blame() {
            let (phase, step) = self.whereabouts.get();
            let _ = self.tell(FromWorker::Accuse { seat, phase, step });
        }
    }
}

/// However a member ends, its links close and its threads end with it: to the others a member that did not leave
/// politely is lost.
impl Drop for Member {
    fn drop(&mut self) {
        self.orders.end();
        self.control.close();
        self.net.close();
        for thread in self.threads.drain(..) {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Whom this member's listener lets in, once it knows.
#[derive(Clone)]
struct Door {
    job: JobId,
    epoch: Epoch,
    token: Token,
}

fn gatekeeper(door: Arc<Mutex<Option<Door>>>) -> Gatekeeper {
    Arc::new(move |hello| match &*enter(&door) {
        None => Verdict::Busy,
        Some(door) if hello.token != door.token => Verdict::WrongToken,
        Some(door) if hello.job != door.job || hello.purpose != Purpose::Peer => Verdict::OtherJob,
        Some(door) if hello.epoch != door.epoch => Verdict::StaleEpoch,
        Some(_) => Verdict::Accept,
    })
}

fn call(options: &JoinOptions) -> Result<Control> {
    let hello = Hello {
        purpose: Purpose::Control,
        job: options.ticket.job,
        epoch: Epoch(0),
        seat: Seat(0),
        token: options.ticket.token.clone(),
        version: PROTOCOL_VERSION,
    };
    let security = options.ticket.security();
    let link = connect(options.coordinator, &hello, &security, Deadline::after(options.patience))?;
    Ok(Control::new(Arc::new(link)))
}

/// The coordinator's first word: credentials, when it uses any.
fn welcome(control: &Control) -> Result<Option<TlsIdentity>> {
    match control.receive(Deadline::after_ms(10_000))? {
        Some(Message::ToWorker(ToWorker::Welcome(None))) => Ok(None),
        Some(Message::ToWorker(ToWorker::Welcome(Some(bytes)))) => {
            let identity = serde_json::from_slice(&bytes.0);
            identity
                .map(Some)
                .map_err(|_| Fault::peer(None, "the coordinator sent broken credentials"))
        }
        Some(_) => Err(Fault::peer(None, "the coordinator's first word was no welcome")),
        None => Err(Fault::peer(None, "the coordinator said nothing for ten seconds")),
    }
}

/// Waits for a seat. The coordinator has the deadline for that; a member waits as long as it is told nothing.
fn assigned(control: &Control, options: &JoinOptions) -> Result<Assignment> {
    loop {
        match control.receive(Deadline::after_ms(200))? {
            Some(Message::ToWorker(ToWorker::Assign(assignment))) => return Ok(*assignment),
            Some(Message::ToWorker(ToWorker::Abort { message, .. })) => {
                return Err(Fault::peer(None, message));
            }
            Some(Message::ToWorker(ToWorker::Done | ToWorker::Stop)) => {
                return Err(Fault::interrupted("the job ended before this worker had a seat"));
            }
            Some(_) => return Err(Fault::peer(None, "the coordinator sent something unexpected")),
            None if options.stop.asked() => {
                return Err(Fault::interrupted("stopped while waiting for a seat"));
            }
            None => {}
        }
    }
}

/// The address under which this host is seen from the coordinator: loopback stays loopback.
fn own_address(coordinator: SocketAddr) -> Result<IpAddr> {
    if coordinator.ip().to_canonical().is_loopback() {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    // Connecting a datagram socket sends nothing; it only asks the system for the route.
    let any: SocketAddr = if coordinator.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(coordinator)?;
    Ok(socket.local_addr()?.ip())
}

/// Links to every other seat: this one calls those below it and is called by those above.
fn mesh(
    assignment: &Assignment,
    door: &Door,
    listener: &Listener,
    security: &Security,
    orders: &Orders,
) -> Result<BTreeMap<Seat, Arc<dyn Link>>> {
    let by = Deadline::after_ms(MESH_MS);
    let mut links: BTreeMap<Seat, Arc<dyn Link>> = BTreeMap::new();
    let hello = Hello {
        purpose: Purpose::Peer,
        job: door.job,
        epoch: door.epoch,
        seat: assignment.seat,
        token: door.token.clone(),
        version: PROTOCOL_VERSION,
    };
    for peer in assignment.roster.iter().filter(|peer| peer.seat < assignment.seat) {
        let during =
            |fault: Fault| fault.during(format!("linking to {} on {}", peer.seat, peer.host));
        let address: SocketAddr = peer.address.parse().map_err(|_| {
            during(Fault::peer(Some(peer.seat), format!("'{}' is no address", peer.address)))
        })?;
        let link = reach(address, &hello, security, orders, by).map_err(during)?;
        links.insert(peer.seat, Arc::new(link));
    }
    while links.len() + 1 < assignment.roster.len() {
        orders.check()?;
        if by.passed() {
            let missing = assignment.roster.iter().map(|peer| peer.seat);
            let missing =
                missing.filter(|seat| *seat > assignment.seat && !links.contains_key(seat));
            let seat = missing.min();
            return Err(Fault::peer(seat, "not all workers linked up in time"));
        }
        if let Some((link, hello, _)) = listener.accept(Deadline::after_ms(50))?
            && hello.seat > assignment.seat
            && hello.seat.index() < assignment.roster.len()
        {
            links.insert(hello.seat, Arc::new(link));
        }
    }
    Ok(links)
}

/// Calls a peer until it answers: it may not have heard of its own seat yet.
fn reach(
    address: SocketAddr,
    hello: &Hello,
    security: &Security,
    orders: &Orders,
    by: Deadline,
) -> Result<starlings_transport::TcpLink> {
    loop {
        orders.check()?;
        match connect(address, hello, security, Deadline::after_ms(500)) {
            Ok(link) => return Ok(link),
            Err(fault) if by.passed() => return Err(fault),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn start_beating(
    control: &Control,
    orders: &Arc<Orders>,
    whereabouts: &Whereabouts,
) -> Result<JoinHandle<()>> {
    let (control, orders, whereabouts) = (control.clone(), orders.clone(), whereabouts.clone());
    let beat = move || {
        while !orders.over_after(BEAT) {
            let (phase, step) = whereabouts.get();
            if send(&control, FromWorker::Beat { step, phase }, SEND_MS).is_err() {
                return;
            }
        }
    };
    Ok(std::thread::Builder::new().name("heartbeat".to_string()).spawn(beat)?)
}

fn start_hearing(control: &Control, orders: &Arc<Orders>, stop: &Stop) -> Result<JoinHandle<()>> {
    let (control, orders, stop) = (control.clone(), orders.clone(), stop.clone());
    let hear = move || {
        while !orders.over_after(Duration::ZERO) {
            match control.receive(Deadline::after_ms(500)) {
                Ok(None) => {}
                Ok(Some(Message::ToWorker(ToWorker::Stop))) => stop.ask(),
                Ok(Some(Message::ToWorker(ToWorker::Done))) => orders.done(),
                Ok(Some(Message::ToWorker(ToWorker::Abort { message, fault }))) => {
                    orders.abort(Fault::peer(fault.and_then(|fault| fault.rank), message));
                }
                Ok(Some(_)) => {}
                Err(fault) => return orders.abort(fault.during("the coordinator is gone")),
            }
        }
    };
    Ok(std::thread::Builder::new().name("orders".to_string()).spawn(hear)?)
}

fn send(control: &Control, said: FromWorker, within_ms: u64) -> Result<()> {
    control.send(&Message::FromWorker(said), Deadline::after_ms(within_ms))
}

impl Orders {
    fn check(&self) -> Result<()> {
        enter(&self.state).aborted.clone().map_or(Ok(()), Err)
    }

    /// From now on an abort wakes whoever waits on this net.
    fn watch(&self, net: Arc<Net>) {
        let mut state = enter(&self.state);
        if let Some(fault) = &state.aborted {
            net.abort(fault.clone());
        }
        state.net = Some(net);
    }

    fn abort(&self, fault: Fault) {
        let mut state = enter(&self.state);
        if !state.done {
            if let Some(net) = &state.net {
                net.abort(fault.clone());
            }
            state.aborted.get_or_insert(fault);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn done(&self) {
        enter(&self.state).done = true;
        self.changed.notify_all();
    }

    fn end(&self) {
        let mut state = enter(&self.state);
        (state.over, state.net) = (true, None);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits a while; true as soon as it is all over.
    fn over_after(&self, wait: Duration) -> bool {
        let state = enter(&self.state);
        if state.over || wait.is_zero() {
            return state.over;
        }
        let waited = self.changed.wait_timeout_while(state, wait, |state| !state.over);
        waited.map_or(true, |(state, _)| state.over)
    }

    /// Waits for `done` or an abort, or until the time is up.
    fn last_word(&self, within_ms: u64) -> Result<()> {
        let state = enter(&self.state);
        let wait = Duration::from_millis(within_ms);
        let heard = |state: &mut Ordered| !state.done && state.aborted.is_none();
        let waited = self.changed.wait_timeout_while(state, wait, heard);
        match waited.map(|(state, _)| state.aborted.clone()) {
            Ok(Some(fault)) => Err(fault),
            _ => Ok(()),
        }
    }
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with this lock held")
}
