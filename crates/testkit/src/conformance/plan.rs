//! The laws of plans: who works on which rows with which part of the model.

use super::{Verdict, ensure};
use starlings_core::{Blame, Seat, Shard};
use starlings_plan::{Assignment, Plan};
use std::collections::BTreeSet;

/// All laws, for worlds of 1 to 17, for one pipeline and for two, with 16 and 48 shards.
///
/// # Errors
/// The first broken law.
pub fn check(plan: &dyn Plan) -> Verdict {
    let stages = plan.stages();
    ensure!(stages > 0, "a model of no stages");
    for shards in [16, 48] {
        for world in 1..=17 {
            let fits = check_one(plan, world, shards)? == Fits::Yes;
            let may = plan.world().is_none_or(|only| only == world);
            ensure!(may || !fits, "{world} workers are taken, and {:?} are said", plan.world());
        }
        let worlds = plan.world().map_or(vec![stages, 2 * stages], |only| vec![only]);
        // More pipelines than shards cannot all have rows.
        for world in worlds.into_iter().filter(|world| world / stages <= shards) {
            ensure!(
                check_one(plan, world, shards)? == Fits::Yes,
                "{world} workers are refused although they make whole pipelines"
            );
        }
    }
    Ok(())
}

/// Whether a plan takes a flock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fits {
    /// It does.
    Yes,
    /// It refuses.
    No,
}

/// All laws for one flock, or a refusal that tells the caller what to do.
///
/// # Errors
/// The first broken law.
pub fn check_one(plan: &dyn Plan, world: u32, shards: u32) -> Result<Fits, String> {
    laws(plan, world, shards).map_err(|law| format!("world {world}, {shards} shards: {law}"))
}

fn laws(plan: &dyn Plan, world: u32, shards: u32) -> Result<Fits, String> {
    let mut made = Vec::new();
    for seat in (0..world).map(Seat) {
        match plan.assign(seat, world, shards) {
            Ok(assignment) => made.push(assignment),
            Err(fault) => {
                ensure!(fault.blame() == Blame::Caller, "a refusal blames {:?}", fault.blame());
                ensure!(fault.advice().is_some(), "a refusal without a hint: {fault}");
                ensure!(made.is_empty(), "{seat} is refused, its predecessors are not");
            }
        }
    }
    if made.is_empty() {
        return Ok(Fits::No);
    }
    ensure!(made.len() == world as usize, "the last ranks are not refused, their predecessors are");
    for (seat, mine) in made.iter().enumerate() {
        seat_is_sound(plan, &made, seat, mine)
            .map_err(|law| format!("{}: {law}", Seat(seat as u32)))?;
    }
    partition(made.iter().map(|assignment| &assignment.pipeline), "pipelines")?;
    partition(made.iter().map(|assignment| &assignment.group), "groups")?;
    (0..plan.stages()).try_for_each(|stage| stage_has_all_shards(&made, stage, shards))?;
    Ok(Fits::Yes)
}

fn seat_is_sound(plan: &dyn Plan, made: &[Assignment], seat: usize, mine: &Assignment) -> Verdict {
    let this = Seat(seat as u32);
    let all = mine.pipeline.iter().chain(&mine.group);
    ensure!(all.clone().all(|peer| peer.index() < made.len()), "a peer outside the flock");
    ensure!(mine.stage < plan.stages(), "stage {} of {}", mine.stage, plan.stages());
    ensure!(mine.pipeline.len() == plan.stages() as usize, "a pipeline of {:?}", mine.pipeline);
    ensure!(
        mine.pipeline[mine.stage as usize] == this,
        "its stage {} is not its place in {:?}",
        mine.stage,
        mine.pipeline
    );
    let parts = plan.parts();
    ensure!(mine.parts == parts, "it has {} parts, and the plan {parts}", mine.parts);
    ensure!(parts > 0 && plan.stages().is_multiple_of(parts), "no whole stages of {parts} parts");
    ensure!(mine.group.contains(&this), "it is not in its group {:?}", mine.group);
    ensure!(mine.group.windows(2).all(|pair| pair[0] < pair[1]), "its group is not in order");
    for peer in mine.pipeline.iter().map(|peer| &made[peer.index()]) {
        ensure!(peer.shards == mine.shards, "its pipeline works on several sets of shards");
    }
    for peer in mine.group.iter().map(|peer| &made[peer.index()]) {
        ensure!(peer.stage == mine.stage, "its group holds several parts of the model");
    }
    Ok(())
}

/// Every seat is in its own set; if the distinct sets hold no more seats than there are, nobody is in two.
fn partition<'a>(sets: impl ExactSizeIterator<Item = &'a Vec<Seat>>, what: &str) -> Verdict {
    let world = sets.len();
    let distinct: BTreeSet<&Vec<Seat>> = sets.collect();
    let members: usize = distinct.iter().map(|set| set.len()).sum();
    ensure!(members == world, "the {what} have {members} members in a flock of {world}");
    Ok(())
}

fn stage_has_all_shards(made: &[Assignment], stage: u32, shards: u32) -> Verdict {
    let hands = || made.iter().filter(|assignment| assignment.stage == stage).map(|a| &a.shards);
    let mut dealt: Vec<Shard> = hands().flatten().copied().collect();
    dealt.sort_unstable();
    let all: Vec<Shard> = (0..shards).map(Shard).collect();
    ensure!(dealt == all, "stage {stage} works on {dealt:?}");
    let (least, most) = (hands().map(Vec::len).min(), hands().map(Vec::len).max());
    let even = least.zip(most).is_some_and(|(least, most)| most <= least + 1);
    ensure!(even, "stage {stage}: one has {least:?} shards, another {most:?}");
    Ok(())
}
