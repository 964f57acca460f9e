//! What a flock tells of itself: until when it waits, how many took part, and what was lost while nobody listened.

use crate::flock::{await_members, coordinator};
use crate::program::{Running, starlings};
use serde_json::Value;
use starlings::Deadline;
use std::path::Path;
use tempfile::tempdir;

/// A job for a flock of so many workers, of so many steps that others can join and leave meanwhile.
fn job(folder: &Path, workers: &str, iterations: u32) {
    let text = format!(
        "[data]\ntrain = 'digits'\nlabel = 'class'\n\
         [learner]\nname = 'logistic-regression'\nmax_iterations = {iterations}\ntolerance = 0.0\n\
         [cluster]\nlauncher = 'flock'\nworkers = {workers}\nticket = 'starlings.ticket'\n\
         [checkpoint]\npath = 'kept'\nevery = '1h'\n"
    );
    std::fs::write(folder.join("job.toml"), text).unwrap();
}

fn join(folder: &Path, address: &str, host: &str) -> Running {
    Running::start(folder, &["worker", "--join", address, "--host", host])
}

fn submit(folder: &Path, address: &str) -> Running {
    let at = format!("cluster.coordinator={address}");
    Running::start(folder, &["train", "job.toml", "--json", "--set", &at])
}

/// Asks until the members have changed so often.
fn await_epoch(folder: &Path, address: &str, epoch: u64) {
    let by = Deadline::after_ms(60_000);
    loop {
        let ended = starlings(folder, &["status", "--at", address, "--json"]);
        let status: Value = serde_json::from_str(&ended.out).unwrap();
        if status["epoch"] == epoch {
            return;
        }
        assert!(!by.passed(), "still {status}");
    }
}

#[test]
fn a_job_that_waits_says_for_how_long_and_what_happens_then() {
    let folder = tempdir().unwrap();
    job(folder.path(), "{ min = 2, max = 2 }", 600);
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let _anne = join(folder.path(), &address, "anne");
    await_members(folder.path(), &address, 1);
    let mut job = submit(folder.path(), &address);
    let waiting = job.event("waiting");
    assert_eq!((&waiting["have"], &waiting["want"]), (&1.into(), &2.into()));
    let left = waiting["seconds_left"].as_f64().unwrap();
    assert!(left > 0.0 && left <= 60.0, "{waiting}");
    assert_eq!(waiting["then"], "the job ends with exit code 3");
    let status = starlings(folder.path(), &["status", "--at", &address]).out;
    assert!(status.contains("waiting for workers: 1 of 2 are here; unless 1 more"), "{status}");
    let bert = join(folder.path(), &address, "bert");
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    bert.signal("KILL");
    let waiting = job.event("waiting");
    assert!(waiting["seconds_left"].as_f64().is_some(), "{waiting}");
    let _carl = join(folder.path(), &address, "carl");
    assert_eq!(job.end().code, Some(0));
}

#[test]
fn a_report_tells_how_many_worked_at_the_end_and_at_most() {
    let folder = tempdir().unwrap();
    job(folder.path(), "{ min = 1, max = 3 }", 2000);
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let _anne = join(folder.path(), &address, "anne");
    let mut job = submit(folder.path(), &address);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    let _bert = join(folder.path(), &address, "bert");
    assert_eq!(job.event("regrouped")["workers"], 2);
    let carl = join(folder.path(), &address, "carl");
    assert_eq!(job.event("regrouped")["workers"], 3);
    let status = starlings(folder.path(), &["status", "--at", &address, "--json"]);
    let status: Value = serde_json::from_str(&status.out).unwrap();
    for member in status["members"].as_array().unwrap() {
        assert!(member["heard_ms_ago"].as_u64().is_some(), "{member}");
    }
    carl.signal("TERM");
    assert_eq!(job.event("regrouped")["workers"], 2);
    let report = job.end().report();
    assert_eq!((&report["workers"], &report["workers_max"]), (&2.into(), &3.into()));
}

/// A worker is lost while no coordinator is there. The next one tells of it, and is killed before whoever submitted the job has
/// come back.
#[test]
fn a_loss_of_which_nobody_could_be_told_is_in_the_report_all_the_same() {
    let folder = tempdir().unwrap();
    job(folder.path(), "2", 2500);
    let (first, address) = coordinator(folder.path(), &[]);
    let _anne = join(folder.path(), &address, "anne");
    let bert = join(folder.path(), &address, "bert");
    let mut job = submit(folder.path(), &address);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    job.signal("STOP");
    first.signal("KILL");
    bert.signal("KILL");
    let (second, elsewhere) = coordinator(folder.path(), &["--resume"]);
    await_epoch(folder.path(), &elsewhere, 1);
    second.signal("KILL");
    let _third = coordinator(folder.path(), &["--resume"]);
    job.signal("CONT");
    let report = job.end().report();
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{report}");
    assert_eq!(faults[0]["host"], "bert");
}

/// Ctrl-C in a terminal in which all of them run reaches the coordinator and the one who submitted the job: they ask for the
/// same, and the job ends politely, with its checkpoint.
#[test]
fn ctrl_c_at_coordinator_and_client_stops_the_job_once() {
    let folder = tempdir().unwrap();
    job(folder.path(), "2", 1_000_000);
    let (coordinator, address) = coordinator(folder.path(), &[]);
    let workers = ["anne", "bert"].map(|host| join(folder.path(), &address, host));
    let mut job = submit(folder.path(), &address);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    job.signal("INT");
    coordinator.signal("INT");
    let ended = job.end();
    ended.failed(130, &["stopped, as asked", "kept", "--resume"]);
    assert_eq!(ended.err.matches("as asked").count(), 1, "{}", ended.err);
    assert!(ended.events().iter().all(|event| event["event"] != "fault"), "{ended:?}");
    for process in workers.into_iter().chain([coordinator]) {
        let ended = process.end();
        assert_eq!(ended.code, Some(130), "{ended:?}");
    }
}
