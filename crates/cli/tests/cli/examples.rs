//! Every example runs.

use crate::program::{example, starlings};
use tempfile::tempdir;

/// Runs an example, made smaller, and gives its report.
fn runs(name: &str, smaller: &[&str]) -> serde_json::Value {
    let folder = tempdir().unwrap();
    let path = example(name);
    let mut arguments = vec!["train", &path, "--json"];
    for set in smaller {
        arguments.extend(["--set", set]);
    }
    let report = starlings(folder.path(), &arguments).report();
    assert!(report["objective"].as_f64().unwrap().is_finite());
    assert!(folder.path().join(format!("{name}.safetensors")).exists());
    report
}

/// All of them, in order.
const TESTED: &[&str] = &[
    "adaboost.toml",
    "autoencoder.toml",
    "averaging.toml",
    "bagging.toml",
    "bisecting-k-means.toml",
    "boosted-stumps.toml",
    "bucket.toml",
    "cnn.toml",
    "decision-tree.toml",
    "digits.toml",
    "elastic-net.toml",
    "embedding.toml",
    "factorisation-machine.toml",
    "factors.toml",
    "feature-selection.toml",
    "gan.toml",
    "gaussian-mixture.toml",
    "generalised-linear.toml",
    "gossip.toml",
    "gradient-boosting.toml",
    "grid.toml",
    "grouped.toml",
    "hybrid.toml",
    "isolation-forest.toml",
    "isotonic-regression.toml",
    "k-means.toml",
    "kernel-svm.toml",
    "label-propagation.toml",
    "label-spreading.toml",
    "language.toml",
    "lasso-path.toml",
    "layer.toml",
    "linear-regression.toml",
    "linear-svm.toml",
    "local-steps.toml",
    "mini-batch-k-means.toml",
    "mlp.toml",
    "naive-bayes.toml",
    "other-library.toml",
    "parameter-server.toml",
    "perceptron.toml",
    "pipeline.toml",
    "pipelined-perceptron.toml",
    "placed.toml",
    "power-iteration-clustering.toml",
    "prepared.toml",
    "principal-components.toml",
    "pushed-rows.toml",
    "random-forest.toml",
    "ratings.toml",
    "reproducible.toml",
    "ridge.toml",
    "rnn.toml",
    "scheduled-lasso.toml",
    "self-training.toml",
    "sorted.toml",
    "sparse-mesh.toml",
    "stacking.toml",
    "streaming.toml",
    "survival-regression.toml",
    "tensor-transformer.toml",
    "tensor.toml",
    "topics.toml",
    "transformer.toml",
    "truncated-svd.toml",
    "unequal-workers.toml",
    "vae.toml",
    "validation.toml",
    "voting.toml",
];

#[test]
fn no_example_is_forgotten_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    assert_eq!(names, TESTED);
}

#[test]
fn rows_that_do_not_fit_into_memory_give_the_same_bits() {
    let data = "data.train=synthetic://blobs?rows=20000&features=8&centers=5&seed=3";
    for launcher in ["cluster.launcher=threads", "cluster.launcher=processes"] {
        let spilt = runs("streaming", &[data, launcher, "data.memory=200KB"]);
        let held = runs("streaming", &[data, launcher, "data.memory=1GB"]);
        assert_eq!(spilt["digest"], held["digest"], "{launcher}");
    }
}

#[test]
fn rows_are_sorted_alike_by_any_number_of_workers() {
    let sorted = |sets: &[&str]| {
        let mut all = vec!["cluster.fold=reproducible"];
        all.extend(sets);
        runs("sorted", &all)["digest"].clone()
    };
    let alone = sorted(&["cluster.launcher=threads", "cluster.workers=1"]);
    let unsorted = sorted(&["cluster.launcher=threads", "data.partition=row"]);
    assert_ne!(alone, unsorted, "the order of rows must be seen in the bits");
    for workers in ["cluster.workers=1", "cluster.workers=2", "cluster.workers=3"] {
        assert_eq!(alone, sorted(&[workers]), "{workers}");
    }
    assert_eq!(alone, sorted(&["data.memory=20KB"]));
}

#[test]
fn k_means_finds_the_clouds() {
    let data = "data.train=synthetic://blobs?rows=2000&features=8&centers=10&seed=1";
    let report = runs("k-means", &[data]);
    assert_eq!((&report["topology"], &report["workers"]), (&"tree".into(), &4.into()));
    assert!(report["metrics"]["inertia"].as_f64().unwrap() > 0.0);
}

