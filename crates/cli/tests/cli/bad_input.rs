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

/// A network that explodes is stopped while its loss is still a number, and says in which step. The last good checkpoint is
/// still there, the message names it, and training goes on from it at another rate, as it advises.
#[test]
fn a_network_that_explodes_names_the_step_and_keeps_its_last_good_checkpoint() {
    let folder = tempdir().unwrap();
    let job = format!("{NETWORK}[checkpoint]\npath = 'kept'\nevery = 2\nkeep = 2\n");
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let train = |rate: &str, more: &[&str]| {
        let rate = format!("learner.learning_rate={rate}");
        let all = [&["train", "job.toml", "--json", "--set", &rate][..], more].concat();
        starlings(folder.path(), &all)
    };
    let ended = train("3.0", &[]);
    ended.failed(2, &["training diverged", "has risen to", "at step ", "lower learning_rate"]);
    assert!(!folder.path().join("job.safetensors").exists());
    // It is the first one, of steps that grow by a factor each: none after it has an objective as low.
    let told = ["step-00000002 is the last good checkpoint", "kept beside it as 'diverged-"];
    ended.failed(2, &[&told[..], &["--resume", "learning rate"]].concat());
    let kept = || {
        let names = std::fs::read_dir(folder.path().join("kept")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let whole = |name: &String| folder.path().join("kept").join(name).join("manifest.json");
        let mut names: Vec<String> = names.filter(|name| whole(name).exists()).collect();
        names.sort();
        names
    };
    let aside: Vec<String> =
        kept().into_iter().filter(|name| name.starts_with("diverged-")).collect();
    assert!(!aside.is_empty(), "{:?}: what was kept later is still there", kept());
    assert_eq!(kept(), [&aside[..], &["step-00000002".to_string()]].concat());
    let resumed = train("0.01", &["--resume"]);
    let told = format!("{}{}", resumed.out, resumed.err);
    assert!(told.contains("learning_rate = 0.01") && told.contains("= 3.0"), "{told}");
    let objective = resumed.report()["objective"].as_f64().unwrap();
    assert!(objective < 100.0, "{objective}");
    assert!(aside.iter().all(|name| kept().contains(name)), "{aside:?} of {:?}", kept());
    // The rate alone may change.
    train("0.01", &["--resume", "--set", "learner.weight_decay=0.5"])
        .failed(2, &["learner.parameters"]);
}

/// A loss that is no number from one step to the next is told with its step as before.
#[test]
fn a_loss_that_overflows_at_once_names_its_step() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), NETWORK).unwrap();
    let ended =
        starlings(folder.path(), &["train", "job.toml", "--set", "learner.learning_rate=1e6"]);
    ended.failed(2, &["training diverged", "at step ", "lower learning_rate"]);
}

#[test]
fn a_network_that_cannot_fit_into_memory_is_refused_before_it_starts() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), NETWORK).unwrap();
    let wide = "learner.hidden=[1000000, 1000000]";
    let ended = starlings(folder.path(), &["train", "job.toml", "--set", wide]);
    ended.failed(2, &["2 workers", "GB of memory", "layer 3 'linear 1000000'", "help:"]);
    // Neither does cutting it, on the same host: it is found before a number is drawn.
    for (plan, told) in [
        ("cluster.plan={ name = 'pipeline', stages = 2 }", "part 1 of 2"),
        ("cluster.plan={ name = 'pipeline', stages = 2, costs = 'measured' }", "1 workers"),
        ("cluster.plan={ name = 'tensor', parts = 2 }", "part 1 of 2"),
    ] {
        let ended = starlings(folder.path(), &["train", "job.toml", "--set", wide, "--set", plan]);
        ended.failed(2, &["GB of memory", told, "'linear 1000000'", "help:"]);
        assert!(!ended.err.contains("accumulate"), "{}", ended.err);
    }
}

