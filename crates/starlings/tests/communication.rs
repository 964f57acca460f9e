//! Communication as a user sees it: every topology, consistency and codec of the catalogue in a job that must learn,
//! and the properties by which one word is told from its neighbours: bytes, bits and models.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{Event, Job, Report, Surroundings, TrainOptions, train};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const SOFTMAX: &str = "
[data]
train = 'digits'
test = 'digits:test'
label = 'class'
[learner]
name = 'logistic-regression'
solver = 'sgd'
learning_rate = 0.01
[train]
epochs = 5
batch = 64
[cluster]
workers = 3
";
/// Gradients that are late by some steps need a smaller rate: at 0.01 the last of them can throw the model far off.
const LATE: &str = "learner.learning_rate=0.004";
const RATINGS: &str = "
[data]
train = 'synthetic://ratings?users=60&items=40&rows=1500&seed=2'
[learner]
name = 'matrix-factorisation'
rank = 4
[train]
epochs = 4
batch = 128
[cluster]
workers = 3
";

fn job(text: &str, sets: &[&str]) -> Job {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    let around = Surroundings { folder: std::env::temp_dir(), cores: 2 };
    Job::parse(text, &sets, &around).unwrap()
}

fn run(text: &str, sets: &[&str]) -> Report {
    let trained = train(job(text, sets), TrainOptions::default());
    trained.unwrap_or_else(|fault| panic!("{sets:?}: {fault}")).report
}

#[test]
fn softmax_regression_learns_under_every_topology() {
    let sums = ["ring", "tree", "halving-doubling", "hierarchical", "star", "mesh"];
    let bulk = run(SOFTMAX, &["cluster.workers=1"]);
    for topology in sums {
        let report = run(SOFTMAX, &[&format!("cluster.topology={topology}")]);
        let (a, b) = (bulk.objective, report.objective);
        assert!((a - b).abs() < 1e-9 * a, "{topology}: {a} alone, {b} together");
    }
    for topology in ["averaging", "halton"] {
        let report = run(SOFTMAX, &[&format!("cluster.topology={topology}")]);
        assert!(report.evaluation["accuracy"] > 0.9, "{topology}: {:?}", report.evaluation);
    }
    for topology in ["gossip", "ako", "halton", "grouped", "star"] {
        let topology = format!("cluster.topology={topology}");
        let sets = [topology.as_str(), "cluster.consistency=async", LATE];
        let report = run(SOFTMAX, &sets);
        assert!(report.evaluation["accuracy"] > 0.88, "{topology}: {:?}", report.evaluation);
    }
}

#[test]
fn softmax_regression_learns_under_every_consistency() {
    let of = |name: &str, topology: &str| {
        let sets = [format!("cluster.consistency={name}"), format!("cluster.topology={topology}")];
        run(SOFTMAX, &sets.each_ref().map(String::as_str))
    };
    let blends = ["local", "block-momentum", "elastic-averaging", "diloco", "dynamic-averaging"];
    for name in blends.into_iter().chain(["approximate"]) {
        let report = of(name, "ring");
        assert!(report.evaluation["accuracy"] > 0.9, "{name}: {:?}", report.evaluation);
    }
    let served =
        ["ssp", "async", "backup-workers", "staleness-aware", "delay-compensated", "downpour"];
    for name in served {
        let consistency = format!("cluster.consistency={name}");
        let sets = [&consistency, "cluster.topology=star", LATE];
        let report = run(SOFTMAX, &sets);
        assert!(report.evaluation["accuracy"] > 0.9, "{name}: {:?}", report.evaluation);
    }
    let report = of("consensus-control", "averaging");
    assert!(report.evaluation["accuracy"] > 0.9, "{:?}", report.evaluation);
}

