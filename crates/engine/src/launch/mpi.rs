//! Workers that mpirun started: every process runs the same command, and MPI says which one it is. Rank 0 leads: it
//! is the client too, with the screen, the report and the model. The others follow and are silent.
//!
//! Two ways to carry bytes. Over MPI's own messages (`transport = "mpi"`, the default here) there is no coordinator
//! and no detector, for MPI promises no survival: whoever fails says so and ends all ranks. With `transport = "tcp"`
//! or `"shared"` MPI only starts the processes and passes the ticket; then the flock is one as any other.

use super::Launcher;
use super::flock::{Door, check, resolve, status, submit};
use super::place::{Place, lay};
use super::processes::Watch;
use crate::choices::Choices;
use crate::clock::{Observer, Whereabouts};
use crate::desk::{Finished, holders};
use crate::job::{Job, Surroundings};
use crate::member::JoinOptions;
use crate::net::Net;
use crate::node::serve;
use crate::stock::Stock;
use crate::stop::Stop;
use crate::train::{Options, Task, Trained};
use crate::worker;
use serde::{Deserialize, Serialize};
use starlings_cluster::bytes::Bytes;
use starlings_cluster::control::Control;
use starlings_cluster::coordinator::Coordinator;
use starlings_cluster::membership;
use starlings_cluster::protocol::{FromWorker, Message, ToWorker, read_event};
use starlings_core::{
    Blame, Deadline, Entry, Epoch, Event, Fault, FaultReport, JobId, Result, Seat,
};
use starlings_data::{Survey, arrange, survey};
use starlings_transport::mpi::World;
use starlings_transport::{Link, Ticket, Token};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

pub(super) const ENTRY: Entry<Launcher> = Entry {
    name: "mpi",
    summary: "Workers are what mpirun has started; MPI promises no survival: one death ends the job",
    reference: "Message Passing Interface Forum, MPI: A Message-Passing Interface Standard, version 3.1, 2015; Gabriel et al. (2004), Open MPI",
    params: &[],
    gives: &[],
    needs: &[],
    build: run,
};

/// The two links between a pair of ranks: what rank 0 and the others tell each other, and what workers exchange.
const TERMS_CHANNEL: u16 = 0;
const WORK_CHANNEL: u16 = 1;

const SEND_MS: u64 = 10_000;
/// How long a rank may take to join the flock of a coordinator.
const JOIN_MS: u64 = 30_000;
/// How long the others may take to say that they are done, once one is.
const DONE_MS: u64 = 60_000;
/// Who only saw another rank go waits before it complains, for that one knows better why. Rank 0 is before the others:
/// it knows of checkpoints, and of what a coordinator found.
const LINGER_LEADING_MS: u64 = 1_000;
const LINGER_FOLLOWING_MS: u64 = 5_000;

/// MPI is started once in a process and belongs to all of it.
static WORLD: OnceLock<World> = OnceLock::new();

/// What this process does for a job.
pub enum Role {
    /// It runs the job as the client does, with as many workers as there are ranks.
    Leads(Box<Job>),
    /// It works for the one who leads, and says nothing.
    Follows(Follower),
}

/// A rank other than 0.
pub struct Follower {
    world: &'static World,
}

/// Learns from MPI what this process is to do. For jobs of other launchers MPI is not touched.
///
/// # Errors
/// MPI does not start.
pub fn enlist(job: Job) -> Result<Role> {
    if job.launcher != ENTRY.name {
        return Ok(Role::Leads(Box::new(job)));
    }
    let started = World::start()?;
    let world = WORLD.get_or_init(|| started);
    Ok(match world.rank() {
        0 => Role::Leads(Box::new(job.with(Some(world.size()), None))),
        _ => Role::Follows(Follower { world }),
    })
}

/// Ends all ranks with this exit code, unless MPI was not started or has been left. Does not return if MPI obeys.
pub fn abort(code: u8) {
    if let Some(world) = WORLD.get() {
        world.abort(code);
    }
}

/// What rank 0 tells the others.
#[derive(Serialize, Deserialize)]
enum Terms {
    /// MPI carries everything.
    Links { job: String, resume: bool, id: JobId, survey: Box<Survey> },
    /// A coordinator lets in whoever has this ticket.
    Join { address: SocketAddr, token: String, job: JobId, ca: Option<Vec<u8>> },
}

