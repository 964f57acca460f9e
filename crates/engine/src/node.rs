//! A worker process: joins a coordinator, loads its share of the data, walks, and reports.

use crate::bench::AllReduce;
use crate::choices::Choices;
use crate::clock::Observer;
use crate::desk::{Deliver, Figures, Finished, holders};
use crate::job::{Job, Surroundings};
use crate::launch::place::{Place, lay};
use crate::member::{Held, JoinOptions, Member, is_too_late};
use crate::stock::Stock;
use crate::train::{Options, Task};
use crate::worker;
use starlings_cluster::bytes::Bytes;
use starlings_cluster::protocol::FromWorker;
use starlings_cluster::tensors::{read_model, write_model};
use starlings_core::{Blame, Event, Fault, FaultReport, Model, Result, Seat, Shard, failpoint};
use starlings_data::Survey;
use std::sync::Arc;
use std::time::Duration;

/// How often a worker that was left behind comes again. One that is lost again and again only holds up the others.
const RETURNS_MAX: u32 = 3;
/// How long it waits before it does; for the second time twice as long, and so on.
const RETURN_PAUSE: Duration = Duration::from_millis(500);
/// How long it looks for the coordinator then: the job may be over.
const RETURN_PATIENCE: Duration = Duration::from_secs(5);

/// Takes part in one job as a worker.
///
/// # Errors
/// Whatever ended the job before its end.
pub fn serve(options: &JoinOptions) -> Result<()> {
    serve_and_tell(options, &|_| {}).map(|_| ())
}

/// What a worker's part was in a job that ended well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// It worked.
    Worked,
    /// The job ended before it had a seat.
    TooLate,
}

/// As [`serve`]; a worker that was taken for lost and is there after all (it stood still, or its link is back) comes again as
/// a new one, and tells why it was left behind.
///
/// # Errors
/// Whatever ended the job before its end.
pub fn serve_and_tell(options: &JoinOptions, tell: &dyn Fn(&Fault)) -> Result<Served> {
    match serve_again_and_again(options, tell) {
        Ok(()) => Ok(Served::Worked),
        Err(fault) if is_too_late(&fault) => Ok(Served::TooLate),
        Err(fault) => Err(fault),
    }
}

fn serve_again_and_again(options: &JoinOptions, tell: &dyn Fn(&Fault)) -> Result<()> {
    let (fault, mut returns) = match take_part(Member::join(options)?, options) {
        (Err(fault), true) => (fault, 1),
        (ended, _) => return ended,
    };
    tell(&fault);
    loop {
        std::thread::sleep(RETURN_PAUSE * 2u32.pow(returns - 1));
        // Whatever keeps it from coming again (the job may be over), why it was left behind is what counts.
        let Some(member) = come_again(options) else { return Err(fault) };
        match take_part(member, options) {
            (Err(again), true) if returns < RETURNS_MAX => tell(&again),
            (ended, _) => return ended,
        }
        returns += 1;
    }
}

/// Joins again, where the coordinator was or where another one has followed it.
fn come_again(options: &JoinOptions) -> Option<Member> {
    let patience = RETURN_PATIENCE.min(options.patience);
    let mut addresses = vec![options.coordinator, options.address()];
    addresses.dedup();
    addresses.into_iter().find_map(|coordinator| {
        let options = JoinOptions { coordinator, patience, ..options.clone() };
        (!options.stop.asked()).then(|| Member::join(&options).ok()).flatten()
    })
}

/// Takes part as a member. Also says whether the others went on without it, and it may come again.
fn take_part(member: Member, options: &JoinOptions) -> (Result<()>, bool) {
    let outcome = work(&member, options).map_err(|fault| member.judged(fault));
    let is_left_behind = member.is_left_behind();
    if let Err(fault) = &outcome
        && fault.blame() != Blame::Interrupted
        && !is_left_behind
        && !member.is_told(fault)
    {
        let report = report(&member, fault);
        let _ = member.tell(FromWorker::event(&Event::Fault(report)));
    }
    // Whoever is done has nothing to come back for.
    let returns = outcome.is_err() && is_left_behind && !options.stop.asked();
    (member.leave(outcome), returns)
}

/// Does the work. Gives what it can send home if it is asked for it.
fn work(member: &Member, options: &JoinOptions) -> Result<Option<Held>> {
    match serde_json::from_str(&member.assignment.job).map_err(|_| broken())? {
        Order::Train { job, resume } => train(member, options, &job, resume),
        Order::AllReduce(spec) => measure(member, &spec).map(|()| None),
        Order::Flock => Err(Fault::caller("this flock is for programs with a loop of their own")
            .hint("join it with Flock::join, not with `starlings worker`")),
    }
}

