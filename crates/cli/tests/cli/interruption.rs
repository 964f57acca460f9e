//! Ctrl-C and SIGTERM: the step in progress ends, a checkpoint is written if wanted, nothing is half-written,
//! and the way to go on is shown.

use crate::flock::{await_members, coordinator};
use crate::program::{Ended, Running, nothing_is_half_written, signal, starlings};
use starlings::Deadline;
use std::path::Path;
use tempfile::tempdir;

/// A job that goes on until someone stops it.
const ENDLESS: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nsteps = 1000000000\nbatch = 64\nseed = 3\n[cluster]\nworkers = 2\n";
const KEPT: &str = "[checkpoint]\npath = 'kept'\nevery = '1h'\n";

/// Starts the job, stops it after its first steps, and gives what it said.
fn interrupted(folder: &Path, job: &str, launcher: &str, signal: &str) -> Ended {
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let mut running =
        Running::start(folder, &["train", "job.toml", "--json", "--launcher", launcher]);
    running.event("step");
    running.event("step");
    running.signal(signal);
    let ended = running.end();
    nothing_is_half_written(folder);
    assert!(!folder.join("job.safetensors").exists());
    assert!(!ended.out.contains("\"event\":\"report\""));
    ended
}

#[test]
fn a_stopped_job_names_its_checkpoint_and_goes_on_from_it() {
    for (launcher, signal) in [("threads", "INT"), ("processes", "TERM")] {
        let folder = tempdir().unwrap();
        let job = format!("{ENDLESS}{KEPT}");
        let ended = interrupted(folder.path(), &job, launcher, signal);
        ended.failed(130, &["kept", "--resume"]);
        assert_eq!(ended.err.matches("as asked").count(), 1, "one voice is enough: {}", ended.err);
        let cut = ended.events().into_iter().rfind(|event| event["event"] == "checkpoint").unwrap();
        let step = cut["step"].as_u64().unwrap();
        assert!(step > 0);

        let steps = format!("train.steps={}", step + 20);
        let shorter = ["train", "job.toml", "--json", "--set", &steps];
        let resumed = starlings(folder.path(), &[&shorter[..], &["--resume"]].concat()).report();
        assert_eq!(resumed["steps"], step + 20);
        let other = tempdir().unwrap();
        std::fs::write(other.path().join("job.toml"), ENDLESS).unwrap();
        let undisturbed = starlings(other.path(), &shorter).report();
        assert_eq!(resumed["digest"], undisturbed["digest"], "{launcher}");
    }
}

/// Ctrl-C in a terminal reaches all of its processes, and the workers perhaps first: it is for whoever started them to stop the
/// job, or they would leave one by one.
#[test]
fn a_job_whose_workers_hear_ctrl_c_too_is_stopped_once() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), format!("{ENDLESS}{KEPT}")).unwrap();
    let words = ["train", "job.toml", "--json", "--launcher", "processes"];
    let mut running = Running::start(folder.path(), &words);
    let workers: Vec<u64> =
        (0..2).map(|_| running.event("worker")["pid"].as_u64().unwrap()).collect();
    running.event("step");
    workers.iter().for_each(|&worker| signal(worker, "INT"));
    (0..20).for_each(|_| drop(running.event("step")));
    running.signal("INT");
    let ended = running.end();
    ended.failed(130, &["stopped, as asked", "kept", "--resume"]);
    assert_eq!(ended.err.matches("asked").count(), 1, "{}", ended.err);
    let told = ended.events();
    assert!(told.iter().all(|it| it["event"] != "fault" && it["event"] != "regrouped"), "{told:?}");
}

/// A flock of two that trains until somebody ends it: the coordinator, the workers and the one who submitted the job.
fn flock(folder: &Path) -> (Running, [Running; 2], Running) {
    let job = ENDLESS.replace(
        "workers = 2\n",
        "workers = { min = 2, max = 2 }\nlauncher = 'flock'\nticket = 'starlings.ticket'\n",
    );
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let (coordinator, address) = coordinator(folder, &[]);
    let join = |host| Running::start(folder, &["worker", "--join", &address, "--host", host]);
    let workers = [join("anne"), join("bert")];
    let at = format!("cluster.coordinator={address}");
    let mut train = Running::start(folder, &["train", "job.toml", "--json", "--set", &at]);
    train.event("step");
    (coordinator, workers, train)
}

