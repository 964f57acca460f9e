//! The walk through the front door, on threads: every learner on several workers, every topology and
//! consistency that makes sense, checkpoints and interruptions.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use starlings::{
    Blame, Event, Fault, Job, Report, Result, Stop, Surroundings, TrainOptions, train,
};
use starlings_engine::combinations::Combinations;
use std::sync::{Arc, Mutex};

fn job(text: &str, sets: &[&str]) -> Result<Job> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_string()).collect();
    Job::parse(text, &sets, &Surroundings { folder: std::env::temp_dir(), cores: 2 })
}

fn report(text: &str, sets: &[&str]) -> Report {
    let trained = train(job(text, sets).unwrap(), TrainOptions::default());
    trained.unwrap_or_else(|fault| panic!("{sets:?}: {fault}")).report
}

const BAGS: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'bagging'
bags = 2
";
const ADABOOST: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'adaboost'
rounds = 3
";
const VOTES: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'voting'
[[learner.members]]
name = 'decision-tree'
max_depth = 2
[[learner.members]]
name = 'naive-bayes'
";
const STACK: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'stacking'
folds = 2
[[learner.members]]
name = 'decision-tree'
max_depth = 2
[[learner.members]]
name = 'naive-bayes'
";
const BUCKET: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'bucket'
folds = 2
[[learner.members]]
name = 'decision-tree'
max_depth = 2
[[learner.members]]
name = 'naive-bayes'
";
const SELF_TRAINING: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'self-training'
[learner.base]
name = 'naive-bayes'
";
const PROPAGATION: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'label-propagation'
";
const SPREADING: &str = "
[data]
train = 'synthetic://classification?rows=200&features=4&seed=6'
[learner]
name = 'label-spreading'
";
const DIGITS: &str = "
[data]
train = 'digits'
test = 'digits:test'
label = 'class'
[learner]
name = 'logistic-regression'
l2 = 0.1
";
const LINEAR: &str = "
[data]
train = 'synthetic://regression?rows=300&features=5&seed=3'
[learner]
name = 'linear-regression'
";
const MLP: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'mlp'
hidden = [16]
[train]
batch = 64
";
const CNN: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'cnn'
layers = ['conv 4', 'relu', 'max-pool 2', 'linear 16', 'relu']
[train]
batch = 64
";
const RNN: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'rnn'
steps = 8
hidden = [12]
[train]
batch = 64
";
const TRANSFORMER: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'transformer'
steps = 8
width = 8
heads = 2
blocks = 1
[train]
batch = 64
";
const AUTOENCODER: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'autoencoder'
hidden = [16]
code = 4
[train]
batch = 64
";
const EMBEDDING: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'embedding'
tokens = 18
width = 4
[train]
batch = 64
";
const GAN: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'gan'
hidden = [16]
code = 4
[train]
batch = 64
";
const VAE: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'vae'
hidden = [16]
code = 4
[train]
batch = 64
";
const RIDGE: &str = "
[data]
train = 'synthetic://regression?rows=300&features=5&seed=4'
[learner]
name = 'ridge'
";
const GENERALISED: &str = "
[data]
train = 'synthetic://regression?rows=300&features=5&seed=5'
[learner]
name = 'generalised-linear'
";
const POISSON: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'generalised-linear'
family = 'poisson'
l2 = 0.1
";
const K_MEANS: &str = "
[data]
train = 'synthetic://blobs?rows=600&features=5&centers=4&seed=3'
[learner]
name = 'k-means'
k = 4
";
const RATINGS: &str = "
[data]
train = 'synthetic://ratings?users=60&items=40&rows=1500&seed=2'
[learner]
name = 'matrix-factorisation'
rank = 4
[train]
epochs = 4
batch = 128
";
const STUMPS: &str = "
[data]
train = 'synthetic://classification?rows=500&features=6&seed=4'
[learner]
name = 'boosted-stumps'
trees = 8
";
const BOOSTING: &str = "
[data]
train = 'synthetic://classification?rows=500&features=6&seed=4'
[learner]
name = 'gradient-boosting'
trees = 5
leaves = 7
";
const TREE: &str = "
[data]
train = 'synthetic://classification?rows=500&features=6&seed=4'
[learner]
name = 'decision-tree'
max_depth = 4
";
const FOREST: &str = "
[data]
train = 'synthetic://classification?rows=500&features=6&seed=4'
[learner]
name = 'random-forest'
trees = 20
max_depth = 4
";
const ISOLATION: &str = "
[data]
train = 'synthetic://blobs?rows=600&features=5&centers=4&seed=3'
[learner]
name = 'isolation-forest'
trees = 10
";
const TOPICS: &str = "
[data]
train = 'synthetic://documents?documents=80&words=60&topics=4&length=30&seed=5'
[learner]
name = 'latent-dirichlet-allocation'
topics = 4
[train]
epochs = 6
";
const BISECTING: &str = "
[data]
train = 'synthetic://blobs?rows=600&features=5&centers=4&seed=3'
[learner]
name = 'bisecting-k-means'
k = 4
";
const MIXTURE: &str = "
[data]
train = 'synthetic://blobs?rows=600&features=5&centers=4&seed=3'
[learner]
name = 'gaussian-mixture'
components = 4
";
const EDGES: &str = concat!(
    "[data]\ntrain = '",
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/karate-club.csv'\nfeatures = ['source', 'destination']\nlabel = 'similarity'\n",
    "[learner]\nname = 'power-iteration-clustering'\ntolerance = 0.0\n"
);
const COMPONENTS: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'pca'
components = 5
algorithm = 'randomised'
tolerance = 0.0
";
const SINGULAR: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'truncated-svd'
components = 5
tolerance = 0.0
";
const SELECTION: &str = "
[data]
train = 'digits'
label = 'class'
[learner]
name = 'feature-selection'
k = 10
";
const PERCEPTRON: &str = "
[data]
train = 'synthetic://classification?rows=400&features=6&seed=6'
[learner]
name = 'pipelined-perceptron'
hidden = 8
[train]
epochs = 3
batch = 64
";
// A working set, so that there are more than two steps.
const LASSO: &str = "
[data]
train = 'synthetic://regression?rows=300&features=12&seed=7'
[learner]
name = 'lasso'
l1 = 0.01
gram_max = 2
";
const ELASTIC_NET: &str = "
[data]
train = 'synthetic://regression?rows=300&features=12&seed=7'
[learner]
name = 'elastic-net'
alpha = 0.01
gram_max = 2
";
const LINEAR_SVM: &str = "
[data]
train = 'synthetic://classification?rows=400&features=6&classes=3&seed=8'
[learner]
name = 'linear-svm'
tolerance = 1e-6
";
const KERNEL_SVM: &str = "
[data]
train = 'synthetic://classification?rows=400&features=6&seed=9'
[learner]
name = 'kernel-svm'
components = 20
tolerance = 1e-6
";

