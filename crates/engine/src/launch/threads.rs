//! Workers as threads of this process, with memory links between them. One table in memory serves all.

use super::place::{Place, lay};
use super::{Launcher, worst};
use crate::clock::Whereabouts;
use crate::desk::{Desk, Finished};
use crate::net::Net;
use crate::redeal::Loader;
use crate::stock::Stock;
use crate::train::{Task, Trained};
use crate::worker;
use starlings_core::{Entry, Fault, Result, Seat};
use starlings_transport::{Link, pair};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

pub(super) const ENTRY: Entry<Launcher> = Entry {
    name: "threads",
    summary: "Workers are threads of this process: nothing to install, nothing to open",
    reference: "the embedded default",
    params: &[],
    gives: &[],
    needs: &[],
    build: run,
};

const HOST: &str = "this process";

fn run(task: &Task) -> Result<Trained> {
    #[expect(clippy::disallowed_methods, reason = "the launcher times its loading")]
    let begun = Instant::now();
    let stock = Stock::new(&task.job.memory, 1);
    let (survey, holding) = stock.load_all(task)?;
    let complete = task.told_checkpoint(&survey)?;
    let mut desks = Vec::new();
    for (seat, net) in nets(task.job.workers)?.into_iter().enumerate() {
        let seat = Seat(seat as u32);
        let assignment = task.choices.plan.assign(seat, task.job.workers, task.job.shards)?;
        desks.push(lay(Place {
            task,
            survey: &survey,
            holding: holding.only(&assignment.shards),
            loader: Loader::at_hand(holding.clone()),
            assignment,
            net: Arc::new(net),
            complete: complete.as_ref(),
            whereabouts: Whereabouts::default(),
            speaks_for_process: seat == Seat(0),
            regroup: None,
            newcomer: false,
            deliver: None,
        })?);
    }
    task.tell_start(&survey)?;
    desks.iter().for_each(|desk| desk.introduce(std::process::id(), HOST));
    let loading = begun.elapsed();
    task.trained(survey, run_all(desks)?, loading)
}

/// The nets of all seats, joined by memory links.
pub(crate) fn nets(world: u32) -> Result<Vec<Net>> {
    let mut links: Vec<BTreeMap<Seat, Arc<dyn Link>>> = vec![BTreeMap::new(); world as usize];
    for a in 0..world {
        for b in a + 1..world {
            let (here, there) = pair();
            links[a as usize].insert(Seat(b), Arc::new(here));
            links[b as usize].insert(Seat(a), Arc::new(there));
        }
    }
    let hosts = vec![HOST.to_string(); world as usize];
    links
        .into_iter()
        .enumerate()
        .map(|(seat, links)| Net::new(Seat(seat as u32), hosts.clone(), links))
        .collect()
}

/// Runs all workers to the end. A worker that panics drops its links, so the others do not wait for it.
fn run_all(desks: Vec<Desk>) -> Result<Finished> {
    let results: Vec<Result<Finished>> = std::thread::scope(|scope| {
        let spawn = |(seat, desk)| {
            let name = format!("worker {seat}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, || worker::run(desk))
        };
        let workers: Vec<_> = desks.into_iter().enumerate().map(spawn).collect();
        let join = |(seat, worker): (usize, std::io::Result<_>)| {
            let worker: std::thread::ScopedJoinHandle<'_, Result<Finished>> = worker?;
            worker.join().unwrap_or_else(|panic| Err(panicked(seat, &*panic)))
        };
        workers.into_iter().enumerate().map(join).collect()
    });
    let (mut first, mut faults) = (None, Vec::new());
    for result in results {
        match result {
            Ok(finished) if finished.model.is_some() => first = Some(finished),
            Ok(_) => {}
            Err(fault) => faults.push(fault),
        }
    }
    match worst(faults) {
        Some(fault) => Err(fault),
        None => first.ok_or_else(|| Fault::peer(None, "rank 0 brought no model")),
    }
}

fn panicked(seat: usize, panic: &(dyn std::any::Any + Send)) -> Fault {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Fault::machine(format!("worker {seat} panicked: {text}"))
        .hint("this is a bug: please report it")
}

#[cfg(test)]
#[path = "spoiled_tests.rs"]
mod spoiled_tests;
