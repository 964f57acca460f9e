//! Training as a user sees it: a job in; a model, its file and a report out.

use crate::labels;
use crate::predictor::{Predictor, schema_document};
use starlings_cluster::model_file::{ModelFile, Provenance, save};
use starlings_core::{Event, Fault, FaultReport, Pace, Panel, Report, Result, Validation};
use starlings_engine::choices::Choices;
use starlings_engine::clock::Observer;
use starlings_engine::job::Job;
use starlings_engine::stop::Stop;
use starlings_engine::train::{Options, Trained};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What the caller brings besides the job. The default trains quietly in this process.
#[derive(Clone)]
pub struct TrainOptions {
    /// Who wants to know what happens.
    pub observer: Arc<dyn Observer>,
    /// Set when someone asks to stop.
    pub stop: Stop,
    /// Continue from the newest complete checkpoint.
    pub resume: bool,
    /// The program that runs as a worker process, for the launcher `processes`.
    pub program: Option<PathBuf>,
    /// Where to write the model.
    pub out: Option<PathBuf>,
    /// The date to note in the model, if any.
    pub created: Option<String>,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            observer: Arc::new(|_: Event| {}),
            stop: Stop::new(),
            resume: false,
            program: None,
            out: None,
            created: None,
        }
    }
}

/// A trained model, ready to predict, with its report.
pub struct TrainedModel {
    /// Predicts and evaluates.
    pub predictor: Predictor,
    /// What the run was and what came of it.
    pub report: Report,
}

/// Trains a job, evaluates the model on the job's test rows, and writes it if wanted.
///
/// # Errors
/// A bad job or bad data, a lost worker, a failing disk, or an interruption; see
/// [`Fault::blame`](starlings_core::Fault::blame).
pub fn train(job: Job, options: TrainOptions) -> Result<TrainedModel> {
    let told: Arc<Mutex<Told>> = Arc::default();
    let (listener, observer) = (told.clone(), options.observer.clone());
    let observing = move |event: Event| {
        if let Ok(mut told) = listener.lock() {
            told.on(&event);
        }
        observer.on(event);
    };
    let engine_options = Options {
        observer: Arc::new(observing),
        stop: options.stop.clone(),
        resume: options.resume,
        program: options.program.clone(),
    };
    let job = labels::settled(job)?;
    let choices = Choices::of(&job)?;
    refuse_weights(&job, &choices)?;
    // Held-out rows are rows of the training data, which will be read first.
    if let Some(test) = job.test.as_ref().filter(|test| test.fold.is_none()) {
        // A test set that cannot be read should be found before training, not after it.
        let learner = &choices.learner;
        let readable = match job.train.prepare.is_empty() {
            true => starlings_data::survey(test, learner.encoding(), learner.label()).map(|_| ()),
            // Steps fitted on the training rows will read it; until then its files and columns are looked at.
            false => starlings_data::glance(test),
        };
        readable.map_err(|fault| fault.during("[data] test"))?;
    }
    let validation = cross_validate(&job, &engine_options)?;
    let trained = starlings_engine::train::train(job.clone(), engine_options)?;
    let mut file = model_file(&job, &choices, &trained, options.created);
    let mut report = report(&job, &trained);
    let told = told.lock().map(|told| told.clone()).unwrap_or_default();
    report.workers_max = told.workers_max.max(report.workers);
    report.faults = told.faults;
    let predictor = Predictor::new(file.clone())?;
    report.validation = validation;
    if let Some(found) = evaluation(&job, &trained, &predictor)? {
        file.provenance.evaluation = found.metrics.clone();
        report.evaluation = found.metrics;
        (report.confusion, report.calibration) = (found.confusion, found.calibration);
    }
    if let Some(path) = &options.out {
        save(path, &file)?;
        report.model = Some(path.display().to_string());
    }
    options.observer.on(Event::Report(Box::new(report.clone())));
    Ok(TrainedModel { predictor, report })
}

/// What of a run's events its report tells again.
#[derive(Clone, Default)]
struct Told {
    faults: Vec<FaultReport>,
    /// Most workers at once.
    workers_max: u32,
}

impl Told {
    fn on(&mut self, event: &Event) {
        match event {
            Event::Fault(fault) => self.faults.push(fault.clone()),
            Event::Start { workers, .. } | Event::Regrouped { workers, .. } => {
                self.workers_max = self.workers_max.max(*workers);
            }
            _ => {}
        }
    }
}

/// How good a model is on the job's test rows. Where the flock that trained it could not say, it is asked here.
fn evaluation(job: &Job, trained: &Trained, predictor: &Predictor) -> Result<Option<Panel>> {
    match (&job.test, &trained.figures.evaluation) {
        (None, _) => Ok(None),
        (Some(_), Some(found)) => Ok(Some(found.clone())),
        (Some(test), None) => predictor.evaluate(test).map(Some),
    }
}

