//! The benchmark suite: ours against named peers, in turns within the same run, because figures of different runs and
//! machines do not compare. Each row is a ratio. Peers that are not there are said to be skipped. Beside it are studies,
//! by name, of what communication costs: `slow-links`, `overlap`, `factors`, `slow-trees`, `straggler` and `consistency-codec`; and of rows that
//! do not fit into memory: `streaming`; and of strangers at the doors: `siege`.

mod brake;
mod checkpoints;
mod consistency_codec;
mod exchange;
mod factors;
mod interval;
mod learners;
pub(crate) mod machine;
mod memory;
pub(crate) mod namespaces;
mod overlap;
pub(crate) mod peers;
mod plot;
mod products;
mod reduce;
mod row;
mod scaling;
mod sheet;
mod siege;
mod slow_links;
mod slow_sums;
mod slow_trees;
mod straggler;
mod streaming;
mod trees;
mod trial;
mod turns;

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the person asked for.
#[derive(Clone, Debug, Default)]
struct Options {
    is_setup: bool,
    is_quick: bool,
    python: Option<PathBuf>,
    binary: Option<PathBuf>,
    only: String,
    /// The study instead of the suite.
    study: Option<&'static Study>,
    data: Option<PathBuf>,
}

/// A question of its own, with tables and pictures as its answer.
#[derive(Debug)]
struct Study {
    name: &'static str,
    run: fn(&Suite<'_>) -> Result<sheet::Finding, String>,
}

const STUDIES: &[Study] = &[
    slow_links::STUDY,
    slow_sums::STUDY,
    checkpoints::STUDY,
    overlap::STUDY,
    factors::STUDY,
    slow_trees::STUDY,
    straggler::STUDY,
    consistency_codec::STUDY,
    streaming::STUDY,
    siege::STUDY,
];

/// Everything a case needs to run.
struct Suite<'a> {
    root: &'a Path,
    /// Our binary, in the release profile.
    binary: PathBuf,
    /// The peers' Python, if there is one.
    python: Option<PathBuf>,
    is_quick: bool,
    only: String,
    /// A folder of real data sets, if the person has one.
    data: Option<PathBuf>,
    /// Whether the person named the binary, which may then be older than the sources.
    is_given: bool,
}

/// Runs the suite and writes `bench/runs/DATE-MACHINE/{table.md,rows.json}`.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    if options.is_setup {
        let only = options.only;
        return peers::set_up(root, |package| is_wanted(&only, package));
    }
    let is_given = options.binary.is_some();
    let suite = Suite {
        root,
        binary: options.binary.map_or_else(|| build(root), Ok)?,
        python: peers::python(root, options.python),
        is_quick: options.is_quick,
        only: options.only,
        data: options.data,
        is_given,
    };
    if let Some(study) = options.study {
        return run_study(&suite, study);
    }
    let mut outcome = row::Outcome::default();
    reduce::run(&suite, &mut outcome);
    learners::run(&suite, &mut outcome);
    trees::run(&suite, &mut outcome);
    let machine = machine::describe(suite.python.as_deref());
    let folder = root.join("bench/runs").join(machine.folder());
    row::write(&folder, &machine, &outcome, suite.is_quick)?;
    print!("{}", row::table(&machine, &outcome, suite.is_quick));
    println!("written to {}", folder.display());
    match outcome.failures() {
        0 => Ok(()),
        many => Err(format!("{many} cases of our own failed")),
    }
}

/// Runs one study and writes `bench/runs/DATE-MACHINE/NAME.md` with its tables and pictures.
fn run_study(suite: &Suite<'_>, study: &Study) -> Result<(), String> {
    let machine = machine::describe(suite.python.as_deref());
    let folder = suite.root.join("bench/runs").join(machine.folder());
    let mut finding = (study.run)(suite)?;
    finding.preface = suite.is_given.then(|| {
        "Our binary was named (`--binary`): the commit is that of the sources, which may be newer.".to_string()
    });
    print!("{}", finding.write(&folder, (study.name, &machine))?);
    println!("written to {}", folder.display());
    Ok(())
}

impl Suite<'_> {
    /// Whether the person wants this case.
    fn wants(&self, case: &str) -> bool {
        is_wanted(&self.only, case)
    }

    /// A script of ours that measures a peer.
    fn script(&self, name: &str) -> PathBuf {
        self.root.join("bench/peers").join(name)
    }
}

/// Whether a name contains one of several texts: 'TEXT|TEXT'.
fn is_wanted(only: &str, name: &str) -> bool {
    only.split('|').any(|text| name.contains(text))
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--setup" => options.is_setup = true,
            "--quick" => options.is_quick = true,
            "--python" => options.python = Some(PathBuf::from(value()?)),
            "--binary" => options.binary = Some(PathBuf::from(value()?)),
            "--only" => options.only = value()?.clone(),
            // Jobs look for files from where they lie themselves.
            "--data" => {
                options.data = Some(std::path::absolute(value()?).map_err(|why| why.to_string())?);
            }
            other if STUDIES.iter().any(|study| study.name == other) => {
                options.study = STUDIES.iter().find(|study| study.name == other);
            }
            other => return Err(format!("unknown flag '{other}' of bench")),
        }
    }
    Ok(options)
}

/// Builds our binary as a user would and asks cargo where it lies.
fn build(root: &Path) -> Result<PathBuf, String> {
    let arguments =
        ["build", "--release", "-p", "starlings-cli", "--message-format=json-render-diagnostics"];
    let output = Command::new("cargo")
        .args(arguments)
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|why| format!("cargo did not start: {why}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let binary = messages
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back();
    binary.filter(|_| output.status.success()).ok_or_else(|| "our binary did not build".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        parse(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let read = options("--quick --python venv/bin/python --only k-means").unwrap();
        assert_eq!((read.is_quick, read.is_setup, read.only.as_str()), (true, false, "k-means"));
        assert_eq!(read.python, Some(PathBuf::from("venv/bin/python")));
        assert_eq!(options("straggler --quick").unwrap().study.unwrap().name, "straggler");
        assert!(options("--fast").unwrap_err().contains("--fast"));
        assert!(options("--python").unwrap_err().contains("needs a value"));
    }
}