#[test]
fn every_codec_learns_and_sends_what_its_name_promises() {
    let of = |codec: &str| run(SOFTMAX, &["cluster.topology=mesh", codec]);
    let raw = of("cluster.codec=raw");
    // Bytes of the numbers alone would be 1/4 (half of f64), 1/8, 1/40 …; headers and statistics come on top.
    for (codec, share, accuracy) in [
        ("half", 0.30, 0.93),
        ("int8", 0.17, 0.93),
        ("ternary", 0.08, 0.9),
        ("one-bit", 0.07, 0.9),
        ("top-k", 0.06, 0.9),
    ] {
        let report = of(&format!("cluster.codec={codec}"));
        let sent = report.bytes_sent as f64 / raw.bytes_sent as f64;
        assert!(sent < share, "{codec} sends {sent:.3} of raw");
        let found = report.evaluation["accuracy"];
        assert!(found > accuracy, "{codec}: accuracy {found}");
    }
    let low_rank = run(SOFTMAX, &["cluster.codec.name=low-rank", "cluster.codec.rank=4"]);
    assert!(low_rank.evaluation["accuracy"] > 0.9 && low_rank.bytes_sent < raw.bytes_sent / 2);
    let random = run(SOFTMAX, &["cluster.codec.name=random-k", "cluster.codec.ratio=0.3"]);
    assert!(random.evaluation["accuracy"] > 0.85, "{:?}", random.evaluation);
    let threshold = run(
        SOFTMAX,
        &["cluster.topology=mesh", "cluster.codec.name=threshold", "cluster.codec.threshold=20"],
    );
    assert!(threshold.evaluation["accuracy"] > 0.85, "{:?}", threshold.evaluation);
    for exact in ["cluster.codec=auto", "cluster.codec=factors"] {
        let report = of(exact);
        let (a, b) = (raw.objective, report.objective);
        assert!((a - b).abs() < 1e-9 * a, "{exact}: {a} and {b}");
    }
}

#[test]
fn factorisation_learns_with_lossy_codecs_and_counts_its_ratings_exactly() {
    let raw = run(RATINGS, &["cluster.topology=star"]);
    for codec in ["int8", "one-bit", "top-k"] {
        for topology in ["star", "mesh"] {
            let sets = [format!("cluster.codec={codec}"), format!("cluster.topology={topology}")];
            let report = run(RATINGS, &sets.each_ref().map(String::as_str));
            let (a, b) = (raw.metrics["rmse"], report.metrics["rmse"]);
            assert!(b < 1.25 * a, "{codec} on {topology}: rmse {b} where raw has {a}");
        }
    }
}

#[test]
fn wide_layers_are_cheaper_as_factors_and_auto_finds_it() {
    let wide = "
[data]
train = 'synthetic://classification?rows=300&features=400&classes=40&seed=1'
[learner]
name = 'logistic-regression'
solver = 'sgd'
[train]
epochs = 1
batch = 24
[cluster]
workers = 3
topology = 'mesh'
";
    let bytes = |codec: &str| run(wide, &[codec]).bytes_sent;
    let (raw, factors) = (bytes("cluster.codec=raw"), bytes("cluster.codec=factors"));
    let auto = bytes("cluster.codec=auto");
    assert!(factors < raw / 3, "factors {factors}, raw {raw}");
    assert!(auto < raw / 3, "auto {auto}, raw {raw}");
}

