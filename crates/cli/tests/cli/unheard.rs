//! Workers whose words get lost on the way. A relay stands between one of them and the coordinator, and swallows everything
//! from a moment on, as a link does that carries packets in one direction only: nothing closes.

use crate::flock::{await_members, coordinator};
use crate::program::{Running, starlings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;
use tempfile::tempdir;

/// Only the message with the model has this word.
const MODEL: &[u8] = b"\"lead_max\"";

/// Carries one connection to `target`. What is sent there is swallowed from `word` on; then the receiver is told.
fn relay(target: &str, word: &'static [u8]) -> (SocketAddr, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, target) = (listener.local_addr().unwrap(), target.to_string());
    let (sender, swallowed) = sync_channel(1);
    let carry = move || {
        let Ok((mut near, _)) = listener.accept() else { return };
        let mut far = TcpStream::connect(target).unwrap();
        let (mut back, mut home) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        let answers = move || std::io::copy(&mut back, &mut home);
        std::thread::Builder::new().spawn(answers).unwrap();
        let (mut bytes, mut seen, mut swallows) = (vec![0; 1 << 16], Vec::new(), false);
        while let Ok(count @ 1..) = near.read(&mut bytes) {
            seen.extend_from_slice(&bytes[..count]);
            if !swallows && seen.windows(word.len()).any(|it| it == word) {
                swallows = true;
                sender.send(()).unwrap();
            }
            seen.drain(..seen.len().saturating_sub(word.len()));
            if !swallows && far.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
        let _ = far.shutdown(std::net::Shutdown::Both);
    };
    std::thread::Builder::new().spawn(carry).unwrap();
    (address, swallowed)
}

/// Rank 0 sends the model and is not heard any more, or dies: the others have finished with it and have the model, too.
#[test]
fn a_model_that_is_lost_with_rank_0_comes_from_another() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 30\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = 3\nticket = 'starlings.ticket'\n";
    for dies in [false, true] {
        let folder = tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
        let alone = ["train", "job.toml", "--json", "--launcher", "threads"];
        let alone = starlings(folder.path(), &alone).report();
        let (_coordinator, address) = coordinator(folder.path(), &[]);
        let join = |at: &str, host| {
            Running::start(folder.path(), &["worker", "--join", at, "--host", host])
        };
        let (bad, swallowed) = relay(&address, MODEL);
        let first = join(&bad.to_string(), "anne");
        await_members(folder.path(), &address, 1);
        let others = ["bert", "carl"].map(|host| join(&address, host));
        let at = format!("cluster.coordinator={address}");
        let job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
        swallowed.recv_timeout(Duration::from_secs(60)).unwrap();
        if dies {
            first.signal("KILL");
        }
        let ended = job.end();
        let report = ended.report();
        assert_eq!(report["digest"], alone["digest"], "{ended:?}");
        assert_eq!(report["faults"].as_array().unwrap().len(), 1, "{ended:?}");
        for worker in others {
            let ended = worker.end();
            assert_eq!(ended.code, Some(0), "{ended:?}");
        }
    }
}

/// A worker stands still for three seconds, is left behind, and comes again by itself: the job needs three workers, and goes
/// on as soon as it has them.
#[test]
fn a_worker_that_stood_still_comes_again_by_itself() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 500\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = { min = 3, max = 3 }\nticket = 'starlings.ticket'\n";
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    let alone = ["train", "job.toml", "--json", "--launcher", "threads", "--workers", "3"];
    let alone = starlings(folder.path(), &alone).report();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let workers = ["anne", "bert", "carl"].map(join);
    let at = format!("cluster.coordinator={address}");
    let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    workers[1].signal("STOP");
    std::thread::sleep(Duration::from_secs(3));
    let fault = job.event("fault");
    assert!(fault["message"].as_str().unwrap().contains("nothing was heard"), "{fault}");
    workers[1].signal("CONT");
    assert_eq!(job.event("regrouped")["workers"], 3);
    let ended = job.end();
    assert_eq!(ended.report()["digest"], alone["digest"], "{ended:?}");
    for (at, worker) in workers.into_iter().enumerate() {
        let ended = worker.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.err.contains("joining again"), at == 1, "{ended:?}");
    }
}
