//! Placement by hand (DistBelief, Dean et al., 2012; DIANNE, De Coninck et al., 2018): `[place]` names the layers of each worker
//! of a pipeline, and `[cluster] memory` what a worker's part of the model may take. Both are checked before the first step.

use crate::choices::Choices;
use crate::desk::{first_model, place_of};
use crate::job::{Choice, Job};
use crate::stock::check_room;
use crate::train::facts;
use starlings_core::{Ability, Fault, Model, Result, Role, Seat};
use starlings_data::{arrange, survey};
use starlings_learn::{Facts, Place};
use std::time::Instant;

/// The plan of a job with `[place]`, whose keys are workers and whose values are layers: `0 = "1-3"`.
///
/// # Errors
/// What is no worker or no layers, layers that are at no worker or at two, or a plan that has no stages.
pub(crate) fn placed(
    mut plan: Choice,
    place: Option<&toml::Value>,
    is_named: bool,
) -> Result<Choice> {
    let Some(place) = place else { return Ok(plan) };
    let hint = "write it as [place] with a line for each worker: 0 = \"1-3\", 1 = \"4-6\"";
    let wrong = |what: String| Fault::caller(what).hint(hint);
    let table = place.as_table().ok_or_else(|| wrong("'place' must be a table".to_string()))?;
    let mut parts = Vec::new();
    for (worker, layers) in table {
        let number: i64 =
            worker.parse().map_err(|_| wrong(format!("[place]: '{worker}' is no worker")))?;
        let one = layers.as_integer().filter(|&layer| layer > 0).map(|layer| (layer, layer));
        let range = layers.as_str().and_then(range).or(one);
        let (from, to) =
            range.ok_or_else(|| wrong(format!("[place] {worker} = {layers} names no layers")))?;
        parts.push((from, to, number));
    }
    parts.sort_unstable();
    let mut next = 1;
    for &(from, to, _) in &parts {
        match from {
            from if from > next => {
                return Err(wrong(format!("[place]: layer {next} is at no worker")));
            }
            from if from < next => {
                return Err(wrong(format!("[place]: layer {from} is at two workers")));
            }
            _ => next = to + 1,
        }
    }
    if !is_named {
        plan.name = "pipeline".to_string();
    }
    let stages = match plan.name.as_str() {
        "pipeline" => "stages",
        "hybrid" => "pipeline",
        other => {
            return Err(Fault::caller(format!(
                "[place] puts stages on workers, and plan '{other}' has none"
            ))
            .hint("choose plan 'pipeline', or leave out [place]"));
        }
    };
    let list = |of: &dyn Fn(&(i64, i64, i64)) -> i64| -> toml::Value {
        parts.iter().map(of).map(toml::Value::Integer).collect::<Vec<_>>().into()
    };
    plan.given.insert(stages.to_string(), toml::Value::Integer(parts.len() as i64));
    plan.given.insert("layers".to_string(), list(&|(from, to, _)| to - from + 1));
    plan.given.insert("workers".to_string(), list(&|(_, _, worker)| *worker));
    Ok(plan)
}

/// `3` or `1-3`.
fn range(text: &str) -> Option<(i64, i64)> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (0 < from && from <= to).then_some((from, to))
}

/// Where a plan wants its stages cut by the time that layers take: measures here, once, and writes the cut into the job, so
/// that all workers have the same.
///
/// # Errors
/// Data that cannot be read, or a model that cannot be cut so.
pub(crate) fn measured(job: Job, choices: Choices) -> Result<(Job, Choices)> {
    if !choices.plan.measures() {
        return Ok((job, choices));
    }
    if job.launcher == "mpi" {
        return Err(Fault::caller("ranks of MPI would each measure another cut")
            .hint("set costs = \"counted\" in [cluster] plan, or layers by hand"));
    }
    let learner = &choices.learner;
    let survey = survey(&job.train, learner.encoding(), learner.label())?;
    let facts = facts(&job, &arrange(&job.train, survey, job.shards)?);
    #[expect(
        clippy::disallowed_methods,
        reason = "what layers take is measured before the job starts"
    )]
    let begun = Instant::now();
    let clock = || begun.elapsed().as_secs_f64();
    // Whoever measures has all layers for a while.
    check_room(&job, &choices, &facts, &Place::WHOLE)?;
    let stages = choices.plan.stages() / choices.plan.parts();
    let Some(layers) = learner.measured_cut(&facts, stages, &clock)? else {
        return Ok((job, choices));
    };
    let job = job.cut_at(&layers)?;
    let choices = Choices::of(&job)?;
    Ok((job, choices))
}

/// Which part of the model a seat has, in words; `None` where everyone has all of it.
pub(crate) fn held(job: &Job, choices: &Choices, facts: &Facts, seat: Seat) -> Option<String> {
    if choices.plan.stages() == 1 {
        return None;
    }
    // A job may have more seats than it began with. Stages go round, so that each of those has the part of one of the first.
    let first = Seat(seat.0 % job.workers);
    let place = place_of(&choices.plan.assign(first, job.workers, job.shards).ok()?);
    let stage = format!("stage {} of {}", place.depth() + 1, place.depths());
    let part = format!("part {} of {}", place.part() + 1, place.parts);
    let part = match (place.depths(), place.parts) {
        (_, 1) => format!("{stage} of the model"),
        (1, _) => format!("{part} of the model"),
        _ => format!("{part} of {stage} of the model"),
    };
    Some(match choices.learner.tell_place(facts, &place) {
        Some(told) => format!("{part} ({told})"),
        None => part,
    })
}