const BAYES: &str = "
[data]
train = 'synthetic://classification?rows=400&features=6&classes=3&seed=7'
[learner]
name = 'naive-bayes'
";
const MISTAKES: &str = "
[data]
train = 'synthetic://classification?rows=400&features=6&classes=3&seed=7'
[learner]
name = 'perceptron'
";
const INTERACTIONS: &str = "
[data]
train = 'synthetic://regression?rows=400&features=6&seed=8'
[learner]
name = 'factorisation-machine'
components = 3
[train]
epochs = 3
batch = 64
";
const ISOTONIC: &str = "
[data]
train = 'synthetic://regression?rows=400&features=2&seed=9'
[learner]
name = 'isotonic-regression'
increasing = 'auto'
";
const SURVIVAL: &str = "
[data]
train = 'synthetic://survival?rows=400&features=4&seed=3'
[learner]
name = 'survival-regression'
event = 'event'
";
/// Learners that need fewer than three steps, and how many.
const SHORT: [(&str, u64); 5] = [
    ("naive-bayes", 1),
    ("feature-selection", 2),
    ("isolation-forest", 1),
    // All rows have a label, and none changes.
    ("label-propagation", 2),
    ("self-training", 2),
];

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-12)
}

/// One worker's objective is everyone's, whatever the workers and the topology; and bits repeat.
fn same_objective(text: &str) {
    let alone = report(text, &["cluster.workers=1"]);
    assert!(alone.objective.is_finite());
    for workers in ["cluster.workers=2", "cluster.workers=4"] {
        for topology in ["cluster.topology=ring", "cluster.topology=tree", "cluster.topology=star"]
        {
            let together = report(text, &[workers, topology]);
            let (a, b) = (alone.objective, together.objective);
            assert!(close(a, b), "{workers} {topology}: {a} alone, {b} together");
            let again = report(text, &[workers, topology]);
            assert_eq!(together.digest, again.digest, "{workers} {topology}: bits differ");
        }
    }
}

