//! Workers that joined a coordinator (`starlings worker --join`), on this host or others. This side submits the
//! job, relays what happens and takes the model home.

use super::Launcher;
use super::told::Told;
use crate::choices::Choices;
use crate::desk::Finished;
use crate::node::{Order, unpack};
use crate::placement::held;
use crate::recovery::Completion;
use crate::train::{Task, Trained};
use crate::worker::NOTHING_KEPT;
use starlings_cluster::bytes::Bytes;
use starlings_cluster::control::Control;
use starlings_cluster::membership::Wish;
use starlings_cluster::protocol::{FromClient, Message, Status, ToClient, read_event};
use starlings_core::{Blame, Deadline, Entry, Epoch, Event, Fault, FaultReport, Result, Seat};
use starlings_data::{Survey, arrange, survey};
use starlings_learn::Facts;
use starlings_transport::{Hello, PROTOCOL_VERSION, Purpose, Ticket, connect};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const ENTRY: Entry<Launcher> = Entry {
    name: "flock",
    summary: "Workers join a coordinator from this host or others, over TCP with a token and TLS",
    reference: "Li et al. (2014), Scaling Distributed Machine Learning with the Parameter Server: the scheduler",
    params: &[],
    gives: &[],
    needs: &[],
    build: run,
};

/// How long another coordinator may take to be there.
const RETURN_MS: u64 = 60_000;
/// How long one call may take to whoever may have followed: where it is can change meanwhile.
const RETURN_CALL_MS: u64 = 1_000;
const CALL_MS: u64 = 10_000;

fn run(task: &Task) -> Result<Trained> {
    let missing = |key: &str| {
        Fault::caller(format!("the launcher 'flock' needs [cluster] {key}")).hint(
            "start `starlings coordinator --ticket FILE`, then set cluster.coordinator and cluster.ticket",
        )
    };
    let address = task.job.coordinator.as_deref().ok_or_else(|| missing("coordinator"))?;
    let path = task.job.ticket.as_deref().ok_or_else(|| missing("ticket"))?;
    let ticket = Ticket::load(path)?;
    let door = Door { address: resolve(address)?, ticket: &ticket, path: Some(path) };
    submit(task, check(task)?, &door, &mut || None)
}

/// An address from `host:port`.
///
/// # Errors
/// When it is none.
pub fn resolve(text: &str) -> Result<SocketAddr> {
    let wrong = |why: String| {
        Fault::caller(format!("'{text}' is not an address: {why}")).hint("write host:port")
    };
    let mut addresses = text.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    addresses.next().ok_or_else(|| wrong("the name has no address".to_string()))
}

/// Where a coordinator is, and what lets one in.
pub(super) struct Door<'a> {
    /// Where.
    pub(super) address: SocketAddr,
    /// What.
    pub(super) ticket: &'a Ticket,
    /// The ticket's file, where a coordinator that follows this one writes its address.
    pub(super) path: Option<&'a Path>,
}

/// A job that is worth asking workers for.
pub(super) struct Checked {
    survey: Survey,
    begun: Instant,
}

/// Refuses a bad job before any worker has been asked.
///
/// # Errors
/// Data that cannot be read, a checkpoint that does not fit, or a job that cannot start.
pub(super) fn check(task: &Task) -> Result<Checked> {
    #[expect(clippy::disallowed_methods, reason = "the launcher times its loading")]
    let begun = Instant::now();
    let learner = &task.choices.learner;
    let survey = survey(&task.job.train, learner.encoding(), learner.label())?;
    let survey = arrange(&task.job.train, survey, task.job.shards)?;
    task.told_checkpoint(&survey)?;
    task.choices.plan.assign(Seat(0), task.job.workers, task.job.shards)?;
    task.try_out(&survey)?;
    Ok(Checked { survey, begun })
}

/// Submits the job to a coordinator and stays until its end. `watch` may end it early with a fault.
pub(super) fn submit(
    task: &Task,
    Checked { survey, begun }: Checked,
    door: &Door<'_>,
    watch: &mut dyn FnMut() -> Option<Fault>,
) -> Result<Trained> {
    let control = call(door.address, door.ticket)?;
    let (finished, newest, stopped, lost) = (None, None, false, None);
    let facts = task.facts(&survey);
    let told = Told::new(task.choices.completion());
    let unheard = Some(order(task, &survey)?);
    let mut client =
        Client { task, door, control, facts, finished, newest, stopped, lost, told, unheard };
    // A coordinator that is gone is noticed by whoever waits for its answer.
    if let Err(fault) = client.submit()
        && !matches!(fault.blame(), Blame::Peer(_))
    {
        return Err(fault);
    }
    task.tell_start(&survey)?;
    let finished = client.follow(watch)?;
    let loading = begun.elapsed().saturating_sub(Duration::from_secs_f64(finished.figures.seconds));
    task.trained(survey, finished, loading)
}

