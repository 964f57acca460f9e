//! Models that live at owners, whose workers are killed: the rows of the lost are found at their backup, the same step is
//! finished by those who are left, and no checkpoint is needed. Only an owner that is lost together with its backup
//! takes the model along.

use crate::flock::coordinator;
use crate::killed_worker::{of_kind, steps_only_grow, under_way};
use crate::program::{Ended, Running, signal, starlings};
use serde_json::Value;
use tempfile::tempdir;

/// Mini-batches on dense rows, with momentum: every row of the weights has a state beside it.
const DIGITS: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'momentum'\nlearning_rate = 0.001\n\
    [train]\nepochs = 60\nbatch = 32\nseed = 3\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\ntopology = 'star'\n";
const DIGITS_ROWS: u64 = 60 * 1438;

/// Mini-batches that touch a few rows of large tables each.
const RATINGS: &str = "[data]\ntrain = 'synthetic://ratings?rows=20000&users=400&items=200&rank=4&seed=1'\nlabel = 'rating'\n\
    [learner]\nname = 'matrix-factorisation'\nrank = 8\n\
    [train]\nepochs = 3\nbatch = 100\nseed = 1\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\ntopology = 'star'\n";

/// The objective of a run that nobody disturbs.
fn undisturbed(job: &str) -> f64 {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let train = ["train", "job.toml", "--json", "--launcher", "threads"];
    objective(&starlings(folder.path(), &train))
}

fn objective(ended: &Ended) -> f64 {
    ended.report()["objective"].as_f64().unwrap()
}

fn near(found: f64, wanted: f64, share: f64) {
    assert!((found - wanted).abs() <= share * wanted.abs(), "{found} instead of {wanted}");
}

/// How the flock went on, and with how many.
fn regroupings(ended: &Ended) -> Vec<(String, u64)> {
    let told = |event: &Value| {
        let completion = event["completion"].as_str().unwrap().to_string();
        (completion, event["workers"].as_u64().unwrap())
    };
    of_kind(ended, "regrouped").iter().map(told).collect()
}

fn every_row_once(ended: &Ended, rows: u64) {
    let report = ended.report();
    assert_eq!((&report["samples"], &report["rows_left_out"]), (&rows.into(), &0.into()));
}

#[test]
fn whichever_owner_is_lost_its_rows_are_at_the_next_seat_and_the_step_is_finished() {
    let calm = undisturbed(DIGITS);
    for rank in [0, 1, 2] {
        let folder = tempdir().unwrap();
        let (running, processes) = under_way(folder.path(), DIGITS, &[]);
        signal(processes[rank], "KILL");
        let ended = running.end();
        assert_eq!(regroupings(&ended), [("reweigh".to_string(), 2)]);
        assert_eq!(of_kind(&ended, "fault")[0]["rank"], rank);
        every_row_once(&ended, DIGITS_ROWS);
        steps_only_grow(&ended);
        near(objective(&ended), calm, 0.02);
    }
}

#[test]
fn rows_of_large_tables_are_found_again() {
    let calm = undisturbed(RATINGS);
    let folder = tempdir().unwrap();
    let (running, processes) = under_way(folder.path(), RATINGS, &[]);
    signal(processes[1], "KILL");
    let ended = running.end();
    assert_eq!(regroupings(&ended), [("reweigh".to_string(), 2)]);
    every_row_once(&ended, 3 * 20_000);
    steps_only_grow(&ended);
    near(objective(&ended), calm, 0.05);
}

#[test]
fn owners_are_lost_one_after_another_until_one_is_left() {
    let calm = undisturbed(DIGITS);
    let folder = tempdir().unwrap();
    let (mut running, processes) = under_way(folder.path(), DIGITS, &[]);
    signal(processes[0], "KILL");
    running.event("regrouped");
    let step = running.event("step")["step"].as_u64().unwrap();
    while running.event("step")["step"].as_u64().unwrap() < step + 3 {}
    signal(processes[2], "KILL");
    let ended = running.end();
    let reweigh = "reweigh".to_string();
    assert_eq!(regroupings(&ended), [(reweigh.clone(), 2), (reweigh, 1)]);
    every_row_once(&ended, DIGITS_ROWS);
    steps_only_grow(&ended);
    near(objective(&ended), calm, 0.02);
}

