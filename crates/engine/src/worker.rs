//! The walk: the whole system on one screen. Read this first.
//!
//! A worker takes its seat, and then, step after step: which rows? may I start, and which part of the model
//! do they touch? contribute, exchange, apply, tell, keep. Everything it calls is one of the eight stops.

use crate::bridge::HandedIn;
use crate::choices::Carriage;
use crate::clock::{COMPUTATION, GATE, MERGE};
use crate::desk::{Desk, Finished};
use crate::exchange::served::Asks;
use starlings_core::{Fault, Result, Step, contributing, failpoint};
use starlings_learn::{Appetite, Learner, Outbox, Work};

/// Replicas compare their digests every so many steps.
const COMPARED_EVERY: u64 = 1_000;

/// Runs a worker's job from its first step (or the step it resumes at) to the end.
///
/// # Errors
/// A lost peer, named with the phase, where the flock cannot go on; bad data; a full disk; or an interruption.
pub fn run(mut desk: Desk) -> Result<Finished> {
    loop {
        let fault = match walk(&mut desk).and_then(|()| desk.finish()) {
            Ok(finished) => return Ok(finished),
            Err(fault) => fault,
        };
        // Members have changed: the step is finished by those who are left, and the walk goes on.
        if let Err(fault) = desk.recover(fault) {
            let fault = desk.keeper.gone_astray(fault);
            desk.give_up(&fault);
            return Err(fault);
        }
    }
}

fn walk(desk: &mut Desk) -> Result<()> {
    desk.start()?;
    let mut outbox = Outbox::new();
    outbox.want_factors(desk.wants_factors);
    outbox.weigh_factors(matches!(desk.choices.carriage, Carriage::Auto(_)));
    while let Some(step) = desk.walk.next_step() {
        desk.net.check()?;
        if step.0 % COMPARED_EVERY == COMPARED_EVERY - 1 && desk.choices.always_alike() {
            desk.compare_replicas()?;
        }
        let parts = desk.prepare_to_leave();
        take(desk, step, &mut outbox)?;
        desk.ready_to_leave(parts);
        desk.settle()?;
        desk.clock.sent(desk.bytes_sent());
    }
    Ok(())
}

/// One step.
fn take(desk: &mut Desk, step: Step, outbox: &mut Outbox) -> Result<()> {
    let (moments, by_shard) = (desk.moments, desk.by_shard);
    let Desk {
        learner,
        exchange,
        dealer,
        leases,
        before,
        pending,
        model,
        memory,
        wires,
        walk,
        clock,
        facts,
        keeper,
        redeal,
        stop,
        place,
        ..
    } = desk;

    // Data: leased shards, every row once a pass.
    let batch = match learner.appetite() {
        Appetite::Passes => dealer.everything(),
        Appetite::Batches => leases.batch(dealer, walk, step),
    };
    let moment = moments.at(step, walk.pass(step), batch.rows_step);

    // Consistency: may I start? And the rows of the model that this batch touches.
    clock.enter(GATE, step);
    let needs = learner.needs(model, &batch);
    let asks = Asks { stop: stop.asked(), cut: keeper.due_by_time(), after: 0 };
    let agreed = exchange.open(step, &needs, asks, model).map_err(|f| clock.during(f))?;
    if let Some(later) = agreed.skip_to {
        leases.skipped(step);
        walk.skip_to(later);
        return Ok(());
    }
    clock.kept(keeper.poll().map_err(|f| clock.during(f))?);
    if keeper.due(step, agreed) {
        clock.enter("the checkpoint", step);
        let kept = keeper.keep((step, agreed.stop), &mut **exchange, model, memory);
        clock.kept(kept.map_err(|f| clock.during(f))?);
    }
    go_on_unless(agreed.stop, step, keeper.newest())?;

    // Learning: blocks are emitted, summed over the flock by topology × codec × transport, applied.
    clock.enter(COMPUTATION, step);
    failpoint!("before-contribute");
    let mut contributions = Vec::new();
    for batch in by_shard.parts(&batch) {
        outbox.attach(exchange.stream(&moment));
        let (wires, outbox, place) = (&mut **wires, &mut *outbox, place.clone());
        let mut work = Work { moment, place, model, batch: &batch, memory, wires, outbox };
        contribute(&**learner, &mut work).map_err(|f| clock.during(facts.name(f)))?;
        contributions.push(outbox.take());
    }
    failpoint!("after-contribute");
    clock.enter(MERGE, step);
    let rows = batch.len() as u64;
    let handed = HandedIn::new(moment, rows, contributions);
    let outcome = exchange.finish(handed, model).map_err(|f| clock.during(facts.name(f)))?;

    failpoint!("after-apply");

    // Observation.
    *before = Some((walk.so_far(), leases.clone()));
    walk.done(step, moment.rows, &outcome);
    leases.done(step);
    clock.step_done(walk, &outcome);
    keeper.see(step, learner.appetite(), outcome.objective).map_err(|f| clock.during(f))?;
    failpoint!("after-report");
    // Shards that are on their way to someone already stay out of it.
    if let Some(redeal) = redeal.as_mut().filter(|_| pending.is_none()) {
        redeal.computed(rows, clock.last_computation());
        let dealt = redeal.after_step(walk, dealer, memory, &mut |it| exchange.sum(it));
        dealt.map_err(|f| clock.during(f))?.into_iter().for_each(|event| clock.tell(event));
    }
    Ok(())
}

/// What is contributed lies where workers of the same host can read it.
fn contribute(learner: &dyn Learner, work: &mut Work<'_>) -> Result<()> {
    contributing(|| learner.contribute(work))
}

/// What whoever stops a job without checkpoints should know.
pub(crate) const NOTHING_KEPT: &str = "the job has no [checkpoint], so nothing was kept";

fn go_on_unless(stop: bool, step: Step, kept: Option<String>) -> Result<()> {
    if !stop {
        return Ok(());
    }
    let fault = Fault::interrupted(format!("stopped before {step}, as asked"));
    Err(match kept {
        Some(path) => {
            fault.hint(format!("{path} is complete: the same command with --resume goes on"))
        }
        None => fault.hint(NOTHING_KEPT),
    })
}
