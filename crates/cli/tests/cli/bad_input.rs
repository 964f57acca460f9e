//! Bad jobs and bad data: exit code 2, what is wrong, where, and what to do.

use crate::program::{Ended, starlings};
use tempfile::tempdir;

const JOB: &str = "[data]\ntrain = 'data.csv'\nlabel = 'kind'\n[learner]\nname = 'logistic-regression'\n\
                   [cluster]\nworkers = 2\n";
const GOOD: &str = "width,height,kind\n1,2,x\n3,4,y\n5,6,x\n";

/// Trains on a file with these lines.
fn train(data: &str, sets: &[&str]) -> Ended {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    std::fs::write(folder.path().join("data.csv"), data).unwrap();
    let mut arguments = vec!["train", "job.toml", "--json"];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    let ended = starlings(folder.path(), &arguments);
    assert_eq!(folder.path().join("job.safetensors").exists(), ended.code == Some(0));
    ended
}

#[test]
fn the_good_job_runs() {
    train(GOOD, &[]).report();
}

#[test]
fn a_missing_job_file_is_named() {
    let folder = tempdir().unwrap();
    starlings(folder.path(), &["train", "nowhere.toml"]).failed(2, &["nowhere.toml", "help:"]);
}

#[test]
fn broken_toml_is_shown_with_its_line() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), "[data]\ntrain = = 3\n").unwrap();
    starlings(folder.path(), &["train", "job.toml"]).failed(2, &["job.toml", "line 2"]);
}

#[test]
fn a_missing_data_file_is_named_with_its_neighbour() {
    train(GOOD, &["data.train=data.cvs"]).failed(2, &["data.cvs", "data.csv"]);
}

#[test]
fn a_wrong_column_gets_the_nearest_right_one() {
    train(GOOD, &["data.label=knd"]).failed(2, &["data.csv", "'knd'", "did you mean 'kind'?"]);
    train(GOOD, &["data.features=['widht']"]).failed(2, &["'widht'", "did you mean 'width'?"]);
}

#[test]
fn a_ragged_row_is_named_by_file_and_line() {
    train("width,height,kind\n1,2,x\n3,4\n", &[]).failed(2, &["data.csv, line 3", "2 fields"]);
}

#[test]
fn missing_labels_are_named_by_row_and_column() {
    for empty in ["", "NaN"] {
        let data = format!("width,height,kind\n1,2,x\n3,4,{empty}\n");
        train(&data, &[]).failed(2, &["data.csv, line 3", "'kind'", "label"]);
    }
}

#[test]
fn empty_data_are_refused() {
    for data in ["", "width,height,kind\n"] {
        train(data, &[]).failed(2, &["data.csv", "no rows"]);
    }
}

#[test]
fn misspelt_words_get_the_nearest_right_one() {
    let slips = [
        ("learner.name=logistic-regresion", "did you mean 'logistic-regression'?"),
        ("learner.l22=1", "did you mean 'l2'?"),
        ("cluster.wrkers=1", "did you mean 'workers'?"),
        ("clustr.workers=1", "did you mean 'cluster'?"),
        ("cluster.topology=rign", "did you mean 'ring'?"),
        ("cluster.consistency=bps", "did you mean 'bsp'?"),
        ("cluster.codec=hlf", "did you mean 'half'?"),
        ("cluster.plan=data-paralel", "did you mean 'data-parallel'?"),
        ("cluster.launcher=thread", "did you mean 'threads'?"),
    ];
    for (set, hint) in slips {
        train(GOOD, &[set]).failed(2, &[hint]);
    }
}

#[test]
fn an_impossible_combination_says_why_and_what_would_work() {
    train(GOOD, &["cluster.consistency=async"]).failed(
        2,
        &[
            "needs all workers to finish a step together",
            "consistency 'async' does not",
            "choose",
            "'bsp'",
        ],
    );
    train(GOOD, &["cluster.plan=pipeline"])
        .failed(2, &["plan 'pipeline' does not", "'data-parallel'"]);
}

#[test]
fn values_out_of_range_are_refused() {
    train(GOOD, &["learner.l2=-1"]).failed(2, &["l2", "-1"]);
    train(GOOD, &["train.epochs=0"]).failed(2, &["epochs", "0"]);
    train(GOOD, &["cluster.workers=0"]).failed(2, &["workers", "0"]);
    train(GOOD, &["nonsense"]).failed(2, &["table.key=value"]);
}

#[test]
fn wrong_flags_are_the_callers_to_mend() {
    let folder = tempdir().unwrap();
    for arguments in
        [&["trian", "job.toml"][..], &["train"], &["bench", "all-reduce", "--bytes", "4XB"]]
    {
        let ended = starlings(folder.path(), arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(!ended.err.is_empty() && ended.out.is_empty());
    }
}

#[test]
fn a_file_that_is_no_model_is_refused() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("x.safetensors"), "not a model").unwrap();
    starlings(folder.path(), &["predict", "x.safetensors", "--data", "digits"])
        .failed(2, &["x.safetensors"]);
    starlings(folder.path(), &["predict", "y.safetensors", "--data", "digits"])
        .failed(2, &["y.safetensors"]);
}

