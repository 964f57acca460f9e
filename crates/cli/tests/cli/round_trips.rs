//! A model is trained, looked at, and used on raw files; everything agrees with what training reported.

use crate::program::{example, starlings};
use serde_json::Value;
use std::path::Path;
use tempfile::tempdir;

/// Rows with numbers, categories, missing values and a label that mostly follows from them.
fn write_shop(path: &Path, rows: std::ops::Range<u32>) -> Vec<String> {
    let mut text = String::from("colour,size,weight,bought\n");
    let mut labels = Vec::new();
    for row in rows {
        let colour = ["red", "green", "dark, blue", ""][(row * 7 % 4) as usize];
        let size = row * 13 % 17;
        let weight = if row % 11 == 0 { String::new() } else { format!("{}.5", row * 5 % 9) };
        let odd = row % 23 == 0;
        let label = if (colour == "red" || size > 9) != odd { "yes" } else { "no" };
        text += &format!("\"{colour}\",{size},{weight},{label}\n");
        labels.push(label.to_string());
    }
    std::fs::write(path, text).unwrap();
    labels
}

const SHOP: &str = "[data]\ntrain = 'train.csv'\ntest = 'test.csv'\nlabel = 'bought'\n\
                    [learner]\nname = 'logistic-regression'\nl2 = 1e-3\n[cluster]\nworkers = 2\n";

#[test]
fn predictions_of_raw_rows_are_as_good_as_the_report_says() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_shop(&at("train.csv"), 0..400);
    let labels = write_shop(&at("test.csv"), 400..600);
    std::fs::write(at("shop.toml"), SHOP).unwrap();
    let report = starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    let reported = report["evaluation"]["accuracy"].as_f64().unwrap();
    assert!(reported > 0.75, "{report}");

    let ended = starlings(
        folder.path(),
        &["predict", "shop.safetensors", "--data", "test.csv", "--out", "p.csv"],
    );
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""));
    let text = std::fs::read_to_string(at("p.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("class,p(no),p(yes)"));
    let right =
        lines.zip(&labels).filter(|(line, label)| line.split(',').next() == Some(label)).count();
    assert!((right as f64 / 200.0 - reported).abs() < 1e-12, "{right} of 200, reported {reported}");

    let ended =
        starlings(folder.path(), &["evaluate", "shop.safetensors", "--data", "test.csv", "--json"]);
    let evaluated: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(evaluated["metrics"], report["evaluation"]);
    assert_eq!(evaluated["rows"], 200);
}

#[test]
fn prediction_needs_no_labels_and_evaluation_says_that_it_does() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_shop(&at("train.csv"), 0..100);
    write_shop(&at("test.csv"), 100..200);
    std::fs::write(at("shop.toml"), SHOP).unwrap();
    std::fs::write(at("bare.csv"), "colour,size,weight\nred,3,1.5\nnever seen,12,\n").unwrap();
    starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    let ended = starlings(folder.path(), &["predict", "shop.safetensors", "--data", "bare.csv"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 3), "{ended:?}");
    let ended = starlings(folder.path(), &["evaluate", "shop.safetensors", "--data", "bare.csv"]);
    ended.failed(2, &["bought"]);
}

#[test]
fn a_model_tells_its_learner_columns_and_origin() {
    let folder = tempdir().unwrap();
    let short = ["train", &example("digits"), "--set", "learner.max_iterations=3", "--json"];
    let report = starlings(folder.path(), &short).report();
    let ended = starlings(folder.path(), &["inspect", "digits.safetensors", "--json"]);
    let model: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&model["what"], &model["learner"]),
        (&"model".into(), &"logistic-regression".into())
    );
    assert_eq!(model["params"]["max_iterations"], 3);
    assert_eq!(model["provenance"]["evaluation"], report["evaluation"]);
    assert_eq!(model["schema"]["columns"].as_array().unwrap().len(), 64);
    assert_eq!(model["tensors"][0]["kind"], "f64");
    let people = starlings(folder.path(), &["inspect", "digits.safetensors"]).out;
    assert!(
        people.contains("10 classes in column 'class'") && people.contains("pixel_0_1"),
        "{people}"
    );
}

#[test]
fn a_model_of_trees_prints_its_trees_and_what_features_gained() {
    let folder = tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_shop(&at("train.csv"), 0..400);
    write_shop(&at("test.csv"), 400..600);
    let learner = "name = 'gradient-boosting'\ntrees = 20\ncategory_group = 10";
    std::fs::write(
        at("shop.toml"),
        SHOP.replace("name = 'logistic-regression'\nl2 = 1e-3", learner),
    )
    .unwrap();
    let report = starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.85, "{report}");
    let said = starlings(folder.path(), &["inspect", "shop.safetensors"]).out;
    for wanted in ["importance", "tree 0", "colour is red", "size <= 9.5", "and 17 trees more"] {
        assert!(said.contains(wanted), "no '{wanted}' in {said}");
    }
    std::fs::write(at("bare.csv"), "colour,size,weight\nred,3,1.5\nnever seen,12,\n").unwrap();
    let ended = starlings(folder.path(), &["predict", "shop.safetensors", "--data", "bare.csv"]);
    assert_eq!((ended.code, ended.out.lines().count()), (Some(0), 3), "{ended:?}");
}

