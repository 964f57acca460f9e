//! The job file: algorithm × parallelism × topology × consistency × compression, each a word. Raw TOML becomes
//! a checked `Job` once, here; unknown keys are refused with the nearest known one.

use crate::checkpoints;
use crate::placement::placed;
use crate::stock::{MemorySpec, size};
use starlings_cluster::manifest::Fingerprint;
use starlings_core::{Fault, Result, suggestion};
use starlings_data::{DataSpec, FoldSpec, Side, StepSpec};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A name from a catalogue with its parameters, not yet checked against the entry.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The entry's name.
    pub name: String,
    /// Its parameters as given.
    pub given: toml::Table,
}

/// When checkpoints are due.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Every {
    /// After this many steps.
    Steps(u64),
    /// After this much time.
    Time(Duration),
}

/// `[checkpoint]`.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointSpec {
    /// The folder.
    pub path: PathBuf,
    /// When.
    pub every: Every,
    /// How many complete ones to keep.
    pub keep: usize,
}

/// `[validate]`: cross-validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidateSpec {
    /// How many folds.
    pub folds: u32,
    /// Only the model that has not seen this fold, from 0, rather than all of them and one of all rows.
    pub only: Option<u32>,
    /// The seed of the folds.
    pub seed: u64,
}

/// How contributions are folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fold {
    /// As the topology has it: the bits depend on the number of workers.
    Plain,
    /// By virtual shard and exactly: the bits depend on the contributions alone.
    Reproducible,
}

/// How rows are dealt to workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deal {
    /// All alike.
    Even,
    /// By measured speed.
    Speed,
}

/// A checked job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Training rows.
    pub train: DataSpec,
    /// Test rows.
    pub test: Option<DataSpec>,
    /// How much memory rows may take, and where the others go.
    pub memory: MemorySpec,
    /// The learner.
    pub learner: Choice,
    /// Passes over the data (iterations for learners that pass over all rows).
    pub epochs: Option<u64>,
    /// Stop after this many steps.
    pub steps: Option<u64>,
    /// Rows of a step, all workers together.
    pub batch: u64,
    /// The seed of everything random.
    pub seed: u64,
    /// Virtual shards.
    pub shards: u32,
    /// The file of an earlier model, where training begins with one and not from nothing.
    pub continue_from: Option<PathBuf>,
    /// Where workers run.
    pub launcher: String,
    /// How many at the start.
    pub workers: u32,
    /// Below this many the job waits for others to come.
    pub least: u32,
    /// How many may take part at most.
    pub most: u32,
    /// Parallelism.
    pub plan: Choice,
    /// Bytes that a worker's part of the model may take.
    pub memory_of_models: Option<u64>,
    /// Who talks to whom.
    pub topology: Choice,
    /// When a worker may go on.
    pub consistency: Choice,
    /// How numbers travel.
    pub codec: Choice,
    /// How contributions are folded.
    pub fold: Fold,
    /// How rows are dealt to workers.
    pub deal: Deal,
    /// How bytes travel, where the job does not leave it to the flock.
    pub transport: Option<String>,
    /// Whether workers record what they do when.
    pub trace: bool,
    /// How long a worker waits for a peer that is alive but makes no progress.
    pub patience: Duration,
    /// Where the coordinator of a standing flock is.
    pub coordinator: Option<String>,
    /// The file with its token.
    pub ticket: Option<PathBuf>,
    /// Checkpoints, if wanted.
    pub checkpoint: Option<CheckpointSpec>,
    /// Cross-validation, if wanted.
    pub validate: Option<ValidateSpec>,
    /// The whole job as TOML, all paths absolute: what workers elsewhere are sent.
    pub text: String,
}

/// Passes of mini-batch learners when the job does not say.
pub const EPOCHS_DEFAULT: u64 = 10;

const SECTIONS: &[&str] =
    &["data", "prepare", "layer", "learner", "train", "validate", "cluster", "place", "checkpoint"];
