//! Kills at random moments, the smoke size of `cargo xtask chaos`: whoever is left brings the job to its end, with every row
//! and, where bits are promised, in the bits of an undisturbed run. The last two are bugs that `chaos` has found.

use crate::flock::coordinator;
use crate::program::{Ended, Running, signal, starlings};
use serde_json::Value;
use starlings::Rng;
use std::path::Path;
use tempfile::tempdir;

/// Mini-batches: 300 passes over 1438 rows, most of a second on a fast machine: steps are told 20 times a second.
const BATCHES: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nepochs = 300\nbatch = 32\nseed = 3\n[cluster]\n";

/// A network with a large layer, whose gradients two workers sum where they use them: nobody can take such a step back.
const NETWORK: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'mlp'\nhidden = [512]\nsolver = 'momentum'\nlearning_rate = 0.001\n\
    [train]\nepochs = 20\nbatch = 64\nseed = 3\n[cluster]\n";

/// Full passes, folded shard by shard: the bits do not depend on who has which shard.
const PASSES: &str = "[data]\ntrain = 'synthetic://blobs?rows=1500&features=6&centers=12&seed=1'\n\
    [learner]\nname = 'gaussian-mixture'\ncomponents = 4\nmax_iterations = 800\ntolerance = 0.0\n\
    [train]\nseed = 3\nshards = 8\n[cluster]\nfold = 'reproducible'\n";

/// Memory that cannot be rebuilt: all go back to the last checkpoint.
const TOPICS: &str = "[data]\ntrain = 'synthetic://documents?documents=200&words=100&topics=5&seed=1'\n\
    [learner]\nname = 'latent-dirichlet-allocation'\ntopics = 5\n\
    [train]\nepochs = 400\nseed = 3\n[checkpoint]\npath = 'kept'\nevery = 10\n[cluster]\n";

/// Starts a job on so many worker processes, and kills some of them after random numbers of events.
fn disturbed(folder: &Path, job: &str, workers: usize, rng: &mut Rng) -> Ended {
    let job = format!("{job}launcher = 'processes'\nworkers = {workers}\n");
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let mut running = Running::start(folder, &["train", "job.toml", "--json"]);
    let mut processes: Vec<u64> =
        (0..workers).map(|_| running.event("worker")["pid"].as_u64().unwrap()).collect();
    for _ in 0..1 + rng.below(workers as u64 - 1) {
        for _ in 0..1 + rng.below(3) {
            running.event("step");
        }
        signal(processes.swap_remove(rng.below(processes.len() as u64) as usize), "KILL");
    }
    running.end()
}

/// Steps are told once and in order; after going back to a checkpoint they are done again.
fn steps_only_grow(ended: &Ended) {
    let mut last = None;
    for event in ended.events() {
        if event["event"] == "regrouped" && event["completion"] == "restore" {
            last = None;
        }
        if event["event"] == "step" {
            let step = event["step"].as_u64();
            assert!(step > last, "step {step:?} after {last:?}: {ended:?}");
            last = step;
        }
    }
}

fn calm(job: &str) -> Value {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    starlings(folder.path(), &["train", "job.toml", "--json", "--workers", "1"]).report()
}

#[test]
fn random_kills_lose_no_row_of_mini_batches() {
    for seed in 0..4 {
        let (folder, mut rng) = (tempdir().unwrap(), Rng::named(seed, "kills", &[]));
        let ended = disturbed(folder.path(), BATCHES, 2 + seed as usize % 3, &mut rng);
        let report = ended.report();
        let used = report["samples"].as_u64().unwrap() + report["rows_left_out"].as_u64().unwrap();
        assert_eq!(used, 300 * 1438, "seed {seed}: {report}");
        steps_only_grow(&ended);
    }
}

/// Replicas are compared when a job ends, so that a step which was taken with spoilt numbers would be found.
#[test]
fn a_network_of_two_ends_with_every_row_whether_one_is_killed_or_stands_still() {
    for (seed, word) in [(0, "KILL"), (1, "STOP")] {
        let (folder, mut rng) = (tempdir().unwrap(), Rng::named(seed, "kills", &[]));
        let job = format!("{NETWORK}launcher = 'processes'\nworkers = 2\n");
        std::fs::write(folder.path().join("job.toml"), job).unwrap();
        let mut running = Running::start(folder.path(), &["train", "job.toml", "--json"]);
        let processes = [0; 2].map(|_| running.event("worker")["pid"].as_u64().unwrap());
        for _ in 0..1 + rng.below(3) {
            running.event("step");
        }
        let victim = processes[rng.below(2) as usize];
        signal(victim, word);
        running.event("regrouped");
        if word == "STOP" {
            signal(victim, "CONT");
        }
        let ended = running.end();
        let report = ended.report();
        let used = report["samples"].as_u64().unwrap() + report["rows_left_out"].as_u64().unwrap();
        assert_eq!(used, 20 * 1438, "seed {seed}: {report}");
        steps_only_grow(&ended);
    }
}