#[test]
fn linear_models_explain_their_numbers() {
    let noise = runs("linear-regression", &[])["metrics"]["rmse"].as_f64().unwrap();
    assert!((0.48..0.52).contains(&noise), "{noise}");
    for name in ["ridge", "generalised-linear"] {
        let report = runs(name, &[]);
        assert!(report["evaluation"]["r2"].as_f64().unwrap() > 0.4, "{name}: {report}");
    }
}

#[test]
fn clusters_densities_and_projections_run() {
    let small = "data.train=synthetic://blobs?rows=2000&features=6&centers=4&seed=1";
    let report = runs("gaussian-mixture", &[small]);
    assert!(report["metrics"]["log_likelihood"].as_f64().unwrap() < 0.0, "{report}");
    let report = runs("mini-batch-k-means", &[]);
    assert!(report["metrics"]["inertia"].as_f64().unwrap() > 0.0, "{report}");
    let report = runs("bisecting-k-means", &["learner.k=4"]);
    assert!(report["metrics"]["inertia"].as_f64().unwrap() > 0.0, "{report}");
    let report = runs("principal-components", &[]);
    assert!(report["metrics"]["explained_variance"].as_f64().unwrap() > 0.9, "{report}");
    let report = runs("truncated-svd", &[]);
    // Five of 300 directions drawn by chance would keep a sixtieth.
    assert!(report["metrics"]["explained_variance"].as_f64().unwrap() > 0.1, "{report}");
    let report = runs("feature-selection", &[]);
    assert_eq!(report["metrics"]["selected_features"], 20.0, "{report}");
}

#[test]
fn a_karate_club_falls_apart() {
    let report = runs("power-iteration-clustering", &[]);
    // Ten of the 78 ties lead from one faction to the other; a cut of chance would be near 1.
    assert!(report["metrics"]["normalised_cut"].as_f64().unwrap() < 0.5, "{report}");
}

#[test]
fn ratings_are_explained() {
    let report = runs("ratings", &["train.epochs=5"]);
    assert!(report["metrics"]["rmse"].as_f64().unwrap() < 0.6, "{report}");
}

#[test]
fn boosted_stumps_beat_chance() {
    let report = runs("boosted-stumps", &["learner.trees=20"]);
    assert!(report["metrics"]["accuracy"].as_f64().unwrap() > 0.7, "{report}");
}

#[test]
fn ensembles_are_better_than_their_members() {
    let accuracy = |report: &serde_json::Value| report["evaluation"]["accuracy"].as_f64().unwrap();
    let tree = accuracy(&runs("decision-tree", &[]));
    let bags = runs("bagging", &[]);
    assert!(accuracy(&bags) > tree + 0.03, "{bags}");
    assert!(bags["metrics"]["out_of_bag_accuracy"].as_f64().unwrap() > 0.8, "{bags}");
    for name in ["adaboost", "voting", "stacking", "other-library"] {
        let report = runs(name, &[]);
        assert!(accuracy(&report) > tree + 0.05, "{name}: {report}");
    }
    let bucket = runs("bucket", &[]);
    let best = bucket["metrics"]["cross_validated_accuracy"].as_f64().unwrap();
    assert!(best > 0.9 && (accuracy(&bucket) - best).abs() < 0.05, "{bucket}");
}

#[test]
fn ten_labels_name_most_flowers() {
    for name in ["self-training", "label-propagation", "label-spreading"] {
        let report = runs(name, &[]);
        assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.85, "{name}: {report}");
        assert!(report["metrics"]["rows_unlabelled"].as_f64().is_some(), "{name}: {report}");
    }
}

#[test]
fn trees_and_forests_learn_and_the_unusual_is_rare() {
    let boosted = runs("gradient-boosting", &["learner.trees=10"]);
    assert!(boosted["metrics"]["accuracy"].as_f64().unwrap() > 0.6, "{boosted}");
    let tree = runs("decision-tree", &[]);
    let forest = runs("random-forest", &["learner.trees=30"]);
    let accuracy = |report: &serde_json::Value| report["evaluation"]["accuracy"].as_f64().unwrap();
    assert!(accuracy(&tree) > 0.75, "{tree}");
    assert!(accuracy(&forest) > accuracy(&tree) + 0.05, "{forest}");
    assert!(forest["metrics"]["out_of_bag_accuracy"].as_f64().unwrap() > 0.9, "{forest}");
    let odd = runs("isolation-forest", &["learner.trees=20"]);
    assert!(odd["metrics"]["mean_anomaly"].as_f64().unwrap() < 0.55, "{odd}");
}

#[test]
fn topics_beat_a_bag_of_all_words() {
    let report = runs("topics", &["learner.sweeps=20"]);
    // Without topics a word of the 300 would be as hard to guess as one of a few hundred.
    assert!(report["metrics"]["perplexity"].as_f64().unwrap() < 200.0, "{report}");
}