const DATA_KEYS: &[&str] = &[
    "train",
    "test",
    "label",
    "features",
    "weight",
    "group",
    "format",
    "header",
    "delimiter",
    "passage",
    "partition",
    "memory",
    "spill",
];
const TRAIN_KEYS: &[&str] = &["epochs", "steps", "batch", "seed", "shards", "continue_from"];
const CLUSTER_KEYS: &[&str] = &[
    "launcher",
    "workers",
    "plan",
    "topology",
    "consistency",
    "codec",
    "threads",
    "patience_seconds",
    "fold",
    "deal",
    "transport",
    "trace",
    "coordinator",
    "ticket",
    "memory",
];
const CHECKPOINT_KEYS: &[&str] = &["path", "every", "keep"];
const VALIDATE_KEYS: &[&str] = &["folds", "only", "seed"];

/// What the job file leaves to the machine it runs on.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Relative paths are relative to this folder.
    pub folder: PathBuf,
    /// Processors of this host: the default number of workers.
    pub cores: u32,
}

impl Job {
    /// Reads a job file's text. `sets` are `table.key=value` overrides.
    ///
    /// # Errors
    /// Bad TOML (with line and column), unknown sections or keys, values out of range.
    pub fn parse(text: &str, sets: &[String], around: &Surroundings) -> Result<Job> {
        let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            Fault::caller(format!("the job file is not valid TOML: {error}"))
        })?;
        for set in sets {
            override_key(&mut table, set)?;
        }
        known_keys("the job file", &table, SECTIONS)?;
        root_paths(&mut table, &around.folder);
        root_data(&mut table, &around.folder)?;
        Job::from_table(&table, around)
    }

    fn from_table(table: &toml::Table, around: &Surroundings) -> Result<Job> {
        let data = section(table, "data", DATA_KEYS)?;
        let train = section(table, "train", TRAIN_KEYS)?;
        let cluster = section(table, "cluster", CLUSTER_KEYS)?;
        let learner = table.get("learner").ok_or_else(|| missing("[learner] name"))?;
        let threads = whole(&cluster, "[cluster]", "threads", 1)?.unwrap_or(1);
        if threads != 1 {
            return Err(Fault::caller(format!("[cluster] threads = {threads} is not supported"))
                .hint("each worker computes on one thread: raise workers instead"));
        }
        let launcher = word(&cluster, "launcher")?.unwrap_or("threads");
        let [workers, least, most] = crew(&cluster, launcher, around.cores)?;
        let spec = |key: &str| data_spec(&data, key, &around.folder);
        let rows = spec("train")?.ok_or_else(|| missing("[data] train"))?;
        let seed = whole(&train, "[train]", "seed", 0)?.unwrap_or(0);
        let validate = validate(table, seed)?;
        let side = |side: Side| validate.and_then(|it| it.side(side));
        let held_out = side(Side::HeldOut);
        let held_out = held_out.map(|fold| DataSpec { fold: Some(fold), ..rows.clone() });
        Ok(Job {
            test: held_out.map_or_else(|| spec("test"), |rows| Ok(Some(rows)))?,
            train: DataSpec { prepare: prepare(table)?, fold: side(Side::Rest), ..rows },
            memory: MemorySpec::parse(&data)?,
            learner: with_layers(choice(learner, "[learner]")?, table),
            epochs: whole(&train, "[train]", "epochs", 1)?,
            steps: whole(&train, "[train]", "steps", 1)?,
            batch: whole(&train, "[train]", "batch", 1)?.unwrap_or(256),
            seed,
            shards: narrow(whole(&train, "[train]", "shards", 1)?.unwrap_or(16), "shards", 65_536)?,
            continue_from: word(&train, "continue_from")?.map(PathBuf::from),
            launcher: launcher.to_string(),
            workers,
            least,
            most,
            plan: placed(
                named(&cluster, "plan", "data-parallel")?,
                table.get("place"),
                cluster.contains_key("plan"),
            )?,
            memory_of_models: cluster.get("memory").map(|it| size(it, "[cluster]")).transpose()?,
            topology: named(&cluster, "topology", "ring")?,
            consistency: named(&cluster, "consistency", "bsp")?,
            codec: named(&cluster, "codec", "raw")?,
            fold: one_of(
                &cluster,
                "fold",
                &[("plain", Fold::Plain), ("reproducible", Fold::Reproducible)],
            )?,
            deal: one_of(&cluster, "deal", &[("even", Deal::Even), ("speed", Deal::Speed)])?,
            transport: transport(&cluster)?,
            trace: flag(&cluster, "trace")?,
            patience: Duration::from_secs(
                whole(&cluster, "[cluster]", "patience_seconds", 1)?.unwrap_or(600),
            ),
            coordinator: word(&cluster, "coordinator")?.map(str::to_string),
            ticket: word(&cluster, "ticket")?.map(PathBuf::from),
            checkpoint: checkpoint(table)?,
            validate,
            text: toml::to_string(table).map_err(|error| Fault::caller(error.to_string()))?,
        })
    }

    /// The job of one fold of the cross-validation: trained on all other rows, tested on those of the fold. It keeps no
    /// checkpoints, for those would be another job's.
    ///
    /// # Errors
    /// Never, for a job that has been read.
    pub fn of_fold(&self, fold: u32) -> Result<Job> {
        let mut table: toml::Table =
            self.text.parse().map_err(|_| Fault::machine("the job's text cannot be read again"))?;
        table.remove("checkpoint");
        override_key(&mut table, &format!("validate.only={fold}"))?;
        let around = Surroundings { folder: "/".into(), cores: self.workers };
        let job = Job::from_table(&table, &around)?;
        Ok(job.with(Some(self.workers), Some(self.launcher.clone())))
    }

    /// The same job for another number of workers or another launcher, as a flag may say.
    #[must_use]
    pub fn with(mut self, workers: Option<u32>, launcher: Option<String>) -> Job {
        if let Some(workers) = workers {
            self.workers = workers;
            (self.least, self.most) = (self.least.min(workers), self.most.max(workers));
        }
        self.launcher = launcher.unwrap_or(self.launcher);
        self
    }

    /// The same job, the stages of whose plan have so many layers each.
    ///
    /// # Errors
    /// When the job's text is no job, which cannot be.
    pub(crate) fn cut_at(mut self, layers: &[u32]) -> Result<Job> {
        let broken = |error: String| Fault::machine(format!("the job cannot be written: {error}"));
        let layers: Vec<toml::Value> = layers.iter().map(|&it| i64::from(it).into()).collect();
        let mut table: toml::Table =
            self.text.parse().map_err(|e: toml::de::Error| broken(e.to_string()))?;
        self.plan.given.insert("layers".to_string(), layers.into());
        let mut plan = self.plan.given.clone();
        plan.insert("name".to_string(), self.plan.name.clone().into());
        let cluster = table.entry("cluster").or_insert_with(|| toml::Table::new().into());
        if let toml::Value::Table(cluster) = cluster {
            cluster.insert("plan".to_string(), plan.into());
        }
        self.text = toml::to_string(&table).map_err(|error| broken(error.to_string()))?;
        Ok(self)
    }

    /// The same job with a parameter of its learner that it left open.
    ///
    /// # Errors
    /// When the job's text is no job, which cannot be.
    pub fn settling(mut self, key: &str, value: &str) -> Result<Job> {
        let broken = |error: String| Fault::machine(format!("the job cannot be written: {error}"));
        let value = toml::Value::String(value.to_string());
        let mut table: toml::Table =
            self.text.parse().map_err(|e: toml::de::Error| broken(e.to_string()))?;
        if let Some(toml::Value::Table(learner)) = table.get_mut("learner") {
            learner.insert(key.to_string(), value.clone());
        }
        self.learner.given.insert(key.to_string(), value);
        self.text = toml::to_string(&table).map_err(|error| broken(error.to_string()))?;
        Ok(self)
    }
}

