//! Worker processes that are killed or frozen: the others name who was lost and where, finish the same step, and bring
//! the job to its end with every row; whoever learns from exact sums ends in the bits of an undisturbed run.

use crate::program::{Ended, Running, nothing_is_half_written, signal, starlings};
use serde_json::Value;
use starlings::Deadline;
use std::path::Path;
use tempfile::tempdir;

/// Mini-batches: a step is finished with the rows of those who are left.
const BATCHES: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nsolver = 'sgd'\nlearning_rate = 0.001\n\
    [train]\nepochs = 60\nbatch = 32\nseed = 3\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\n";

/// Passes over all rows: a step is finished with all rows.
const PASSES: &str = "[data]\ntrain = 'digits'\nlabel = 'class'\n\
    [learner]\nname = 'logistic-regression'\nmax_iterations = 150\ntolerance = 0.0\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\n";

/// Memory that cannot be rebuilt: all go back to the last checkpoint.
const TOPICS: &str = "[data]\ntrain = 'synthetic://documents?documents=600&words=200&topics=5&seed=1'\n\
    [learner]\nname = 'latent-dirichlet-allocation'\ntopics = 5\n\
    [train]\nepochs = 400\nseed = 3\n\
    [cluster]\nlauncher = 'processes'\nworkers = 3\n\
    [checkpoint]\npath = 'kept'\nevery = 10\n";

/// Starts a job and waits until it is well on its way. Gives the processes by rank.
pub(crate) fn under_way(folder: &Path, job: &str, words: &[&str]) -> (Running, Vec<u64>) {
    std::fs::write(folder.join("job.toml"), job).unwrap();
    let sets: Vec<&str> = words.iter().flat_map(|word| ["--set", *word]).collect();
    let mut running =
        Running::start(folder, &[&["train", "job.toml", "--json"], sets.as_slice()].concat());
    let workers = if words.contains(&"cluster.workers=4") { 4 } else { 3 };
    let mut processes = vec![0; workers];
    for _ in 0..workers {
        let worker = running.event("worker");
        processes[worker["rank"].as_u64().unwrap() as usize] = worker["pid"].as_u64().unwrap();
    }
    while running.event("step")["step"].as_u64().unwrap() < 3 {}
    (running, processes)
}

pub(crate) fn of_kind(ended: &Ended, kind: &str) -> Vec<Value> {
    ended.events().into_iter().filter(|event| event["event"] == kind).collect()
}

/// Steps are reported once, in order, and never taken back.
pub(crate) fn steps_only_grow(ended: &Ended) {
    let steps: Vec<u64> =
        of_kind(ended, "step").iter().map(|event| event["step"].as_u64().unwrap()).collect();
    assert!(steps.windows(2).all(|pair| pair[0] < pair[1]), "{steps:?}");
}

#[test]
fn the_survivors_of_a_kill_finish_the_same_step_and_use_every_row_once() {
    for rank in [0, 1] {
        let folder = tempdir().unwrap();
        let (running, processes) = under_way(folder.path(), BATCHES, &[]);
        signal(processes[rank], "KILL");
        let ended = running.end();
        let report = ended.report();
        let faults = of_kind(&ended, "fault");
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0]["rank"], rank);
        let message = faults[0]["message"].as_str().unwrap();
        assert!(message.contains(&format!("process {}", processes[rank])), "{message}");
        assert!(message.contains("was lost in step"), "{message}");
        let regrouped = of_kind(&ended, "regrouped");
        assert_eq!((regrouped.len(), &regrouped[0]["workers"]), (1, &Value::from(2)));
        assert_eq!(regrouped[0]["completion"], "reweigh");
        assert_eq!(
            (&report["samples"], &report["rows_left_out"]),
            (&(60 * 1438).into(), &0.into())
        );
        steps_only_grow(&ended);
        nothing_is_half_written(folder.path());
    }
}

/// The step and the phase that are told of the dead are its own: the step is the one that the others finish without it.
#[test]
fn the_dead_is_named_in_the_step_that_the_others_finish_without_it() {
    for topology in ["tree", "ring"] {
        let folder = tempdir().unwrap();
        let topology = format!("cluster.topology={topology}");
        let words = [topology.as_str(), "cluster.transport=tcp", "cluster.workers=4"];
        let (running, processes) = under_way(folder.path(), BATCHES, &words);
        signal(processes[2], "KILL");
        let ended = running.end();
        let faults = of_kind(&ended, "fault");
        assert_eq!((faults.len(), &faults[0]["rank"]), (1, &2.into()), "{faults:?}");
        let goes_on = of_kind(&ended, "regrouped")[0]["step"].as_u64().unwrap();
        let died = faults[0]["step"].as_u64().unwrap();
        // Under a barrier a survivor may have had all of a step that another one missed the dead in.
        assert!(died <= goes_on && goes_on <= died + 1, "{faults:?}, and on with {goes_on}");
        let phase = faults[0]["phase"].as_str().unwrap();
        assert!(["the gate", "computation", "the merge"].contains(&phase), "{faults:?}");
    }
}

/// Nobody can put back what a lossy codec had kept for later at the dead.
#[test]
fn what_the_codec_of_the_dead_held_back_is_told_as_lost() {
    let lost = "what its codec had held back is lost with it";
    for (codec, is_lost) in [("top-k", true), ("int8", false)] {
        let folder = tempdir().unwrap();
        let codec = format!("cluster.codec={codec}");
        let (running, processes) =
            under_way(folder.path(), BATCHES, &[&codec, "cluster.topology=mesh"]);
        signal(processes[1], "KILL");
        let ended = running.end();
        let faults = of_kind(&ended, "fault");
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0]["message"].as_str().unwrap().contains(lost), is_lost, "{faults:?}");
    }
}

