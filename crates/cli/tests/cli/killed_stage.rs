//! Workers that hold but a part of a network and are killed: who was lost is told with the part that they held and the step, and
//! the job goes on from its last checkpoint: by `--resume`, or at once where another worker waits to take the place.

use crate::flock::{await_members, coordinator};
use crate::killed_worker::of_kind;
use crate::program::{Running, signal, starlings};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

const NETWORK: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'mlp'\nhidden = [24, 16, 12]\n\
    [train]\nepochs = 100000\nbatch = 32\nseed = 3\n\
    [checkpoint]\npath = 'kept'\nevery = 10\n";

/// The plan, its workers, whom the signal hits, and what is said of them.
const PLANS: &[(&str, usize, usize, &[&str])] = &[
    (
        "{ name = 'pipeline', stages = 2 }",
        2,
        1,
        &[
            "stage 2 of 2 of the model (layers 3 'linear 16'",
            "rank 1 on ",
            "nobody can take its place",
        ],
    ),
    (
        "{ name = 'tensor', parts = 2 }",
        2,
        0,
        &[
            "part 1 of 2 of the model (its share of layers 1 'linear 24', 3 'linear 16'",
            "rank 0 on ",
        ],
    ),
    (
        "{ name = 'hybrid', data = 2, pipeline = 2 }",
        4,
        2,
        &["stage 1 of 2 of the model (layers 1 'linear 24'", "rank 2 on "],
    ),
    (
        "{ name = 'hybrid', data = 1, pipeline = 2, tensor = 2 }",
        4,
        3,
        &[
            "part 2 of 2 of stage 2 of 2 of the model (its share of layers 3 'linear 16'",
            "rank 3 on ",
        ],
    ),
];

/// Waits until a job of so many workers has kept something, and gives the processes by rank.
fn under_way(running: &mut Running, workers: usize) -> Vec<u64> {
    let mut processes = vec![0; workers];
    for _ in 0..workers {
        let worker = running.event("worker");
        processes[worker["rank"].as_u64().unwrap() as usize] = worker["pid"].as_u64().unwrap();
    }
    running.event("checkpoint");
    processes
}

fn last_kept(folder: &Path) -> u64 {
    let seen = starlings(folder, &["inspect", "kept", "--json"]);
    let seen: Value = serde_json::from_str(&seen.out).unwrap();
    let kept = seen["checkpoints"].as_array().unwrap().iter().filter(|it| it["verified"] == true);
    kept.filter_map(|it| it["step"].as_u64()).max().unwrap()
}

#[test]
fn who_held_which_layers_is_told_and_the_job_resumes_to_the_same_bits() {
    for (plan, workers, victim, told) in PLANS {
        let folder = tempdir().unwrap();
        let cluster =
            format!("[cluster]\nlauncher = 'processes'\nworkers = {workers}\nplan = {plan}\n");
        let job = format!("{NETWORK}{cluster}");
        std::fs::write(folder.path().join("job.toml"), &job).unwrap();
        let endless = ["train", "job.toml", "--json"];
        let mut running = Running::start(folder.path(), &endless);
        let processes = under_way(&mut running, *workers);
        signal(processes[*victim], "KILL");
        let ended = running.end();
        ended.failed(3, told);
        ended.failed(3, &["in step ", "last complete checkpoint", "--resume"]);
        let faults = of_kind(&ended, "fault");
        assert_eq!(faults[0]["rank"], *victim, "{faults:?}");
        let message = faults[0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("process {}", processes[*victim])), "{message}");
        assert!(message.contains("was lost in step"), "{message}");

        let goal = format!("train.steps={}", last_kept(folder.path()) + 15);
        let train = ["train", "job.toml", "--json", "--set", &goal];
        let resumed = starlings(folder.path(), &[&train[..], &["--resume"]].concat());
        let other = tempdir().unwrap();
        std::fs::write(other.path().join("job.toml"), &job).unwrap();
        let undisturbed = starlings(other.path(), &train);
        assert_eq!(resumed.report()["digest"], undisturbed.report()["digest"], "{plan}");
    }
}

/// Workers of a job that loses one of them, while another waits to take the place: the plan, how many, and which is killed.
fn replaced(plan: &str, workers: usize, victim: usize) {
    let folder = tempdir().unwrap();
    let (_coordinator, address) = coordinator(folder.path(), &[]);
    let join =
        |host: &str| Running::start(folder.path(), &["worker", "--join", &address, "--host", host]);
    let names = ["anne", "bert", "cleo", "dora", "emil", "fred", "gina", "hugo"];
    let running_workers: Vec<Running> = names[..workers].iter().map(|host| join(host)).collect();
    await_members(folder.path(), &address, workers);
    let cluster = format!(
        "[cluster]\nlauncher = 'flock'\nworkers = {{ min = {workers}, max = {workers} }}\nticket = 'starlings.ticket'\ncoordinator = '{address}'\nplan = {plan}\n"
    );
    let job = format!("{NETWORK}{cluster}");
    std::fs::write(folder.path().join("job.toml"), &job).unwrap();
    let goal = ["--set", "train.steps=400"];
    let mut running =
        Running::start(folder.path(), &[&["train", "job.toml", "--json"], &goal[..]].concat());
    let processes = under_way(&mut running, workers);
    let spare = join("zoe");
    await_members(folder.path(), &address, workers + 1);
    signal(processes[victim], "KILL");
    let regrouped = running.event("regrouped");
    assert_eq!(
        (&regrouped["completion"], &regrouped["workers"]),
        (&"restore".into(), &workers.into()),
        "{plan}"
    );
    assert_eq!(regrouped["step"].as_u64().unwrap() % 10, 0, "{regrouped}");
    let report = running.end().report();
    drop((spare, running_workers));
    let other = tempdir().unwrap();
    std::fs::write(other.path().join("job.toml"), &job).unwrap();
    let calm = ["train", "job.toml", "--json", "--launcher", "threads"];
    let calm = starlings(other.path(), &[&calm[..], &goal[..]].concat()).report();
    assert_eq!(report["digest"], calm["digest"], "{plan}");
}

#[test]
fn a_worker_that_waits_takes_the_place_of_a_lost_stage() {
    replaced("{ name = 'pipeline', stages = 2 }", 2, 1);
    replaced("{ name = 'tensor' }", 2, 0);
}

// Every axis of a grid: a stage of one of two replicas, a part of a stage, and both at once; the first seat as well as the last.

#[test]
fn a_worker_that_waits_takes_a_lost_stage_of_one_of_two_replicas() {
    replaced("{ name = 'hybrid', data = 2, pipeline = 2 }", 4, 0);
    replaced("{ name = 'hybrid', data = 2, pipeline = 2, schedule = 'gpipe' }", 4, 3);
}

#[test]
fn a_worker_that_waits_takes_a_lost_part_of_a_stage_or_of_a_replica() {
    replaced("{ name = 'hybrid', data = 1, pipeline = 2, tensor = 2 }", 4, 2);
    replaced("{ name = 'hybrid', data = 2, pipeline = 1, tensor = 2 }", 4, 1);
}

#[test]
fn a_worker_that_waits_takes_a_lost_place_in_a_grid_of_three_axes() {
    replaced("{ name = 'hybrid', data = 2, pipeline = 2, tensor = 2 }", 8, 5);
}
