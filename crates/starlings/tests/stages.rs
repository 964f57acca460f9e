//! Networks whose layers sit on different workers, as jobs: pipelines, products of data and pipeline parallelism, placement by
//! hand, and what is refused. Every job trains in threads of this process.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{Blame, Job, Report, Stop, Surroundings, TrainOptions, train};
use std::sync::Arc;

const NETWORK: &str = "
[data]
train = 'synthetic://classification?rows=300&features=10&classes=3&seed=6'
[learner]
name = 'mlp'
hidden = [24, 20, 16]
dropout = 0.1
solver = 'momentum'
learning_rate = 0.05
[train]
epochs = 3
batch = 64
";

fn job(sets: &[&str]) -> starlings::Result<Job> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    Job::parse(NETWORK, &sets, &Surroundings { folder: ".".into(), cores: 1 })
}

fn report(sets: &[&str]) -> Report {
    let trained = job(sets).and_then(|job| train(job, TrainOptions::default()));
    trained.unwrap_or_else(|fault| panic!("{sets:?}: {fault}")).report
}

fn refusal(sets: &[&str]) -> String {
    let fault = job(sets).and_then(|job| train(job, TrainOptions::default()).map(|_| ()));
    let fault = fault.err().unwrap_or_else(|| panic!("{sets:?} trains"));
    assert_eq!(fault.blame(), Blame::Caller, "{fault}");
    fault.to_string()
}

const PIPELINE: &str = "cluster.plan.name=pipeline";

const TENSOR: &[&str] = &["cluster.plan.name=tensor", "learner.dropout=0.0"];

#[test]
fn a_network_in_parts_is_the_network_of_one_worker() {
    let alone = report(&["cluster.workers=1", "learner.dropout=0.0"]);
    for workers in ["cluster.workers=2", "cluster.workers=4"] {
        let parts = report(&[TENSOR, &[workers]].concat());
        assert_eq!((parts.steps, parts.samples), (alone.steps, alone.samples));
        let apart = (parts.objective / alone.objective - 1.0).abs();
        assert!(apart < 1e-5, "{workers}: {} for {}", parts.objective, alone.objective);
    }
    let fault = refusal(&[TENSOR, &["cluster.workers=3"]].concat());
    assert!(fault.contains("3 workers do not make whole groups of 2 parts"), "{fault}");
    let fault = refusal(&["cluster.plan.name=tensor", "cluster.workers=2"]);
    assert!(fault.contains("needs a learner whose layers can be split among workers"), "{fault}");
    let fault = refusal(&[TENSOR, &["cluster.plan.parts=5", "cluster.workers=5"]].concat());
    assert!(fault.contains("layer 1 'linear 24' has 24 outputs"), "{fault}");
}

#[test]
fn an_interrupted_network_in_parts_goes_on_to_the_same_bits() {
    resumes(&[TENSOR, &["cluster.workers=4"]].concat());
}

/// Stages × parts, replicas × stages × parts, and replicas × parts.
const GRIDS: &[&str] = &[
    "cluster.plan={ name = 'hybrid', data = 1, pipeline = 2, tensor = 2 }",
    "cluster.plan={ name = 'hybrid', data = 1, pipeline = 2, tensor = 2, schedule = 'gpipe' }",
    "cluster.plan={ name = 'hybrid', data = 1, pipeline = 2, tensor = 2, layers = [1, 6] }",
    "cluster.plan={ name = 'hybrid', data = 2, pipeline = 2, tensor = 2 }",
    "cluster.plan={ name = 'hybrid', data = 2, pipeline = 1, tensor = 2 }",
];

/// The job of a grid, with workers as many as it has places.
fn grid(plan: &'static str) -> [&'static str; 3] {
    let workers = if plan.contains("data = 2, pipeline = 2") {
        "cluster.workers=8"
    } else {
        "cluster.workers=4"
    };
    ["learner.dropout=0.0", plan, workers]
}

#[test]
fn a_network_on_a_grid_is_the_network_of_one_worker() {
    for more in [&[][..], &["learner.clip_norm=0.01"], &["learner.hidden=[24, 20]"]] {
        let alone = report(&[&["cluster.workers=1", "learner.dropout=0.0"], more].concat());
        for plan in GRIDS.iter().filter(|plan| more.is_empty() || !plan.contains("layers")) {
            let found = report(&[&grid(plan), more].concat());
            assert_eq!((found.steps, found.samples), (alone.steps, alone.samples));
            let apart = (found.objective / alone.objective - 1.0).abs();
            assert!(apart < 1e-5, "{plan} {more:?}: {} for {}", found.objective, alone.objective);
        }
    }
}

