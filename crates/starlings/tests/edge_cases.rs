//! Every learner of the catalogue on data at the edge of what data can be: one row, one column, columns that are constant
//! or missing, one class, duplicated rows, extreme scales, fewer rows than workers. Each either trains to numbers or
//! refuses with a fault that says what the caller must change; none panics, gives a number that is none, or differs in
//! that between one worker and three.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{
    Blame, DataSpec, Encoding, Fault, Job, LabelNeed, Surroundings, TrainOptions, train,
};
use starlings_engine::choices::learner;
use starlings_engine::job::Choice;
use starlings_learn::Task;
use std::fmt::Write;
use std::path::Path;

/// What a learner's parameters must be for data of a few rows; for others the defaults serve.
const SETTINGS: &[(&str, &str)] = &[
    ("k-means", "k = 2"),
    ("bisecting-k-means", "k = 2"),
    ("gaussian-mixture", "components = 2"),
    ("kernel-svm", "components = 2"),
    ("pca", "components = 1"),
    ("truncated-svd", "components = 1"),
    ("latent-dirichlet-allocation", "topics = 2"),
    ("lasso", "l1 = 0.1"),
    ("elastic-net", "alpha = 0.1"),
    ("matrix-factorisation", "rank = 2"),
    ("pipelined-perceptron", "hidden = 4"),
    ("survival-regression", "event = 'e'"),
    ("isotonic-regression", "feature = 'x'"),
    ("cnn", "shape = [1, 1, 5]\nlayers = ['conv 4 1', 'relu', 'flatten']"),
];

/// What is special about the data.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Edge {
    Nothing,
    OneRow,
    OneColumn,
    ConstantColumn,
    AllConstant,
    MissingColumn,
    AllMissing,
    OneLabel,
    Duplicates,
    HugeAndTiny,
    ThreeRows,
}

const EDGES: [Edge; 11] = [
    Edge::Nothing,
    Edge::OneRow,
    Edge::OneColumn,
    Edge::ConstantColumn,
    Edge::AllConstant,
    Edge::MissingColumn,
    Edge::AllMissing,
    Edge::OneLabel,
    Edge::Duplicates,
    Edge::HugeAndTiny,
    Edge::ThreeRows,
];

/// What the rows of a learner are.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Family {
    Classes,
    Numbers,
    Times,
    Points,
    Identities,
}

fn family(name: &str, built: &dyn starlings_learn::Learner) -> Family {
    match (built.encoding(), built.label()) {
        _ if name == "survival-regression" => Family::Times,
        (Encoding::Identity, _) => Family::Identities,
        (_, LabelNeed::Class | LabelNeed::SomeClasses) => Family::Classes,
        (_, LabelNeed::Number) => Family::Numbers,
        (_, LabelNeed::None) => Family::Points,
    }
}

/// The rows as a table with a header. All numbers are whole and none is negative, so that counts are counts.
fn csv(family: Family, edge: Edge) -> String {
    let rows = match edge {
        Edge::OneRow => 1,
        Edge::ThreeRows => 3,
        _ => 24,
    };
    let mut text = match (family, edge) {
        (Family::Identities, _) => "user,item,y\n".to_string(),
        (Family::Points, Edge::OneColumn) => "x\n".to_string(),
        (_, Edge::OneColumn) if family != Family::Times => "x,y\n".to_string(),
        (Family::Times, Edge::OneColumn) => "e,y\n".to_string(),
        (Family::Points, _) => "x,z,t\n".to_string(),
        (Family::Times, _) => "e,x,z,t,y\n".to_string(),
        _ => "x,z,t,y\n".to_string(),
    };
    for row in 0..rows {
        let at = if edge == Edge::Duplicates { row % 2 } else { row };
        let fields = fields(family, edge, at);
        writeln!(text, "{}", fields.join(",")).unwrap();
    }
    text
}

fn fields(family: Family, edge: Edge, row: usize) -> Vec<String> {
    let label = match (edge, family) {
        (Edge::OneLabel, Family::Classes) => "a".to_string(),
        (_, Family::Classes) => ["a", "b"][row % 2].to_string(),
        (Edge::OneLabel | Edge::AllConstant, _) => "3".to_string(),
        _ => (1 + row * 5 % 7).to_string(),
    };
    if family == Family::Identities {
        let (user, item) = match edge {
            Edge::AllConstant | Edge::OneColumn => (0, 1),
            Edge::ConstantColumn => (0, 1 + row % 4),
            _ => (row % 5, 5 + row % 3),
        };
        let user = match edge {
            Edge::AllMissing | Edge::MissingColumn => String::new(),
            _ => format!("u{user}"),
        };
        return vec![user, format!("u{item}"), label];
    }
    let number =
        |constant: bool, missing: bool, value: usize, scale: &str| match (constant, missing) {
            (_, true) => String::new(),
            (true, _) => "2".to_string(),
            _ if edge == Edge::HugeAndTiny => format!("{}{scale}", value + 1),
            _ => value.to_string(),
        };
    let (constant, missing) = (edge == Edge::AllConstant, edge == Edge::AllMissing);
    let x = number(constant, missing, row * 3 % 8, "e30");
    let z = number(
        constant || edge == Edge::ConstantColumn,
        missing || edge == Edge::MissingColumn,
        row * row % 5,
        "e-30",
    );
    let text = match (constant, missing) {
        (_, true) => String::new(),
        (true, _) => "k".to_string(),
        _ => ["k", "l", "m"][row % 3].to_string(),
    };
    let event = (row % 3 % 2).to_string();
    match (family, edge) {
        (Family::Points, Edge::OneColumn) => vec![x],
        (Family::Points, _) => vec![x, z, text],
        (Family::Times, Edge::OneColumn) => vec![event, label],
        (Family::Times, _) => vec![event, x, z, text, label],
        (_, Edge::OneColumn) => vec![x, label],
        _ => vec![x, z, text, label],
    }
}