#[test]
fn logistic_regression_agrees_with_one_worker() {
    same_objective(DIGITS);
    let best = report(DIGITS, &["cluster.workers=4"]);
    assert!(best.evaluation["accuracy"] >= 0.95, "{:?}", best.evaluation);
}

#[test]
fn counts_mistakes_order_and_survival_agree_with_one_worker() {
    [BAYES, MISTAKES, ISOTONIC, SURVIVAL].into_iter().for_each(same_objective);
}

#[test]
fn linear_models_agree_with_one_worker() {
    same_objective(LINEAR);
    same_objective(RIDGE);
    same_objective(POISSON);
}

#[test]
fn full_passes_give_the_same_bits_on_every_flock() {
    // Far from converged on ill-conditioned data, where a last bit would grow until it shows.
    let run =
        |sets: &[&str]| report(DIGITS, &[sets, &["learner.l2=1e-4", "train.epochs=150"]].concat());
    let alone = run(&["cluster.workers=1"]);
    for workers in ["cluster.workers=2", "cluster.workers=3", "cluster.workers=7"] {
        for topology in ["cluster.topology=ring", "cluster.topology=tree", "cluster.topology=star"]
        {
            assert_eq!(alone.digest, run(&[workers, topology]).digest, "{workers} {topology}");
        }
    }
}

#[test]
fn stochastic_gradients_agree_with_one_worker() {
    let sets = ["learner.solver=adam", "train.epochs=3", "learner.learning_rate=0.01"];
    let run = |more: &[&str]| report(DIGITS, &[&sets[..], more].concat());
    let alone = run(&["cluster.workers=1"]);
    for topology in ["cluster.topology=ring", "cluster.topology=star"] {
        let together = run(&["cluster.workers=3", topology]);
        assert!(close(alone.objective, together.objective), "{topology}");
    }
}

#[test]
fn trees_are_the_same_bits_on_every_flock() {
    for text in [BOOSTING, TREE, FOREST, ISOLATION] {
        let alone = report(text, &["cluster.workers=1"]);
        for workers in ["cluster.workers=2", "cluster.workers=4"] {
            for topology in ["cluster.topology=ring", "cluster.topology=star"] {
                let together = report(text, &[workers, topology]);
                assert_eq!(alone.digest, together.digest, "{workers} {topology} {text}");
            }
        }
    }
}

#[test]
fn k_means_agrees_with_one_worker() {
    same_objective(K_MEANS);
}

#[test]
fn clusters_densities_and_projections_agree_with_one_worker() {
    [BISECTING, MIXTURE, COMPONENTS, SINGULAR, SELECTION].into_iter().for_each(same_objective);
}

#[test]
fn matrix_factorisation_agrees_with_one_worker() {
    same_objective(RATINGS);
}

#[test]
fn boosted_stumps_run_on_two_and_four_workers() {
    same_objective(STUMPS);
}

#[test]
fn topic_models_improve_on_two_and_four_workers() {
    // Sampling against a stale count is another chain for every number of workers: held to its quality.
    let alone = report(TOPICS, &["cluster.workers=1", "train.epochs=30"]);
    for sets in [["cluster.workers=2"], ["cluster.workers=4"]] {
        let together = report(TOPICS, &[&sets[..], &["train.epochs=30"]].concat());
        let ratio = together.objective / alone.objective;
        assert!((0.95..1.05).contains(&ratio), "{sets:?}: {ratio}");
    }
}

#[test]
fn a_pipeline_of_two_stages_equals_the_whole_perceptron() {
    let whole = report(PERCEPTRON, &["cluster.workers=1"]);
    let stages = ["cluster.plan.name=pipeline", "cluster.plan.stages=2"];
    for workers in ["cluster.workers=2", "cluster.workers=4"] {
        let cut = report(PERCEPTRON, &[&stages[..], &[workers]].concat());
        assert!(
            close(whole.objective, cut.objective),
            "{workers}: {} {}",
            whole.objective,
            cut.objective
        );
    }
}

