//! A member of a flock: joins a coordinator, takes its seat, and is linked to all other seats; when members change
//! it links up with the new ones. The shell under both a worker process and a caller's own loop. Two threads serve
//! it: one beats, one hears orders.

mod line;
mod mesh;
mod orders;

use crate::clock::Whereabouts;
use crate::neighbours::Neighbours;
use crate::net::Net;
use crate::parting::Parting;
use crate::recovery::{Flocked, Regroup};
use crate::stop::Stop;
#[cfg(test)]
pub(crate) use line::call;
use line::{Line, Welcomed, knock};
use mesh::{Yard, gatekeeper};
pub(crate) use orders::is_too_late;
use orders::{Orders, too_late};
use starlings_cluster::bytes::Bytes;
use starlings_cluster::control::Control;
use starlings_cluster::protocol::{Assignment, FromWorker, Lineup, Message, ToWorker};
use starlings_core::{Blame, Deadline, Epoch, Fault, JobId, Result, Seat, Step, failpoint};
use starlings_transport::{Listener, Security, Ticket, TlsIdentity, Token};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

const BEAT: Duration = Duration::from_millis(100);
const SEND_MS: u64 = 2_000;
const MODEL_MS: u64 = 60_000;
/// How long the coordinator may take to say who fell; longer than its grace for an accused that still beats.
const VERDICT_MS: u64 = 2_500;
/// How long a worker that was asked to leave may take to give what its codec has held back.
const PARTING_MS: u64 = 20_000;
/// How long the coordinator may take to say who is left: it may be waiting for more workers, and be followed by another that
/// waits anew.
const REGROUP_MS: u64 = 200_000;
/// How long a newcomer waits for a seat that is taken meanwhile: somebody may leave. That the coordinator is there is watched
/// all the same.
const SEAT_MS: u64 = 24 * 3_600_000;

/// How long a member that is done stays, should it be asked for the result: as long as several may take, one after the
/// other, to send it.
const STAY_MS: u64 = 300_000;

/// Makes the result anew for a coordinator that has not got it.
pub type Held = Box<dyn Fn() -> Result<Bytes>>;

/// How to join.
#[derive(Clone, Debug)]
pub struct JoinOptions {
    /// Where the coordinator is.
    pub coordinator: SocketAddr,
    /// What lets this member in.
    pub ticket: Ticket,
    /// This host's name, for reports.
    pub host: String,
    /// Set when this member is asked to leave; the others go on.
    pub stop: Stop,
    /// How long to wait for the coordinator to answer at all.
    pub patience: Duration,
    /// The ticket's file: a coordinator that follows this one writes its address there.
    pub ticket_path: Option<PathBuf>,
}

impl JoinOptions {
    /// Where the coordinator is now: one that follows another writes the ticket anew, with its own address.
    pub(crate) fn address(&self) -> SocketAddr {
        let fresh = self.ticket_path.as_deref().and_then(|path| Ticket::load(path).ok());
        let fresh = fresh.filter(|ticket| ticket.job == self.ticket.job);
        fresh.and_then(|ticket| ticket.address).unwrap_or(self.coordinator)
    }
}

/// This host's name, for reports.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A member with a seat, or on its way to one.
pub struct Member {
    /// What the coordinator assigned.
    pub assignment: Assignment,
    /// Links to all other seats.
    pub net: Arc<Net>,
    /// Those of them that share this host's memory.
    pub neighbours: Arc<Neighbours>,
    /// Where this member is, for its heartbeat.
    pub whereabouts: Whereabouts,
    /// Set when the whole job is asked to stop.
    pub stop: Stop,
    /// Whether it has no seat yet: the job runs already, and takes it in once it is prepared.
    pub newcomer: bool,
    /// Whether it had a seat from the beginning, and somebody was lost before all were linked.
    pub(crate) unlinked: bool,
    shell: Arc<Shell>,
    threads: Vec<JoinHandle<()>>,
}

/// What a member keeps whatever epoch it is in.
struct Shell {
    line: Arc<Line>,
    yard: Yard,
    orders: Arc<Orders>,
    whereabouts: Whereabouts,
    job: JobId,
    token: Token,
    parting: Parting,
    /// Its seat and everyone's host in the newest lineup that it has, if it ever had one.
    lineup: Mutex<Option<(Seat, Vec<String>)>>,
}