#[test]
fn all_but_one_may_be_killed_and_the_last_one_ends_in_the_bits_of_an_undisturbed_run() {
    let calm = tempdir().unwrap();
    std::fs::write(calm.path().join("job.toml"), PASSES).unwrap();
    let calm = starlings(calm.path(), &["train", "job.toml", "--json"]).report();
    for topology in ["ring", "tree", "halving-doubling"] {
        let folder = tempdir().unwrap();
        let word = format!("cluster.topology={topology}");
        let (mut running, processes) = under_way(folder.path(), PASSES, &[&word]);
        signal(processes[0], "KILL");
        running.event("regrouped");
        signal(processes[2], "KILL");
        let ended = running.end();
        let report = ended.report();
        assert_eq!(of_kind(&ended, "fault").len(), 2);
        let regrouped = of_kind(&ended, "regrouped");
        assert_eq!(regrouped.last().unwrap()["workers"], 1);
        assert_eq!(regrouped.last().unwrap()["completion"], "recompute");
        assert_eq!((&report["digest"], &report["steps"]), (&calm["digest"], &calm["steps"]));
        steps_only_grow(&ended);
    }
}

#[test]
fn a_frozen_worker_is_left_behind_within_seconds_and_changes_nothing_when_it_thaws() {
    let calm = tempdir().unwrap();
    std::fs::write(calm.path().join("job.toml"), PASSES).unwrap();
    let calm = starlings(calm.path(), &["train", "job.toml", "--json"]).report();
    let folder = tempdir().unwrap();
    let (mut running, processes) =
        under_way(folder.path(), PASSES, &["learner.max_iterations=150"]);
    signal(processes[1], "STOP");
    let soon = Deadline::after_ms(10_000);
    let regrouped = running.event("regrouped");
    assert!(!soon.passed(), "silence must be noticed within seconds");
    signal(processes[1], "CONT");
    assert_eq!(regrouped["workers"], 2);
    let ended = running.end();
    let faults = of_kind(&ended, "fault");
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0]["message"].as_str().unwrap().contains("nothing was heard"), "{faults:?}");
    assert_eq!(ended.report()["digest"], calm["digest"]);
}

#[test]
fn memory_that_cannot_be_rebuilt_comes_from_the_last_checkpoint() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), TOPICS).unwrap();
    let (mut running, processes) = under_way(folder.path(), TOPICS, &[]);
    running.event("checkpoint");
    signal(processes[1], "KILL");
    let regrouped = running.event("regrouped");
    assert_eq!((&regrouped["completion"], &regrouped["workers"]), (&"restore".into(), &2.into()));
    assert_eq!(regrouped["step"].as_u64().unwrap() % 10, 0, "{regrouped}");
    assert!(running.end().report()["metrics"]["perplexity"].as_f64().unwrap() < 200.0);
}

#[test]
fn workers_without_a_sum_go_on_with_their_own_models() {
    for words in [
        ["cluster.topology=gossip", "cluster.consistency=async"].as_slice(),
        &["cluster.topology=averaging"],
        &["cluster.consistency={ name = \"local\", steps = 4 }"],
    ] {
        let folder = tempdir().unwrap();
        let (running, processes) = under_way(folder.path(), BATCHES, words);
        signal(processes[1], "KILL");
        let ended = running.end();
        let regrouped = of_kind(&ended, "regrouped");
        assert_eq!(regrouped.len(), 1, "{words:?}");
        assert_eq!(regrouped[0]["completion"], "continue");
        let accuracy = ended.report()["metrics"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.85, "{words:?}: {accuracy}");
    }
}

#[test]
fn a_job_whose_last_worker_dies_names_it_and_resumes_to_the_same_bits() {
    let folder = tempdir().unwrap();
    let job =
        BATCHES.replace("workers = 3", "workers = 3\n[checkpoint]\npath = 'kept'\nevery = 20");
    let (mut running, processes) = under_way(folder.path(), &job, &["train.epochs=100000"]);
    running.event("checkpoint");
    processes.iter().for_each(|&process| signal(process, "KILL"));
    let ended = running.end();
    ended.failed(3, &["was lost in step", "last complete checkpoint", "kept", "--resume"]);
    assert!(!folder.path().join("job.safetensors").exists());

    let seen = starlings(folder.path(), &["inspect", "kept", "--json"]);
    let seen: Value = serde_json::from_str(&seen.out).unwrap();
    let kept = seen["checkpoints"].as_array().unwrap().iter().filter(|it| it["verified"] == true);
    let last = kept.filter_map(|it| it["step"].as_u64()).max().unwrap();
    let goal = format!("train.steps={}", last + 30);
    let train = ["train", "job.toml", "--json", "--set", &goal];
    let resumed = starlings(folder.path(), &[&train[..], &["--resume"]].concat());
    // A kill may leave a hidden piece of the checkpoint that was being written: the next run sweeps it up.
    nothing_is_half_written(folder.path());
    let other = tempdir().unwrap();
    std::fs::write(other.path().join("job.toml"), &job).unwrap();
    let undisturbed = starlings(other.path(), &train);
    assert_eq!(resumed.report()["digest"], undisturbed.report()["digest"]);
}
