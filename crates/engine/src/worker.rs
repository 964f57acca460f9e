//! The walk: the whole system on one screen. Read this first.
//!
//! A worker takes its seat, and then, step after step: which rows? may I start, and which part of the model
//! do they touch? contribute, exchange, apply, tell, keep. Everything it calls is one of the eight stops.

use crate::bridge::HandedIn;
use crate::clock::{COMPUTATION, GATE, MERGE};
use crate::desk::{Desk, Finished};
use crate::exchange::served::Asks;
use starlings_core::{Fault, Result, Step};
use starlings_learn::{Appetite, Outbox, Work};

/// Runs a worker's job from its first step (or the step it resumes at) to the end.
///
/// # Errors
/// A lost peer, named with the phase; bad data; a full disk; or an interruption.
pub fn run(mut desk: Desk) -> Result<Finished> {
    desk.start()?;
    let (moments, place, stop) = (desk.moments, desk.place, desk.stop.clone());
    let (factors, by_shard) = (desk.wants_factors, desk.by_shard);
    let Desk {
        learner, exchange, dealer, model, memory, wires, walk, clock, keeper, redeal, ..
    } = &mut desk;
    let mut outbox = Outbox::new();
    outbox.want_factors(factors);
    while let Some(step) = walk.next_step() {
        // Data: leased shards, every row once a pass.
        let pass = walk.pass(step);
        let batch = match learner.appetite() {
            Appetite::Passes => dealer.everything(),
            Appetite::Batches => dealer.deal(pass, walk.step_in_pass(step)),
        };
        let moment = moments.at(step, pass, batch.rows_step);

        // Consistency: may I start? And the rows of the model that this batch touches.
        clock.enter(GATE, step);
        let needs = learner.needs(model, &batch);
        let asks = Asks { stop: stop.asked(), cut: keeper.due_by_time(), after: 0 };
        let agreed = exchange.open(step, &needs, asks, model).map_err(|f| clock.during(f))?;
        if let Some(later) = agreed.skip_to {
            walk.skip_to(later);
            continue;
        }
        if keeper.due(step, agreed) {
            clock.enter("the checkpoint", step);
            let kept =
                keeper.keep(step, &mut **exchange, model, memory).map_err(|f| clock.during(f))?;
            clock.kept(kept);
        }
        if agreed.stop {
            return Err(interrupted(step, keeper.newest()));
        }

        // Learning: blocks are emitted, summed over the flock by topology × codec × transport, applied.
        clock.enter(COMPUTATION, step);
        let mut contributions = Vec::new();
        for batch in by_shard.parts(&batch) {
            let wires = &mut **wires;
            outbox.attach(exchange.stream(&moment));
            let (batch, outbox) = (&batch, &mut outbox);
            let mut work = Work { moment, place, model, batch, memory, wires, outbox };
            learner.contribute(&mut work).map_err(|f| clock.during(f))?;
            contributions.push(outbox.take());
        }
        clock.enter(MERGE, step);
        let rows = batch.len() as u64;
        let handed = HandedIn::new(moment, rows, contributions);
        let outcome = exchange.finish(handed, model).map_err(|f| clock.during(f))?;

        // Observation.
        walk.done(step, moment.rows, &outcome);
        clock.step_done(walk, &outcome);
        if let Some(redeal) = redeal {
            redeal.computed(rows, clock.last_computation());
            redeal.after_step(walk, dealer, memory, &mut **exchange)?;
        }
    }
    desk.finish()
}

fn interrupted(step: Step, kept: Option<String>) -> Fault {
    let fault = Fault::interrupted(format!("stopped before {step}, as asked"));
    match kept {
        Some(path) => {
            fault.hint(format!("{path} is complete: the same command with --resume goes on"))
        }
        None => fault.hint("the job has no [checkpoint], so nothing was kept"),
    }
}