#[test]
fn a_grid_gives_the_same_bits_by_both_schedules_and_wherever_it_is_cut() {
    let bits = |plan| report(&grid(plan)).digest;
    let counted = bits(GRIDS[0]);
    assert_eq!(bits(GRIDS[1]), counted);
    assert_eq!(bits(GRIDS[2]), counted);
    let measured = [&grid(GRIDS[0])[..], &["cluster.plan.costs=measured"]].concat();
    assert_eq!(report(&measured).digest, counted);
}

#[test]
fn an_interrupted_grid_goes_on_to_the_same_bits() {
    resumes(&grid(GRIDS[3]));
}

#[test]
fn grids_that_make_no_sense_are_refused() {
    const GRID: &str = "cluster.plan={ name = 'hybrid', data = 1, pipeline = 2, tensor = 2 }";
    let cases: &[(&[&str], &str)] = &[
        (
            &["cluster.workers=6"],
            "1 replicas of 2 stages of 2 parts are 4 workers, and there are 6",
        ),
        (&["cluster.plan.pipeline=5", "cluster.workers=10"], "4 layers with parameters"),
        (&["cluster.plan.tensor=5", "cluster.workers=10"], "layer 1 'linear 24' has 24 outputs"),
        (&["cluster.plan.tensor=0", "cluster.workers=4"], "tensor"),
        (&["learner.dropout=0.2", "cluster.workers=4"], "whose layers can be split"),
        (&["learner.solver=lamb", "cluster.workers=4"], "whose layers can be split"),
        (&["cluster.consistency=ssp", "cluster.workers=4"], "finish a step together"),
        (&["cluster.plan.layers=[1, 2]", "cluster.workers=4"], "3 layers, and the network has 7"),
    ];
    for (sets, told) in cases {
        let fault = refusal(&[&["learner.dropout=0.0", GRID], *sets].concat());
        assert!(fault.contains(told), "{sets:?}: {fault}");
        assert!(!fault.contains("'hybrid',") && !fault.contains("or 'hybrid'"), "{fault}");
    }
}

#[test]
fn layers_by_hand_sit_on_groups_of_workers() {
    let hybrid = ["cluster.plan={ name = 'hybrid', data = 1, tensor = 2 }", "cluster.workers=4"];
    let placed = ["learner.dropout=0.0", "place.1=1-4", "place.0=5-7"];
    let alone = report(&["cluster.workers=1", "learner.dropout=0.0"]);
    let found = report(&[&hybrid[..], &placed].concat());
    assert!((found.objective / alone.objective - 1.0).abs() < 1e-5);
}

/// What makes a pipeline, a product or a placement, and of how many workers.
const WAYS: &[&[&str]] = &[
    &[PIPELINE, "cluster.workers=2"],
    &[PIPELINE, "cluster.workers=2", "cluster.plan.schedule=gpipe"],
    &[PIPELINE, "cluster.workers=4", "cluster.plan.stages=4", "cluster.plan.micro_batches=8"],
    &[PIPELINE, "cluster.workers=4", "cluster.topology=star", "cluster.codec=raw"],
    &["cluster.plan.name=hybrid", "cluster.workers=4", "cluster.topology=tree"],
    &["place.1=1-4", "place.0=5-10", "cluster.workers=2"],
];

#[test]
fn a_network_in_stages_is_the_network_of_one_worker() {
    let alone = report(&["cluster.workers=1"]);
    for sets in WAYS {
        let stages = report(sets);
        assert_eq!((stages.steps, stages.samples), (alone.steps, alone.samples), "{sets:?}");
        let apart = (stages.objective / alone.objective - 1.0).abs();
        assert!(apart < 1e-5, "{sets:?}: {} for {}", stages.objective, alone.objective);
    }
}