impl Member {
    /// Joins, waits until everyone has a seat, and links to all of them. A newcomer to a running job returns at
    /// once, with what it has to prepare.
    ///
    /// # Errors
    /// A refused ticket or version (caller), a coordinator that is not there, or an abort.
    pub fn join(options: &JoinOptions) -> Result<Member> {
        let Welcomed { control, address, identity } = knock(options)?;
        failpoint!("join-welcomed");
        let door = Arc::default();
        let security = identity.map_or(Security::Plain, Security::Tls);
        let home = SocketAddr::new(own_address(address)?, 0);
        let listener = Listener::bind(home, &security, gatekeeper(Arc::clone(&door)))?;
        let address = listener.local_addr().to_string();
        let line = Arc::new(Line::new(options, control.clone()));
        let (host, pid) = (options.host.clone(), std::process::id());
        line.ask(FromWorker::Ready { host, pid, address })?;
        failpoint!("join-ready");
        let (orders, whereabouts) = (Arc::new(Orders::default()), Whereabouts::default());
        let stop = Stop::new();
        let at_first = line.clone();
        whereabouts.at_first(move |phase, step| {
            let beat = FromWorker::Beat { step, phase, waits: true, bytes: 0 };
            let _ = at_first.mention(beat);
        });
        let parting = Parting::new(options.stop.clone());
        let beating = start_beating(&line, &orders, &whereabouts, &parting)?;
        let (mut assignment, mut newcomer) = assigned(&line, options)?;
        failpoint!("join-assigned");
        line.settle(&assignment, newcomer);
        let hearing = start_hearing(&line, &orders, &stop)?;
        let token = Token::from_bytes(assignment.peer_token.0);
        let job = assignment.job_id;
        let yard = Yard { listener, security, door, orders: orders.clone() };
        let (mut flock, mut unlinked) = (None, false);
        if !newcomer {
            match yard.link_up(&assignment.lineup(), (job, &token)) {
                Ok(linked) => flock = Some(linked),
                // Someone was lost before anything began: the others begin in the next epoch, as newcomers do.
                Err(fault) if matches!(fault.blame(), Blame::Peer(_)) && assignment.survives => {
                    (newcomer, unlinked) = (true, true);
                    assignment.deal = assignment.own_deal();
                }
                Err(fault) => return Err(fault),
            }
        }
        failpoint!("join-linked");
        let (net, neighbours) = match flock {
            Some(linked) => linked,
            // Until it has a seat it is a flock of its own.
            None => {
                let alone = Net::new(Seat(0), vec![options.host.clone()], BTreeMap::new())?;
                (Arc::new(alone), Arc::default())
            }
        };
        let lineup = (!newcomer).then(|| seats(&assignment.lineup()));
        let (whereabouts_of, lineup) = (whereabouts.clone(), Mutex::new(lineup));
        let shell =
            Shell { line, yard, orders, whereabouts: whereabouts_of, job, token, parting, lineup };
        let (shell, threads) = (Arc::new(shell), vec![beating, hearing]);
        Ok(Member {
            assignment,
            net,
            neighbours,
            whereabouts,
            stop,
            newcomer,
            unlinked,
            shell,
            threads,
        })
    }

    /// Says something to the coordinator.
    ///
    /// # Errors
    /// The coordinator is gone.
    pub fn tell(&self, said: FromWorker) -> Result<()> {
        self.shell.tell(said)
    }

    /// A handle that tells the coordinator things from another thread.
    pub fn teller(&self) -> impl Fn(FromWorker) -> Result<()> + Send + Sync + use<> {
        let line = self.shell.line.clone();
        move |said| match said {
            FromWorker::Model(_) => line.say(said, MODEL_MS),
            FromWorker::Event(_) => line.mention(said),
            _ => line.say(said, SEND_MS),
        }
    }

    /// Whether the others took this member for lost and go on without it: it may come again, as new.
    #[must_use]
    pub fn is_left_behind(&self) -> bool {
        self.shell.orders.is_left_behind()
    }