/// A large linear layer and few rows: its vectors are fewer numbers than its gradient (Zhang et al., 2017: Poseidon).
#[test]
fn large_layers_of_networks_leave_as_factors_where_that_is_cheaper() {
    const NETWORK: &str = "
[data]
train = 'synthetic://classification?rows=96&features=300&classes=3&seed=1'
[learner]
name = 'mlp'
hidden = [200]
solver = 'momentum'
[train]
epochs = 1
batch = 12
[cluster]
workers = 3
topology = 'mesh'
";
    let codec = |name: &str| run(NETWORK, &[&format!("cluster.codec={name}")]);
    let [raw, factors, auto] = ["raw", "factors", "auto"].map(codec);
    for report in [&factors, &auto] {
        let apart = (report.objective / raw.objective - 1.0).abs();
        assert!(apart < 1e-5, "{} for {}", report.objective, raw.objective);
    }
    // A step has 12 rows on 3 workers, 2 of which get what one sends; numbers have 4 bytes.
    let (steps, workers, peers, rows) = (8, 3, 2, 4);
    let per_step = |numbers: u64| (steps * workers * peers * 4 * numbers) as f64;
    let terms = |height: u64, width: u64| rows * (height + width);
    let (biases, large, small) = (200 + 3, 300 * 200, 200 * 3);
    let near = |report: &Report, wanted: f64| {
        let found = report.bytes_sent as f64;
        assert!((found / wanted - 1.0).abs() < 0.05, "{found} bytes where the rule says {wanted}");
    };
    near(&raw, per_step(large + small + biases));
    near(&factors, per_step(terms(300, 200) + terms(200, 3) + biases));
    // 12·(300 + 200) < 2·300·200, and 12·(200 + 3) > 2·200·3: only the large one leaves as factors. Of the rest a worker sends
    // two thirds to those who fold them, and its own third back to both.
    let folded = 4.0 * (small + biases) as f64 / 3.0;
    let sent = f64::from(2 * terms(300, 200) as u32) + folded;
    // Before the first sum each worker has sent 64 KiB, to learn what links carry.
    let probes = (workers << 16) as f64;
    near(&auto, (steps * workers * 4) as f64 * sent + probes);
    assert!(auto.bytes_sent < raw.bytes_sent / 10, "{} of {}", auto.bytes_sent, raw.bytes_sent);
}

#[test]
fn the_reproducible_fold_gives_one_model_whoever_computes_it() {
    const K_MEANS: &str = "
[data]
train = 'synthetic://blobs?rows=600&features=5&centers=4&seed=3'
[learner]
name = 'k-means'
k = 4
[cluster]
workers = 1
";
    for text in [SOFTMAX, RATINGS, K_MEANS] {
        let fold = "cluster.fold=reproducible";
        let alone = run(text, &[fold, "cluster.workers=1"]).digest;
        for workers in [2, 4, 7] {
            for topology in ["ring", "tree", "halving-doubling", "mesh", "star"] {
                let sets = [
                    format!("cluster.workers={workers}"),
                    format!("cluster.topology={topology}"),
                    fold.to_string(),
                ];
                let together = run(text, &sets.each_ref().map(String::as_str)).digest;
                assert_eq!(alone, together, "{workers} workers, {topology}");
            }
        }
    }
    // Without it the number of workers shows: otherwise the lines above would show nothing.
    let plain = |workers: &str| run(SOFTMAX, &[workers]).digest;
    assert_ne!(plain("cluster.workers=2"), plain("cluster.workers=7"));
}

#[test]
fn approximate_without_a_threshold_is_bulk_synchronous_and_with_one_sends_less() {
    let bulk = run(SOFTMAX, &[]);
    let approximate =
        |significance: &str| run(SOFTMAX, &["cluster.consistency.name=approximate", significance]);
    let exact = approximate("cluster.consistency.significance=0");
    assert!((exact.objective - bulk.objective).abs() < 1e-6 * bulk.objective);
    let (some, most) = (
        approximate("cluster.consistency.significance=0.1"),
        approximate("cluster.consistency.significance=0.5"),
    );
    assert!(some.bytes_sent < exact.bytes_sent && most.bytes_sent < some.bytes_sent);
    assert!(some.evaluation["accuracy"] > 0.9, "{:?}", some.evaluation);
}

#[test]
fn dynamic_averaging_is_silent_where_nothing_moves() {
    let silent = "learner.learning_rate=1e-9";
    let quiet = run(SOFTMAX, &["cluster.consistency=dynamic-averaging", silent]);
    let loud = run(SOFTMAX, &["cluster.consistency=local", silent]);
    assert!(quiet.bytes_sent < loud.bytes_sent / 4, "{} and {}", quiet.bytes_sent, loud.bytes_sent);
}