/// The length of a gradient is that of all layers, wherever they are.
#[test]
fn gradients_are_cut_to_the_same_length_wherever_the_layers_are() {
    const CLIP: &str = "learner.clip_norm=0.01";
    let tensor: [&[&str]; 2] =
        [&[TENSOR, &["cluster.workers=2"]].concat(), &[TENSOR, &["cluster.workers=4"]].concat()];
    for (drops, ways) in [("learner.dropout=0.1", WAYS), ("learner.dropout=0.0", &tensor)] {
        let alone = report(&[CLIP, drops, "cluster.workers=1"]);
        let free = report(&[drops, "cluster.workers=1"]);
        let effect = (alone.objective / free.objective - 1.0).abs();
        assert!(effect > 0.01, "the length is short enough to matter: {effect}");
        for sets in ways {
            let stages = report(&[&[CLIP], *sets].concat());
            let apart = (stages.objective / alone.objective - 1.0).abs();
            assert!(apart < 1e-5, "{sets:?}: {} for {}", stages.objective, alone.objective);
        }
    }
}

const TRANSFORMER: &str = "
[data]
train = 'synthetic://classification?rows=300&features=8&classes=3&seed=6'
[learner]
name = 'transformer'
steps = 4
width = 16
heads = 4
blocks = 2
dropout = 0.1
clip_norm = 0.5
[train]
epochs = 3
batch = 64
";

#[test]
fn a_transformer_in_parts_and_on_a_grid_is_that_of_one_worker() {
    let trained = |workers: u32, plan: &str| {
        let plan = format!("cluster.plan={{ {plan} }}");
        let sets = [format!("cluster.workers={workers}"), plan];
        let around = Surroundings { folder: ".".into(), cores: 1 };
        let job = Job::parse(TRANSFORMER, &sets, &around).unwrap();
        train(job, TrainOptions::default()).map(|trained| trained.report.objective)
    };
    let alone = trained(1, "name = 'data-parallel'").unwrap();
    for (workers, plan) in [
        (2, "name = 'tensor', parts = 2"),
        (4, "name = 'tensor', parts = 4"),
        (4, "name = 'tensor', parts = 2"),
        (4, "name = 'hybrid', data = 1, pipeline = 2, tensor = 2"),
        (4, "name = 'hybrid', data = 1, pipeline = 2, tensor = 2, schedule = 'gpipe'"),
        (8, "name = 'hybrid', data = 2, pipeline = 2, tensor = 2"),
    ] {
        let found = trained(workers, plan).unwrap();
        assert!((found / alone - 1.0).abs() < 1e-5, "{plan}: {found} for {alone}");
    }
    let fault = trained(3, "name = 'tensor', parts = 3").unwrap_err().to_string();
    assert!(fault.contains("layer 3 'transformer 4 dropout 0.1' has 4 heads, which 3"), "{fault}");
}

/// Learners whose layers meet at every step, and whose ways part and join.
const SHARED: &[&str] = &[
    "name = 'rnn'\ncell = 'lstm'\nhidden = [16, 8]\nsteps = 4",
    "name = 'rnn'\ncell = 'gru'\nhidden = [16]\nsteps = 4\nclip_norm = 0.5",
    "name = 'cnn'\nshape = [1, 4, 4]\nlayers = ['residual 4', 'residual 8 stride 2', 'global-average-pool']",
];

#[test]
fn recurrent_and_residual_networks_in_parts_and_on_a_grid_are_those_of_one_worker() {
    for learner in SHARED {
        let data = "train = 'synthetic://classification?rows=200&features=16&classes=3&seed=6'";
        let text = format!("[data]\n{data}\n[learner]\n{learner}\n[train]\nepochs = 2\nbatch = 50");
        let trained = |workers: u32, plan: &str| {
            let sets = [format!("cluster.workers={workers}"), format!("cluster.plan={{ {plan} }}")];
            let job =
                Job::parse(&text, &sets, &Surroundings { folder: ".".into(), cores: 1 }).unwrap();
            train(job, TrainOptions::default()).unwrap().report.objective
        };
        let alone = trained(1, "name = 'data-parallel'");
        for (workers, plan) in [
            (2, "name = 'tensor', parts = 2"),
            (4, "name = 'tensor', parts = 2"),
            (4, "name = 'hybrid', data = 1, pipeline = 2, tensor = 2"),
        ] {
            let found = trained(workers, plan);
            assert!((found / alone - 1.0).abs() < 1e-5, "{learner} {plan}: {found} for {alone}");
        }
    }
}