/// A control connection as someone who holds a ticket.
///
/// # Errors
/// A refusal, or nobody there.
pub fn call(address: SocketAddr, ticket: &Ticket) -> Result<Control> {
    call_within(address, ticket, CALL_MS)
}

fn call_within(address: SocketAddr, ticket: &Ticket, within_ms: u64) -> Result<Control> {
    let hello = Hello {
        purpose: Purpose::Control,
        job: ticket.job,
        epoch: Epoch(0),
        seat: Seat(0),
        token: ticket.token.clone(),
        version: PROTOCOL_VERSION,
    };
    let link = connect(address, &hello, &ticket.security(), Deadline::after_ms(within_ms))?;
    Ok(Control::new(Arc::new(link)))
}

fn order(task: &Task, survey: &Survey) -> Result<FromClient> {
    let order = Order::Train { job: task.job.text.clone(), resume: task.options.resume };
    let json = |error: serde_json::Error| Fault::machine(error.to_string());
    Ok(FromClient::Submit {
        job: serde_json::to_string(&order).map_err(json)?,
        wish: wish(task)?,
        survey: Some(Bytes(serde_json::to_vec(survey).map_err(json)?)),
    })
}

/// Whom the job needs, and who has which shards at the start. Where the model is cut into stages the plan deals.
fn wish(task: &Task) -> Result<Wish> {
    let (job, plan) = (&task.job, &task.choices.plan);
    let mut deal = Vec::new();
    if plan.stages() == 1 {
        for seat in (0..job.workers).map(Seat) {
            let shards = plan.assign(seat, job.workers, job.shards)?.shards;
            deal.push(shards.into_iter().map(|shard| shard.0).collect());
        }
    }
    let stall_ms = job.patience.as_millis() as u64;
    // Under MPI a rank that is gone takes all others with it, whatever we do.
    let least = (job.launcher != "mpi").then_some(job.least);
    Ok(Wish { workers: job.workers, most: job.most, least, deal, stall_ms })
}

struct Client<'a> {
    task: &'a Task,
    door: &'a Door<'a>,
    control: Control,
    facts: Facts,
    finished: Option<Finished>,
    newest: Option<String>,
    stopped: bool,
    /// Who was lost and has not been replaced: the first, for what others say then follows from it.
    lost: Option<FaultReport>,
    told: Told,
    /// The job, until a coordinator says that it has it.
    unheard: Option<FromClient>,
}