fn run(task: &Task) -> Result<Trained> {
    let world = WORLD.get().filter(|world| world.rank() == 0).ok_or_else(|| {
        Fault::caller("the launcher 'mpi' runs a job on rank 0 alone")
            .hint("call starlings::mpi::enlist first, as the command line does, and serve as what it says")
    })?;
    match task.job.transport.as_deref() {
        None | Some("mpi") => over_mpi(world, task),
        Some(_) => over_sockets(world, task),
    }
}

/// All ranks work over MPI's own messages; rank 0 shows what the others tell.
fn over_mpi(world: &'static World, task: &Task) -> Result<Trained> {
    #[expect(clippy::disallowed_methods, reason = "the launcher times its loading")]
    let begun = Instant::now();
    let learner = &task.choices.learner;
    let survey = survey(&task.job.train, learner.encoding(), learner.label())?;
    let survey = arrange(&task.job.train, survey, task.job.shards)?;
    // A bad job is refused here, before any other rank has begun.
    task.told_checkpoint(&survey)?;
    task.try_out(&survey)?;
    let followers: Vec<Control> = (1..world.size()).map(|rank| terms_link(world, rank)).collect();
    let (job, resume) = (task.job.text.clone(), task.options.resume);
    let known = Box::new(survey.clone());
    tell_terms(&followers, &Terms::Links { job, resume, id: task.id, survey: known })?;
    task.tell_start(&survey)?;
    // Links stay open until all are done: an end that is seen before is a loss.
    let net = net(world, task.id)?;
    let walked = std::thread::scope(|scope| {
        let over = Arc::new(OnceLock::new());
        for follower in &followers {
            let (observer, over) = (&*task.options.observer, over.clone());
            let relay = move || relay(follower, observer, &over);
            std::thread::Builder::new().name("relay".to_string()).spawn_scoped(scope, relay)?;
        }
        let walked = walk(task, &survey, &net);
        let failed = walked.as_ref().is_err_and(|fault| fault.blame() != Blame::Interrupted);
        // After a failure this is also the time that those who know better have.
        let wait_ms = if failed { LINGER_LEADING_MS } else { DONE_MS };
        over.get_or_init(|| Deadline::after_ms(wait_ms));
        walked
    });
    let walked = match walked {
        Err(fault) if fault.blame() != Blame::Interrupted => return Err(fault),
        walked => walked,
    };
    leave(world, &followers)?;
    let finished = walked?;
    let loading = begun.elapsed().saturating_sub(Duration::from_secs_f64(finished.figures.seconds));
    task.trained(survey, finished, loading)
}