/// What came of a training.
enum Found {
    Trained,
    Refused(String),
}

fn tried(name: &str, family: Family, path: &Path, workers: u32) -> Result<Found, String> {
    let given =
        SETTINGS.iter().find(|(learner, _)| *learner == name).map_or("", |(_, given)| given);
    let label = if family == Family::Points { "" } else { "label = 'y'\n" };
    let text = format!(
        "[data]\ntrain = '{}'\nheader = true\n{label}[learner]\nname = '{name}'\n{given}\n\
         [train]\nepochs = 3\nbatch = 8\n[cluster]\nworkers = {workers}\n",
        path.display()
    );
    let around = Surroundings { folder: std::env::temp_dir(), cores: 1 };
    let refused = |fault: Fault| match fault.blame() {
        Blame::Caller if fault.to_string().len() > 10 => Ok(Found::Refused(fault.to_string())),
        blame => Err(format!("refused by {blame:?}: {fault}")),
    };
    let trained =
        match Job::parse(&text, &[], &around).and_then(|job| train(job, TrainOptions::default())) {
            Ok(trained) => trained,
            Err(fault) => return refused(fault),
        };
    let report = &trained.report;
    if !report.objective.is_finite() {
        return Err(format!("the objective is {}", report.objective));
    }
    if let Some((metric, value)) = report.metrics.iter().find(|(_, value)| !value.is_finite()) {
        return Err(format!("{metric} is {value}"));
    }
    let spec = DataSpec { header: Some(true), ..DataSpec::new(path.to_string_lossy()) };
    let said = match trained.predictor.predict(&spec) {
        Ok(said) => said,
        Err(fault) => {
            return Err(format!("it does not predict the rows it was trained on: {fault}"));
        }
    };
    match said.values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(format!("a prediction is {value}")),
        None => Ok(Found::Trained),
    }
}

/// The catalogue in parts, for tests run side by side.
const PARTS: usize = 4;

#[test]
fn the_first_quarter_of_learners_trains_to_numbers_or_says_what_is_wrong() {
    check(0);
}

#[test]
fn the_second_quarter_of_learners_trains_to_numbers_or_says_what_is_wrong() {
    check(1);
}

#[test]
fn the_third_quarter_of_learners_trains_to_numbers_or_says_what_is_wrong() {
    check(2);
}

#[test]
fn the_last_quarter_of_learners_trains_to_numbers_or_says_what_is_wrong() {
    check(3);
}

fn check(part: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (mut broken, mut trained, mut refusals) = (Vec::new(), 0, Vec::new());
    let listed = starlings::list(Some("learners")).unwrap();
    for listing in listed.into_iter().skip(part).step_by(PARTS) {
        let given = SETTINGS.iter().find(|(name, _)| *name == listing.name);
        let given = given.map_or("", |(_, given)| given).parse().unwrap();
        let (_, built, _) = learner(&Choice { name: listing.name.to_string(), given }).unwrap();
        let family = family(listing.name, &*built);
        for edge in EDGES {
            let path = folder.path().join("rows.csv");
            std::fs::write(&path, csv(family, edge)).unwrap();
            let results = [1, 3].map(|workers| tried(listing.name, family, &path, workers));
            let at = format!("{} on {edge:?}", listing.name);
            match results {
                [Ok(Found::Trained), Ok(Found::Trained)] => trained += 1,
                [Ok(Found::Refused(why)), Ok(Found::Refused(_))] => {
                    // The plain rows are there to be learnt, by all but those who want other columns.
                    if edge == Edge::Nothing && built.task() != Task::Topics {
                        broken.push(format!("{at}: {why}"));
                    }
                    refusals.push(format!("{at}: {why}"));
                }
                [Err(why), _] | [_, Err(why)] => broken.push(format!("{at}: {why}")),
                [Ok(Found::Trained), Ok(Found::Refused(why))] => {
                    broken.push(format!("{at}: one worker trains, three refuse: {why}"));
                }
                [Ok(Found::Refused(why)), Ok(Found::Trained)] => {
                    broken.push(format!("{at}: one worker refuses, three train: {why}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
    assert!(trained > refusals.len(), "{trained} trained, refused:\n{}", refusals.join("\n"));
}