#[test]
fn owners_that_serve_give_the_bits_of_replicas() {
    // Two workers: a sum of two has one order, so serving and summing must agree to the bit.
    let replicas = report(RATINGS, &["cluster.workers=2", "cluster.topology=tree"]);
    let owners = report(RATINGS, &["cluster.workers=2", "cluster.topology=star"]);
    assert_eq!(replicas.digest, owners.digest);
}

#[test]
fn stale_and_asynchronous_servers_learn_and_keep_their_bound() {
    let exact = report(RATINGS, &["cluster.workers=1"]);
    for (consistency, bound) in [("ssp", Some(2)), ("async", None)] {
        let name = format!("cluster.consistency.name={consistency}");
        let mut sets = vec!["cluster.workers=3", "cluster.topology=star", name.as_str()];
        if bound.is_some() {
            sets.push("cluster.consistency.bound=2");
        }
        let stale = report(RATINGS, &sets);
        let ratio = stale.objective / exact.objective;
        assert!((0.8..1.25).contains(&ratio), "{consistency}: {ratio}");
        assert!(bound.is_none_or(|bound| stale.lead_max <= bound), "lead {}", stale.lead_max);
    }
}

#[test]
fn topic_counts_are_served_without_a_barrier() {
    let alone = report(TOPICS, &["cluster.workers=1", "train.epochs=20"]);
    let sets = [
        "cluster.workers=2",
        "cluster.topology=star",
        "cluster.consistency=ssp",
        "train.epochs=20",
    ];
    let served = report(TOPICS, &sets);
    let ratio = served.objective / alone.objective;
    assert!((0.95..1.05).contains(&ratio), "{ratio}");
}

#[test]
fn half_precision_halves_the_bytes_and_still_learns() {
    let sets =
        ["learner.solver=sgd", "train.epochs=5", "cluster.workers=2", "learner.learning_rate=0.01"];
    let raw = report(DIGITS, &sets);
    for format in ["fp16", "bf16"] {
        let format = format!("cluster.codec.format={format}");
        let half = report(DIGITS, &[&sets[..], &["cluster.codec.name=half", &format]].concat());
        assert!(half.bytes_sent * 3 < raw.bytes_sent, "{} {}", half.bytes_sent, raw.bytes_sent);
        assert!((half.objective / raw.objective - 1.0).abs() < 0.05, "{}", half.objective);
    }
}

#[test]
fn impossible_combinations_are_refused_with_what_would_work() {
    let refusal = |sets: &[&str]| {
        let fault =
            job(DIGITS, sets).and_then(|job| train(job, TrainOptions::default()).map(|_| ()));
        let fault = fault.unwrap_err();
        assert_eq!(fault.blame(), Blame::Caller);
        fault.to_string()
    };
    let text = refusal(&["cluster.consistency=ssp"]);
    assert!(text.contains("'star'") || text.contains("'bsp'"), "{text}");
    let text = refusal(&["cluster.codec=half"]);
    assert!(text.contains("logistic-regression (sgd)") && text.contains("'raw'"), "{text}");
    let text = refusal(&["cluster.topology=rnig"]);
    assert!(text.contains("'ring'"), "{text}");
    let text = refusal(&["learner.name=kmeans"]);
    assert!(text.contains("'k-means'"), "{text}");
    let text = refusal(&["cluster.plan=pipeline", "cluster.workers=2"]);
    assert!(text.contains("'pipelined-perceptron'") || text.contains("'data-parallel'"), "{text}");
}

/// Asks to stop as soon as a step has been done.
fn stop_at_once(stop: Stop) -> impl Fn(Event) + Send + Sync {
    move |event| {
        if matches!(event, Event::Step { .. }) {
            stop.ask();
        }
    }
}