#[test]
fn random_kills_leave_full_passes_in_the_bits_of_an_undisturbed_run() {
    let calm = calm(PASSES);
    for seed in 0..4 {
        let (folder, mut rng) = (tempdir().unwrap(), Rng::named(seed, "kills", &[]));
        let ended = disturbed(folder.path(), PASSES, 2 + seed as usize % 3, &mut rng);
        let report = ended.report();
        assert_eq!(report["digest"], calm["digest"], "seed {seed}");
        assert_eq!(report["steps"], calm["steps"], "seed {seed}");
        steps_only_grow(&ended);
    }
}

#[test]
fn random_kills_send_topics_back_to_a_checkpoint_and_on_from_there() {
    let calm = calm(TOPICS);
    for seed in 0..4 {
        let (folder, mut rng) = (tempdir().unwrap(), Rng::named(seed, "kills", &[]));
        let ended = disturbed(folder.path(), TOPICS, 2 + seed as usize % 3, &mut rng);
        assert_eq!(ended.report()["steps"], calm["steps"], "seed {seed}");
        steps_only_grow(&ended);
    }
}

/// A standing flock with a job that is under way, and one more worker that has joined it since.
fn joined(folder: &Path, job: &str, crew: &str, kill: bool) -> Ended {
    let job = format!("{job}launcher = 'flock'\nworkers = {crew}\nticket = 'starlings.ticket'\n");
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let (_coordinator, address) = coordinator(folder, &[]);
    let join = |host| Running::start(folder, &["worker", "--join", &address, "--host", host]);
    let (_anne, bert) = (join("anne"), join("bert"));
    let at = format!("cluster.coordinator={address}");
    let mut train = Running::start(folder, &["train", "job.toml", "--json", "--set", &at]);
    while train.event("step")["step"].as_u64().unwrap() < 30 {}
    if kill {
        bert.signal("KILL");
        assert_eq!(train.event("regrouped")["workers"], 1);
    }
    let _carl = join("carl");
    while train.event("regrouped")["workers"] == 1 {}
    train.end()
}

/// Seed 14: the newcomer made a checkpoint where the others had made theirs, and all waited for each other.
#[test]
fn a_newcomer_makes_its_first_checkpoint_with_the_others() {
    let folder = tempdir().unwrap();
    let ended = joined(folder.path(), &TOPICS.replace("epochs = 400", "epochs = 1200"), "2", true);
    assert_eq!(ended.report()["steps"], 1201);
    steps_only_grow(&ended);
}

/// Seed 44: a mixture's model no longer had the tensors with which it began; the newcomer could not read it, and the only one
/// who had it was taken for dead.
#[test]
fn a_newcomer_takes_over_a_model_that_has_changed_its_tensors() {
    let folder = tempdir().unwrap();
    let job = PASSES.replace("max_iterations = 800", "max_iterations = 2000");
    let ended = joined(folder.path(), &job, "{ min = 2, max = 3 }", false);
    let report = ended.report();
    assert_eq!(report["faults"].as_array().unwrap().len(), 0, "{report}");
    assert_eq!(report["digest"], calm(&job)["digest"]);
}

/// Seed 6: a worker that stood still and was left behind woke up, found the coordinator again, and told of a step that the
/// others had done otherwise.
#[test]
fn a_worker_that_was_left_behind_tells_of_nothing_when_it_wakes_up() {
    let folder = tempdir().unwrap();
    let job = format!(
        "{}launcher = 'flock'\nworkers = 2\nticket = 'starlings.ticket'\n",
        TOPICS.replace("epochs = 400", "epochs = 1500")
    );
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join = || Running::start(folder.path(), &["worker", "--join", &address]);
    let workers = [join(), join()];
    let at = format!("cluster.coordinator={address}");
    let mut train = Running::start(folder.path(), &["train", "job.toml", "--json", "--set", &at]);
    let first = loop {
        let worker = train.event("worker");
        if worker["rank"] == 0 {
            break worker["pid"].as_u64().unwrap();
        }
    };
    while train.event("step")["step"].as_u64().unwrap() < 20 {}
    signal(first, "STOP");
    assert_eq!(train.event("regrouped")["workers"], 1);
    for _ in 0..5 {
        train.event("step");
    }
    signal(first, "CONT");
    let ended = train.end();
    assert_eq!(ended.report()["steps"], 1501);
    steps_only_grow(&ended);
    drop(workers);
}