#[test]
fn dynamic_averaging_moves_the_models_of_those_who_drift() {
    let twelve = |sets: &[&str]| run(SOFTMAX, &[&["cluster.workers=12"], sets].concat());
    let local = twelve(&["cluster.consistency.name=local", "cluster.consistency.steps=2"]);
    let dynamic = twelve(&[
        "cluster.consistency.name=dynamic-averaging",
        "cluster.consistency.check=2",
        "cluster.consistency.divergence=0.1",
    ]);
    // Silence saves a third; that only some average, when someone has drifted, another fifth.
    let share = dynamic.bytes_sent as f64 / local.bytes_sent as f64;
    assert!(share < 0.58, "{share:.3} of the bytes of local steps");
    assert!(dynamic.evaluation["accuracy"] > 0.93, "{:?}", dynamic.evaluation);
}

#[test]
fn gossip_predicts_by_the_votes_of_the_models_it_remembers() {
    let sets =
        ["cluster.topology.name=gossip", "cluster.topology.cache=4", "cluster.consistency=async"];
    let trained = train(job(SOFTMAX, &sets), TrainOptions::default()).unwrap();
    let remembered = trained
        .predictor
        .file()
        .model
        .iter()
        .filter(|(name, _)| name.starts_with("vote.") && name.ends_with(".weights"))
        .count();
    assert_eq!(remembered, 4);
    let test = job(SOFTMAX, &[]).test.unwrap();
    let said = trained.predictor.predict(&test).unwrap();
    // Four votes: shares are quarters.
    assert!(said.values.iter().all(|share| (share * 4.0).fract() == 0.0));
    assert!(said.values.iter().any(|&share| share > 0.0 && share < 1.0), "all always agree");
}

/// Their weights are short numbers: how far these have moved since they were read was once taken for zero.
#[test]
fn delay_compensation_reaches_networks() {
    let network = "
[data]
train = 'digits'
test = 'digits:test'
label = 'class'
[learner]
name = 'mlp'
hidden = [16]
solver = 'sgd'
learning_rate = 0.02
[train]
epochs = 10
batch = 64
[cluster]
workers = 3
topology = 'star'
[cluster.consistency]
name = 'delay-compensated'
";
    let accuracy = |lambda: &str| {
        let job = job(network, &[&format!("cluster.consistency.lambda={lambda}")]);
        match train(job, TrainOptions::default()) {
            Ok(trained) => trained.report.evaluation["accuracy"],
            // A correction that is far too large may leave no finite number.
            Err(fault) => {
                let told = fault.to_string();
                assert!(told.contains("finite") || told.contains("diverged"), "{told}");
                0.0
            }
        }
    };
    let (none, far_too_much) = (accuracy("0"), accuracy("1e6"));
    assert!(none > 0.8, "{none} without a correction");
    assert!(far_too_much < 0.6, "{far_too_much} with one that outweighs every gradient");
}

/// Deletes all checkpoints but the first, as if the run had been cut off after it, and gives that.
fn cut_off(folder: &Path) -> PathBuf {
    let mut steps: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    steps.sort();
    steps[1..].iter().for_each(|path| std::fs::remove_dir_all(path).unwrap());
    steps.swap_remove(0)
}

/// The exponential graph has another peer in each round, and control remembers how long steps were.
#[test]
fn mixing_goes_on_where_it_was_when_a_run_is_resumed() {
    let exponential = ["cluster.topology.graph=exponential", "cluster.consistency=bsp"];
    let controlled = |graph: &'static str| [graph, "cluster.consistency=consensus-control"];
    let cases = [
        exponential,
        controlled("cluster.topology.graph=ring"),
        controlled("cluster.topology.graph=exponential"),
    ];
    for case in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("checkpoint.path={}", folder.path().display());
        // Forty steps are no whole number of turns among five.
        let fixed = ["cluster.topology.name=averaging", "cluster.workers=5", "checkpoint.every=40"];
        let sets = [&fixed[..], &case, &[&path]].concat();
        let whole = run(SOFTMAX, &sets);
        cut_off(folder.path());
        let options = TrainOptions { resume: true, ..TrainOptions::default() };
        let resumed = train(job(SOFTMAX, &sets), options).unwrap().report;
        assert_eq!(resumed.digest, whole.digest, "{case:?}");
    }
}