    /// Whether this is what the coordinator said: it need not be told.
    #[must_use]
    pub fn is_told(&self, fault: &Fault) -> bool {
        self.shell.orders.is_told(fault)
    }

    /// When this member, asked to leave, may go.
    #[must_use]
    pub fn parting(&self) -> Parting {
        self.shell.parting.clone()
    }

    /// Its seat and everyone's host, as of the newest lineup; `None` for a newcomer that has no seat yet.
    pub(crate) fn seats(&self) -> Option<(Seat, Vec<String>)> {
        enter(&self.shell.lineup).clone()
    }

    /// Who gives this member a new flock when members change.
    #[must_use]
    pub fn regrouping(&self) -> Box<dyn Regroup> {
        Box::new(Rejoin { shell: self.shell.clone() })
    }

    /// Says how it ended and waits (not for long) for the coordinator's last word; sends the result if it is asked for
    /// it. A fault comes back as the coordinator knows it: it has heard all survivors.
    ///
    /// # Errors
    /// The fault that ended the job.
    pub fn leave(self, outcome: Result<Option<Held>>) -> Result<()> {
        let ended = self.say_how_it_ended(outcome);
        ended.map_err(|fault| match fault.blame() {
            Blame::Peer(_) if self.shell.line.is_left_alone() => left_alone(),
            _ => fault,
        })
    }

    fn say_how_it_ended(&self, outcome: Result<Option<Held>>) -> Result<()> {
        let orders = &self.shell.orders;
        match outcome {
            // Being asked to stop and having stopped is a job well done.
            Ok(held) => self.stay(held),
            // The coordinator has let it go already, or the job is over.
            Err(fault) if orders.is_done() => Err(fault),
            Err(fault) if fault.blame() == Blame::Interrupted => {
                let told = self.shell.finished(false).and_then(|()| orders.last_word(60_000));
                told.and(Err(fault))
            }
            Err(fault) => {
                self.shell.accuse(&fault);
                // Its last heartbeat may be many steps old, and is all that the coordinator knows of where it failed.
                let _ = self.shell.line.mention(beat(&self.whereabouts));
                let _ = self.tell(FromWorker::failed(self.shell.epoch(), &fault));
                // The coordinator's last word goes to its client; this member names what it saw itself.
                let _ = orders.last_word(VERDICT_MS);
                Err(fault)
            }
        }
    }

    /// Is done, and stays until the result is home: whoever was to send it may be lost with it.
    fn stay(&self, held: Option<Held>) -> Result<()> {
        self.shell.finished(held.is_some())?;
        let by = Deadline::after_ms(STAY_MS);
        while self.shell.orders.is_asked(by)? {
            if let Some(held) = &held {
                self.tell(FromWorker::Model(held()?))?;
            }
        }
        Ok(())
    }

    /// A lost peer as the coordinator sees it. It has heard all survivors and knows who fell first, while this
    /// member may only have seen another survivor leave.
    #[must_use]
    pub fn judged(&self, fault: Fault) -> Fault {
        if !matches!(fault.blame(), Blame::Peer(_)) {
            return fault;
        }
        self.shell.accuse(&fault);
        match self.shell.orders.last_word(VERDICT_MS) {
            Err(verdict) if matches!(verdict.blame(), Blame::Peer(Some(_))) => {
                let agree = verdict.blame() == fault.blame();
                if agree { fault } else { verdict.during(fault.message()) }
            }
            // Whoever has a seat is waited for: only a newcomer can be too late.
            _ if self.shell.orders.has_ended() => too_late(),
            _ => fault,
        }
    }
}

impl Shell {
    fn tell(&self, said: FromWorker) -> Result<()> {
        let within = if matches!(said, FromWorker::Model(_)) { MODEL_MS } else { SEND_MS };
        self.line.say(said, within)
    }

    fn epoch(&self) -> Epoch {
        Epoch(self.line.epoch.load(Ordering::Relaxed))
    }

    fn finished(&self, holds: bool) -> Result<()> {
        self.tell(FromWorker::Finished { epoch: self.epoch(), holds })
    }

