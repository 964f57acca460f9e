//! Training from the outside: a job in, a trained model and its figures out, whichever launcher runs it.

use crate::checkpoints;
use crate::choices::Choices;
use crate::clock::Observer;
use crate::desk::{Figures, Finished, extent, weights};
use crate::job::{Job, fingerprint, pace};
use crate::launch::{LAUNCHERS, Launcher};
use crate::placement;
use crate::stop::Stop;
use starlings_cluster::checkpoint::Complete;
use starlings_core::{Blame, Entry, Event, Fault, FaultReport, JobId, Model, Result};
use starlings_data::{Intake, Schema, Survey};
use starlings_learn::Facts;
use std::sync::Arc;
use std::time::Duration;

/// What the caller brings besides the job.
#[derive(Clone)]
pub struct Options {
    /// Who wants to know.
    pub observer: Arc<dyn Observer>,
    /// Set when someone asks to stop.
    pub stop: Stop,
    /// Continue from the newest complete checkpoint.
    pub resume: bool,
    /// The program that runs as a worker process: this same binary.
    pub program: Option<std::path::PathBuf>,
}

/// A trained model with what is known of its training.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The weights.
    pub model: Model,
    /// What the columns mean.
    pub schema: Schema,
    /// How files become rows, besides what the schema says.
    pub intake: Intake,
    /// Digest of the training data.
    pub data_digest: String,
    /// The figures.
    pub figures: Figures,
    /// Seconds before the first step.
    pub load_seconds: f64,
}

/// A job that is about to run.
pub struct Task {
    /// The job.
    pub job: Job,
    /// Its words, built.
    pub choices: Choices,
    /// What the caller brings.
    pub options: Options,
    /// Its identity.
    pub id: JobId,
}

/// Trains.
///
/// # Errors
/// A bad job or bad data (caller), a lost worker (peer, named), a failing disk (machine), or interrupted.
pub fn train(job: Job, options: Options) -> Result<Trained> {
    let choices = Choices::of(&job)?;
    let (job, choices) = placement::measured(job, choices)?;
    let launcher = Entry::find("launcher", LAUNCHERS, &job.launcher)?;
    let id = starlings_transport::Ticket::random()?.job;
    let task = Task { job, choices, options, id };
    let run: Launcher = launcher.build;
    run(&task).map_err(|fault| name_checkpoint(&task.job, fault))
}

/// When the flock failed, says where to go on from.
fn name_checkpoint(job: &Job, fault: Fault) -> Fault {
    let Some(spec) = job.checkpoint.as_ref().filter(|_| matches!(fault.blame(), Blame::Peer(_)))
    else {
        return fault;
    };
    let newest = checkpoints::store(spec).and_then(|store| store.steps()).ok();
    match newest.and_then(|steps| steps.last().copied()) {
        Some(step) => fault.hint(format!(
            "the last complete checkpoint is that of {step} in {}: the same command with --resume goes on",
            spec.path.display()
        )),
        None => fault.hint("no checkpoint is complete yet: the job starts again from the beginning"),
    }
}

/// What learners are told of data and job.
#[must_use]
pub fn facts(job: &Job, survey: &Survey) -> Facts {
    Facts {
        rows: survey.rows,
        schema: survey.schema.clone(),
        shards: job.shards,
        seed: job.seed,
        epochs: job.epochs,
        steps: job.steps,
        batch: job.batch,
    }
}

impl Task {
    /// What learners are told of data and job.
    #[must_use]
    pub fn facts(&self, survey: &Survey) -> Facts {
        facts(&self.job, survey)
    }

    /// Sees whether every part of the model can start.
    ///
    /// # Errors
    /// When the learner cannot start on this data or not from the earlier model, or a part does not fit a worker.
    pub fn try_out(&self, survey: &Survey) -> Result<()> {
        placement::try_out(&self.job, &self.choices, &self.facts(survey))
    }

    /// The checkpoint to continue from. A folder that holds another job's is refused either way.
    ///
    /// # Errors
    /// No checkpoint to resume from, damage, or another job's.
    pub fn checkpoint(&self, survey: &Survey) -> Result<Option<Complete>> {
        let Some(spec) = &self.job.checkpoint else {
            return match self.options.resume {
                true => Err(Fault::caller("--resume needs a [checkpoint] section with a path")),
                false => Ok(None),
            };
        };
        let store = checkpoints::store(spec)?;
        let fingerprint = fingerprint(&self.job, &survey.digest);
        if !self.options.resume {
            store.claim(&fingerprint)?;
            return Ok(None);
        }
        match store.latest(&fingerprint)? {
            Some(complete) => Ok(Some(complete)),
            None => {
                Err(Fault::caller(format!("there is no checkpoint in {}", spec.path.display()))
                    .hint("leave out --resume to start from the beginning"))
            }
        }
    }

    /// The checkpoint to continue from, as the launcher sees it: newer ones that cannot be used are told.
    ///
    /// # Errors
    /// As [`checkpoint`](Task::checkpoint).
    pub fn told_checkpoint(&self, survey: &Survey) -> Result<Option<Complete>> {
        let complete = self.checkpoint(survey)?;
        let Some(found) = &complete else { return Ok(complete) };
        let before = found.manifest.progress.get("pace").and_then(serde_json::Value::as_str);
        let now = pace(&self.job).to_string();
        if let Some(before) = before.filter(|before| *before != now) {
            let told = |pace: &str| match pace.trim() {
                "" => "the learner's own pace".to_string(),
                pace => pace.replace('\n', ", "),
            };
            let (step, now, before) = (found.manifest.step, told(&now), told(before));
            self.options.observer.on(Event::Fault(FaultReport {
                phase: "resuming".to_string(),
                step: Some(step),
                message: format!(
                    "from {step} on steps are taken with {now}; before it, with {before}"
                ),
                ..FaultReport::default()
            }));
        }
        for warning in &found.warnings {
            let step = found.manifest.step;
            self.options.observer.on(Event::Fault(FaultReport {
                phase: "resuming".to_string(),
                step: Some(step),
                message: format!("{warning}; going on from the one of {step} instead"),
                ..FaultReport::default()
            }));
        }
        Ok(complete)
    }

    /// Tells the first event.
    ///
    /// # Errors
    /// When there are no rows.
    pub fn tell_start(&self, survey: &Survey) -> Result<()> {
        let job = &self.job;
        let (_, steps_max) = extent(&*self.choices.learner, job, &self.facts(survey))?;
        self.options.observer.on(Event::Start {
            job: format!("{:016x}", self.id.0),
            learner: job.learner.name.clone(),
            workers: job.workers,
            launcher: job.launcher.clone(),
            plan: job.plan.name.clone(),
            topology: job.topology.name.clone(),
            consistency: job.consistency.name.clone(),
            codec: job.codec.name.clone(),
            seed: job.seed,
            rows: survey.rows,
            features: survey.schema.features as u64,
            steps_max,
        });
        Ok(())
    }

    /// Puts together what came of it.
    ///
    /// # Errors
    /// When seat 0 brought no model.
    pub fn trained(
        &self,
        survey: Survey,
        finished: Finished,
        loading: Duration,
    ) -> Result<Trained> {
        let model = finished.model.ok_or_else(|| Fault::peer(None, "rank 0 brought no model"))?;
        Ok(Trained {
            model: weights(&model),
            schema: survey.schema,
            intake: survey.intake,
            data_digest: survey.digest,
            figures: finished.figures,
            load_seconds: loading.as_secs_f64(),
        })
    }
}