/// A gan has two networks, and no plan cuts them: what is advised must be of use to it.
#[test]
fn a_gan_that_cannot_fit_is_refused_with_what_helps_a_gan() {
    let folder = tempdir().unwrap();
    let job = NETWORK.replace("name = 'mlp'\ntask = 'regression'", "name = 'gan'");
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let wide = "learner.hidden=[1000000, 1000000]";
    let ended = starlings(folder.path(), &["train", "job.toml", "--set", wide]);
    ended.failed(2, &["GB of memory", "the generator's layer 3 'linear 1000000'", "help:"]);
    assert!(!ended.err.contains("pipeline"), "{}", ended.err);
    let small = ["--set", "learner.hidden=[32]", "--set", "cluster.memory='1KB'"];
    let ended = starlings(folder.path(), &[&["train", "job.toml"][..], &small[..]].concat());
    ended.failed(2, &["[cluster] memory is 1.0 KB", "make it smaller"]);
    assert!(!ended.err.contains("pipeline"), "{}", ended.err);
}

/// The scores of attention grow with the square of the steps: 20,000 steps take 1.6 GB a row in each head's matrix.
#[test]
fn attention_over_too_many_steps_is_refused_before_it_starts() {
    let folder = tempdir().unwrap();
    let job = NETWORK
        .replace("features=5", "features=20000")
        .replace("rows=300", "rows=8")
        .replace("name = 'mlp'", "name = 'transformer'")
        .replace("hidden = []\n", "");
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let ended = starlings(folder.path(), &["train", "job.toml"]);
    ended.failed(2, &["GB of memory", "'transformer 4'", "numbers inside for each row", "lower"]);
}

#[test]
fn a_layer_of_the_jobs_own_that_does_not_fit_is_shown_with_its_line() {
    let folder = tempdir().unwrap();
    let layer = "[[layer]]\nname = 'odd'\ncompute = ['input + linear(input, 3)']\n";
    let job = format!("{NETWORK}{layer}").replace("hidden = []\n", "");
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let ended =
        starlings(folder.path(), &["train", "job.toml", "--set", "learner.layers=['relu', 'odd']"]);
    ended.failed(2, &["layer 2 'odd'", "input + linear(input, 3)", "5 numbers and 3 numbers"]);
}

/// The plans that a refusal names.
fn plans_in(help: &str) -> Vec<&str> {
    let names = help.split("plan ").skip(1).flat_map(|rest| rest.split('\'').skip(1).step_by(2));
    names.filter(|name| ["data-parallel", "pipeline", "hybrid", "tensor"].contains(name)).collect()
}

/// Layers that cannot be split are named, and every advice of the refusal is accepted: it once named other learners, and a
/// plan for which there were too few workers.
#[test]
fn what_is_advised_where_layers_cannot_be_split_is_accepted() {
    let folder = tempdir().unwrap();
    let write = |layers: &str| {
        let job = NETWORK.replace("hidden = []", layers).replace("epochs = 100", "epochs = 1");
        std::fs::write(folder.path().join("job.toml"), job).unwrap();
    };
    let with = |plan: &str| {
        let plan = format!("cluster.plan={plan}");
        starlings(folder.path(), &["train", "job.toml", "--json", "--set", &plan])
    };
    let tensor = "{ name = 'tensor', parts = 2 }";
    for (layers, named, without) in [
        ("hidden = [8, 8]\ndropout = 0.1", "layer 3 'dropout 0.1'", "hidden = [8, 8]"),
        ("hidden = [8, 8]\nnorm = 'layer-norm'", "layer 2 'layer-norm'", "hidden = [8, 8]"),
        (
            "layers = ['linear 8', 'dropout 0.2', 'linear 4', 'layer-norm']",
            "layer 2 'dropout 0.2'",
            "layers = ['linear 8', 'linear 4', 'layer-norm']",
        ),
        ("hidden = []", "a hidden layer", "hidden = [8]"),
    ] {
        write(layers);
        let refused = with(tensor);
        refused.failed(2, &["needs a learner whose layers can be split", named, "help:"]);
        let help = refused.err.split("help:").nth(1).unwrap().to_string();
        assert!(!help.contains("learner '"), "{help}");
        let plans = plans_in(&help);
        assert!(plans.contains(&"data-parallel") && !plans.contains(&"hybrid"), "{help}");
        for plan in plans {
            // A network of one layer cannot be cut, either, and says so.
            if named != "a hidden layer" || plan == "data-parallel" {
                with(plan).report();
            }
        }
        write(without);
        with(tensor).report();
    }
}