/// Where a network is cut changes no bit, so that a cut by clocks may be another each time.
#[test]
fn a_measured_cut_gives_the_bits_of_a_counted_one() {
    let bits = |more: &[&str]| {
        report(&[&[PIPELINE, "cluster.plan.stages=3", "cluster.workers=3"], more].concat()).digest
    };
    let counted = bits(&[]);
    assert_eq!(bits(&["cluster.plan.costs=measured"]), counted);
    assert_eq!(bits(&["cluster.plan.layers=[1, 3, 6]"]), counted);
}

#[test]
fn both_schedules_give_the_same_bits() {
    let bits = |schedule: &str| {
        let schedule = format!("cluster.plan.schedule={schedule}");
        report(&[PIPELINE, "cluster.plan.stages=3", "cluster.workers=3", &schedule]).digest
    };
    assert_eq!(bits("gpipe"), bits("1f1b"));
}

#[test]
fn an_interrupted_pipeline_goes_on_to_the_same_bits() {
    resumes(&[PIPELINE, "cluster.plan.stages=2", "cluster.workers=4"]);
}

fn resumes(stages: &[&str]) {
    let undisturbed = report(stages);
    let folder = tempfile::tempdir().unwrap();
    let path = format!("checkpoint.path={}", folder.path().display());
    let kept = [stages, &[path.as_str(), "checkpoint.every=2"]].concat();
    let stop = Stop::new();
    let asked = stop.clone();
    let observer = Arc::new(move |event: starlings::Event| {
        if matches!(event, starlings::Event::Step { .. }) {
            asked.ask();
        }
    });
    let options = TrainOptions { observer, stop, ..TrainOptions::default() };
    let fault = train(job(&kept).unwrap(), options).map(|_| ()).unwrap_err();
    assert_eq!(fault.blame(), Blame::Interrupted, "{fault}");
    let options = TrainOptions { resume: true, ..TrainOptions::default() };
    let resumed = train(job(&kept).unwrap(), options).unwrap().report;
    assert_eq!(resumed.digest, undisturbed.digest);
}

#[test]
fn a_model_that_fits_no_worker_trains_when_it_is_cut() {
    // 10·24 + 24·20 + 20·16 + 16·3 numbers and biases, with velocities and gradients: 13.9 kB.
    let small = "cluster.memory=10KB";
    let fault = refusal(&[small, "cluster.workers=2"]);
    assert!(
        fault.contains("the model takes") && fault.contains("[cluster] memory is 10.0 KB"),
        "{fault}"
    );
    assert!(fault.contains("name = \"pipeline\""), "{fault}");
    let trained = report(&[small, PIPELINE, "cluster.workers=2"]);
    assert!(trained.objective.is_finite());
    let fault = refusal(&["cluster.memory=3KB", PIPELINE, "cluster.workers=2"]);
    assert!(
        fault.contains("a stage of the model takes") && fault.contains("more than 2"),
        "{fault}"
    );
}

#[test]
fn stages_that_make_no_sense_are_refused() {
    let cases: &[(&[&str], &str)] = &[
        (&[PIPELINE, "cluster.plan.stages=5", "cluster.workers=5"], "4 layers with parameters"),
        (&[PIPELINE, "cluster.plan.stages=3", "cluster.workers=2"], "use 3 workers"),
        (&["cluster.plan.name=hybrid", "cluster.workers=6"], "are 4 workers, and there are 6"),
        (&[PIPELINE, "cluster.workers=2", "cluster.consistency=ssp"], "finish a step together"),
        (&[PIPELINE, "cluster.workers=2", "cluster.consistency=local"], "the whole model"),
        (&[PIPELINE, "cluster.workers=2", "cluster.topology=gossip"], "needs"),
        (&[PIPELINE, "cluster.workers=2", "cluster.plan.micro_batches=20"], "train.shards"),
        (&[PIPELINE, "cluster.workers=2", "cluster.plan.schedule=pipedream"], "gpipe"),
        (&["place.0=1-4", "place.1=5-9", "cluster.workers=2"], "9 layers, and the network has 10"),
        (&["place.0=1-4", "place.1=6-10", "cluster.workers=2"], "layer 5 is at no worker"),
        (&["place.0=1-4", "place.2=5-10", "cluster.workers=2"], "leave worker 1 without a stage"),
    ];
    for (sets, told) in cases {
        let fault = refusal(sets);
        assert!(fault.contains(told), "{sets:?}: {fault}");
    }
}