fn interrupted_then_resumed_gives_the_same_bits(text: &str, sets: &[&str]) {
    let undisturbed = report(text, sets);
    let folder = tempfile::tempdir().unwrap();
    let path = format!("checkpoint.path={}", folder.path().display());
    let kept = [sets, &[path.as_str(), "checkpoint.every=2"]].concat();
    let stop = Stop::new();
    let observer = Arc::new(stop_at_once(stop.clone()));
    let options = TrainOptions { observer, stop, ..TrainOptions::default() };
    let fault = train(job(text, &kept).unwrap(), options).map(|_| ()).unwrap_err();
    assert_eq!(fault.blame(), Blame::Interrupted, "{fault}");
    assert!(fault.to_string().contains("--resume"), "{fault}");
    let checkpoints: Arc<Mutex<u32>> = Arc::default();
    let counted = checkpoints.clone();
    let observer = Arc::new(move |event: Event| {
        if matches!(event, Event::Checkpoint { .. }) {
            *counted.lock().unwrap() += 1;
        }
    });
    let options = TrainOptions { observer, resume: true, ..TrainOptions::default() };
    let resumed = train(job(text, &kept).unwrap(), options).unwrap().report;
    assert_eq!(undisturbed.digest, resumed.digest, "{sets:?}");
    assert!(resumed.samples < undisturbed.samples, "it began again from the start");
    assert!(*checkpoints.lock().unwrap() > 0);
}

#[test]
fn an_interrupted_job_resumes_to_the_same_bits() {
    interrupted_then_resumed_gives_the_same_bits(DIGITS, &["cluster.workers=2"]);
    interrupted_then_resumed_gives_the_same_bits(K_MEANS, &["cluster.workers=3"]);
    interrupted_then_resumed_gives_the_same_bits(STUMPS, &["cluster.workers=2"]);
    interrupted_then_resumed_gives_the_same_bits(BOOSTING, &["cluster.workers=2"]);
}

/// What a network keeps from step to step is in the checkpoint, and what it draws depends on the step: velocities, running
/// means, masks, the rate's schedule.
#[test]
fn interrupted_networks_resume_to_the_same_bits() {
    let kept = ["learner.norm=batch-norm", "learner.dropout=0.2", "learner.schedule=cosine"];
    for solver in ["momentum", "adam", "muon"] {
        let solver = format!("learner.solver={solver}");
        let sets = [&kept[..], &[solver.as_str(), "train.epochs=2", "cluster.workers=2"]].concat();
        interrupted_then_resumed_gives_the_same_bits(MLP, &sets);
    }
    let clipped = ["learner.solver=lamb", "learner.clip_norm=1.0", "train.epochs=2"];
    interrupted_then_resumed_gives_the_same_bits(
        CNN,
        &[&clipped[..], &["cluster.workers=3"]].concat(),
    );
}

#[test]
fn sparse_regressions_and_margins_agree_with_one_worker_and_resume() {
    let scheduled = ["learner.solver=scheduled", "cluster.workers=2"];
    for text in [LASSO, LINEAR_SVM, KERNEL_SVM] {
        let alone = report(text, &["cluster.workers=1"]);
        let together = report(text, &["cluster.workers=3", "cluster.topology=tree"]);
        assert!(close(alone.objective, together.objective), "{alone:?} {together:?}");
    }
    interrupted_then_resumed_gives_the_same_bits(LASSO, &scheduled);
    let dual = ["learner.loss=hinge", "cluster.workers=2", "learner.max_iterations=20"];
    interrupted_then_resumed_gives_the_same_bits(LINEAR_SVM, &dual);
    interrupted_then_resumed_gives_the_same_bits(KERNEL_SVM, &["cluster.workers=2"]);
}

#[test]
fn served_and_remembering_jobs_resume_to_the_same_bits() {
    interrupted_then_resumed_gives_the_same_bits(
        RATINGS,
        &["cluster.workers=2", "cluster.topology=star"],
    );
    interrupted_then_resumed_gives_the_same_bits(TOPICS, &["cluster.workers=2"]);
    let stages = ["cluster.plan.name=pipeline", "cluster.plan.stages=2", "cluster.workers=2"];
    interrupted_then_resumed_gives_the_same_bits(PERCEPTRON, &stages);
}

#[test]
fn another_jobs_checkpoints_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("checkpoint.path={}", folder.path().display());
    let kept = ["cluster.workers=2", path.as_str(), "checkpoint.every=2"];
    train(job(K_MEANS, &kept).unwrap(), TrainOptions::default()).unwrap();
    let fault =
        train(job(STUMPS, &kept).unwrap(), TrainOptions::default()).map(|_| ()).unwrap_err();
    assert_eq!(fault.blame(), Blame::Caller);
    assert!(fault.to_string().contains("another job"), "{fault}");
}