/// Parameters that say how far steps go and nothing else: a job may go on with others.
const PACE: [&str; 7] = [
    "learning_rate",
    "schedule",
    "warmup_steps",
    "final_rate",
    "step_every",
    "step_factor",
    "clip_norm",
];

/// How far the steps of a job go, where its learner has a schedule for that; nothing elsewhere.
#[must_use]
pub fn pace(job: &Job) -> toml::Table {
    let has_schedule = crate::choices::learners()
        .filter(|entry| entry.name == job.learner.name)
        .any(|entry| entry.params.iter().any(|param| param.name == "schedule"));
    let mut given = job.learner.given.clone();
    given.retain(|key, _| has_schedule && PACE.contains(&key));
    given
}

/// What a job must have in common with a checkpoint to continue from it. Workers, topology and the like may
/// change, and so may the pace.
#[must_use]
pub fn fingerprint(job: &Job, data_digest: &str) -> Fingerprint {
    let (pace, mut parameters) = (pace(job), job.learner.given.clone());
    parameters.retain(|key, _| !pace.contains_key(key));
    let lines = [
        ("learner.name", job.learner.name.clone()),
        ("learner.parameters", parameters.to_string()),
        ("cluster.plan", job.plan.name.clone()),
        ("train.batch", job.batch.to_string()),
        ("train.seed", job.seed.to_string()),
        ("train.shards", job.shards.to_string()),
        ("data.digest", data_digest.to_string()),
    ];
    let prepare =
        (!job.train.prepare.is_empty()).then(|| ("prepare", format!("{:?}", job.train.prepare)));
    let partition = job.train.partition.as_ref().map(|it| ("data.partition", format!("{it:?}")));
    let earlier = job.continue_from.as_ref();
    let earlier = earlier.map(|path| ("train.continue_from", path.display().to_string()));
    let lines = lines.into_iter().chain(prepare).chain(partition).chain(earlier);
    Fingerprint(lines.map(|(key, value)| (key.to_string(), value)).collect())
}