#[test]
fn rows_that_do_not_fit_the_model_are_refused() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    std::fs::write(folder.path().join("data.csv"), GOOD).unwrap();
    starlings(folder.path(), &["train", "job.toml", "--json"]).report();
    std::fs::write(folder.path().join("other.csv"), "width,depth\n1,2\n").unwrap();
    let ended = starlings(folder.path(), &["predict", "job.safetensors", "--data", "other.csv"]);
    ended.failed(2, &["other.csv", "'height'"]);
}

#[test]
fn going_on_needs_a_checkpoint() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    std::fs::write(folder.path().join("data.csv"), GOOD).unwrap();
    starlings(folder.path(), &["train", "job.toml", "--resume"])
        .failed(2, &["--resume", "[checkpoint]"]);
    let kept = ["train", "job.toml", "--resume", "--set", "checkpoint.path=kept"];
    starlings(folder.path(), &kept).failed(2, &["no checkpoint", "kept"]);
}

#[test]
fn another_jobs_checkpoints_are_not_overwritten() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    std::fs::write(folder.path().join("data.csv"), GOOD).unwrap();
    let kept = [
        "train",
        "job.toml",
        "--json",
        "--set",
        "checkpoint.path=kept",
        "--set",
        "checkpoint.every=1",
    ];
    starlings(folder.path(), &kept).report();
    let other = [&kept[..], &["--set", "learner.l2=0.5"]].concat();
    starlings(folder.path(), &other).failed(2, &["kept", "learner.parameters"]);
}

#[test]
fn a_number_that_cannot_be_used_is_named_by_row_and_column() {
    let large = "width,height,kind\n1,2,x\n3,4,y\n5,1e39,x\n";
    train(large, &[]).failed(2, &["line 4", "column 'height'", "1e39"]);
    let negative = "width,height,kind\n1,2,x\n3,4,y\n5,-6,x\n";
    let words = ["learner.name=feature-selection", "learner.method=chi2", "learner.k=1"];
    let named = ["feature 1 of row 2 is -6", "feature 1 is column 'height'", "help:"];
    train(negative, &words).failed(2, &named);
}

#[test]
fn predictions_do_not_look_at_labels() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), JOB).unwrap();
    std::fs::write(folder.path().join("data.csv"), GOOD).unwrap();
    std::fs::write(folder.path().join("new.csv"), "width,height,kind\n1,2,z\n3,4,\n").unwrap();
    starlings(folder.path(), &["train", "job.toml", "--json"]).report();
    let said = starlings(folder.path(), &["predict", "job.safetensors", "--data", "new.csv"]);
    assert_eq!((said.code, said.out.lines().count()), (Some(0), 3), "{}", said.err);
    let refused = starlings(folder.path(), &["evaluate", "job.safetensors", "--data", "new.csv"]);
    refused.failed(2, &["new.csv, line 3", "'kind'", "no label"]);
}

const NETWORK: &str = "[data]\ntrain = 'synthetic://regression?rows=300&features=5&seed=3'\n[learner]\n\
                       name = 'mlp'\ntask = 'regression'\nhidden = []\nsolver = 'sgd'\n[train]\nbatch = 60\n\
                       epochs = 100\n[cluster]\nworkers = 2\n";

/// A network that explodes says in which step; what was kept before is whole, and training goes on from it.
#[test]
fn a_network_that_explodes_names_the_step_and_keeps_its_last_checkpoint() {
    let folder = tempdir().unwrap();
    let job = format!("{NETWORK}[checkpoint]\npath = 'kept'\nevery = 2\n");
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let train = ["train", "job.toml", "--json", "--set", "learner.learning_rate=3.0"];
    let ended = starlings(folder.path(), &train);
    ended.failed(2, &["training diverged", "at step ", "lower learning_rate (it is 3)"]);
    assert!(!folder.path().join("job.safetensors").exists());
    let (_, told) = ended.err.split_once("at step ").unwrap();
    let step: u64 = told.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    assert!(step > 4, "{}", ended.err);
    let steps = format!("train.steps={step}");
    let resumed = starlings(folder.path(), &[&train[..], &["--resume", "--set", &steps]].concat());
    assert!(resumed.report()["objective"].as_f64().unwrap().is_finite());
}

#[test]
fn a_network_that_cannot_fit_into_memory_is_refused_before_it_starts() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), NETWORK).unwrap();
    let wide = "learner.hidden=[1000000, 1000000]";
    let ended = starlings(folder.path(), &["train", "job.toml", "--set", wide]);
    ended.failed(2, &["2 workers", "GB of memory", "layer 3 'linear 1000000'", "help:"]);
}

#[test]
fn a_layer_of_the_jobs_own_that_does_not_fit_is_shown_with_its_line() {
    let folder = tempdir().unwrap();
    let layer = "[[layer]]\nname = 'odd'\ncompute = ['input + linear(input, 3)']\n";
    std::fs::write(folder.path().join("job.toml"), format!("{NETWORK}{layer}")).unwrap();
    let ended =
        starlings(folder.path(), &["train", "job.toml", "--set", "learner.layers=['relu', 'odd']"]);
    ended.failed(2, &["layer 2 'odd'", "input + linear(input, 3)", "5 numbers and 3 numbers"]);
}