    /// Names the peer that is missed, and what was expected of it.
    fn accuse(&self, fault: &Fault) {
        let (phase, step) = self.whereabouts.get();
        self.accuse_in(phase, step, fault);
    }

    fn accuse_in(&self, phase: String, step: Step, fault: &Fault) {
        if let Blame::Peer(Some(seat)) = fault.blame() {
            let epoch = self.epoch();
            self.line.accuse(FromWorker::Accuse { epoch, seat, phase, step });
        }
    }
}

/// Links a member up with the next lineup.
struct Rejoin {
    shell: Arc<Shell>,
}

impl Regroup for Rejoin {
    fn accuse(&mut self, fault: &Fault) {
        self.shell.accuse(fault);
        failpoint!("regroup-accused");
    }

    fn regroup(&mut self) -> Result<Flocked> {
        let shell = &self.shell;
        loop {
            let within_ms = if shell.line.is_unseated() { SEAT_MS } else { REGROUP_MS };
            let lineup = shell.orders.next_lineup(Deadline::after_ms(within_ms));
            let lineup = lineup.map_err(|fault| match shell.parting.has_lost() {
                true => fault.hint(
                    "its steps took too long to give what its codec had held back: that is lost",
                ),
                false => fault,
            })?;
            shell.line.epoch.store(lineup.epoch.0, Ordering::Relaxed);
            *enter(&shell.lineup) = Some(seats(&lineup));
            failpoint!("regroup-lineup");
            match shell.yard.link_up(&lineup, (shell.job, &shell.token)) {
                Ok((net, _)) => {
                    failpoint!("regroup-linked");
                    return Ok(Flocked { net, epoch: lineup.epoch, deal: lineup.deal });
                }
                // Someone was lost meanwhile, or fell silent: the coordinator will say who is left.
                Err(fault) if matches!(fault.blame(), Blame::Peer(_)) => {
                    let (_, step) = shell.whereabouts.get();
                    shell.accuse_in("linking up".to_string(), step, &fault);
                }
                Err(fault) => return Err(fault),
            }
        }
    }
}

/// The receiver's seat in a lineup, and everyone's host.
fn seats(lineup: &Lineup) -> (Seat, Vec<String>) {
    (lineup.seat, lineup.roster.iter().map(|peer| peer.host.clone()).collect())
}