/// Trains a model without each fold in turn, and measures it there.
fn cross_validate(job: &Job, options: &Options) -> Result<Option<Validation>> {
    let Some(spec) = job.validate.filter(|spec| spec.only.is_none()) else { return Ok(None) };
    if ["flock", "mpi"].contains(&job.launcher.as_str()) {
        return Err(Fault::caller(format!(
            "[validate] trains {} models, and the launcher '{}' serves one job",
            spec.folds + 1,
            job.launcher
        ))
        .hint("launch threads or processes, or train each fold by itself with --set validate.only=0, 1, …"));
    }
    let mut found = Vec::new();
    for fold in 0..spec.folds {
        let at = format!("fold {fold} of {}", spec.folds);
        let job = job.of_fold(fold)?;
        let options = Options { resume: false, ..options.clone() };
        let trained = starlings_engine::train::train(job.clone(), options.clone());
        let trained = trained.map_err(|fault| fault.during(at.clone()))?;
        let choices = Choices::of(&job)?;
        let predictor = Predictor::new(model_file(&job, &choices, &trained, None))?;
        let panel = evaluation(&job, &trained, &predictor).map_err(|fault| fault.during(at))?;
        let panel = panel.unwrap_or_default();
        options.observer.on(Event::Fold { fold, folds: spec.folds, found: panel.clone() });
        found.push(panel);
    }
    Ok(Some(Validation::of(found)))
}

/// Weights that a learner would not look at are not dropped in silence.
fn refuse_weights(job: &Job, choices: &Choices) -> Result<()> {
    if choices.learner.weighs() || !starlings_data::weighted(&job.train)? {
        return Ok(());
    }
    let learner = &job.learner.name;
    Err(Fault::caller(format!("rows have weights, and '{learner}' counts every row alike")).hint(
        match job.train.weight {
            Some(_) => "leave out [data] weight, or choose a learner that takes weights",
            None => {
                "move the file of weights (.weight) away, or choose a learner that takes weights"
            }
        },
    ))
}

fn model_file(
    job: &Job,
    choices: &Choices,
    trained: &Trained,
    created: Option<String>,
) -> ModelFile {
    let params = serde_json::to_value(choices.params.to_table()).unwrap_or_default();
    ModelFile {
        learner: job.learner.name.clone(),
        params,
        schema: schema_document(&trained.schema, trained.intake.clone()),
        job: job.text.clone(),
        provenance: Provenance {
            data_digest: trained.data_digest.clone(),
            starlings_version: env!("CARGO_PKG_VERSION").to_string(),
            seed: job.seed,
            created,
            steps: trained.figures.steps,
            workers: workers_at_end(job, trained),
            metrics: trained.figures.metrics.clone(),
            evaluation: Default::default(),
        },
        model: trained.model.clone(),
    }
}

fn report(job: &Job, trained: &Trained) -> Report {
    let figures = &trained.figures;
    let hex: String = trained.model.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    Report {
        learner: job.learner.name.clone(),
        workers: workers_at_end(job, trained),
        workers_max: 0,
        launcher: job.launcher.clone(),
        plan: job.plan.name.clone(),
        topology: job.topology.name.clone(),
        consistency: job.consistency.name.clone(),
        codec: job.codec.name.clone(),
        seed: job.seed,
        steps: figures.steps,
        epochs: figures.epochs,
        samples: figures.samples,
        seconds: figures.seconds,
        samples_per_second: figures.samples as f64 / figures.seconds.max(1e-9),
        bytes_sent: figures.bytes_sent,
        bytes_raw: figures.bytes_raw,
        objective: figures.objective,
        metrics: figures.metrics.clone(),
        evaluation: Default::default(),
        confusion: None,
        calibration: None,
        validation: None,
        faults: Vec::new(),
        rows_left_out: figures.rows_left_out,
        model: None,
        cpu_seconds: figures.cpu_seconds,
        efficiency: None,
        load_seconds: trained.load_seconds,
        digest: hex,
        lead_max: figures.lead_max,
        dropped: figures.dropped,
        paces: figures.paces.clone(),
        stragglers: stragglers(&figures.paces),
    }
}

/// How many workers brought the job to its end: each of them tells its pace.
fn workers_at_end(job: &Job, trained: &Trained) -> u32 {
    match trained.figures.paces.len() {
        0 => job.workers,
        workers => workers as u32,
    }
}

/// Workers whose computation took half as long again as the middle one's, so that the others had to wait.
fn stragglers(paces: &[Pace]) -> Vec<String> {
    let mut seconds: Vec<f64> = paces.iter().map(|pace| pace.computation).collect();
    seconds.sort_by(f64::total_cmp);
    // Of two the faster is the measure.
    let Some(&middle) = seconds.get(seconds.len().saturating_sub(1) / 2) else { return Vec::new() };
    let slow = |pace: &&Pace| pace.computation > 1.5 * middle && pace.computation > 0.05;
    let tell = |pace: &Pace| {
        format!(
            "rank {} was slow in computation: {:.2} s where {middle:.2} s is usual",
            pace.rank.0, pace.computation
        )
    };
    paces.iter().filter(slow).map(tell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use starlings_core::Seat;

    #[test]
    fn a_straggler_is_named_with_its_phase_and_equals_are_not() {
        let pace = |rank, computation| Pace { rank: Seat(rank), computation, ..Pace::default() };
        assert!(stragglers(&[pace(0, 1.0), pace(1, 1.2), pace(2, 1.1)]).is_empty());
        let named = stragglers(&[pace(0, 1.0), pace(1, 4.0)]);
        assert_eq!(named.len(), 1);
        assert!(named[0].contains("rank 1") && named[0].contains("computation"), "{named:?}");
        assert!(stragglers(&[]).is_empty());
    }
}
