//! The launcher `mpi` from the outside: the real mpirun starts the real binary several times. Whichever transport
//! carries the bytes, the model is that of worker processes; a rank that dies, freezes or is asked to stop
//! ends the job, and never hangs it.

#![expect(clippy::unwrap_used, reason = "all of this is test code, its shared functions too")]

#[path = "cli/program.rs"]
#[expect(dead_code, reason = "shared with the other tests of the binary, which use more of it")]
mod program;

use program::{Ended, Running, example, program, signal, starlings};
use serde_json::Value;
use starlings::Deadline;
use std::path::Path;
use std::process::Command;
use tempfile::tempdir;

/// Steps without end, so that a test can disturb them.
const ENDLESS: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nsteps = 1000000000\nbatch = 64\nseed = 3\n\
    [cluster]\nlauncher = 'mpi'\npatience_seconds = 2\n\
    [checkpoint]\npath = 'kept'\nevery = 20\n";

/// Starts the binary under mpirun, which ends it should it hang.
fn mpirun(folder: &Path, ranks: u32, arguments: &[&str]) -> Running {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--timeout", "50", "-n"]);
    command.arg(ranks.to_string()).arg(program()).args(arguments);
    Running::spawn(command.current_dir(folder))
}

/// The digits job, cut short, run to its end.
fn digits(ranks: u32, launcher: &str, sets: &[&str]) -> Ended {
    run("digits", ranks, launcher, &[&["learner.max_iterations=8"], sets].concat())
}

/// An example, run to its end.
fn run(name: &str, ranks: u32, launcher: &str, sets: &[&str]) -> Ended {
    let (folder, path, workers) = (tempdir().unwrap(), example(name), ranks.to_string());
    let mut arguments = vec!["train", &path, "--json", "--launcher", launcher];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    let ended = match launcher {
        "mpi" => mpirun(folder.path(), ranks, &arguments).end(),
        _ => starlings(folder.path(), &[&arguments[..], &["--workers", &workers]].concat()),
    };
    assert!(folder.path().join(format!("{name}.safetensors")).exists(), "{ended:?}");
    ended
}

/// Starts the endless job on three ranks and waits until it is well on its way; gives the processes in order.
fn endless(folder: &Path, sets: &[&str]) -> (Running, Vec<u64>) {
    std::fs::write(folder.join("job.toml"), ENDLESS).unwrap();
    let mut arguments = vec!["train", "job.toml", "--json"];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    let mut running = mpirun(folder, 3, &arguments);
    let mut processes = vec![0; 3];
    while processes.contains(&0) {
        let worker = running.event("worker");
        processes[worker["rank"].as_u64().unwrap() as usize] = worker["pid"].as_u64().unwrap();
    }
    running.event("checkpoint");
    (running, processes)
}

#[test]
fn every_transport_under_mpirun_gives_the_model_of_processes() {
    let processes = digits(4, "processes", &[]).report();
    for sets in [&[][..], &["cluster.transport=tcp"], &["cluster.transport=shared"]] {
        let ended = digits(4, "mpi", sets);
        let report = ended.report();
        assert_eq!(report["digest"], processes["digest"], "{sets:?}");
        assert_eq!((&report["launcher"], &report["workers"]), (&"mpi".into(), &4.into()));
        let of = |kind: &str| ended.events().iter().filter(|it| it["event"] == kind).count();
        assert_eq!((of("start"), of("worker"), of("report")), (1, 4, 1), "only rank 0 speaks");
    }
}

#[test]
fn the_number_of_workers_is_that_of_mpirun() {
    // The job file says four.
    let report = digits(3, "mpi", &[]).report();
    assert_eq!(report["workers"], 3);
    assert_eq!(report["digest"], digits(3, "processes", &[]).report()["digest"]);
    assert_eq!(digits(1, "mpi", &[]).report()["workers"], 1);
}

#[test]
fn owners_and_pipelines_work_over_mpi_too() {
    let star = ["cluster.topology=star", "learner.solver=sgd", "train.epochs=2"];
    let same = |a: Ended, b: Ended| assert_eq!(a.report()["digest"], b.report()["digest"]);
    same(digits(2, "mpi", &star), digits(2, "processes", &star));
    let short = ["train.epochs=2"];
    let pipeline = |launcher| run("pipelined-perceptron", 4, launcher, &short);
    same(pipeline("mpi"), pipeline("processes"));
}

#[test]
fn a_killed_rank_ends_the_job() {
    for sets in [&[][..], &["cluster.transport=tcp"]] {
        let folder = tempdir().unwrap();
        let (running, processes) = endless(folder.path(), sets);
        signal(processes[1], "KILL");
        let soon = Deadline::after_ms(20_000);
        let ended = running.end();
        assert!(!soon.passed(), "a death must be noticed within seconds: {ended:?}");
        assert!(ended.code != Some(0), "{ended:?}");
        assert!(!folder.path().join("job.safetensors").exists());
    }
}

#[test]
fn a_frozen_rank_ends_the_job_by_name() {
    // MPI knows nothing of silence, so that patience must run out; a flock over sockets has a detector.
    for (sets, words) in [
        (&[][..], ["nothing arrived before the deadline", "--resume"]),
        (
            &["cluster.transport=tcp", "cluster.patience_seconds=600"],
            ["rank 1", "nothing was heard"],
        ),
    ] {
        let folder = tempdir().unwrap();
        let (running, processes) = endless(folder.path(), sets);
        signal(processes[1], "STOP");
        let soon = Deadline::after_ms(20_000);
        let ended = running.end();
        assert!(!soon.passed(), "silence ends the job within seconds: {ended:?}");
        ended.failed(3, &words);
    }
}

#[test]
fn a_rank_that_is_asked_to_stop_stops_all_politely() {
    for sets in [&[][..], &["cluster.transport=tcp"]] {
        let folder = tempdir().unwrap();
        let (running, processes) = endless(folder.path(), sets);
        signal(processes[2], "TERM");
        let ended = running.end();
        ended.failed(130, &["as asked", "--resume"]);
    }
}

#[test]
fn a_bad_job_is_refused_once_and_by_rank_0() {
    let folder = tempdir().unwrap();
    let path = example("digits");
    let train = ["train", &path, "--launcher", "mpi", "--set", "cluster.codec=nonsense"];
    let ended = mpirun(folder.path(), 3, &train).end();
    ended.failed(2, &["nonsense"]);
    assert_eq!(ended.err.matches("error: ").count(), 1, "{}", ended.err);
}

#[test]
fn the_transport_needs_the_launcher() {
    let folder = tempdir().unwrap();
    let ended =
        starlings(folder.path(), &["train", &example("digits"), "--set", "cluster.transport=mpi"]);
    ended.failed(2, &["launcher = 'mpi'", "mpirun"]);
}

#[test]
fn the_catalogue_says_that_nothing_survives() {
    let folder = tempdir().unwrap();
    for family in ["launchers", "transports"] {
        let listed = starlings(folder.path(), &["list", family, "--json"]);
        let listed: Value = serde_json::from_str(&listed.out).unwrap();
        let entry = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "mpi").unwrap();
        assert!(entry["summary"].as_str().unwrap().contains("no survival"), "{entry}");
    }
}
