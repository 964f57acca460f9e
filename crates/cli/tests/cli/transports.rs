//! How bytes travel is nobody's business but the transport's: shared memory, sockets and queues give the same bits.

use crate::program::{example, starlings};
use tempfile::tempdir;

fn digest(sets: &[&str]) -> String {
    let folder = tempdir().unwrap();
    let job = example("digits");
    let mut arguments = vec!["train", job.as_str(), "--json", "--set", "learner.solver=sgd"];
    arguments.extend(["--set", "train.epochs=2"]);
    arguments.extend(sets);
    let report = starlings(folder.path(), &arguments).report();
    report["digest"].as_str().unwrap().to_string()
}

#[test]
fn shared_memory_sockets_and_threads_give_the_same_bits() {
    for workers in ["2", "3", "4"] {
        for topology in ["cluster.topology=ring", "cluster.topology=hierarchical"] {
            let with = |more: &[&str]| {
                digest(&[&["--workers", workers, "--set", topology], more].concat())
            };
            let threads = with(&[]);
            assert_eq!(threads, with(&["--launcher", "processes"]), "{workers} {topology}");
            let tcp = ["--launcher", "processes", "--set", "cluster.transport=tcp"];
            assert_eq!(threads, with(&tcp), "{workers} {topology}");
        }
    }
}

/// What a codec draws at random follows from the step, not from how often a transport was asked.
#[test]
fn every_codec_gives_the_same_bits_over_every_transport() {
    for listing in starlings::list(Some("codecs")).unwrap() {
        let folds = listing.gives.iter().any(|ability| format!("{ability:?}") == "Summable");
        let topologies: &[&str] = if folds { &["ring", "hierarchical"] } else { &["mesh"] };
        for topology in topologies {
            let codec = format!("cluster.codec={}", listing.name);
            let topology = format!("cluster.topology={topology}");
            let with = |more: &[&str]| {
                let sets = ["--workers", "3", "--set", &codec, "--set", &topology];
                digest(&[&sets, more].concat())
            };
            let threads = with(&[]);
            assert_eq!(threads, with(&["--launcher", "processes"]), "{codec} {topology}");
            let tcp = ["--launcher", "processes", "--set", "cluster.transport=tcp"];
            assert_eq!(threads, with(&tcp), "{codec} {topology}");
        }
    }
}

/// Over links the gradients of upper layers are summed while others are computed, in buckets that are cut by themselves; through
/// shared memory nothing is hidden behind anything, and of two each sums where it takes the optimiser's step. What is added to
/// what first is the same.
#[test]
fn networks_of_several_buckets_give_the_same_bits_over_every_transport() {
    let job = "[data]\ntrain = 'digits'\nlabel = 'class'\n[learner]\nname = 'mlp'\nhidden = [512, 256, 256]\n\
               solver = 'momentum'\n[train]\nsteps = 4\nbatch = 48\n";
    let folder = tempdir().unwrap();
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    let ways =
        [("2", "ring", "raw"), ("3", "ring", "raw"), ("3", "tree", "raw"), ("3", "ring", "half")];
    for (workers, topology, codec) in ways {
        let (topology, codec) =
            (format!("cluster.topology={topology}"), format!("cluster.codec={codec}"));
        let with = |more: &[&str]| {
            let sets = ["--workers", workers, "--set", &topology, "--set", &codec, "--json"];
            let report =
                starlings(folder.path(), &[&["train", "job.toml"], &sets[..], more].concat());
            report.report()["digest"].as_str().unwrap().to_string()
        };
        let threads = with(&["--launcher", "threads"]);
        assert_eq!(threads, with(&["--launcher", "processes"]), "{topology} {codec}");
        let tcp = ["--launcher", "processes", "--set", "cluster.transport=tcp"];
        assert_eq!(threads, with(&tcp), "{topology} {codec}");
    }
}

#[test]
fn a_transport_that_cannot_be_had_is_refused_in_words() {
    let folder = tempdir().unwrap();
    let job = example("digits");
    let ended = starlings(
        folder.path(),
        &["train", &job, "--set", "cluster.transport=shared", "--workers", "2"],
    );
    ended.failed(2, &["threads", "leave out", "processes"]);
    let ended = starlings(folder.path(), &["train", &job, "--set", "cluster.transport=pigeon"]);
    ended.failed(2, &["pigeon", "tcp"]);
}

#[test]
fn a_trace_shows_every_workers_lanes() {
    let folder = tempdir().unwrap();
    let job = example("digits");
    let trace = folder.path().join("trace.json");
    let path = trace.display().to_string();
    let arguments = ["train", &job, "--set", "learner.max_iterations=3", "--trace", &path];
    let more = ["--launcher", "processes", "--workers", "2", "--json"];
    starlings(folder.path(), &[&arguments[..], &more].concat()).report();
    let text = std::fs::read_to_string(trace).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    for rank in [0, 1] {
        let spans = trace["traceEvents"].as_array().unwrap().iter().filter(|event| {
            event["ph"] == "X" && event["pid"] == rank && event["name"] == "computation"
        });
        assert!(spans.count() > 3, "rank {rank}");
    }
}

/// Pushes of workers and copies for the next owner, each of several frames, travel on one lane at the same time.
#[test]
fn large_pushes_and_mirrored_rows_do_not_mix() {
    let folder = tempdir().unwrap();
    let job = "[data]\ntrain = 'digits'\nlabel = 'class'\n[learner]\nname = 'mlp'\nhidden = [1024, 1024]\n\
               solver = 'sgd'\nlearning_rate = 0.001\n[train]\nsteps = 30\nbatch = 16\n\
               [cluster]\nlauncher = 'processes'\nworkers = 2\ntopology = 'star'\nconsistency = 'ssp'\n";
    std::fs::write(folder.path().join("job.toml"), job).unwrap();
    for transport in ["tcp", "shared"] {
        let set = format!("cluster.transport={transport}");
        let ended = starlings(folder.path(), &["train", "job.toml", "--json", "--set", &set]);
        assert_eq!(ended.report()["steps"], 30, "{transport}");
    }
}
