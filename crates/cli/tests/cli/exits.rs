//! How a command ends when the others are gone: with which exit code, how soon, and what it says.

use crate::flock::{await_members, coordinator};
use crate::program::{Running, starlings};
use starlings::Deadline;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// A job that goes on until someone stops it.
const ENDLESS: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nsteps = 1000000000\nbatch = 64\nseed = 3\n\
    [cluster]\nlauncher = 'flock'\nworkers = WORKERS\nticket = 'starlings.ticket'\n\
    [checkpoint]\npath = 'kept'\nevery = 100\n";

/// A folder with the job, for so many workers.
fn folder(workers: &str) -> TempDir {
    let folder = tempdir().unwrap();
    let job = ENDLESS.replace("WORKERS", workers);
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    folder
}

fn join(folder: &Path, address: &str, host: &str) -> Running {
    Running::start(folder, &["worker", "--join", address, "--host", host])
}

fn train(folder: &Path, address: &str) -> Running {
    let at = format!("cluster.coordinator={address}");
    Running::start(folder, &["train", "job.toml", "--json", "--set", &at])
}

#[test]
fn an_elastic_flock_that_loses_everyone_ends_with_its_checkpoint() {
    let folder = folder("{ min = 1, max = 3 }");
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let workers = ["anne", "bert", "carl"].map(|host| join(folder.path(), &address, host));
    await_members(folder.path(), &address, 3);
    let mut job = train(folder.path(), &address);
    while job.event("regrouped")["workers"] != 3 {}
    job.event("checkpoint");
    workers.iter().for_each(|worker| worker.signal("KILL"));
    job.end().failed(3, &["last complete checkpoint", "kept", "--resume"]);
}

#[test]
fn whoever_is_asked_to_stop_while_nobody_coordinates_ends_at_once_and_is_no_error() {
    let folder = folder("2");
    let (coordinator, address) = coordinator(folder.path(), &[]);
    let workers = ["anne", "bert"].map(|host| join(folder.path(), &address, host));
    let mut job = train(folder.path(), &address);
    job.event("checkpoint");
    coordinator.signal("KILL");
    coordinator.end();
    let by = Deadline::after_ms(15_000);
    job.signal("TERM");
    workers.iter().for_each(|worker| worker.signal("TERM"));
    job.end().failed(130, &["stopped, as asked", "the coordinator is gone", "--resume"]);
    for worker in workers {
        worker.end().failed(130, &["left as asked"]);
    }
    assert!(!by.passed(), "it took them long");
}

#[test]
fn a_worker_that_is_stopped_before_it_has_a_job_is_no_error() {
    let folder = folder("2");
    let (coordinator, address) = coordinator(folder.path(), &[]);
    let waiting = join(folder.path(), &address, "anne");
    await_members(folder.path(), &address, 1);
    waiting.signal("TERM");
    waiting.end().failed(130, &["stopped while waiting for a seat"]);
    coordinator.signal("KILL");
    coordinator.end();
    let calling = join(folder.path(), &address, "bert");
    std::thread::sleep(std::time::Duration::from_millis(500));
    let by = Deadline::after_ms(5_000);
    calling.signal("TERM");
    calling.end().failed(130, &["stopped while calling the coordinator"]);
    assert!(!by.passed(), "it took long");
}

/// The job is followed at its new coordinator as soon as that is there, wherever it is.
#[test]
fn a_client_finds_another_coordinator_at_another_address_at_once() {
    let folder = folder("2");
    let (first, address) = coordinator(folder.path(), &[]);
    let _workers = ["anne", "bert"].map(|host| join(folder.path(), &address, host));
    let mut job = train(folder.path(), &address);
    job.event("step");
    first.signal("KILL");
    first.end();
    // So that the client is in the midst of a call to the old address.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let (_second, elsewhere) = coordinator(folder.path(), &["--resume"]);
    assert_ne!(address, elsewhere);
    let by = Deadline::after_ms(6_000);
    job.fresh_event("step");
    assert!(!by.passed(), "it took long to find it");
}

#[test]
fn a_worker_that_never_got_a_seat_ends_well_with_the_job() {
    let folder = folder("{ min = 1, max = 1 }");
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let _first = join(folder.path(), &address, "anne");
    let at = format!("cluster.coordinator={address}");
    let words = ["train", "job.toml", "--json", "--set", &at, "--set", "train.steps=1500"];
    let mut job = Running::start(folder.path(), &words);
    job.event("step");
    let spare = join(folder.path(), &address, "bert");
    assert_eq!(job.end().code, Some(0));
    let ended = spare.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("the job ended before this worker had a seat"), "{ended:?}");
}

#[test]
fn a_refused_job_speaks_with_one_voice() {
    let folder = folder("2");
    let words = ["train", "job.toml", "--launcher", "processes", "--resume"];
    let ended = starlings(folder.path(), &words);
    assert_eq!(ended.err.matches("error: ").count(), 1, "{ended:?}");
    ended.failed(2, &["checkpoint"]);
}

/// A coordinator is killed before it has a job: whoever waits there waits at the next one.
#[test]
fn a_coordinator_without_a_job_is_followed_by_another() {
    let folder = folder("2");
    for flags in [&["--tls"][..], &[]] {
        let (first, address) = coordinator(folder.path(), flags);
        let workers = ["anne", "bert"].map(|host| join(folder.path(), &address, host));
        await_members(folder.path(), &address, 2);
        first.signal("KILL");
        first.end();
        let (second, elsewhere) = coordinator(folder.path(), &["--resume"]);
        let at = format!("cluster.coordinator={elsewhere}");
        let words = ["train", "job.toml", "--json", "--set", &at, "--set", "train.steps=200"];
        let ended = starlings(folder.path(), &words);
        assert_eq!(ended.report()["workers"], 2, "{ended:?}");
        for process in workers.into_iter().chain([second]) {
            assert_eq!(process.end().code, Some(0));
        }
        let over =
            starlings(folder.path(), &["coordinator", "--listen", "127.0.0.1:0", "--resume"]);
        over.failed(2, &["tells of no unfinished job"]);
    }
}