/// `table.key=value`, the value as in TOML or else as text.
fn override_key(table: &mut toml::Table, set: &str) -> Result<()> {
    let wrong = || {
        Fault::caller(format!("--set {set} is not table.key=value"))
            .hint("for example: --set cluster.topology=tree")
    };
    let (path, value) = set.split_once('=').ok_or_else(wrong)?;
    let mut keys: Vec<&str> = path.split('.').map(str::trim).collect();
    let last = keys.pop().filter(|key| !key.is_empty() && !keys.is_empty()).ok_or_else(wrong)?;
    let mut inner = table;
    for key in keys {
        let entry = inner.entry(key).or_insert_with(|| toml::Table::new().into());
        // `topology = "tree"` overridden by topology.arity becomes { name = "tree", arity = … }.
        if let Some(name) = entry.as_str() {
            let name = toml::Value::String(name.to_string());
            *entry = toml::Table::from_iter([("name".to_string(), name)]).into();
        }
        inner = entry.as_table_mut().ok_or_else(wrong)?;
    }
    let value = value.trim();
    let parsed = format!("x = {value}").parse::<toml::Table>().ok().and_then(|mut t| t.remove("x"));
    inner
        .insert(last.to_string(), parsed.unwrap_or_else(|| toml::Value::String(value.to_string())));
    Ok(())
}

/// Paths in the job become absolute, so that workers in other folders find the same files.
fn root_paths(table: &mut toml::Table, folder: &Path) {
    let mut root = |section: &str, key: &str| {
        let value = table.get_mut(section).and_then(|section| section.get_mut(key));
        if let Some(toml::Value::String(path)) = value.filter(|it| !is_address(it)) {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
    };
    root("checkpoint", "path");
    root("train", "continue_from");
    root("cluster", "ticket");
    root("data", "spill");
    if let Some(toml::Value::Table(learner)) = table.get_mut("learner") {
        crate::trained_members::root(learner, folder);
    }
}

fn is_address(value: &toml::Value) -> bool {
    value.as_str().is_some_and(checkpoints::is_address)
}

fn root_data(table: &mut toml::Table, folder: &Path) -> Result<()> {
    let data = section(table, "data", DATA_KEYS)?;
    for which in ["train", "test"] {
        if let Some(spec) = data_spec(&data, which, folder)? {
            let source = toml::Value::try_from(&spec.source)
                .map_err(|error| Fault::caller(format!("[data] {which}: {error}")))?;
            table["data"][which] = source;
        }
    }
    Ok(())
}

fn known_keys(at: &str, table: &toml::Table, known: &[&str]) -> Result<()> {
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            Err(Fault::caller(format!("{at}: unknown key '{key}'")).hint(suggestion(key, known)))
        }
    }
}