/// Stages by hand are refused with advice that is accepted, too.
#[test]
fn what_is_advised_of_stages_by_hand_is_accepted() {
    let folder = tempdir().unwrap();
    let train = |cluster: &str, learner: &str| {
        let job = NETWORK.replace("hidden = []", "hidden = [8]").replace("epochs = 100", learner);
        std::fs::write(folder.path().join("job.toml"), format!("{job}{cluster}")).unwrap();
        starlings(folder.path(), &["train", "job.toml", "--json"])
    };
    let place = "[place]\n0 = '1-2'\n1 = '3'\n";
    train(place, "epochs = 1").report();
    train("[place]\n0 = '1-2'\n", "epochs = 1").failed(2, &["one stage has all layers", "help:"]);
    let tensor = train(&format!("plan = 'tensor'\n{place}"), "epochs = 1");
    tensor.failed(2, &["plan 'tensor' has none", "choose plan 'pipeline', or leave out [place]"]);
    train(&format!("plan = 'pipeline'\n{place}"), "epochs = 1").report();
    train("plan = 'tensor'\n", "epochs = 1").report();
    let hybrid = train(&format!("plan = 'hybrid'\n{place}"), "epochs = 1");
    hybrid.failed(2, &["set workers = 4, or data = 1 in [cluster] plan"]);
    let one = "plan = { name = 'hybrid', data = 1 }\n";
    train(&format!("{one}{place}"), "epochs = 1").report();
    // A learner that cannot be cut: with the plan that is advised [place] would be refused.
    let ridge = NETWORK.replace(
        "name = 'mlp'\ntask = 'regression'\nhidden = []\nsolver = 'sgd'",
        "name = 'ridge'",
    );
    std::fs::write(folder.path().join("job.toml"), format!("{ridge}{place}")).unwrap();
    let refused = starlings(folder.path(), &["train", "job.toml"]);
    refused.failed(2, &["choose plan 'data-parallel'", "leave out [place]"]);
    assert!(!refused.err.contains("learner 'mlp"), "{}", refused.err);
}

/// What is advised is accepted: ring with int8 or with ssp once named topologies and consistencies that are refused, too.
#[test]
fn what_a_refusal_offers_is_accepted() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), NETWORK).unwrap();
    let with = |sets: &[&str]| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        starlings(folder.path(), &["train", "job.toml"].into_iter().chain(sets).collect::<Vec<_>>())
    };
    let int8 = with(&["cluster.topology=ring", "cluster.codec=int8"]);
    int8.failed(2, &["help: choose"]);
    for word in ["'averaging'", "'gossip'", "'all-to-all'"] {
        assert!(!int8.err.contains(word), "{}", int8.err);
    }
    let ssp = with(&["cluster.topology=ring", "cluster.consistency=ssp"]);
    ssp.failed(2, &["help: choose", "'star'"]);
    for word in ["'consensus-control'", "'halton'", "'gossip'"] {
        assert!(!ssp.err.contains(word), "{}", ssp.err);
    }
    let gan = NETWORK.replace("name = 'mlp'\ntask = 'regression'", "name = 'gan'");
    std::fs::write(folder.path().join("job.toml"), gan.replace("hidden = []", "hidden = [4]"))
        .unwrap();
    let refused = with(&["cluster.topology=star", "cluster.consistency=async"]);
    refused.failed(2, &["help: choose", "'bsp'"]);
    assert!(!refused.err.contains("'ssp'"), "{}", refused.err);
}

#[test]
fn a_kind_of_network_is_told_from_a_misspelt_one() {
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), NETWORK.replace("'mlp'", "'gru'")).unwrap();
    let ended = starlings(folder.path(), &["train", "job.toml"]);
    ended.failed(2, &["unknown learner 'gru'", "set name = \"rnn\" and cell = \"gru\""]);
}
