//! Trees through the whole program: what is told and drawn of them, training that goes on from an earlier model, labels
//! that are numbers, and the same trees whatever travels.

use crate::program::starlings;
use serde_json::Value;
use std::path::Path;
use tempfile::{TempDir, tempdir};

/// A shop's rows: two numbers, a category, what was bought and for how much.
fn shop() -> TempDir {
    let folder = tempdir().unwrap();
    for (name, rows) in [("train.csv", 0..600), ("test.csv", 600..800)] {
        let mut text = String::from("colour,size,weight,price,bought\n");
        for row in rows {
            let colour = ["red", "green", "blue"][(row * 7 % 3) as usize];
            let (size, weight) = (row * 13 % 17, row * 29 % 101);
            let price = 3.0 * f64::from(size) + if colour == "red" { 20.25 } else { 0.0 };
            let bought = if (colour == "red") != (size > 9) { "yes" } else { "no" };
            text += &format!("{colour},{size},{weight},{price},{bought}\n");
        }
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn job(folder: &Path, name: &str, label: &str, learner: &str) {
    let text = format!(
        "[data]\ntrain = 'train.csv'\ntest = 'test.csv'\nlabel = '{label}'\n\
         features = ['colour', 'size', 'weight']\n\
         [learner]\nname = '{learner}'\n[cluster]\nworkers = 2\n"
    );
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn a_model_of_trees_is_told_and_drawn() {
    let folder = shop();
    let at = |name: &str| folder.path().join(name);
    job(folder.path(), "shop.toml", "bought", "gradient-boosting");
    let trees = ["--set", "learner.trees=10", "--set", "learner.category_group=10"];
    starlings(folder.path(), &[&["train", "shop.toml", "--json"], &trees[..]].concat()).report();
    let asked = ["--data", "test.csv", "--column", "size", "--column", "colour", "--tree", "3"];
    let drawn = [&["inspect", "shop.safetensors", "--output", "pictures"], &asked[..]].concat();
    let said = starlings(folder.path(), &drawn).out;
    for wanted in [
        "tree 3 in full",
        "how much the loss grows when the feature is shuffled",
        "mean prediction for each value of 'size'",
        "p(yes)",
        "green",
        "tree-3.png",
    ] {
        assert!(said.contains(wanted), "no '{wanted}' in {said}");
    }
    for name in ["tree-3", "importance-gain", "importance-permutation", "dependence-size"] {
        let svg = std::fs::read_to_string(at(&format!("pictures/{name}.svg"))).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("size"), "{name}: {svg}");
        let png = std::fs::read(at(&format!("pictures/{name}.png"))).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n", "{name}");
    }
    let json = [&["inspect", "shop.safetensors", "--json"], &asked[..]].concat();
    let value: Value = serde_json::from_str(&starlings(folder.path(), &json).out).unwrap();
    let shuffled = value["permutation"].as_array().unwrap();
    // Weight says nothing, so that shuffling it costs next to nothing.
    assert_eq!(shuffled.last().unwrap()["name"], "weight", "{shuffled:?}");
    assert_eq!(value["dependence"][1]["names"], serde_json::json!(["blue", "green", "red"]));
    let one = ["inspect", "shop.safetensors", "--tree", "0", "--output", "one.svg"];
    starlings(folder.path(), &one);
    assert!(std::fs::read_to_string(at("one.svg")).unwrap().contains("tree 0"));
}

#[test]
fn what_cannot_be_shown_is_refused_with_a_way_out() {
    let folder = shop();
    job(folder.path(), "shop.toml", "bought", "decision-tree");
    starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
    let ask = |more: &[&str]| {
        starlings(folder.path(), &[&["inspect", "shop.safetensors"], more].concat())
    };
    ask(&["--tree", "1"]).failed(2, &["no tree 1", "from 0"]);
    ask(&["--data", "test.csv", "--column", "sizes"]).failed(2, &["did you mean 'size'?"]);
    ask(&["--column", "size"]).failed(2, &["--data"]);
    starlings(folder.path(), &["inspect", "train.csv", "--tree", "0"]).failed(2, &["not a model"]);
    let path = folder.path().join("shop.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() * 3 / 4;
    bytes[middle] ^= 0x40;
    std::fs::write(&path, bytes).unwrap();
    ask(&[]).failed(2, &["damaged"]);
}

#[test]
fn training_goes_on_from_an_earlier_model() {
    let folder = shop();
    job(folder.path(), "shop.toml", "bought", "gradient-boosting");
    let train = |trees: u32, out: &str, more: &[&str]| {
        let trees = format!("learner.trees={trees}");
        let all = [&["train", "shop.toml", "--json", "--set", &trees, "--out", out], more].concat();
        starlings(folder.path(), &all)
    };
    let at_once = train(12, "all.safetensors", &[]).report();
    let first = train(5, "first.safetensors", &[]).report();
    assert_ne!(first["digest"], at_once["digest"]);
    let from = ["--set", "train.continue_from='first.safetensors'"];
    for launcher in ["threads", "processes"] {
        let more = [&from[..], &["--launcher", launcher]].concat();
        let later = train(7, "later.safetensors", &more).report();
        assert_eq!(later["digest"], at_once["digest"], "{launcher}");
    }
    let gone = train(1, "x.safetensors", &["--set", "train.continue_from='gone.safetensors'"]);
    gone.failed(2, &["continue_from", "gone.safetensors"]);
    let other = train(
        1,
        "x.safetensors",
        &[&from[..], &["--set", "data.features=['colour', 'weight']"]].concat(),
    );
    other.failed(2, &["continue_from", "features"]);
    job(folder.path(), "line.toml", "bought", "logistic-regression");
    let set = "train.continue_from='first.safetensors'";
    starlings(folder.path(), &["train", "line.toml", "--set", set])
        .failed(2, &["one of 'gradient-boosting'"]);
}

#[test]
fn labels_that_are_numbers_need_no_further_word() {
    let folder = shop();
    for learner in ["gradient-boosting", "decision-tree", "random-forest"] {
        job(folder.path(), "shop.toml", "price", learner);
        let report = starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
        let error = report["evaluation"]["rmse"].as_f64().unwrap();
        assert!(error < 5.0, "{learner}: {report}");
        job(folder.path(), "shop.toml", "bought", learner);
        let report = starlings(folder.path(), &["train", "shop.toml", "--json"]).report();
        assert!(report["evaluation"]["accuracy"].as_f64().unwrap() > 0.9, "{learner}: {report}");
    }
}

#[test]
fn whatever_travels_the_trees_are_the_same_and_the_bytes_are_not() {
    let folder = shop();
    job(folder.path(), "shop.toml", "bought", "gradient-boosting");
    let train = |way: &str, workers: &str| {
        let way = format!("learner.parallelism={way}");
        let all = ["train", "shop.toml", "--json", "--set", &way, "--workers", workers];
        let more = ["--launcher", "processes", "--set", "learner.trees=5"];
        starlings(folder.path(), &[&all[..], &more].concat()).report()
    };
    let [data, feature] = ["data", "feature"].map(|way| train(way, "2"));
    assert_eq!(data["digest"], feature["digest"]);
    assert_ne!(data["bytes_sent"], feature["bytes_sent"]);
    let voting = [1, 2].map(|workers| train("voting", &workers.to_string()));
    assert_eq!(voting[0]["digest"], voting[1]["digest"]);
}