#[test]
fn a_pipeline_learns_digits() {
    let report = runs("pipelined-perceptron", &[]);
    assert_eq!(report["plan"], "pipeline");
    assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.85, "{report}");
}

#[test]
fn a_language_model_learns_more_than_how_often_tokens_come() {
    let report = runs("language", &[]);
    let perplexity = report["metrics"]["perplexity"].as_f64().unwrap();
    assert!(perplexity < 40.0, "perplexity {perplexity} of 320 tokens");
}

#[test]
fn networks_in_stages_learn_digits() {
    for (name, plan) in [
        ("pipeline", "pipeline"),
        ("hybrid", "hybrid"),
        ("placed", "pipeline"),
        ("tensor", "tensor"),
    ] {
        let report = runs(name, &[]);
        assert_eq!(report["plan"], plan);
        assert!(accuracy(&report) > 0.93, "{report}");
    }
}

/// Four processes, and eight: stages × parts, and replicas of them.
#[test]
fn a_grid_of_workers_learns_what_one_worker_does() {
    const SHORT: &str = "train.epochs=1";
    let alone = runs("grid", &[SHORT, "cluster.plan=data-parallel", "cluster.workers=1"]);
    let of = |report: &serde_json::Value, key: &str| report[key].as_f64().unwrap();
    for more in [
        &["cluster.launcher=processes"][..],
        &["cluster.plan.schedule=gpipe"],
        &["cluster.plan.data=2", "cluster.workers=8"],
    ] {
        let report = runs("grid", &[&[SHORT], more].concat());
        assert_eq!((&report["plan"], &report["steps"]), (&"hybrid".into(), &alone["steps"]));
        let apart = of(&report, "objective") / of(&alone, "objective") - 1.0;
        assert!(apart.abs() < 1e-5, "{more:?}: {apart}");
    }
}

#[test]
fn two_workers_share_a_language_model_of_digits() {
    let report = runs("tensor-transformer", &[]);
    assert_eq!(report["plan"], "tensor");
    // Seventeen shades alike would be ln 17 = 2.83.
    assert!(report["metrics"]["loss"].as_f64().unwrap() < 2.2, "{report}");
}

#[test]
fn a_large_layer_is_sent_as_factors_and_learns_the_same() {
    let [auto, raw] = ["auto", "raw"]
        .map(|codec| runs("factors", &["train.epochs=1", &format!("cluster.codec={codec}")]));
    let of = |report: &serde_json::Value, key: &str| report[key].as_f64().unwrap();
    let apart = of(&auto, "objective") / of(&raw, "objective") - 1.0;
    assert!(apart.abs() < 1e-5, "{apart}");
    assert!(of(&auto, "bytes_sent") < of(&raw, "bytes_sent") / 4.0, "{auto} {raw}");
}

#[test]
fn prepared_pixels_learn_digits() {
    assert!(accuracy(&runs("prepared", &[])) > 0.93);
}

#[test]
fn a_parameter_server_learns_digits_within_its_bound() {
    let report = runs("parameter-server", &["train.epochs=10"]);
    assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.9, "{report}");
    // A worker may be `bound` steps ahead and working on the one after.
    assert!(report["lead_max"].as_u64().unwrap() <= 4, "{report}");
}

fn accuracy(report: &serde_json::Value) -> f64 {
    report["evaluation"]["accuracy"].as_f64().unwrap()
}

#[test]
fn scheduled_blocks_reach_the_optimum_of_coordinate_descent() {
    let objective = |sets: &[&str]| runs("scheduled-lasso", sets)["objective"].as_f64().unwrap();
    let (scheduled, plain) = (objective(&[]), objective(&["learner.solver=coordinate-descent"]));
    assert!((scheduled / plain - 1.0).abs() < 1e-4, "{scheduled} {plain}");
    for name in ["lasso-path", "elastic-net"] {
        assert!(runs(name, &[])["metrics"]["r2"].as_f64().unwrap() > 0.5, "{name}");
    }
}

#[test]
fn machines_with_margins_learn_digits() {
    assert!(accuracy(&runs("linear-svm", &[])) > 0.9);
    assert!(accuracy(&runs("kernel-svm", &[])) > 0.95);
}

#[test]
fn ways_without_a_sum_learn_digits() {
    for name in ["averaging", "gossip"] {
        assert!(accuracy(&runs(name, &[])) > 0.9, "{name}");
    }
}

#[test]
fn groups_around_owners_learn_digits() {
    assert!(accuracy(&runs("grouped", &[])) > 0.9);
}