fn train(member: &Member, options: &JoinOptions, job: &str, resume: bool) -> Result<Option<Held>> {
    let survey = member.assignment.survey.as_ref().ok_or_else(broken)?;
    let survey: Survey = serde_json::from_slice(&survey.0).map_err(|_| broken())?;
    let around = Surroundings { folder: "/".into(), cores: 1 };
    let mut job = Job::parse(job, &[], &around)?;
    let choices = Choices::of(&job)?;
    // Whoever is to take the place of a lost stage does not know yet which: until it has a seat it prepares for the first
    // of a whole flock.
    if !member.newcomer || choices.plan.stages() == 1 {
        job = job.with(Some(member.net.world()), None);
    }
    let tell = member.teller();
    // A coordinator that is gone is noticed by the thread that hears orders.
    let observer: Arc<dyn Observer> =
        Arc::new(move |event: Event| drop(tell(FromWorker::event(&event))));
    let stop = member.stop.clone();
    let task_options = Options { observer, stop, resume, program: None };
    let task = Task { job, choices, options: task_options, id: member.assignment.job_id };
    let (seat, shards) = (member.net.seat(), task.job.shards);
    let world = if task.choices.plan.stages() == 1 { member.net.world() } else { task.job.workers };
    let mut assignment = task.choices.plan.assign(seat, world, shards)?;
    if let Some(prepared) = member.assignment.deal.first().filter(|_| member.newcomer) {
        assignment.shards = prepared.iter().map(|&shard| Shard(shard)).collect();
    }
    let stock = Stock::beside(&task.job, &member.net);
    let moves = survey.arrangement.moves() && task.choices.plan.stages() == 1;
    let holding = match moves && !member.newcomer {
        true => {
            let holders = holders(&task.choices, &task.job, member.net.world())?;
            stock.gather(&task, &survey, &member.net, &holders)?
        }
        false => stock.load(&task.job.train, &survey, (&assignment.shards, shards))?,
    };
    failpoint!("join-loaded");
    let complete = match member.newcomer {
        true => None,
        false => task.checkpoint(&survey)?,
    };
    let loader = stock.loader(task.job.train.clone(), survey.clone(), shards);
    let mut desk = lay(Place {
        task: &task,
        survey: &survey,
        holding,
        loader,
        assignment,
        net: member.net.clone(),
        complete: complete.as_ref(),
        whereabouts: member.whereabouts.clone(),
        speaks_for_process: true,
        regroup: member.assignment.survives.then(|| member.regrouping()),
        newcomer: member.newcomer,
        deliver: Some(deliver(member)),
    })?;
    desk.may_part(member.parting());
    match member.newcomer {
        true => {
            failpoint!("prepared-before");
            member.tell(FromWorker::Prepared)?;
            failpoint!("prepared-after");
        }
        false => desk.introduce(std::process::id(), &options.host),
    }
    let Finished { model, figures } = worker::run(desk)?;
    Ok(model.map(|model| -> Held { Box::new(move || pack(&model, &figures).map(Bytes)) }))
}

/// Sends the model home before anyone leaves: whoever has left cannot be asked for it any more.
fn deliver(member: &Member) -> Deliver {
    let tell = member.teller();
    Box::new(move |model, figures| tell(FromWorker::Model(Bytes(pack(model, figures)?))))
}

/// What a client sends as the job.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) enum Order {
    /// Train.
    Train {
        /// The job's text.
        job: String,
        /// Whether to go on from a checkpoint.
        resume: bool,
    },
    /// Measure sums.
    AllReduce(AllReduce),
    /// Nothing: the member's own program has its loop.
    Flock,
}

fn broken() -> Fault {
    Fault::peer(None, "the coordinator sent a job that cannot be read")
}

fn measure(member: &Member, spec: &AllReduce) -> Result<()> {
    let measured = spec.run(&member.net, &member.neighbours)?;
    member.net.leave();
    if member.net.seat() != Seat(0) {
        return Ok(());
    }
    let bytes = serde_json::to_vec(&measured).map_err(|error| Fault::machine(error.to_string()))?;
    member.tell(FromWorker::Model(Bytes(bytes)))
}

/// The model and its figures as one message.
fn pack(model: &Model, figures: &Figures) -> Result<Vec<u8>> {
    let figures = serde_json::to_vec(figures).map_err(|error| Fault::machine(error.to_string()))?;
    let mut bytes = (figures.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&figures);
    write_model(&mut bytes, model)?;
    Ok(bytes)
}

/// Reads what [`pack`] wrote.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Finished> {
    let broken = || Fault::peer(None, "rank 0 sent a model that cannot be read");
    let (len, rest) = bytes.split_first_chunk::<4>().ok_or_else(broken)?;
    let len = u32::from_le_bytes(*len) as usize;
    let (figures, model) = rest.split_at_checked(len).ok_or_else(broken)?;
    let figures = serde_json::from_slice(figures).map_err(|_| broken())?;
    Ok(Finished { model: Some(read_model(model)?), figures })
}

fn report(member: &Member, fault: &Fault) -> FaultReport {
    let (phase, step) = member.whereabouts.get();
    // Members may have changed since this one was linked first.
    let (seat, hosts) = member.seats().map_or((None, Vec::new()), |(seat, it)| (Some(seat), it));
    let rank = match fault.blame() {
        Blame::Peer(rank) => rank,
        _ => seat,
    };
    FaultReport {
        rank,
        host: rank.and_then(|rank| hosts.get(rank.index()).cloned()),
        phase,
        step: Some(step),
        seen_by: seat,
        message: fault.message(),
    }
}