impl Client<'_> {
    fn send(&self, said: FromClient) -> Result<()> {
        self.control.send(&Message::FromClient(said), Deadline::after_ms(10_000))
    }

    /// Brings a coordinator the job, or asks one that has it for what happens there.
    fn submit(&self) -> Result<()> {
        let returns = FromClient::Return { job_id: self.door.ticket.job };
        self.send(self.unheard.clone().unwrap_or(returns))
    }

    /// Follows the job to its end.
    fn follow(&mut self, watch: &mut dyn FnMut() -> Option<Fault>) -> Result<Finished> {
        loop {
            if self.task.options.stop.asked() && !self.stopped {
                self.stopped = true;
                // A coordinator that is gone is noticed below.
                let _ = self.send(FromClient::Stop);
            }
            let received = match self.control.receive(Deadline::after_ms(100)) {
                Ok(received) => received,
                Err(fault) => {
                    self.return_to_another(fault)?;
                    continue;
                }
            };
            let Some(message) = received else {
                // Only in silence: what workers said before they ended goes first.
                match watch() {
                    Some(fault) => return Err(fault),
                    None => continue,
                }
            };
            match message {
                Message::ToClient(ToClient::Accepted { .. }) => self.unheard = None,
                Message::ToClient(ToClient::Event(text)) => self.relay(read_event(&text)?),
                Message::ToClient(ToClient::Model(bytes)) => {
                    self.finished = Some(unpack(&bytes.0)?)
                }
                Message::ToClient(ToClient::Done) => {
                    let missing = match self.stopped {
                        true => Fault::interrupted("stopped, as asked"),
                        false => Fault::peer(
                            None,
                            "the work is done, but the worker that was to send the model was lost with it",
                        ),
                    };
                    return self.finished.take().ok_or_else(|| self.resumable(missing));
                }
                Message::ToClient(ToClient::Failed { blame, message, hint, fault }) => {
                    // Who fails by itself may only have seen somebody else go.
                    let lost = fault.filter(|it| it.message != message).or(self.lost.take());
                    let fault = Fault::new(blame, message);
                    let fault = hint.into_iter().fold(fault, Fault::hint);
                    return Err(self.resumable(self.without_part(fault, lost)));
                }
                _ => {}
            }
        }
    }

    /// The coordinator is gone. Another one may follow it: its address will be in the ticket.
    fn return_to_another(&mut self, fault: Fault) -> Result<()> {
        let Some(path) = self.door.path else { return Err(fault) };
        let by = Deadline::after_ms(RETURN_MS);
        while !by.passed() && !self.task.options.stop.asked() {
            let ticket = Ticket::load(path).ok().filter(|it| it.job == self.door.ticket.job);
            let address = ticket.and_then(|ticket| ticket.address).unwrap_or(self.door.address);
            if let Ok(control) = call_within(address, self.door.ticket, RETURN_CALL_MS) {
                self.control = control;
                // One that is gone again is followed by yet another.
                let _ = self.submit();
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if self.task.options.stop.asked() {
            let what =
                "stopped, as asked; the coordinator is gone, and its workers end by themselves";
            return Err(self.resumable(Fault::interrupted(what)));
        }
        Err(fault
            .during("the coordinator is gone")
            .hint("`starlings coordinator --resume` with the same ticket takes over its job"))
    }

    fn relay(&mut self, mut event: Event) {
        if !self.told.is_new(&event) {
            return;
        }
        if let Event::Fault(report) = &mut event {
            tell_residual(report, &self.task.choices);
        }
        match &event {
            Event::Checkpoint { path, .. } => self.newest = Some(path.clone()),
            Event::Fault(report) if self.lost.is_none() && report.rank.is_some() => {
                self.lost = Some(report.clone());
            }
            Event::Regrouped { .. } => self.lost = None,
            _ => {}
        }
        self.task.options.observer.on(event);
    }

    /// Where the model is cut, a job ends when nobody can take the place of whoever was lost: this says what they held.
    fn without_part(&self, fault: Fault, lost: Option<FaultReport>) -> Fault {
        let Task { job, choices, .. } = self.task;
        let lost = lost.filter(|_| matches!(fault.blame(), Blame::Peer(_)));
        let part = |it: &FaultReport| held(job, choices, &self.facts, it.rank?);
        match lost.and_then(|it| Some((part(&it)?, it))) {
            Some((part, lost)) => {
                let told = format!(
                    "{}; {part} was lost with it, and nobody can take its place",
                    lost.message
                );
                Fault::peer(lost.rank, told)
            }
            None => fault,
        }
    }

    fn resumable(&self, fault: Fault) -> Fault {
        match (&self.newest, fault.blame()) {
            (Some(path), Blame::Interrupted) => {
                fault.hint(format!("{path} is complete: the same command with --resume goes on"))
            }
            (None, Blame::Interrupted) if self.task.job.checkpoint.is_none() => {
                fault.hint(NOTHING_KEPT)
            }
            _ => fault,
        }
    }
}

/// What a codec had held back at a lost worker is lost with it: nobody else knows even how much it was. Those who go back to a
/// checkpoint find it there.
fn tell_residual(report: &mut FaultReport, choices: &Choices) {
    let is_lost = choices.carriage.holds_back() && choices.completion() != Completion::Restore;
    if report.rank.is_some() && is_lost {
        report.message.push_str("; what its codec had held back is lost with it");
    }
}

/// Asks a coordinator how it is doing.
///
/// # Errors
/// A refusal, nobody there, or no answer in time.
pub fn status(address: SocketAddr, ticket: &Ticket) -> Result<Status> {
    let control = call(address, ticket)?;
    control.send(&Message::FromClient(FromClient::Status), Deadline::after_ms(5_000))?;
    let by = Deadline::after_ms(5_000);
    while !by.passed() {
        if let Some(Message::ToClient(ToClient::Status(status))) = control.receive(by)? {
            return Ok(status);
        }
    }
    Err(Fault::peer(None, format!("the coordinator at {address} did not answer in time")))
}