#[test]
fn data_tell_their_columns_classes_and_missing_values() {
    let folder = tempdir().unwrap();
    write_shop(&folder.path().join("shop.csv"), 0..100);
    let arguments = ["inspect", "shop.csv", "--label", "bought", "--json"];
    let data: Value = serde_json::from_str(&starlings(folder.path(), &arguments).out).unwrap();
    assert_eq!((&data["rows"], &data["format"]), (&100.into(), &"csv".into()));
    assert_eq!(data["target"]["Classes"], serde_json::json!(["no", "yes"]));
    assert_eq!(data["columns"][2]["missing"], 10, "{data}");
    assert!(starlings(folder.path(), &["inspect", "shop.csv"]).out.contains("dark, blue"));
}

#[test]
fn checkpoints_tell_whether_they_are_whole() {
    let folder = tempdir().unwrap();
    let kept = ["--set", "checkpoint.path=KEPT", "--set", "checkpoint.every=2"];
    let kept = kept.map(|set| set.replace("KEPT", &folder.path().join("kept").to_string_lossy()));
    let mut arguments = vec!["train".to_string(), example("digits")];
    arguments.extend(["--set", "learner.max_iterations=6"].map(str::to_string));
    arguments.extend(kept);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = starlings(folder.path(), &arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let look = || -> Value {
        serde_json::from_str(&starlings(folder.path(), &["inspect", "kept", "--json"]).out).unwrap()
    };
    let before = look();
    let found = before["checkpoints"].as_array().unwrap().clone();
    assert!(found.len() >= 2 && found.iter().all(|it| it["verified"] == true), "{before}");

    let step = found[0]["step"].as_u64().unwrap();
    let part = folder.path().join(format!("kept/step-{step:08}")).join("model.safetensors");
    let mut bytes = std::fs::read(&part).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let after = look();
    assert_eq!(after["checkpoints"][0]["verified"], false);
    assert_eq!(after["checkpoints"][1]["verified"], true);
    assert!(starlings(folder.path(), &["inspect", "kept"]).out.contains("not usable"));
}

#[test]
fn the_catalogue_lists_every_family() {
    let folder = tempdir().unwrap();
    let all: Value =
        serde_json::from_str(&starlings(folder.path(), &["list", "--json"]).out).unwrap();
    let has = |family: &str, name: &str| {
        all.as_array().unwrap().iter().any(|it| it["family"] == family && it["name"] == name)
    };
    for (family, name) in [
        ("learners", "k-means"),
        ("plans", "pipeline"),
        ("topologies", "ring"),
        ("consistencies", "ssp"),
        ("codecs", "half"),
        ("transports", "tcp"),
        ("launchers", "processes"),
        ("sources", "csv"),
        ("preparations", "tf-idf"),
    ] {
        assert!(has(family, name), "{family} {name}");
    }
    let learners = starlings(folder.path(), &["list", "learners"]).out;
    assert!(learners.contains("max_iterations") && learners.contains("Reference:"), "{learners}");
    starlings(folder.path(), &["list", "learner"])
        .failed(2, &["learner", "did you mean 'learners'?"]);
}

#[test]
fn sums_are_measured_with_threads_and_processes() {
    let folder = tempdir().unwrap();
    for words in [
        &["threads"][..],
        &["processes"],
        &["processes", "--transport", "tcp", "--tls"],
        &["processes", "--transport", "tcp", "--numbers", "reproducible"],
    ] {
        let arguments = [
            "bench",
            "all-reduce",
            "--workers",
            "2",
            "--bytes",
            "64KB",
            "--repeats",
            "5",
            "--json",
            "--launcher",
        ];
        let ended = starlings(folder.path(), &[&arguments[..], words].concat());
        let timing: Value = serde_json::from_str(&ended.out).expect(&ended.err);
        assert_eq!((&timing["bytes"], &timing["repeats"]), (&65_536.into(), &5.into()));
        let (median, min) = (timing["median_seconds"].as_f64(), timing["min_seconds"].as_f64());
        assert!(min.unwrap() > 0.0 && median >= min, "{timing}");
        assert!(timing["gigabytes_per_second"].as_f64().unwrap() > 0.0);
    }
    starlings(folder.path(), &["bench", "all-reduce", "--tls"])
        .failed(2, &["inside TLS", "--launcher processes --transport tcp"]);
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let folder = tempdir().unwrap();
    let line = format!("{} list | head -n 1", crate::program::program());
    let mut shell = std::process::Command::new("sh");
    let ended =
        crate::program::Running::spawn(shell.args(["-c", &line]).current_dir(folder.path())).end();
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""));
}

#[test]
fn people_are_told_what_came_of_it_and_what_to_do_next() {
    let folder = tempdir().unwrap();
    let ended = starlings(
        folder.path(),
        &["train", &example("digits"), "--set", "learner.max_iterations=3"],
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["objective", "test rows", "accuracy", "Next: starlings predict digits.safetensors"]
    {
        assert!(ended.out.contains(part), "{}", ended.out);
    }
    assert!(
        ended.err.contains("logistic-regression on 1,438 rows of 64 features"),
        "{}",
        ended.err
    );
}

#[test]
fn help_teaches_by_example() {
    let folder = tempdir().unwrap();
    let general = starlings(folder.path(), &["--help"]).out;
    assert!(general.contains("[learner]") && general.contains("Exit codes"), "{general}");
    for command in [
        "train",
        "predict",
        "evaluate",
        "inspect",
        "list",
        "coordinator",
        "worker",
        "status",
        "bench",
    ] {
        let help = starlings(folder.path(), &[command, "--help"]);
        assert_eq!(help.code, Some(0));
        assert!(help.out.contains("Example"), "{command}: {}", help.out);
    }
}