#[test]
fn one_that_is_alone_sees_its_own_steps_whatever_the_consistency() {
    let stale = "cluster.consistency.name=ssp";
    let ways: [&[&str]; 3] = [
        &[stale],
        &[stale, "cluster.consistency.push=false"],
        &[
            "cluster.consistency.name=downpour",
            "cluster.consistency.push=1",
            "cluster.consistency.fetch=1",
        ],
    ];
    let alone: &[&str] = &["cluster.workers=1", "cluster.topology.name=star", "train.epochs=2"];
    let group: &[&str] =
        &["cluster.workers=3", "cluster.topology.name=grouped", "cluster.topology.group=3"];
    for (text, flock) in [
        (SOFTMAX, alone),
        (SOFTMAX, &[alone, &["learner.solver=adagrad"]].concat()),
        (RATINGS, alone),
        (SOFTMAX, group),
    ] {
        let bulk = run(text, flock);
        for way in ways {
            let report = run(text, &[flock, way].concat());
            assert_eq!(report.digest, bulk.digest, "{flock:?} {way:?}");
            assert_eq!(report.lead_max, 0, "{flock:?} {way:?}");
        }
    }
}

#[test]
fn steps_of_unlike_size_accrue_as_what_each_of_them_is() {
    // The 23rd step of a pass has 30 rows, the others 64.
    let star: &[&str] =
        &["cluster.workers=1", "cluster.topology.name=star", "learner.l2=0", "train.steps=23"];
    let bulk = run(SOFTMAX, star);
    let seldom = [
        "cluster.consistency.name=downpour",
        "cluster.consistency.push=5",
        "cluster.consistency.fetch=1000000",
    ];
    let report = run(SOFTMAX, &[star, &seldom].concat());
    let ratio = report.objective / bulk.objective;
    assert!((0.999..1.001).contains(&ratio), "{} for {}", report.objective, bulk.objective);
}

#[test]
fn what_would_have_no_effect_is_refused_with_what_has_one() {
    let merge = "cluster.topology.merge=2";
    let local = "cluster.consistency.name=local";
    let fold = "cluster.fold=reproducible";
    for other in [local, "cluster.codec.name=low-rank", fold] {
        let sets = ["cluster.topology.name=star", other];
        let refused = train(job(SOFTMAX, &[&sets[..], &[merge]].concat()), TrainOptions::default());
        let told = refused.err().unwrap().to_string();
        assert!(told.contains("nothing to merge") && told.contains("leave out merge"), "{told}");
        run(SOFTMAX, &sets);
    }
    let warm = ["cluster.topology.name=star", "cluster.consistency.name=downpour", "train.steps=9"];
    let for_steps =
        |steps: &str| train(job(SOFTMAX, &[&warm[..], &[steps]].concat()), TrainOptions::default());
    let told = for_steps("cluster.consistency.warm=9").err().unwrap().to_string();
    assert!(told.contains("leaves none of 9"), "{told}");
    for_steps("cluster.consistency.warm=8").unwrap();
}

#[test]
fn groups_that_push_and_fetch_seldom_send_less() {
    for topology in ["cluster.topology.name=grouped", "cluster.topology.name=star"] {
        let groups = match topology.ends_with("star") {
            true => "cluster.topology.merge=2",
            false => "cluster.topology.group=2",
        };
        let bytes = |period: u32| {
            let periods = ["fetch", "push"].map(|it| format!("cluster.consistency.{it}={period}"));
            let downpour = "cluster.consistency.name=downpour";
            let sets = [topology, groups, "cluster.workers=4", downpour, &periods[0], &periods[1]];
            let report = run(SOFTMAX, &[&sets[..], &[LATE]].concat());
            assert!(report.evaluation["accuracy"] > 0.8, "{topology}: {:?}", report.evaluation);
            report.bytes_sent
        };
        let (every, seldom) = (bytes(1), bytes(8));
        // Inside a group contributions are summed at every step.
        assert!(seldom < every * 2 / 3, "{topology}: {seldom} bytes for {every}");
    }
}

