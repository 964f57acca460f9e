//! Lays a worker's desk, wherever the worker runs: its part of the data, of the checkpoint and of the flock.

use crate::clock::Whereabouts;
use crate::desk::{Deliver, Desk, Setup};
use crate::job::{fingerprint, pace};
use crate::keeper::{Keeper, Post, Resumed};
use crate::net::Net;
use crate::recovery::Regroup;
use crate::redeal::Loader;
use crate::train::Task;
use starlings_cluster::checkpoint::Complete;
use starlings_core::Result;
use starlings_data::{Holding, Survey};
use starlings_plan::Assignment;
use std::sync::Arc;

/// What a worker is placed with.
pub(crate) struct Place<'a> {
    pub(crate) task: &'a Task,
    pub(crate) survey: &'a Survey,
    pub(crate) holding: Holding,
    /// Reads the rows of other shards, should they be dealt to this worker.
    pub(crate) loader: Loader,
    pub(crate) assignment: Assignment,
    pub(crate) net: Arc<Net>,
    pub(crate) complete: Option<&'a Complete>,
    pub(crate) whereabouts: Whereabouts,
    pub(crate) speaks_for_process: bool,
    /// Who gives it a new flock when members change.
    pub(crate) regroup: Option<Box<dyn Regroup>>,
    /// Whether it has no seat yet.
    pub(crate) newcomer: bool,
    /// Who takes the model at the end.
    pub(crate) deliver: Option<Deliver>,
}

/// Lays the desk of one worker.
pub(crate) fn lay(place: Place<'_>) -> Result<Desk> {
    let Place { task, survey, holding, loader, assignment, net, complete, .. } = place;
    let job = &task.job;
    let resumed = complete.map(|it| Resumed::read(it, |shard| assignment.shards.contains(&shard)));
    let resumed = resumed.transpose()?;
    let post = Post {
        fingerprint: fingerprint(job, &survey.digest),
        pace: pace(job).to_string(),
        shards: job.shards,
        writes_stage: (assignment.group[0] == net.seat()).then_some(assignment.stage),
        net: net.clone(),
    };
    let keeper = match &job.checkpoint {
        Some(spec) => Keeper::new(spec, post, resumed.as_ref())?,
        None => Keeper::none(),
    };
    Desk::lay(Setup {
        job,
        choices: task.choices.clone(),
        facts: task.facts(survey),
        intake: survey.intake.clone(),
        holding,
        assignment,
        net,
        observer: task.options.observer.clone(),
        whereabouts: place.whereabouts,
        stop: task.options.stop.clone(),
        resumed,
        keeper,
        loader,
        regroup: place.regroup,
        newcomer: place.newcomer,
        deliver: place.deliver,
        speaks_for_process: place.speaks_for_process,
    })
}