/// Shows what another rank tells, until that one is done or it is `over`.
fn relay(follower: &Control, observer: &dyn Observer, over: &OnceLock<Deadline>) {
    while !over.get().is_some_and(|by| by.passed()) {
        match follower.receive(Deadline::after_ms(100)) {
            Ok(Some(Message::FromWorker(FromWorker::Event(text)))) => {
                // A line that cannot be read is not worth the job.
                let _ = read_event(&text).map(|event| observer.on(event));
            }
            Ok(Some(Message::FromWorker(FromWorker::Finished { .. }))) => return,
            Ok(_) => {}
            // It failed: it says why and ends this process, or the time is up.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Links to all other ranks.
fn net(world: &World, job: JobId) -> Result<Arc<Net>> {
    let others = (0..world.size()).filter(|&rank| rank != world.rank());
    let link = |rank| -> (Seat, Arc<dyn Link>) {
        (Seat(rank), Arc::new(world.link(rank, WORK_CHANNEL, job, Epoch(1))))
    };
    Ok(Arc::new(Net::new(Seat(world.rank()), world.hosts().to_vec(), others.map(link).collect())?))
}

/// One rank's work: its part of the data, and its walk.
fn walk(task: &Task, survey: &Survey, net: &Arc<Net>) -> Result<Finished> {
    let (seat, shards) = (net.seat(), task.job.shards);
    let assignment = task.choices.plan.assign(seat, net.world(), shards)?;
    let stock = Stock::beside(&task.job, net);
    let holding = match survey.arrangement.moves() && task.choices.plan.stages() == 1 {
        true => {
            let holders = holders(&task.choices, &task.job, net.world())?;
            stock.gather(task, survey, net, &holders)?
        }
        false => stock.load(&task.job.train, survey, (&assignment.shards, shards))?,
    };
    let complete = task.checkpoint(survey)?;
    let loader = stock.loader(task.job.train.clone(), survey.clone(), shards);
    let whereabouts = Whereabouts::default();
    let desk = lay(Place {
        task,
        survey,
        holding,
        loader,
        assignment,
        net: net.clone(),
        complete: complete.as_ref(),
        whereabouts: whereabouts.clone(),
        speaks_for_process: true,
        regroup: None,
        newcomer: false,
        deliver: None,
    })?;
    desk.introduce(std::process::id(), net.host(seat));
    worker::run(desk).inspect_err(|fault| {
        if fault.blame() != Blame::Interrupted {
            task.options.observer.on(Event::Fault(report(net, &whereabouts, fault)));
        }
    })
}

fn report(net: &Net, whereabouts: &Whereabouts, fault: &Fault) -> FaultReport {
    let (phase, step) = whereabouts.get();
    let rank = match fault.blame() {
        Blame::Peer(rank) => rank,
        _ => Some(net.seat()),
    };
    let host = rank.map(|rank| net.host(rank).to_string());
    let seen_by = Some(net.seat());
    FaultReport { rank, host, phase, step: Some(step), seen_by, message: fault.message() }
}

/// A coordinator at rank 0, and every rank a member of its flock.
fn over_sockets(world: &'static World, task: &Task) -> Result<Trained> {
    let (home, tls) = home(world, &task.job)?;
    let coordinator = Coordinator::bind(home, tls, membership::Options::default())?;
    let (address, ticket) = (coordinator.address(), coordinator.ticket().clone());
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    let serve_all = move || coordinator.run(&|| ended.load(Ordering::Relaxed));
    let server = std::thread::Builder::new().name("coordinator".to_string()).spawn(serve_all)?;
    let failed: Arc<Mutex<Option<Fault>>> = Arc::default();
    let (options, failure) =
        (join_options(world, address, &ticket, Stop::default()), failed.clone());
    let work = move || {
        if let Err(fault) = serve(&options) {
            *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
        }
    };
    let worker = std::thread::Builder::new().name("worker".to_string()).spawn(work)?;
    let mut watch = || failed.lock().unwrap_or_else(PoisonError::into_inner).take();
    let followers: Vec<Control> = (1..world.size()).map(|rank| terms_link(world, rank)).collect();
    invite(&followers, address, &ticket, &mut watch)?;
    let door = Door { address, ticket: &ticket, path: None };
    let trained = check(task).and_then(|checked| submit(task, checked, &door, &mut watch));
    over.store(true, Ordering::Relaxed);
    if let Err(fault) = &trained
        && fault.blame() != Blame::Interrupted
    {
        return trained;
    }
    // Their results have reached us as the client's.
    let _ = (worker.join(), server.join());
    hear_all(&followers);
    leave(world, &followers)?;
    trained
}

/// Lets the other ranks in, each after the one before, so that seats are ranks.
fn invite(
    followers: &[Control],
    address: SocketAddr,
    ticket: &Ticket,
    watch: Watch<'_>,
) -> Result<()> {
    let (token, job, ca) = (ticket.token.reveal(), ticket.job, ticket.ca.clone());
    let terms = Terms::Join { address, token, job, ca };
    for joined in 0..=followers.len() {
        let by = Deadline::after_ms(JOIN_MS);
        while status(address, ticket)?.members.len() <= joined {
            if let Some(fault) = watch() {
                return Err(fault);
            }
            if by.passed() {
                let seat = Seat(joined as u32);
                return Err(Fault::peer(Some(seat), format!("{seat} did not join in time")));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        tell_terms(followers.get(joined), &terms)?;
    }
    Ok(())
}

/// Where the coordinator listens: within this host if all ranks are on it, and inside TLS if not.
fn home(world: &World, job: &Job) -> Result<(SocketAddr, bool)> {
    let hosts = world.hosts();
    let address = match &job.coordinator {
        Some(text) => resolve(text)?,
        None if hosts.iter().all(|host| *host == hosts[0]) => (Ipv4Addr::LOCALHOST, 0).into(),
        None => resolve(&format!("{}:0", hosts[0]))?,
    };
    let loopback = address.ip().to_canonical().is_loopback();
    match loopback && hosts.iter().any(|host| *host != hosts[0]) {
        true => {
            Err(Fault::caller(format!("the other hosts cannot reach {} at {address}", hosts[0]))
                .hint("set [cluster] coordinator to an address of the first host, with port 0"))
        }
        false => Ok((address, !loopback)),
    }
}

fn join_options(world: &World, address: SocketAddr, ticket: &Ticket, stop: Stop) -> JoinOptions {
    JoinOptions {
        coordinator: address,
        ticket: ticket.clone(),
        host: world.hosts()[world.rank() as usize].clone(),
        stop,
        patience: Duration::from_secs(30),
        ticket_path: None,
    }
}

impl Follower {
    /// Works until the job is over.
    ///
    /// # Errors
    /// What ended it early, as this rank saw it. The caller says so and calls [`abort`].
    pub fn serve(self, stop: Stop) -> Result<()> {
        let world = self.world;
        let place = format!("rank {} on {}", world.rank(), world.hosts()[world.rank() as usize]);
        self.work(stop).map_err(|fault| fault.during(place))
    }

    fn work(&self, stop: Stop) -> Result<()> {
        let lead = terms_link(self.world, 0);
        // Links stay open until all are done: an end that is seen before is a loss.
        let mut links = None;
        let outcome = match hear_terms(&lead)? {
            Terms::Links { job, resume, id, survey } => {
                let around = Surroundings { folder: "/".into(), cores: 1 };
                let job = Job::parse(&job, &[], &around)?.with(Some(self.world.size()), None);
                let choices = Choices::of(&job)?;
                let options = Options { observer: teller(&lead), stop, resume, program: None };
                let task = Task { job, choices, options, id };
                let net = links.insert(net(self.world, id)?);
                walk(&task, &survey, net).map(drop)
            }
            Terms::Join { address, token, job, ca } => {
                let ticket = Ticket { address: None, token: Token::parse(&token)?, job, ca };
                serve(&join_options(self.world, address, &ticket, stop))
            }
        };
        match outcome {
            Err(fault) if matches!(fault.blame(), Blame::Peer(_)) => {
                std::thread::sleep(Duration::from_millis(LINGER_FOLLOWING_MS));
                return Err(fault);
            }
            Err(fault) if fault.blame() != Blame::Interrupted => return Err(fault),
            // Being asked to stop and having stopped is a job well done.
            _ => {}
        }
        let done = Message::FromWorker(FromWorker::Finished { epoch: Epoch(0), holds: false });
        lead.send(&done, Deadline::after_ms(SEND_MS))?;
        await_done(&lead)?;
        self.world.finish()
    }
}

/// Tells rank 0 what happens here.
fn teller(lead: &Control) -> Arc<dyn Observer> {
    let lead = lead.clone();
    // That rank 0 is gone is noticed by the work itself.
    Arc::new(move |event: Event| {
        let said = Message::FromWorker(FromWorker::event(&event));
        drop(lead.send(&said, Deadline::after_ms(SEND_MS)));
    })
}

fn terms_link(world: &World, rank: u32) -> Control {
    Control::new(Arc::new(world.link(rank, TERMS_CHANNEL, JobId(0), Epoch(0))))
}

fn tell_terms<'a>(to: impl IntoIterator<Item = &'a Control>, terms: &Terms) -> Result<()> {
    let bytes = serde_json::to_vec(terms).map_err(|error| Fault::machine(error.to_string()))?;
    let message = Message::ToWorker(ToWorker::Welcome(Some(Bytes(bytes))));
    to.into_iter().try_for_each(|it| it.send(&message, Deadline::after_ms(SEND_MS)))
}

/// Waits for the terms. Rank 0 may have much to read before; should it fail, it ends this process.
fn hear_terms(lead: &Control) -> Result<Terms> {
    let broken = |what: String| Fault::peer(Some(Seat(0)), what);
    loop {
        match lead.receive(Deadline::after_ms(1_000))? {
            None => {}
            Some(Message::ToWorker(ToWorker::Welcome(Some(Bytes(bytes))))) => {
                let read = serde_json::from_slice(&bytes);
                return read.map_err(|error| broken(format!("rank 0 sent broken terms: {error}")));
            }
            Some(_) => return Err(broken("rank 0 sent something else than terms".to_string())),
        }
    }
}

/// Waits until every other rank has said that it is done.
fn hear_all(followers: &[Control]) {
    let by = Deadline::after_ms(DONE_MS);
    followers.iter().for_each(|follower| drop(follower.receive(by)));
}

fn await_done(lead: &Control) -> Result<()> {
    match lead.receive(Deadline::after_ms(DONE_MS))? {
        Some(_) => Ok(()),
        None => Err(Fault::peer(Some(Seat(0)), "rank 0 did not end the job in time")),
    }
}

/// All are done: everybody leaves MPI.
fn leave(world: &World, followers: &[Control]) -> Result<()> {
    let done = Message::ToWorker(ToWorker::Done);
    followers.iter().try_for_each(|it| it.send(&done, Deadline::after_ms(SEND_MS)))?;
    world.finish()
}