fn section(table: &toml::Table, name: &str, known: &[&str]) -> Result<toml::Table> {
    match table.get(name) {
        None => Ok(toml::Table::new()),
        Some(toml::Value::Table(section)) => {
            known_keys(&format!("[{name}]"), section, known)?;
            Ok(section.clone())
        }
        Some(_) => Err(Fault::caller(format!("'{name}' must be a table: [{name}]"))),
    }
}

fn missing(what: &str) -> Fault {
    Fault::caller(format!("the job file has no {what}"))
        .hint("a job needs [data] with train and [learner] with name")
}

/// How many workers there are at the start, at least and at most: a number, or `{ min, max }`. A standing flock
/// begins as soon as the least are there; whoever starts workers itself starts as many as may be.
fn crew(cluster: &toml::Table, launcher: &str, cores: u32) -> Result<[u32; 3]> {
    let limit = |number: u64| narrow(number, "workers", 4096);
    let Some(toml::Value::Table(range)) = cluster.get("workers") else {
        let workers = whole(cluster, "[cluster]", "workers", 1)?.unwrap_or(u64::from(cores));
        return Ok([limit(workers)?, 1, limit(workers)?]);
    };
    known_keys("[cluster] workers", range, &["min", "max"])?;
    let min = limit(whole(range, "[cluster] workers", "min", 1)?.unwrap_or(1))?;
    let max = whole(range, "[cluster] workers", "max", 1)?.unwrap_or(u64::from(cores.max(min)));
    let max = limit(max)?;
    if min > max {
        return Err(Fault::caller(format!(
            "[cluster] workers: min = {min} is more than max = {max}"
        )));
    }
    Ok([if launcher == "flock" { min } else { max }, min, max])
}

fn whole(table: &toml::Table, at: &str, key: &str, min: i64) -> Result<Option<u64>> {
    match table.get(key) {
        None => Ok(None),
        Some(toml::Value::Integer(number)) if *number >= min => Ok(Some(*number as u64)),
        Some(other) => Err(Fault::caller(format!("{at} {key} = {other} is not allowed"))
            .hint(format!("expected a whole number from {min} up"))),
    }
}

fn narrow(number: u64, what: &str, max: u32) -> Result<u32> {
    u32::try_from(number).ok().filter(|&n| n <= max).ok_or_else(|| {
        Fault::caller(format!("{what} = {number} is too many")).hint(format!("at most {max}"))
    })
}

fn word<'a>(table: &'a toml::Table, key: &str) -> Result<Option<&'a str>> {
    match table.get(key) {
        None => Ok(None),
        Some(toml::Value::String(word)) => Ok(Some(word)),
        Some(other) => Err(Fault::caller(format!("[cluster] {key} = {other} is not a word"))),
    }
}

/// One of a few words, the first of which is the default.
fn one_of<T: Copy>(table: &toml::Table, key: &str, words: &[(&str, T)]) -> Result<T> {
    let Some(given) = word(table, key)? else { return Ok(words[0].1) };
    words.iter().find(|(word, _)| *word == given).map(|(_, value)| *value).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Fault::caller(format!("[cluster] {key} = '{given}' is not known"))
            .hint(suggestion(given, &known))
    })
}

fn transport(table: &toml::Table) -> Result<Option<String>> {
    let words = [
        ("auto", ""),
        #[cfg(feature = "mpi")]
        ("mpi", "mpi"),
        ("shared", "shared"),
        ("tcp", "tcp"),
    ];
    let name = one_of(table, "transport", &words)?;
    if name == "mpi" && word(table, "launcher")? != Some("mpi") {
        return Err(Fault::caller("[cluster] transport = 'mpi' needs launcher = 'mpi'")
            .hint("start the job with mpirun and --launcher mpi, or choose another transport"));
    }
    Ok((!name.is_empty()).then(|| name.to_string()))
}

fn flag(table: &toml::Table, key: &str) -> Result<bool> {
    match table.get(key) {
        None => Ok(false),
        Some(toml::Value::Boolean(on)) => Ok(*on),
        Some(other) => Err(Fault::caller(format!("[cluster] {key} = {other} is not allowed"))
            .hint("expected true or false")),
    }
}