#[test]
fn a_job_that_waits_for_workers_is_stopped_at_once() {
    let folder = tempdir().unwrap();
    let (coordinator, [anne, bert], mut train) = flock(folder.path());
    bert.signal("KILL");
    train.event("waiting");
    let by = Deadline::after_ms(10_000);
    train.signal("INT");
    train.end().failed(130, &["stopped, as asked", "nothing was kept"]);
    assert!(!by.passed(), "a polite end may take 30 s, this one has nothing to wait for");
    anne.end().failed(130, &["stopped, as asked"]);
    coordinator.end().failed(130, &["stopped, as asked"]);
}

/// Who is in a hurry asks twice. Nothing has failed: a worker that cannot finish its step any more was interrupted, too.
#[test]
fn workers_of_a_job_that_is_stopped_twice_were_interrupted() {
    let folder = tempdir().unwrap();
    let (_coordinator, [anne, bert], train) = flock(folder.path());
    // The step in progress cannot be finished, or the first request would do.
    bert.signal("STOP");
    train.signal("INT");
    train.signal("TERM");
    assert_eq!(train.end().code, None, "it was ended at once");
    let anne = anne.end();
    bert.signal("KILL");
    anne.failed(130, &["the one who submitted the job is gone"]);
}

#[test]
fn workers_that_wait_at_a_coordinator_that_is_stopped_were_interrupted() {
    let folder = tempdir().unwrap();
    let (coordinator, address) = coordinator(folder.path(), &[]);
    let anne = Running::start(folder.path(), &["worker", "--join", &address, "--host", "anne"]);
    await_members(folder.path(), &address, 1);
    coordinator.signal("INT");
    anne.end().failed(130, &["the coordinator was stopped before a job came"]);
    coordinator.end().failed(130, &["stopped before a job came"]);
}

#[test]
fn a_stopped_job_without_checkpoints_ends_all_the_same() {
    for (launcher, signal) in [("threads", "TERM"), ("processes", "INT")] {
        let folder = tempdir().unwrap();
        let ended = interrupted(folder.path(), ENDLESS, launcher, signal);
        ended.failed(130, &["stopped", "the job has no [checkpoint], so nothing was kept"]);
    }
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_one_before_it_is_used() {
    for launcher in ["threads", "processes"] {
        let folder = tempdir().unwrap();
        let job = format!(
            "{}[checkpoint]\npath = 'kept'\nevery = 10\n",
            ENDLESS.replace("1000000000", "25")
        );
        std::fs::write(folder.path().join("job.toml"), job).unwrap();
        let words = ["train", "job.toml", "--json", "--launcher", launcher];
        let undisturbed = starlings(folder.path(), &words).report();
        let newest = newest_part(&folder.path().join("kept"));
        let mut bytes = std::fs::read(&newest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&newest, bytes).unwrap();
        let ended = starlings(folder.path(), &[&words[..], &["--resume"]].concat());
        let report = ended.report();
        assert_eq!(report["digest"], undisturbed["digest"]);
        let faults = report["faults"].as_array().unwrap();
        assert_eq!(faults.len(), 1, "{faults:?}");
        let message = faults[0]["message"].as_str().unwrap();
        assert!(message.contains("checkpoint of step 20: "), "{message}");
        assert!(message.contains("going on from the one of step 10"), "{message}");
    }
}

/// The largest file of the newest checkpoint.
fn newest_part(kept: &Path) -> std::path::PathBuf {
    let inside = |folder: &Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let newest = inside(kept).into_iter().filter(|path| path.is_dir()).max().unwrap();
    inside(&newest).into_iter().max_by_key(|path| path.metadata().unwrap().len()).unwrap()
}