/// However a member ends, its links close and its threads end with it: to the others a member that did not leave
/// politely is lost.
impl Drop for Member {
    fn drop(&mut self) {
        self.shell.orders.end();
        self.shell.line.close();
        self.net.close();
        for thread in self.threads.drain(..) {
            // A panic there has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// The coordinator's first word: credentials, when it uses any.
pub(crate) fn welcome(control: &Control) -> Result<Option<TlsIdentity>> {
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

/// Waits for a seat, or for what to prepare in a job that runs already. The coordinator has the deadline for that; a member waits as long as it is told nothing.
fn assigned(line: &Line, options: &JoinOptions) -> Result<(Assignment, bool)> {
    loop {
        let received = match line.control().receive(Deadline::after_ms(200)) {
            Ok(received) => received,
            // Another coordinator may follow, and is asked for a seat.
            Err(fault) => {
                let taken_up = line.take_up(fault);
                taken_up.map_err(|fault| match options.stop.asked() {
                    true => stopped_waiting(),
                    false => fault,
                })?;
                continue;
            }
        };
        match received {
            Some(Message::ToWorker(ToWorker::Assign(given))) => return Ok((*given, false)),
            Some(Message::ToWorker(ToWorker::Prepare(given))) => return Ok((*given, true)),
            Some(Message::ToWorker(ToWorker::Abort { blame, message, .. })) => {
                return Err(over(blame, None, message));
            }
            Some(Message::ToWorker(ToWorker::LeftBehind { message })) => {
                return Err(Fault::peer(None, message));
            }
            Some(Message::ToWorker(ToWorker::Done | ToWorker::Stop)) => return Err(too_late()),
            Some(Message::ToWorker(ToWorker::Released)) => return Err(stopped_waiting()),
            Some(_) => return Err(Fault::peer(None, "the coordinator sent something unexpected")),
            None if options.stop.asked() => return Err(stopped_waiting()),
            None => {}
        }
    }
}

fn stopped_waiting() -> Fault {
    Fault::interrupted("stopped while waiting for a seat")
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

fn start_beating(
    line: &Arc<Line>,
    orders: &Arc<Orders>,
    whereabouts: &Whereabouts,
    parting: &Parting,
) -> Result<JoinHandle<()>> {
    let (line, orders, whereabouts) = (line.clone(), orders.clone(), whereabouts.clone());
    let parting = parting.clone();
    let run = move || {
        let (mut said, mut is_silent, mut late) = (false, false, None);
        while !orders.over_after(BEAT) {
            if parting.asked() {
                late.get_or_insert(Deadline::after_ms(PARTING_MS));
            }
            if !said && parting.goes(late.is_some_and(|late| late.passed())) {
                said = true;
                if line.say(FromWorker::Leave, SEND_MS).is_err() {
                    return;
                }
            }
            // The epoch first: a list of a later one is then taken for old news, never the other way round.
            let epoch = Epoch(line.epoch.load(Ordering::Relaxed));
            let seats = orders.unheard();
            if is_silent || !seats.is_empty() {
                is_silent = !seats.is_empty();
                if line.mention(FromWorker::Unheard { epoch, seats }).is_err() {
                    return;
                }
            }
            if line.mention(beat(&whereabouts)).is_err() {
                return;
            }
        }
    };
    Ok(std::thread::Builder::new().name("heartbeat".to_string()).spawn(run)?)
}

/// That this member is alive, and where it is.
fn beat(whereabouts: &Whereabouts) -> FromWorker {
    let (phase, step) = whereabouts.get();
    let (waits, bytes) = (whereabouts.waits(), whereabouts.bytes());
    FromWorker::Beat { step, phase, waits, bytes }
}

fn start_hearing(line: &Arc<Line>, orders: &Arc<Orders>, stop: &Stop) -> Result<JoinHandle<()>> {
    let (line, orders, stop) = (line.clone(), orders.clone(), stop.clone());
    let hear = move || {
        while !orders.over_after(Duration::ZERO) {
            match line.control().receive(Deadline::after_ms(500)) {
                Ok(None) => {}
                Ok(Some(Message::ToWorker(ToWorker::Stop))) => stop.ask(),
                Ok(Some(Message::ToWorker(ToWorker::Done))) => orders.done(),
                Ok(Some(Message::ToWorker(ToWorker::Deliver))) => orders.ask(),
                Ok(Some(Message::ToWorker(ToWorker::Regroup(lineup)))) => {
                    line.seated();
                    orders.regroup(*lineup);
                }
                Ok(Some(Message::ToWorker(ToWorker::Prepare(given)))) => line.prepare_again(&given),
                Ok(Some(Message::ToWorker(ToWorker::Released))) => orders.release(),
                Ok(Some(Message::ToWorker(ToWorker::LeftBehind { message }))) => {
                    orders.leave_behind(Fault::peer(None, message));
                }
                Ok(Some(Message::ToWorker(ToWorker::Abort { blame, message, fault }))) => {
                    orders.abort(over(blame, fault.and_then(|fault| fault.rank), message));
                }
                Ok(Some(_)) => {}
                // Nobody is there to be told anything any more.
                Err(_) if orders.is_done() => return line.close(),
                Err(fault) => {
                    if let Err(fault) = line.take_up(fault) {
                        return orders.abort(match line.is_left_alone() {
                            true => left_alone(),
                            false => fault.during("the coordinator is gone"),
                        });
                    }
                }
            }
        }
    };
    Ok(std::thread::Builder::new().name("orders".to_string()).spawn(hear)?)
}

/// The job is over without success. To its members that is the flock's failure, whoever must act, but where a person asked for it.
fn over(blame: Blame, lost: Option<Seat>, message: String) -> Fault {
    match blame {
        Blame::Interrupted => Fault::interrupted(message),
        _ => Fault::peer(lost, message),
    }
}

/// What a member says that was asked to leave while nobody coordinated.
fn left_alone() -> Fault {
    Fault::interrupted("this worker left as asked; the coordinator is gone and was not told")
}

fn enter<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with this lock held")
}

#[cfg(test)]
mod coordinated_tests;