fn named(cluster: &toml::Table, key: &str, default: &str) -> Result<Choice> {
    match cluster.get(key) {
        None => Ok(Choice { name: default.to_string(), given: toml::Table::new() }),
        Some(value) => choice(value, &format!("[cluster] {key}")),
    }
}

/// A name, or a table with `name` and parameters.
fn choice(value: &toml::Value, at: &str) -> Result<Choice> {
    let wrong = || {
        Fault::caller(format!("{at} must have a name"))
            .hint("write a name, or { name = \"…\", parameter = … }")
    };
    match value {
        toml::Value::String(name) => Ok(Choice { name: name.clone(), given: toml::Table::new() }),
        toml::Value::Table(table) => {
            let mut given = table.clone();
            let name = given.remove("name").ok_or_else(wrong)?;
            Ok(Choice { name: name.as_str().ok_or_else(wrong)?.to_string(), given })
        }
        _ => Err(wrong()),
    }
}

fn data_spec(data: &toml::Table, which: &str, folder: &Path) -> Result<Option<DataSpec>> {
    let Some(source) = data.get(which) else { return Ok(None) };
    let mut table = data.clone();
    for other in ["train", "test", "memory", "spill"] {
        table.remove(other);
    }
    table.insert("source".to_string(), source.clone());
    let spec: DataSpec = table
        .try_into()
        .map_err(|error: toml::de::Error| Fault::caller(format!("[data]: {}", error.message())))?;
    Ok(Some(spec.rooted(folder)))
}

/// The learner with the layers that the job defines as `[[layer]]`: a parameter of it as any other.
fn with_layers(mut learner: Choice, table: &toml::Table) -> Choice {
    if let Some(layers) = table.get("layer") {
        learner.given.insert("layer".to_string(), layers.clone());
    }
    learner
}

/// The steps of `[[prepare]]`, each a name with columns and parameters.
fn prepare(table: &toml::Table) -> Result<Vec<StepSpec>> {
    let wrong = || {
        Fault::caller("[[prepare]] is not a list of steps")
            .hint("write [[prepare]] before each step, with name = \"…\" below it")
    };
    let steps = match table.get("prepare") {
        None => return Ok(Vec::new()),
        Some(value) => value.as_array().ok_or_else(wrong)?,
    };
    let step = |value: &toml::Value| {
        let mut choice = choice(value, "[[prepare]]")?;
        let columns = choice.given.remove("columns").map(|columns| {
            let names = columns.as_array().into_iter().flatten();
            let names: Option<Vec<String>> =
                names.map(|name| name.as_str().map(str::to_string)).collect();
            names.filter(|names| !names.is_empty()).ok_or_else(|| {
                Fault::caller(format!(
                    "[[prepare]] {}: columns must be a list of names",
                    choice.name
                ))
            })
        });
        let columns = columns.transpose()?;
        Ok(StepSpec { name: choice.name, columns, given: choice.given.to_string() })
    };
    let steps: Vec<StepSpec> = steps.iter().map(step).collect::<Result<_>>()?;
    starlings_data::check_preparation(&steps).map_err(|fault| fault.during("[[prepare]]"))?;
    Ok(steps)
}

impl ValidateSpec {
    /// Which rows stand on a side of the cut, where the job is that of one fold.
    fn side(&self, side: Side) -> Option<FoldSpec> {
        let (folds, seed) = (self.folds, self.seed);
        self.only.map(|fold| FoldSpec { folds, fold, side, seed })
    }
}

fn validate(table: &toml::Table, seed: u64) -> Result<Option<ValidateSpec>> {
    if !table.contains_key("validate") {
        return Ok(None);
    }
    let section = section(table, "validate", VALIDATE_KEYS)?;
    let folds = whole(&section, "[validate]", "folds", 2)?.unwrap_or(5);
    let folds = narrow(folds, "[validate] folds", 1_000)?;
    let only = whole(&section, "[validate]", "only", 0)?;
    if let Some(only) = only.filter(|only| *only >= u64::from(folds)) {
        return Err(Fault::caller(format!("[validate] only = {only} is not one of {folds} folds"))
            .hint(format!("folds are counted from 0 to {}", folds - 1)));
    }
    let seed = whole(&section, "[validate]", "seed", 0)?.unwrap_or(seed);
    Ok(Some(ValidateSpec { folds, only: only.map(|only| only as u32), seed }))
}

