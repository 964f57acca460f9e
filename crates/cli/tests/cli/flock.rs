//! A standing flock over TCP: a coordinator, workers that join it, and a client with a job.

use crate::program::{Running, example, starlings};
use serde_json::Value;
use starlings::Deadline;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tempfile::tempdir;

/// A coordinator on a free port, and its address.
pub(crate) fn coordinator(folder: &Path, flags: &[&str]) -> (Running, String) {
    let arguments = [&["coordinator", "--listen", "127.0.0.1:0"], flags].concat();
    let mut coordinator = Running::start(folder, &arguments);
    let line = coordinator.line(|line| line.starts_with("listening on "));
    let address = line["listening on ".len()..].split(';').next().unwrap().to_string();
    (coordinator, address)
}

/// Asks until this many members wait.
pub(crate) fn await_members(folder: &Path, address: &str, count: usize) {
    let by = Deadline::after_ms(60_000);
    loop {
        let ended = starlings(folder, &["status", "--at", address, "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let status: Value = serde_json::from_str(&ended.out).unwrap();
        if status["members"].as_array().unwrap().len() == count {
            return;
        }
        assert!(!by.passed(), "still {status}");
    }
}

#[test]
fn workers_join_over_tls_and_agree_with_threads() {
    let folder = tempdir().unwrap();
    let short = ["--json", "--set", "learner.max_iterations=8", "--workers", "3"];
    let path = example("digits");
    let threads =
        starlings(folder.path(), &[&["train", path.as_str()], &short[..]].concat()).report();

    let (coordinator, address) = coordinator(folder.path(), &["--tls"]);
    let mode =
        std::fs::metadata(folder.path().join("starlings.ticket")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let join = ["worker", "--join", &address, "--host"];
    let hosts = ["anne", "bert", "carl"];
    let workers = hosts.map(|host| Running::start(folder.path(), &[&join[..], &[host]].concat()));
    await_members(folder.path(), &address, 3);
    let people = starlings(folder.path(), &["status", "--at", &address]).out;
    assert!(
        people.contains("no job yet") && hosts.iter().all(|host| people.contains(host)),
        "{people}"
    );

    let at = format!("cluster.coordinator={address}");
    let ticket = format!("cluster.ticket={}", folder.path().join("starlings.ticket").display());
    let flock = ["train", &path, "--launcher", "flock", "--set", &at, "--set", &ticket];
    let ended = starlings(folder.path(), &[&flock[..], &short[..]].concat());
    let report = ended.report();
    assert_eq!(report["digest"], threads["digest"]);
    assert_eq!(report["objective"], threads["objective"]);
    let named = ended.events();
    let named = named.iter().filter(|event| event["event"] == "worker").map(|event| &event["host"]);
    let mut named: Vec<&str> = named.filter_map(Value::as_str).collect();
    named.sort_unstable();
    assert_eq!(named, hosts);
    for process in workers.into_iter().chain([coordinator]) {
        let ended = process.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn a_wrong_ticket_is_refused_and_disturbs_nobody() {
    let (folder, stranger) = (tempdir().unwrap(), tempdir().unwrap());
    let (_mine, address) = coordinator(folder.path(), &[]);
    let (_other, _) = coordinator(stranger.path(), &[]);
    for command in [&["worker", "--patience", "5", "--join"][..], &["status", "--at"]] {
        let ended = starlings(stranger.path(), &[command, &[&address]].concat());
        ended.failed(2, &["ticket"]);
    }
    await_members(folder.path(), &address, 0);
}

#[test]
fn a_ticket_that_others_can_read_is_refused() {
    let folder = tempdir().unwrap();
    let (_running, address) = coordinator(folder.path(), &[]);
    let ticket = folder.path().join("starlings.ticket");
    std::fs::set_permissions(&ticket, std::fs::Permissions::from_mode(0o644)).unwrap();
    starlings(folder.path(), &["status", "--at", &address]).failed(2, &["others can read", "644"]);
}
