//! A worker process that is killed: the job ends at once, names who died and where, and goes on from the last
//! checkpoint to the same bits.

use crate::program::{Running, nothing_is_half_written, signal, starlings};
use serde_json::Value;
use starlings::Deadline;
use tempfile::tempdir;

const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nsteps = 1000000000\nbatch = 64\nseed = 3\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\n\
    [checkpoint]\npath = 'kept'\nevery = 20\n";

#[test]
fn a_killed_worker_is_named_and_the_job_goes_on_to_the_same_bits() {
    for topology in ["ring", "star"] {
        let folder = tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
        let words = format!("cluster.topology={topology}");
        let train = ["train", "job.toml", "--json", "--set", &words];
        let mut running = Running::start(folder.path(), &train);
        let mut victim = running.event("worker");
        while victim["rank"] != 1 {
            victim = running.event("worker");
        }
        running.event("checkpoint");
        // Well into the walk, when heartbeats have told its phase.
        while running.event("step")["seconds"].as_f64().unwrap() < 0.5 {}
        signal(victim["pid"].as_u64().unwrap(), "KILL");
        let soon = Deadline::after_ms(10_000);
        let ended = running.end();
        assert!(!soon.passed(), "a death must be noticed within seconds");

        let host = victim["host"].as_str().unwrap();
        let lost = format!("error: rank 1 on {host} (process {}) was lost in step", victim["pid"]);
        ended.failed(3, &[&lost, "last complete checkpoint", "kept", "--resume"]);
        let faults: Vec<Value> =
            ended.events().into_iter().filter(|event| event["event"] == "fault").collect();
        for survivor in [0, 2] {
            let told = faults.iter().find(|fault| fault["seen_by"] == survivor);
            let told = told.unwrap_or_else(|| panic!("rank {survivor} said nothing: {faults:?}"));
            assert_eq!((&told["rank"], &told["host"]), (&1.into(), &victim["host"]), "{told}");
            assert!(!told["phase"].as_str().unwrap().is_empty(), "{told}");
        }
        assert!(!folder.path().join("job.safetensors").exists());
        nothing_is_half_written(folder.path());

        let seen = starlings(folder.path(), &["inspect", "kept", "--json"]);
        let seen: Value = serde_json::from_str(&seen.out).unwrap();
        let steps =
            seen["checkpoints"].as_array().unwrap().iter().filter(|it| it["verified"] == true);
        let last = steps.filter_map(|it| it["step"].as_u64()).max().unwrap();
        let goal = format!("train.steps={}", last + 30);
        let resumed =
            starlings(folder.path(), &[&train[..], &["--set", &goal, "--resume"]].concat());
        let other = tempdir().unwrap();
        std::fs::write(other.path().join("job.toml"), JOB).unwrap();
        let undisturbed = starlings(other.path(), &[&train[..], &["--set", &goal]].concat());
        assert_eq!(resumed.report()["digest"], undisturbed.report()["digest"], "{topology}");
    }
}

#[test]
fn a_frozen_worker_is_named_within_seconds() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    let mut running = Running::start(folder.path(), &["train", "job.toml", "--json"]);
    let mut victim = running.event("worker");
    while victim["rank"] != 2 {
        victim = running.event("worker");
    }
    running.event("checkpoint");
    while running.event("step")["seconds"].as_f64().unwrap() < 0.5 {}
    signal(victim["pid"].as_u64().unwrap(), "STOP");
    let soon = Deadline::after_ms(10_000);
    let ended = running.end();
    assert!(!soon.passed(), "silence must be noticed within seconds");
    ended.failed(3, &["rank 2", victim["host"].as_str().unwrap(), "nothing was heard", "--resume"]);
    nothing_is_half_written(folder.path());
}