fn checkpoint(table: &toml::Table) -> Result<Option<CheckpointSpec>> {
    if !table.contains_key("checkpoint") {
        return Ok(None);
    }
    let section = section(table, "checkpoint", CHECKPOINT_KEYS)?;
    let path = section.get("path").and_then(toml::Value::as_str);
    let path = path.ok_or_else(|| missing("[checkpoint] path"))?;
    let every = match section.get("every") {
        None => Every::Time(Duration::from_secs(30)),
        Some(toml::Value::Integer(steps)) if *steps > 0 => Every::Steps(*steps as u64),
        Some(value) => Every::Time(duration(value)?),
    };
    let keep = whole(&section, "[checkpoint]", "keep", 2)?.unwrap_or(3) as usize;
    Ok(Some(CheckpointSpec { path: PathBuf::from(path), every, keep }))
}

fn duration(value: &toml::Value) -> Result<Duration> {
    let wrong = || {
        Fault::caller(format!("[checkpoint] every = {value} is not allowed"))
            .hint("write steps (every = 100) or a time (every = \"30s\", \"5m\", \"500ms\")")
    };
    let text = value.as_str().ok_or_else(wrong)?.trim();
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        (number > 0.0).then(|| Duration::from_secs_f64(number * seconds))
    });
    parsed.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, sets: &[&str]) -> Result<Job> {
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        Job::parse(text, &sets, &Surroundings { folder: "/somewhere".into(), cores: 3 })
    }

    const SMALL: &str = "[data]\ntrain = 'digits'\n[learner]\nname = 'k-means'\nk = 10\n";

    #[test]
    fn everything_has_a_default() {
        let job = parse(SMALL, &[]).unwrap();
        assert_eq!((job.workers, job.shards, job.batch, job.seed), (3, 16, 256, 0));
        assert_eq!((job.topology.name.as_str(), job.codec.name.as_str()), ("ring", "raw"));
        assert_eq!(job.learner.given["k"].as_integer(), Some(10));
    }

    #[test]
    fn overrides_reach_into_tables_and_keep_names() {
        let sets = ["cluster.topology=tree", "cluster.topology.arity=4", "learner.k=3"];
        let job = parse(SMALL, &sets).unwrap();
        assert_eq!(job.topology.name, "tree");
        assert_eq!(job.topology.given["arity"].as_integer(), Some(4));
        assert_eq!(job.learner.given["k"].as_integer(), Some(3));
        assert!(parse(SMALL, &["nonsense"]).is_err());
    }

    #[test]
    fn unknown_words_get_the_nearest_known_one() {
        for (text, word, near) in [
            ("[dta]\n", "dta", "data"),
            ("[data]\ntrian = 'x'\n[learner]\nname='k-means'", "trian", "train"),
            (
                "[data]\ntrain='x'\n[learner]\nname='x'\n[cluster]\ntopolgy='ring'",
                "topolgy",
                "topology",
            ),
        ] {
            let fault = parse(text, &[]).unwrap_err().to_string();
            assert!(fault.contains(word) && fault.contains(&format!("'{near}'")), "{fault}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_key() {
        for (set, key) in [
            ("cluster.workers=0", "workers"),
            ("train.batch=-1", "batch"),
            ("cluster.threads=2", "threads"),
            ("checkpoint.path=x", ""),
            ("train.epochs='many'", "epochs"),
        ] {
            let result = parse(SMALL, &[set]);
            if !key.is_empty() {
                assert!(result.unwrap_err().to_string().contains(key));
            }
        }
        let fault = parse(SMALL, &["checkpoint.path=x", "checkpoint.every='soon'"]).unwrap_err();
        assert!(fault.to_string().contains("every"), "{fault}");
    }

    #[test]
    fn the_text_sent_to_workers_parses_to_the_same_job() {
        let job = parse(SMALL, &["cluster.topology.name=tree", "checkpoint.path=here"]).unwrap();
        let again = parse(&job.text, &[]).unwrap();
        assert_eq!(again.text, job.text);
        assert_eq!(again.checkpoint.unwrap().path, PathBuf::from("/somewhere/here"));
    }
}