#[test]
fn an_owner_that_is_lost_with_its_backup_takes_the_model_along() {
    let folder = tempdir().unwrap();
    let (running, processes) = under_way(folder.path(), DIGITS, &[]);
    // Frozen first, so that nobody takes a seat anew between the two.
    for name in ["STOP", "KILL"] {
        [1, 2].iter().for_each(|&rank: &usize| signal(processes[rank], name));
    }
    let ended = running.end();
    assert_eq!(regroupings(&ended), [("restore".to_string(), 1)]);
    assert_eq!(of_kind(&ended, "regrouped")[0]["step"], 0, "there is no checkpoint");
    assert!(ended.report()["metrics"]["accuracy"].as_f64().unwrap() > 0.85);
}

#[test]
fn what_a_codec_held_back_is_put_back_before_the_step_is_taken_again() {
    let job = DIGITS.to_string() + "codec = { name = 'top-k', ratio = 0.1 }\n";
    let calm = undisturbed(&job);
    let folder = tempdir().unwrap();
    let (running, processes) = under_way(folder.path(), &job, &[]);
    signal(processes[1], "KILL");
    let ended = running.end();
    assert_eq!(regroupings(&ended), [("reweigh".to_string(), 2)]);
    every_row_once(&ended, DIGITS_ROWS);
    steps_only_grow(&ended);
    near(objective(&ended), calm, 0.05);
}

#[test]
fn a_flock_that_does_not_wait_for_the_late_goes_on_without_an_owner() {
    let folder = tempdir().unwrap();
    let spare = "cluster.consistency={ name = \"backup-workers\", spare = 1 }";
    let (running, processes) = under_way(folder.path(), DIGITS, &[spare]);
    signal(processes[1], "KILL");
    let ended = running.end();
    assert_eq!(regroupings(&ended), [("reweigh".to_string(), 2)]);
    steps_only_grow(&ended);
    let accuracy = ended.report()["metrics"]["accuracy"].as_f64().unwrap();
    assert!(accuracy > 0.85, "{accuracy}");
}

#[test]
fn without_a_barrier_those_who_are_left_go_on_from_owners_and_backups() {
    for words in [
        "cluster.consistency=ssp",
        "cluster.consistency={ name = \"ssp\", bound = 2, push = false }",
        "cluster.consistency=async",
        "cluster.consistency=downpour",
    ] {
        let folder = tempdir().unwrap();
        let (running, processes) = under_way(folder.path(), DIGITS, &[words]);
        signal(processes[1], "KILL");
        let ended = running.end();
        assert_eq!(regroupings(&ended), [("continue".to_string(), 2)], "{words}");
        steps_only_grow(&ended);
        let accuracy = ended.report()["metrics"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.85, "{words}: {accuracy}");
    }
}

#[test]
fn newcomers_become_owners_of_a_running_job_and_leave_it_politely() {
    let folder = tempdir().unwrap();
    let launched =
        "launcher = 'flock'\nworkers = { min = 1, max = 3 }\nticket = 'starlings.ticket'";
    // Steps of some milliseconds: the first worker must not be done before the others have come.
    let rows = "synthetic://classification?rows=20000&features=200&seed=1";
    let job = format!(
        "[data]\ntrain = '{rows}'\n\
        [learner]\nname = 'logistic-regression'\nsolver = 'momentum'\nlearning_rate = 0.001\n\
        [train]\nepochs = 500\nbatch = 5000\nseed = 3\n[cluster]\n{launched}\ntopology = 'star'\n"
    );
    std::fs::write(folder.path().join("job.toml"), &job).unwrap();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let first = join("anne");
    let at = format!("cluster.coordinator={address}");
    let mut running = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    while running.event("step")["step"].as_u64().unwrap() < 3 {}
    let _second = join("bert");
    running.event("regrouped");
    let _third = join("carl");
    running.event("regrouped");
    first.signal("TERM");
    let ended = running.end();
    let told = [2, 3, 2].map(|workers| ("reweigh".to_string(), workers));
    assert_eq!(regroupings(&ended), told);
    every_row_once(&ended, 500 * 20_000);
    steps_only_grow(&ended);
}
