//! `starlings train`: a job file in, a model file out.

use crate::output::say;
use crate::screen::Screen;
use crate::signals;
use clap::Args;
use starlings::{Fault, Job, Report, Result, Surroundings, TrainOptions, observe, write_whole};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Train a model as a job file says
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  starlings train digits.toml --workers 4
  starlings train digits.toml --set cluster.topology=tree --set learner.l2=1e-3
  starlings train digits.toml --launcher processes --json > events.jsonl
  mpirun -n 4 starlings train digits.toml --launcher mpi    if built with that feature; one death ends the job
  starlings train digits.toml --trace trace.json    to see computation and communication side by side
  starlings train digits.toml --resume          after a crash or Ctrl-C, with a [checkpoint] section

Ctrl-C or SIGTERM stops after the step in progress and writes a checkpoint if the job keeps any; a second one \
stops at once.")]
pub(crate) struct Arguments {
    /// The job file (TOML)
    job: PathBuf,
    /// Override a key of the job file; may be given often
    #[arg(long, value_name = "TABLE.KEY=VALUE")]
    set: Vec<String>,
    /// How many workers (cluster.workers)
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// Where workers run (cluster.launcher): threads, processes or flock; under mpirun mpi, if built with that feature
    #[arg(long, value_name = "LAUNCHER")]
    launcher: Option<String>,
    /// Where to write the model [default: the job file's name with .safetensors, in this folder]
    #[arg(long, value_name = "MODEL")]
    out: Option<PathBuf>,
    /// Go on from the newest complete checkpoint
    #[arg(long)]
    resume: bool,
    /// Write what each worker did when as a Chrome trace (open it in chrome://tracing or ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// One event a line on standard output; the last is the report
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let job = read(&arguments)?;
    // Under mpirun this command runs many times at once, and only rank 0 speaks and writes.
    #[cfg(feature = "mpi")]
    let job = match starlings::mpi::enlist(job)? {
        starlings::mpi::Role::Leads(job) => *job,
        starlings::mpi::Role::Follows(follower) => return follower.serve(signals::stop()?),
    };
    let out = arguments.out.unwrap_or_else(|| model_path(&arguments.job));
    check_place(&out, ("--out", "the model", "model.safetensors"))?;
    if let Some(trace) = &arguments.trace {
        check_place(trace, ("--trace", "the trace", "trace.json"))?;
    }
    let screen = Arc::new(Screen::new(arguments.json));
    let options = TrainOptions {
        observer: screen.clone(),
        stop: signals::stop()?,
        resume: arguments.resume,
        program: Some(std::env::current_exe()?),
        out: Some(out),
        created: None,
    };
    let test = job.test.as_ref().map(|test| test.source.text());
    let trained = starlings::train(job, options);
    screen.clear();
    let report = trained?.report;
    if let Some(path) = &arguments.trace {
        let trace = screen.trace();
        write_whole(path, |out| Ok(out.write_all(trace.as_bytes())?))?;
    }
    match arguments.json {
        true => Ok(()),
        false => say(&(observe::summary(&report) + &next(&report, test.as_deref()))),
    }
}

/// The job with what the command line overrides.
fn read(arguments: &Arguments) -> Result<Job> {
    let path = &arguments.job;
    let cannot = |error: std::io::Error| {
        Fault::caller(format!("cannot read the job file {}", path.display()))
            .caused_by(error)
            .hint("`starlings --help` shows a whole job file")
    };
    let text = std::fs::read_to_string(path).map_err(cannot)?;
    let folder = path.canonicalize().map_err(cannot)?.parent().map(Path::to_path_buf);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let around = Surroundings { folder: folder.unwrap_or_default(), cores };
    // Overrides go into the text of the job, because that is what workers elsewhere are sent.
    let mut sets = arguments.set.clone();
    sets.extend(arguments.workers.map(|workers| format!("cluster.workers={workers}")));
    sets.extend(arguments.launcher.as_ref().map(|name| format!("cluster.launcher='{name}'")));
    sets.extend(arguments.trace.as_ref().map(|_| "cluster.trace=true".to_string()));
    Job::parse(&text, &sets, &around).map_err(|fault| fault.during(path.display().to_string()))
}

fn model_path(job: &Path) -> PathBuf {
    let stem = job.file_stem().unwrap_or(job.as_os_str());
    let mut name = stem.to_os_string();
    name.push(".safetensors");
    PathBuf::from(name)
}

/// What cannot be written should be found out before hours of training, not after.
fn check_place(out: &Path, (option, what, example): (&str, &str, &str)) -> Result<()> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    if out.is_dir() {
        return Err(Fault::caller(format!("{option} {} is a folder", out.display()))
            .hint(format!("give the name of a file, such as {example}")));
    }
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => {
            Err(Fault::caller(format!("the folder {} does not exist", folder.display()))
                .during(format!("{option} {}", out.display()))
                .hint(format!("make it first, or choose another place for {what}")))
        }
        None => Ok(()),
    }
}

/// What to do with the model.
fn next(report: &Report, test: Option<&str>) -> String {
    let Some(model) = &report.model else { return String::new() };
    let (model, data) = (quoted(model), quoted(test.unwrap_or("FILE")));
    format!("\nNext: starlings predict {model} --data {data}\n")
}

/// As a shell takes it: quoted where it must be.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-:=+,@%".contains(c);
    match word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