#[test]
fn the_committed_table_of_combinations_is_true() {
    let committed = include_str!("../../../book/combinations.md");
    let table = starlings::combinations_table();
    assert!(committed.ends_with(&format!("\n\n{table}")), "run `cargo xtask fix`");
}

/// Trains three steps with these words.
fn tried(names: &[String]) -> std::result::Result<u64, Fault> {
    let [learner, plan, topology, consistency, codec] = names else { panic!("{names:?}") };
    let (name, solver) = learner.split_once(" (").unwrap_or((learner, ""));
    let text = [DIGITS, LINEAR, RIDGE, GENERALISED, K_MEANS, RATINGS, STUMPS, TOPICS, PERCEPTRON]
        .into_iter()
        .chain([BAYES, MISTAKES, INTERACTIONS, ISOTONIC, SURVIVAL])
        .chain([LASSO, ELASTIC_NET, LINEAR_SVM, KERNEL_SVM])
        .chain([BISECTING, MIXTURE, EDGES, COMPONENTS, SINGULAR, SELECTION])
        .chain([BOOSTING, TREE, FOREST, ISOLATION])
        .chain([MLP, CNN, RNN, TRANSFORMER, EMBEDDING, AUTOENCODER, VAE, GAN])
        .chain([BAGS, ADABOOST, VOTES, STACK, BUCKET])
        .chain([SELF_TRAINING, PROPAGATION, SPREADING])
        .find(|text| text.contains(&format!("name = '{name}'")))
        .unwrap_or_else(|| panic!("no small job for {name}"));
    let mut sets: Vec<String> = [
        ("cluster.plan", plan),
        ("cluster.topology", topology),
        ("cluster.consistency", consistency),
        ("cluster.codec", codec),
    ]
    .into_iter()
    .map(|(key, word)| format!("{key}={word}"))
    .collect();
    sets.extend(["cluster.workers=3".to_string(), "train.steps=3".to_string()]);
    if ["pipeline", "hybrid", "tensor"].contains(&plan.as_str()) {
        sets.push("cluster.workers=4".to_string());
    }
    if !solver.is_empty() {
        sets.push(format!("learner.solver={}", solver.trim_end_matches(')')));
    }
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    train(job(text, &sets).unwrap(), TrainOptions::default()).map(|trained| trained.report.steps)
}

/// The job allows three steps; some learners are done sooner.
fn steps_of(learner: &str) -> u64 {
    SHORT.iter().find(|(name, _)| *name == learner).map_or(3, |(_, steps)| *steps)
}

#[test]
fn every_pair_of_choices_that_is_said_to_work_together_does() {
    let combinations = Combinations::default();
    let covering = combinations.covering();
    assert!(covering.len() > 50, "only {} combinations cover all pairs", covering.len());
    for names in &covering {
        let steps = tried(names).unwrap_or_else(|fault| panic!("{names:?}: {fault}"));
        assert_eq!(steps, steps_of(&names[0]), "{names:?}");
    }
}

#[test]
fn combinations_that_are_said_to_make_sense_run() {
    let combinations = Combinations::default();
    let mut rng = starlings::Rng::named(1, "combinations", &[]);
    for _ in 0..100 {
        let names = combinations.valid(rng.below(combinations.count() as u64) as usize);
        let steps = tried(&names).unwrap_or_else(|fault| panic!("{names:?}: {fault}"));
        assert_eq!(steps, steps_of(&names[0]), "{names:?}");
    }
}

#[test]
fn choices_that_cannot_be_together_are_refused_with_the_reason_in_the_table() {
    let combinations = Combinations::default();
    let mut refused = 0;
    for (first, second) in [(2, 3), (2, 4), (3, 4), (0, 2), (0, 3), (0, 4)] {
        for pair in combinations.pairs(first, second) {
            let Some(why) = pair.why_not else { continue };
            let fault = tried(&pair.example).expect_err("the table says it makes no sense");
            assert_eq!(fault.blame(), Blame::Caller);
            // A learner whose parameters are the reason says so behind what the table says.
            let message = fault.message();
            let more =
                message.strip_prefix(why.as_str()).unwrap_or_else(|| panic!("{message}: {why}"));
            assert!(more.is_empty() || more.starts_with(": "), "{message}");
            refused += 1;
        }
    }
    assert!(refused > 50, "only {refused} pairs are refused");
}