/// Makes the first model of each stage, and throws it away: what cannot start is refused before workers do.
///
/// # Errors
/// When the learner cannot start on this data or cannot be cut so, or a part is too large.
pub(crate) fn try_out(job: &Job, choices: &Choices, facts: &Facts) -> Result<()> {
    let try_one = |place: Place, facts: &Facts| {
        let model = first_model(job, choices, facts, place)?;
        check_memory(job, choices, &model)
    };
    let stages = choices.plan.stages();
    if stages == 1 {
        return try_one(Place::WHOLE, facts);
    }
    for seat in (0..stages).map(Seat) {
        let assignment = choices.plan.assign(seat, job.workers, job.shards)?;
        // Micro-batches are made of the shards of one pipeline.
        let shards = job.shards / (job.workers / stages).max(1);
        let facts = Facts { shards, ..facts.clone() };
        try_one(place_of(&assignment), &facts)?;
    }
    Ok(())
}

/// Whether a worker's part of the model, its optimiser's state and one gradient fit into `[cluster] memory`.
///
/// # Errors
/// When they do not.
pub(crate) fn check_memory(job: &Job, choices: &Choices, model: &Model) -> Result<()> {
    let Some(limit) = job.memory_of_models else { return Ok(()) };
    let bytes = |weights: bool| -> u64 {
        let tensors = model.iter().filter(|(_, it)| !weights || it.role == Role::Weight);
        tensors.map(|(_, it)| (it.values.len() * it.values.kind().bytes()) as u64).sum()
    };
    let needed = bytes(false) + bytes(true);
    if needed <= limit {
        return Ok(());
    }
    let told = |bytes: u64| match bytes {
        0..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    };
    let stages = choices.plan.stages();
    let (whose, hint) = match stages {
        1 if !choices.learner.gives().contains(&Ability::StagedModel) => {
            ("the model", "make it smaller, or raise [cluster] memory".to_string())
        }
        1 => (
            "the model",
            "cut it: plan = { name = \"pipeline\", stages = 2 }, or raise [cluster] memory"
                .to_string(),
        ),
        stages => (
            "a stage of the model",
            format!("cut it into more than {stages} parts, or raise [cluster] memory"),
        ),
    };
    let what = format!(
        "{whose} takes {} on a worker with its optimiser's state and gradient, and [cluster] memory is {}",
        told(needed),
        told(limit)
    );
    Err(Fault::caller(what).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str, named: Option<&str>) -> Result<Choice> {
        let table: toml::Table = text.parse().unwrap();
        let name = named.unwrap_or("data-parallel").to_string();
        placed(Choice { name, given: toml::Table::new() }, table.get("place"), named.is_some())
    }

    #[test]
    fn layers_by_hand_are_a_pipeline() {
        let found = plan("[place]\n1 = '1-2'\n0 = '3'\n2 = '4-9'", None).unwrap();
        assert_eq!(found.name, "pipeline");
        let wanted = "stages = 3\nlayers = [2, 1, 6]\nworkers = [1, 0, 2]";
        assert_eq!(found.given, wanted.parse().unwrap());
        assert_eq!(plan("[place]\n0 = '1-2'", Some("hybrid")).unwrap().given["pipeline"], 1.into());
        assert_eq!(plan("", None).unwrap().name, "data-parallel");
    }

    #[test]
    fn what_is_no_placement_is_refused() {
        for (text, told) in [
            ("[place]\n0 = '1-2'\n1 = '4'", "layer 3 is at no worker"),
            ("[place]\n0 = '1-3'\n1 = '3'", "layer 3 is at two workers"),
            ("[place]\n0 = '2-1'", "names no layers"),
            ("[place]\nfirst = '1-2'", "'first' is no worker"),
            ("place = 3", "must be a table"),
        ] {
            let fault = plan(text, None).unwrap_err().to_string();
            assert!(fault.contains(told), "{fault}");
        }
        let fault = plan("[place]\n0 = '1-2'", Some("data-parallel")).unwrap_err().to_string();
        assert!(fault.contains("'data-parallel' has none"), "{fault}");
    }

    #[test]
    fn a_seat_beyond_those_that_a_job_began_with_has_the_part_of_one_of_them() {
        for (plan, workers, told) in [
            ("data-parallel", "{ min = 1, max = 4 }", None),
            ("{ name = 'pipeline', stages = 2 }", "{ min = 2, max = 4 }", Some("stage 2 of 2")),
            ("{ name = 'tensor', parts = 2 }", "{ min = 2, max = 4 }", Some("part 2 of 2")),
        ] {
            let plan = if plan.starts_with('{') { plan.to_string() } else { format!("'{plan}'") };
            let text = format!(
                "[data]\ntrain = 'digits'\nlabel = 'class'\n[learner]\nname = 'mlp'\nhidden = [8, 8]\n\
                 [cluster]\nlauncher = 'flock'\nworkers = {workers}\nplan = {plan}\n"
            );
            let around = crate::job::Surroundings { folder: "/".into(), cores: 2 };
            let job = Job::parse(&text, &[], &around).unwrap();
            let choices = Choices::of(&job).unwrap();
            let learner = &choices.learner;
            let found = survey(&job.train, learner.encoding(), learner.label()).unwrap();
            let facts = facts(&job, &arrange(&job.train, found, job.shards).unwrap());
            let held = held(&job, &choices, &facts, Seat(3));
            assert_eq!(held.is_some(), told.is_some(), "{plan}: {held:?}");
            assert!(held.unwrap_or_default().contains(told.unwrap_or_default()), "{plan}");
        }
    }
}
