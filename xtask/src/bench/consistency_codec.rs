//! Final objective × bytes × seconds for every consistency with every codec that goes with it, on two real data sets:
//! digits by softmax regression, and MovieLens by matrix factorisation.

use super::plot::{Chart, Mark, Scale, Series};
use super::sheet::{Finding, Sheet, bytes, number};
use super::trial::{Process, Trial};
use super::{Study, Suite};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub(super) const STUDY: Study = Study { name: "consistency-codec", run };

const LIMIT: Duration = Duration::from_mins(1);

/// Each with a topology that gives it what it needs and with parameters that suit jobs this small.
const CONSISTENCIES: &[(&str, &[&str])] = &[
    ("bsp", &[]),
    ("local", &["consistency=local"]),
    ("block-momentum", &["consistency=block-momentum"]),
    ("elastic-averaging", &["consistency=elastic-averaging"]),
    ("diloco", &["consistency=diloco", "consistency.steps=8"]),
    ("dynamic-averaging", &["consistency=dynamic-averaging"]),
    ("approximate", &["consistency=approximate"]),
    ("consensus-control", &["consistency=consensus-control", "topology=averaging"]),
    ("ssp", &["consistency=ssp", "topology=star"]),
    ("async", &["consistency=async", "topology=star"]),
    ("backup-workers", &["consistency=backup-workers", "topology=star"]),
    ("staleness-aware", &["consistency=staleness-aware", "topology=star"]),
    ("delay-compensated", &["consistency=delay-compensated", "topology=star"]),
    ("downpour", &["consistency=downpour", "topology=star"]),
];

/// Some need every contribution as it is: where the consistency leaves the topology open, they get a mesh.
const CODECS: &[(&str, &[&str])] = &[
    ("raw", &[]),
    ("half", &["codec=half"]),
    ("low-rank", &["codec=low-rank"]),
    ("random-k", &["codec=random-k", "codec.ratio=0.1"]),
    ("int8", &["codec=int8", "topology=mesh"]),
    ("ternary", &["codec=ternary", "topology=mesh"]),
    ("one-bit", &["codec=one-bit", "topology=mesh"]),
    ("top-k", &["codec=top-k", "codec.ratio=0.1", "topology=mesh"]),
    ("threshold", &["codec=threshold", "codec.threshold=0.01", "topology=mesh"]),
    ("factors", &["codec=factors", "topology=mesh"]),
    ("auto", &["codec=auto", "topology=mesh"]),
];

/// A pair and what came of it.
struct Cell {
    consistency: &'static str,
    codec: &'static str,
    result: Result<Trial, String>,
}

fn run(suite: &Suite<'_>) -> Result<Finding, String> {
    let mut finding = Finding::default();
    for (job, file) in
        [("digits", "communication-digits.toml"), ("ratings", "communication-ratings.toml")]
    {
        if !suite.wants(job) {
            continue;
        }
        let movies = movies(suite);
        let rows = match (job, &movies) {
            ("ratings", None) => {
                finding.skip("MovieLens (--data FOLDER): made ratings stand in for it".to_string());
                "made ratings"
            }
            ("ratings", Some(_)) => "MovieLens latest-small",
            _ => "digits",
        };
        let mut cells = Vec::new();
        for (consistency, how) in CONSISTENCIES {
            for (codec, form) in CODECS {
                let sets = merged(how, form);
                let result = trial(suite, file, (&format!("{consistency}, {codec}"), &sets));
                let told = result.as_ref().map(|t| format!("{:.2} s", t.seconds));
                eprintln!(
                    "  {job}: {consistency}, {codec}: {}",
                    told.unwrap_or_else(|why| why.clone())
                );
                cells.push(Cell { consistency, codec, result });
            }
        }
        enter((job, rows), &cells, &mut finding);
    }
    Ok(finding)
}

/// A topology that the consistency asks for stands.
fn merged(how: &[&'static str], form: &[&'static str]) -> Vec<&'static str> {
    let is_bound = how.iter().any(|set| set.starts_with("topology="));
    let open = form.iter().filter(|set| !(is_bound && set.starts_with("topology=")));
    how.iter().chain(open).copied().collect()
}

fn movies(suite: &Suite<'_>) -> Option<PathBuf> {
    let path = suite.data.as_ref()?.join("movielens_latest_small_ratings.csv.gz");
    path.exists().then_some(path)
}

