//! A machine that cannot: no room, no folder, a taken port, an open network, a wrong secret.

use crate::program::{Running, example, files, nothing_is_half_written, program, starlings};
use std::net::TcpListener;
use std::process::Command;
use tempfile::tempdir;

#[test]
fn a_full_disk_while_saving_leaves_the_old_model_alone() {
    let folder = tempdir().unwrap();
    let out = folder.path().join("model.safetensors");
    std::fs::write(&out, "the user's own").unwrap();
    // A limit of 1 KiB on every file stands for a disk without room.
    let line = format!(
        "ulimit -f 1; exec {} train {} --json --out {} --set learner.max_iterations=2",
        program(),
        example("digits"),
        out.display()
    );
    let ended =
        Running::spawn(Command::new("sh").args(["-c", &line]).current_dir(folder.path())).end();
    ended.failed(4, &["model.safetensors"]);
    assert!(!ended.out.contains("\"event\":\"report\""), "{}", ended.out);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "the user's own");
    assert_eq!(files(folder.path()), [out]);
}

#[test]
fn a_folder_that_is_not_there_is_found_before_training() {
    let folder = tempdir().unwrap();
    let ended = starlings(
        folder.path(),
        &["train", &example("digits"), "--json", "--out", "no/model.safetensors"],
    );
    ended.failed(2, &["--out no/model.safetensors", "does not exist", "place for the model"]);
    assert_eq!(ended.out, "");
    let traced = ["train", &example("digits"), "--json", "--trace", "no/trace.json"];
    let ended = starlings(folder.path(), &traced);
    ended.failed(2, &["--trace no/trace.json", "does not exist", "place for the trace"]);
    assert!(!ended.err.contains("--out") && !ended.err.contains("model"), "{}", ended.err);
    assert_eq!(ended.out, "");
    let ended = starlings(folder.path(), &["train", &example("digits"), "--trace", "."]);
    ended.failed(2, &["--trace . is a folder", "trace.json"]);
}

#[test]
fn predictions_that_cannot_be_written_are_reported() {
    let folder = tempdir().unwrap();
    let train = ["train", &example("digits"), "--json", "--set", "learner.max_iterations=2"];
    starlings(folder.path(), &train).report();
    let line = format!("{} predict digits.safetensors --data digits:test > /dev/full", program());
    let ended =
        Running::spawn(Command::new("sh").args(["-c", &line]).current_dir(folder.path())).end();
    ended.failed(4, &["standard output"]);
    let out = ["predict", "digits.safetensors", "--data", "digits:test", "--out", "no/p.csv"];
    let ended = starlings(folder.path(), &out);
    assert!(matches!(ended.code, Some(2 | 4)), "{ended:?}");
    nothing_is_half_written(folder.path());
}

#[test]
fn a_taken_port_is_named() {
    let folder = tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = starlings(folder.path(), &["coordinator", "--listen", &address]);
    assert!(matches!(ended.code, Some(2 | 4)), "{ended:?}");
    assert!(ended.err.contains(&address), "{}", ended.err);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn an_open_network_needs_tls() {
    let folder = tempdir().unwrap();
    let ended = starlings(folder.path(), &["coordinator", "--listen", "0.0.0.0:0"]);
    ended.failed(2, &["0.0.0.0", "--tls"]);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_coordinator_that_is_not_there_is_named() {
    let folder = tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut other = Running::start(folder.path(), &["coordinator", "--listen", "127.0.0.1:0"]);
    other.line(|line| line.starts_with("listening"));
    let worker = ["worker", "--join", &free, "--patience", "1"];
    starlings(folder.path(), &worker).failed(3, &[&free]);
    starlings(folder.path(), &["status", "--at", &free]).failed(3, &[&free]);
}