#[test]
fn top_k_on_a_mesh_sends_a_tenth() {
    let (sparse, raw) = (runs("sparse-mesh", &[]), runs("sparse-mesh", &["cluster.codec=raw"]));
    let bytes = |report: &serde_json::Value| report["bytes_sent"].as_u64().unwrap();
    assert!(accuracy(&sparse) > 0.9 && bytes(&sparse) * 8 < bytes(&raw), "{sparse}");
}

#[test]
fn local_steps_send_an_eighth_at_most() {
    let (local, bulk) =
        (runs("local-steps", &[]), runs("local-steps", &["cluster.consistency=bsp"]));
    let bytes = |report: &serde_json::Value| report["bytes_sent"].as_u64().unwrap();
    assert!(accuracy(&local) > 0.9 && bytes(&local) * 8 < bytes(&bulk), "{local}");
}

#[test]
fn pushed_rows_explain_ratings_within_the_bound() {
    let report = runs("pushed-rows", &[]);
    assert!(report["lead_max"].as_u64().unwrap() <= 4, "{report}");
}

#[test]
fn the_reproducible_fold_gives_the_same_bits_on_any_flock() {
    let digest = |smaller: &[&str]| runs("reproducible", smaller)["digest"].clone();
    let three = digest(&[]);
    assert_eq!(three, digest(&["cluster.workers=2"]));
    assert_eq!(three, digest(&["cluster.topology=tree"]));
}

#[test]
fn shards_dealt_by_speed_find_the_clouds() {
    let inertia =
        |sets: &[&str]| runs("unequal-workers", sets)["metrics"]["inertia"].as_f64().unwrap();
    let (speed, even) = (inertia(&[]), inertia(&["cluster.deal=even"]));
    assert!((speed - even).abs() < 1e-9 * even, "{speed} {even}");
}

#[test]
fn counting_and_mistakes_learn_digits() {
    assert!(accuracy(&runs("naive-bayes", &[])) > 0.85);
    assert!(accuracy(&runs("perceptron", &[])) > 0.9);
}

#[test]
fn a_factorisation_machine_learns_where_nobody_waits() {
    let report = runs("factorisation-machine", &[]);
    assert!(report["metrics"]["accuracy"].as_f64().unwrap() > 0.7, "{report}");
}

#[test]
fn a_rising_function_explains_some_of_the_target() {
    let report = runs("isotonic-regression", &[]);
    assert!(report["metrics"]["r2"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn survival_times_are_fitted_as_they_were_made() {
    let report = runs("survival-regression", &[]);
    assert!(report["metrics"]["log_likelihood"].as_f64().unwrap() > -0.6, "{report}");
}

#[test]
fn networks_read_digits() {
    for (name, epochs, least) in [
        ("mlp", 15, 0.93),
        ("cnn", 4, 0.95),
        ("rnn", 6, 0.85),
        ("transformer", 9, 0.85),
        ("layer", 8, 0.9),
    ] {
        let report = runs(name, &[&format!("train.epochs={epochs}")]);
        let accuracy = report["evaluation"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > least, "{name}: {accuracy}");
    }
    for name in ["autoencoder", "vae"] {
        let (start, end) = (runs(name, &["train.epochs=1"]), runs(name, &["train.epochs=8"]));
        let loss = |report: &serde_json::Value| report["metrics"]["loss"].as_f64().unwrap();
        assert!(loss(&end) < 0.9 * loss(&start), "{name}: {} {}", loss(&start), loss(&end));
    }
}

/// Seventeen shades without any knowledge cost ln 17 = 2.83.
#[test]
fn shades_tell_of_their_neighbours() {
    let report = runs("embedding", &["train.epochs=2"]);
    let loss = report["metrics"]["loss"].as_f64().unwrap();
    assert!(loss < 2.3, "{loss}");
}

/// The discriminator cannot tell made digits from real ones for sure, and people can look at them.
#[test]
fn generative_networks_draw_what_they_make() {
    let folder = tempdir().unwrap();
    for (name, epochs) in [("gan", 10), ("vae", 4)] {
        let set = format!("train.epochs={epochs}");
        let report =
            starlings(folder.path(), &["train", &example(name), "--json", "--set", &set]).report();
        if name == "gan" {
            let chance = report["metrics"]["chance_made"].as_f64().unwrap();
            assert!((0.01..0.99).contains(&chance), "{chance}");
        }
        let model = format!("{name}.safetensors");
        let seen = starlings(folder.path(), &["inspect", &model, "--output", name]);
        assert_eq!(seen.code, Some(0), "{seen:?}");
        let picture = std::fs::read(folder.path().join(name).join("samples.png")).unwrap();
        assert!(picture.starts_with(b"\x89PNG"));
        assert!(folder.path().join(name).join("samples.svg").exists());
    }
}