fn trial(suite: &Suite<'_>, file: &str, (name, sets): (&str, &[&str])) -> Result<Trial, String> {
    let model =
        std::env::temp_dir().join(format!("starlings-communication-{}", std::process::id()));
    let mut command = Command::new(&suite.binary);
    command.arg("train").arg(suite.root.join("bench/jobs").join(file));
    command.args(["--workers", "2", "--json", "--out"]).arg(&model);
    command.args(sets.iter().flat_map(|set| ["--set".to_string(), format!("cluster.{set}")]));
    if let Some(path) = movies(suite).filter(|_| file.contains("ratings")) {
        command.args(["--set", &format!("data.train=\"{}\"", path.display())]);
        command.args(["--set", "data.features=[\"userId\", \"movieId\"]"]);
    }
    if suite.is_quick {
        command.args(["--set", "train.epochs=1"]);
    }
    let said = Process::start(&mut command)?.finish(LIMIT);
    let _ = std::fs::remove_file(&model);
    Trial::from_events(name, &said?)
}

fn enter((job, rows): (&str, &str), cells: &[Cell], finding: &mut Finding) {
    let done = || cells.iter().filter_map(|cell| Some((cell, cell.result.as_ref().ok()?)));
    let lines = done().map(|(cell, trial)| {
        vec![
            cell.consistency.to_string(),
            cell.codec.to_string(),
            number(Some(trial.objective), 5),
            trial.metric.clone(),
            bytes(trial.bytes),
            number(Some(trial.bytes / 2.0 * 8.0 / 1e8), 3),
            number(Some(trial.seconds), 3),
            number(Some(trial.processor_seconds), 3),
        ]
    });
    let refused = cells.iter().filter(|cell| is_refusal(&cell.result)).count();
    let sheet = Sheet {
        title: format!("Consistency × codec on {rows}"),
        notes: vec![format!(
            "`bench/jobs/communication-{job}.toml`, two workers as threads, so that seconds are computation and coding; the \
             bound is what one worker's half of the bytes takes at 100 Mbit/s. The objective is that of the final model \
             over all training rows. {refused} pairs of {} are refused because one lacks what the other needs. Load of \
             the machine at the end: {}.",
            cells.len(),
            super::slow_links::load()
        )],
        header: vec![
            "consistency",
            "codec",
            "final objective",
            "metric",
            "bytes",
            "bound, s",
            "seconds",
            "processor s",
        ],
        rows: lines.collect(),
    };
    for cell in cells.iter().filter(|cell| !is_refusal(&cell.result)) {
        if let Err(why) = &cell.result {
            finding.skip(format!("{job}: {}, {}: {why}", cell.consistency, cell.codec));
        }
    }
    finding.sheets.push((format!("consistency-codec-{job}"), sheet));
    // A few that diverge would press all others into one line.
    let most = done().next().map_or(f64::INFINITY, |(_, first)| 2.0 * first.objective);
    let series = CODECS.iter().map(|(codec, _)| Series {
        name: codec.to_string(),
        points: done()
            .filter(|(cell, trial)| cell.codec == *codec && trial.objective <= most)
            .map(|(_, trial)| (trial.bytes, trial.objective))
            .collect(),
    });
    let chart = Chart {
        title: format!(
            "{rows}: a point for each consistency, up to twice the objective of bsp, raw"
        ),
        across: ("bytes sent", Scale::Logarithmic),
        up: ("final objective", Scale::Linear),
        mark: Mark::Dots,
        series: series.filter(|series| !series.points.is_empty()).collect(),
        target: None,
    };
    finding.pictures.push((format!("consistency-codec-{job}"), chart.svg()));
}

/// Whether one of the pair lacks what the other needs. A run that diverges ends with the same exit code.
fn is_refusal(result: &Result<Trial, String>) -> bool {
    result
        .as_ref()
        .is_err_and(|why| why.starts_with("exit status: 2") && why.contains("does not give that"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_diverges_is_no_refusal() {
        let refused =
            "exit status: 2: error: codec 'int8' needs it: topology 'ring' does not give that";
        assert!(is_refusal(&Err(refused.to_string())));
        assert!(!is_refusal(&Err("exit status: 2: error: training has diverged".to_string())));
    }

    #[test]
    fn the_topology_of_a_consistency_stands() {
        let star = merged(&["consistency=ssp", "topology=star"], &["codec=int8", "topology=mesh"]);
        assert_eq!(star, ["consistency=ssp", "topology=star", "codec=int8"]);
        assert_eq!(merged(&[], &["codec=int8", "topology=mesh"]), ["codec=int8", "topology=mesh"]);
    }
}
