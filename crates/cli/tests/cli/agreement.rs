//! The same job gives the same model whatever the workers, topology and launcher are, and the same bits when it
//! is repeated.

use crate::program::{example, starlings};
use serde_json::Value;
use tempfile::tempdir;

/// The digits job, cut short, with overrides.
fn digits(sets: &[&str]) -> Value {
    let folder = tempdir().unwrap();
    let path = example("digits");
    let mut arguments = vec!["train", &path, "--json", "--set", "learner.max_iterations=12"];
    for set in sets {
        arguments.extend(["--set", set]);
    }
    starlings(folder.path(), &arguments).report()
}

fn same(a: &Value, b: &Value) -> bool {
    let (a, b) = (a["objective"].as_f64().unwrap(), b["objective"].as_f64().unwrap());
    (a - b).abs() <= 1e-9 * a.abs()
}

#[test]
fn the_first_job_learns_digits() {
    let folder = tempdir().unwrap();
    let report = starlings(folder.path(), &["train", &example("digits"), "--json"]).report();
    assert!(report["evaluation"]["accuracy"].as_f64().unwrap() >= 0.95, "{report}");
    assert_eq!(report["workers"], 4);
    assert!(folder.path().join("digits.safetensors").exists());
}

#[test]
fn every_topology_and_number_of_threads_gives_the_same_objective() {
    let alone = digits(&["cluster.workers=1"]);
    for topology in ["ring", "tree", "star"] {
        let report = digits(&["cluster.workers=4", &format!("cluster.topology={topology}")]);
        assert!(same(&alone, &report), "{topology}: {alone} {report}");
    }
}

#[test]
fn every_topology_and_number_of_processes_gives_the_same_objective() {
    let threads = digits(&["cluster.workers=1"]);
    let alone = digits(&["cluster.workers=1", "cluster.launcher=processes"]);
    assert_eq!(threads["digest"], alone["digest"]);
    for topology in ["ring", "tree", "star"] {
        let topology_set = format!("cluster.topology={topology}");
        let report = digits(&["cluster.workers=4", "cluster.launcher=processes", &topology_set]);
        assert!(same(&alone, &report), "{topology}: {alone} {report}");
    }
}

#[test]
fn a_repeated_job_gives_the_same_bits() {
    for launcher in ["threads", "processes"] {
        let launcher = format!("cluster.launcher={launcher}");
        let (first, second) = (digits(&[&launcher]), digits(&[&launcher]));
        assert_eq!(first["digest"], second["digest"], "{launcher}");
        assert_eq!(first["digest"].as_str().unwrap().len(), 64);
    }
}

#[test]
fn equal_runs_write_equal_model_files() {
    let folder = tempdir().unwrap();
    for out in ["a.safetensors", "b.safetensors"] {
        let set = ["--set", "learner.max_iterations=3"];
        let path = example("digits");
        let ended = starlings(folder.path(), &[&["train", &path, "--out", out], &set[..]].concat());
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(read("a.safetensors"), read("b.safetensors"));
}

/// Networks compute on one thread a worker and draw from the job's generator: where a worker lives changes no bit, and
/// the same global batch on more workers gives the same model to the rounding of f32.
#[test]
fn networks_agree_on_threads_and_processes() {
    let folder = tempdir().unwrap();
    let small: [(&str, &[&str]); 2] = [
        ("mlp", &["train.epochs=2", "learner.norm=batch-norm", "data.test=digits:test"]),
        ("cnn", &["train.steps=12"]),
    ];
    for (name, settings) in small {
        let job = example(name);
        let report = |sets: &[&str]| {
            let mut arguments = vec!["train", job.as_str(), "--json"];
            for set in settings.iter().chain(sets) {
                arguments.extend(["--set", set]);
            }
            starlings(folder.path(), &arguments).report()
        };
        let alone = report(&["cluster.workers=1"])["objective"].as_f64().unwrap();
        for workers in ["cluster.workers=2", "cluster.workers=3"] {
            let threads = report(&["cluster.launcher=threads", workers]);
            let processes = report(&["cluster.launcher=processes", workers]);
            assert_eq!(threads["digest"], processes["digest"], "{name}, {workers}");
            let together = threads["objective"].as_f64().unwrap();
            assert!((alone - together).abs() < 1e-5 * alone, "{name}: {alone} {together}");
        }
    }
}