#[test]
fn a_lossy_run_resumes_with_what_its_codec_had_lost() {
    // What draws at random goes on with the same numbers; only some hold anything back.
    for (topology, codec, holds) in [
        ("mesh", "top-k", true),
        ("mesh", "threshold", true),
        ("star", "one-bit", true),
        ("ring", "low-rank", true),
        ("ring", "random-k", true),
        ("ring", "half", false),
        ("mesh", "int8", false),
        ("star", "int8", false),
        ("mesh", "ternary", false),
    ] {
        let sets = [format!("cluster.topology={topology}"), format!("cluster.codec={codec}")];
        resumes(&sets.each_ref().map(String::as_str), holds);
    }
}

#[test]
fn local_steps_with_random_places_resume_with_the_same_bits() {
    resumes(&["cluster.consistency=local", "cluster.codec=random-k"], true);
}

/// A run that goes on after its first checkpoint ends in the bits of one that was never cut off.
fn resumes(sets: &[&str], holds: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("checkpoint.path={}", folder.path().display());
    let sets = &[sets, &[path.as_str(), "checkpoint.every=40"]].concat();
    let whole = run(SOFTMAX, sets);
    let losses = std::fs::read_dir(cut_off(folder.path())).unwrap().filter(|entry| {
        entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("losses-")
    });
    assert_eq!(
        losses.count(),
        if holds { 3 } else { 0 },
        "{sets:?}: every seat keeps what it lost"
    );
    let options = TrainOptions { resume: true, ..TrainOptions::default() };
    let resumed = train(job(SOFTMAX, sets), options.clone()).unwrap().report;
    assert_eq!(resumed.digest, whole.digest, "{sets:?}");
    let fewer = [&sets[..], &["cluster.workers=2"]].concat();
    let other = train(job(SOFTMAX, &fewer), options).unwrap().report;
    let (there, here) = (other.evaluation["accuracy"], whole.evaluation["accuracy"]);
    assert!(there > here - 0.05, "{sets:?}: {there} on two workers, {here} on three");
}

#[test]
fn blocks_travel_while_others_are_computed_and_the_trace_shows_it() {
    let perceptron = "
[data]
train = 'synthetic://classification?rows=512&features=300&seed=6'
[learner]
name = 'pipelined-perceptron'
hidden = 400
[train]
steps = 6
batch = 64
[cluster]
workers = 2
trace = true
";
    let told: Arc<Mutex<Vec<Event>>> = Arc::default();
    let hears = told.clone();
    let observer = Arc::new(move |event: Event| hears.lock().unwrap().push(event));
    let options = TrainOptions { observer, ..TrainOptions::default() };
    train(job(perceptron, &[]), options).unwrap();
    let events = told.lock().unwrap();
    let traces: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Trace { rank, spans } => Some((*rank, spans)),
            _ => None,
        })
        .collect();
    assert_eq!(traces.len(), 2, "one trace a worker");
    for (rank, spans) in traces {
        let of = |lane: &str, name: &str| {
            spans.iter().filter(|span| span.lane == lane && span.name == name).count()
        };
        assert_eq!(of("work", "computation"), 6, "{rank}");
        assert!(of("wire", "sum of a bucket") >= 6, "{rank}: buckets leave in every step");
    }
}

#[test]
fn shards_dealt_by_speed_give_the_same_rows_and_the_same_objective() {
    let even = run(SOFTMAX, &[]);
    let speed = run(SOFTMAX, &["cluster.deal=speed"]);
    assert_eq!((even.samples, even.steps), (speed.samples, speed.steps));
    assert!((even.objective - speed.objective).abs() < 1e-9 * even.objective);
}
