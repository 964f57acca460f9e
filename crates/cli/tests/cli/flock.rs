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
fn sums_are_measured_between_workers_that_wait_at_a_coordinator() {
    let folder = tempdir().unwrap();
    let (coordinator, address) = coordinator(folder.path(), &["--tls"]);
    let join = ["worker", "--join", &address, "--quiet"];
    let workers = [(); 2].map(|()| Running::start(folder.path(), &join));
    let mut bench = vec!["bench", "all-reduce", "--launcher", "flock", "--at", &address];
    bench.extend(["--workers", "2", "--bytes", "1MB", "--repeats", "3", "--transport", "tcp"]);
    let ended = starlings(folder.path(), &[&bench[..], &["--survive", "--json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let timing: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&timing["launcher"], &timing["transport"]), (&"flock".into(), &"tcp".into()));
    assert!(timing["median_seconds"].as_f64().unwrap() > 0.0, "{timing}");
    for process in workers.into_iter().chain([coordinator]) {
        assert_eq!(process.end().code, Some(0));
    }
    starlings(folder.path(), &bench).failed(3, &[&address]);
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

/// A job that began with one worker gets two more and loses one politely, and nothing of it shows in the result.
#[test]
fn workers_join_a_running_job_and_leave_it_politely() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 2000\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = { min = 1, max = 3 }\nticket = 'starlings.ticket'\n";
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    let alone = ["train", "job.toml", "--json", "--launcher", "threads"];
    let alone = starlings(folder.path(), &alone).report();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let first = join("anne");
    let at = format!("cluster.coordinator={address}");
    let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    let second = join("bert");
    assert_eq!(job.event("regrouped")["workers"], 2);
    let third = join("carl");
    assert_eq!(job.event("regrouped")["workers"], 3);
    let status = starlings(folder.path(), &["status", "--at", &address]).out;
    assert!(status.contains("on 3 workers, epoch 2 (it began with 1)"), "{status}");
    assert!(status.contains("who makes no progress for 600 s is given up"), "{status}");
    first.signal("TERM");
    let left = job.event("regrouped");
    assert_eq!((&left["workers"], &left["completion"]), (&2.into(), &"recompute".into()));
    first.end().failed(130, &["this worker left as asked", "the others go on without it"]);
    let ended = job.end();
    let report = ended.report();
    assert_eq!(report["digest"], alone["digest"]);
    assert_eq!(report["faults"].as_array().unwrap().len(), 0, "{report}");
    for worker in [second, third] {
        let ended = worker.end();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

/// The only worker is asked to leave while another one is on its way: it stays until that one has the model.
#[test]
fn the_last_worker_leaves_its_model_to_a_newcomer() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 2000\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = { min = 1, max = 3 }\nticket = 'starlings.ticket'\n";
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    let alone = ["train", "job.toml", "--json", "--launcher", "threads"];
    let alone = starlings(folder.path(), &alone).report();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let first = join("anne");
    let at = format!("cluster.coordinator={address}");
    let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    let second = join("bert");
    await_members(folder.path(), &address, 2);
    first.signal("TERM");
    let gone = first.end();
    assert_eq!(gone.code, Some(130), "{gone:?}");
    let ended = job.end();
    let report = ended.report();
    assert_eq!(report["digest"], alone["digest"]);
    assert_eq!(report["faults"].as_array().unwrap().len(), 0, "{report}");
    let regrouped = ended.events().into_iter().filter(|event| event["event"] == "regrouped");
    let steps: Vec<u64> = regrouped.filter_map(|event| event["step"].as_u64()).collect();
    assert!(steps.iter().all(|step| *step >= 3), "nothing was begun anew: {steps:?}");
    assert_eq!(second.end().code, Some(0));
}

/// A worker whose codec holds something back gives it before it leaves, whichever way the codec sums.
#[test]
fn a_leaver_gives_what_its_codec_has_held_back() {
    for (codec, topology) in [("top-k", "mesh"), ("random-k", "ring")] {
        let job = format!(
            "[data]\ntrain = 'digits'\nlabel = 'class'\n\
             [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.01\n\
             [train]\nepochs = 600\nbatch = 64\nseed = 1\n\
             [cluster]\nlauncher = 'flock'\nworkers = {{ min = 1, max = 2 }}\n\
             codec = {{ name = '{codec}', ratio = 0.1 }}\ntopology = '{topology}'\nticket = 'starlings.ticket'\n"
        );
        let folder = tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), job).unwrap();
        let (_coordinator, address) = coordinator(folder.path(), &[]);
        let join =
            |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
        let first = join("anne");
        let at = format!("cluster.coordinator={address}");
        let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
        while job.event("step")["step"].as_u64().unwrap() < 3 {}
        let second = join("bert");
        assert_eq!(job.event("regrouped")["workers"], 2);
        let since = job.event("step")["step"].as_u64().unwrap();
        while job.event("step")["step"].as_u64().unwrap() < since + 5 {}
        first.signal("TERM");
        assert_eq!(job.event("regrouped")["workers"], 1);
        let gone = first.end();
        assert_eq!(gone.code, Some(130), "{gone:?}");
        assert!(!format!("{gone:?}").contains("that is lost"), "{gone:?}");
        let ended = job.end();
        assert_eq!(ended.report()["faults"].as_array().unwrap().len(), 0, "{ended:?}");
        assert_eq!(second.end().code, Some(0));
    }
}

/// Below its minimum a job waits for others, and says so.
#[test]
fn too_few_workers_wait_for_another_one() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 600\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = { min = 2, max = 2 }\nticket = 'starlings.ticket'\n";
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let (_first, second) = (join("anne"), join("bert"));
    let at = format!("cluster.coordinator={address}");
    let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    while job.event("step")["step"].as_u64().unwrap() < 3 {}
    second.signal("KILL");
    let waiting = job.event("waiting");
    assert_eq!((&waiting["have"], &waiting["want"]), (&1.into(), &2.into()));
    let _third = join("carl");
    assert_eq!(job.event("regrouped")["workers"], 2);
    assert_eq!(job.end().code, Some(0));
}

/// The coordinator is killed; steps go on without it. Another one takes over at another address, and the job ends in
/// the bits of an undisturbed run, also when a worker was lost while nobody coordinated.
#[test]
fn another_coordinator_takes_over_from_one_that_was_killed() {
    const JOB: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
        [learner]\nname = 'logistic-regression'\nmax_iterations = 2500\ntolerance = 0.0\n\
        [cluster]\nlauncher = 'flock'\nworkers = 2\nticket = 'starlings.ticket'\n";
    for (lose_worker, flags) in [(false, &["--tls"][..]), (true, &[])] {
        let folder = tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
        let alone = ["train", "job.toml", "--json", "--launcher", "threads"];
        let alone = starlings(folder.path(), &alone).report();
        let (first, address) = coordinator(folder.path(), flags);
        // Before the job: the lock is waited for, and meanwhile a fast machine has done it.
        let nothing =
            starlings(folder.path(), &["coordinator", "--listen", "127.0.0.1:0", "--resume"]);
        nothing.failed(2, &["another coordinator keeps the journal"]);
        let join =
            |host| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
        let (_anne, bert) = (join("anne"), join("bert"));
        let at = format!("cluster.coordinator={address}");
        let mut job = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
        while job.event("step")["step"].as_u64().unwrap() < 3 {}
        first.signal("KILL");
        if lose_worker {
            bert.signal("KILL");
        }
        let (_second, elsewhere) = coordinator(folder.path(), &["--resume"]);
        assert_ne!(address, elsewhere);
        if lose_worker {
            let regrouped = job.event("regrouped");
            assert_eq!((&regrouped["workers"], &regrouped["epoch"]), (&1.into(), &1.into()));
        } else {
            job.event("step");
            let status = starlings(folder.path(), &["status", "--at", &elsewhere]).out;
            assert!(status.contains("on 2 workers"), "{status}");
        }
        let ended = job.end();
        let report = ended.report();
        assert_eq!(report["digest"], alone["digest"], "{ended:?}");
        assert_eq!(report["faults"].as_array().unwrap().len(), usize::from(lose_worker));
    }
}
