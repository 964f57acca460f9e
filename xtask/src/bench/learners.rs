//! Learners against scikit-learn, faiss, SciPy, Spark MLlib, LightGBM and XGBoost. Everybody reads the same file, which `bench/peers/data.py` makes
//! under `target/bench` from a fixed seed, and stops by the same rule; the objective stands beside each time.

use super::row::Outcome;
use super::scaling::{Network, Traffic};
use super::turns::{self, Contender};
use super::{Suite, peers};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A case: one job of ours, one script for the peers, one file.
struct Case {
    name: &'static str,
    /// Below `bench/jobs`.
    job: &'static str,
    /// Below `bench/peers`, with its first argument.
    script: (&'static str, &'static str),
    /// The name that `data.py` knows and the training file it makes.
    data: (&'static str, &'static str),
    /// The test file, where there is one.
    test: Option<&'static str>,
    peers: &'static [&'static str],
    /// What a row has in memory, where one pass over the rows is one iteration: for the bound of two workers.
    row_bytes: Option<f64>,
    network: Option<Network>,
}

const CASES: &[Case] = &[
    Case {
        name: "k-means, 1M × 32, k = 100, 20 iterations",
        job: "k-means.toml",
        script: ("kmeans.py", "dense"),
        data: ("blobs", "blobs.parquet"),
        test: None,
        peers: &["scikit-learn", "faiss", "Spark MLlib"],
        row_bytes: Some(4.0 * 32.0),
        network: None,
    },
    Case {
        name: "logistic regression, dense 1M × 100, correlated",
        job: "logistic-dense.toml",
        script: ("logistic.py", "dense"),
        data: ("correlated", "correlated.parquet"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: Some(4.0 * 100.0),
        network: None,
    },
    Case {
        name: "logistic regression, sparse 500k × 50k",
        job: "logistic-words.toml",
        script: ("logistic.py", "words"),
        data: ("words", "words.libsvm"),
        test: None,
        peers: &["scikit-learn", "SciPy, scaled by deviation", "Spark MLlib"],
        row_bytes: Some(8.0 * 40.0),
        network: None,
    },
    Case {
        name: "linear SVM, sparse 500k × 50k, squared hinge",
        job: "svm-words.toml",
        script: ("counted.py", "svm"),
        data: ("words", "words.libsvm"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: Some(8.0 * 40.0),
        network: None,
    },
    Case {
        name: "naive Bayes, sparse 500k × 50k, multinomial",
        job: "bayes-words.toml",
        script: ("counted.py", "bayes"),
        data: ("words", "words.libsvm"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: Some(8.0 * 40.0),
        network: None,
    },
    Case {
        name: "PCA, 1M × 50, 10 components",
        job: "pca.toml",
        script: ("projected.py", "pca"),
        data: ("mixed", "mixed.parquet"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: Some(4.0 * 50.0),
        network: None,
    },
    Case {
        name: "Gaussian mixture, 200k × 16, 10 full components, 20 iterations",
        job: "mixture.toml",
        script: ("projected.py", "mixture"),
        data: ("clouds", "clouds.parquet"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: Some(4.0 * 16.0),
        network: None,
    },
    Case {
        name: "lasso path, 200k × 200, 100 penalties",
        job: "lasso-path.toml",
        script: ("projected.py", "lasso"),
        data: ("signals", "signals.parquet"),
        test: None,
        peers: &["scikit-learn"],
        row_bytes: Some(4.0 * 200.0),
        network: None,
    },
    Case {
        name: "logistic regression, sparse 300k × 123",
        job: "logistic-sparse.toml",
        script: ("logistic.py", "sparse"),
        data: ("onehot", "onehot.libsvm"),
        test: None,
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: None,
        network: None,
    },
    Case {
        name: "matrix factorisation, 6000 × 4000, 0.9M ratings, rank 16",
        job: "factorisation.toml",
        script: ("factorisation.py", "als"),
        data: ("ratings", "ratings.csv"),
        test: Some("ratings-test.csv"),
        peers: &["Spark MLlib"],
        row_bytes: None,
        network: None,
    },
    Case {
        name: "gradient boosting, 1M × 28, 100 trees, 63 leaves, 255 bins",
        job: "boosting.toml",
        script: ("trees.py", "boosting"),
        data: ("collisions", "collisions.parquet"),
        test: Some("collisions-test.parquet"),
        peers: &["LightGBM", "XGBoost"],
        row_bytes: None,
        network: None,
    },
    Case {
        name: "random forest, 200k × 28, 100 trees, depth 12",
        job: "forest.toml",
        script: ("trees.py", "forest"),
        data: ("collisions", "collisions-some.parquet"),
        test: Some("collisions-test.parquet"),
        peers: &["scikit-learn", "Spark MLlib"],
        row_bytes: None,
        network: None,
    },
    Case {
        name: "network mlp 784-512-256-10, Fashion-MNIST, batch 256, 5 epochs",
        job: "network-mlp.toml",
        script: ("networks.py", "mlp"),
        data: ("fashion", "fashion.parquet"),
        test: Some("fashion-test.parquet"),
        peers: &["PyTorch, 1 thread", "PyTorch, 2 threads", "PyTorch DDP, 2 × 1 thread"],
        row_bytes: Some(4.0 * 784.0),
        network: Some(Network {
            weights: 784.0 * 512.0 + 512.0 * 256.0 + 256.0 * 10.0 + 778.0,
            layers: &[784, 512, 256, 10],
            rows: 128,
        }),
    },
    Case {
        name: "network cnn 32-64-128-10, Fashion-MNIST, batch 128, 1 epoch",
        job: "network-cnn.toml",
        script: ("networks.py", "cnn"),
        data: ("fashion", "fashion.parquet"),
        test: Some("fashion-test.parquet"),
        peers: &["PyTorch, 1 thread", "PyTorch, 2 threads", "PyTorch DDP, 2 × 1 thread"],
        row_bytes: Some(4.0 * 784.0),
        network: Some(Network {
            weights: 9.0 * 32.0 + 288.0 * 64.0 + 3136.0 * 128.0 + 128.0 * 10.0 + 234.0,
            layers: &[],
            rows: 64,
        }),
    },
];

/// Spark takes most of the run's time and varies least.
const SPARK_ROUNDS_MAX: usize = 2;

pub(super) fn run(suite: &Suite<'_>, outcome: &mut Outcome) {
    let Some(python) = suite.python.clone() else {
        outcome.skip(
            "learners: no Python for the peers and for the data (cargo xtask bench --setup)"
                .to_string(),
        );
        return;
    };
    let folder = suite.root.join("target/bench/data");
    for case in CASES.iter().filter(|case| suite.wants(case.name)) {
        eprintln!("{}", case.name);
        if let Err(why) = make_data(suite, &python, &folder, case) {
            outcome.skip(format!("{}: {why}", case.name));
            continue;
        }
        let mut contenders: Vec<Contender> =
            [1, 2].map(|workers| ours(suite, &folder, case, workers)).into();
        let own = contenders.len();
        contenders
            .extend(case.peers.iter().map(|peer| rival(suite, &python, &folder, (case, peer))));
        let measured = turns::take(&contenders, if suite.is_quick { 1 } else { 5 });
        outcome.enter(case.name, &measured[..own], &measured[own..]);
        if let Some(row_bytes) = case.row_bytes {
            let traffic = Traffic { row_bytes, network: case.network };
            outcome.scale(case.name, &measured[..own], traffic);
        }
    }
}

fn make_data(suite: &Suite<'_>, python: &Path, folder: &Path, case: &Case) -> Result<(), String> {
    made(suite, python, &scaled(folder, suite.is_quick), case.data)
}

/// Makes what `data.py` knows by a name, unless its file is there: data is made once for all runs, and the scale is a
/// part of the folder's name.
pub(super) fn made(
    suite: &Suite<'_>,
    python: &Path,
    folder: &Path,
    (name, file): (&str, &str),
) -> Result<(), String> {
    if folder.join(file).exists() {
        return Ok(());
    }
    let scale = if suite.is_quick { "0.05" } else { "1" };
    let status = Command::new(python)
        .arg(suite.script("data.py"))
        .arg(name)
        .arg(folder)
        .arg(scale)
        .status()
        .map_err(|why| format!("{}: {why}", python.display()))?;
    if status.success() { Ok(()) } else { Err("its data could not be made".to_string()) }
}

/// Where data of this run's scale is.
pub(super) fn scaled(folder: &Path, is_quick: bool) -> PathBuf {
    folder.join(if is_quick { "quick" } else { "full" })
}

fn ours(suite: &Suite<'_>, folder: &Path, case: &Case, workers: u32) -> Contender {
    let folder = scaled(folder, suite.is_quick);
    let mut arguments: Vec<OsString> =
        vec!["train".into(), suite.root.join("bench/jobs").join(case.job).into()];
    let files = [("train", Some(case.data.1)), ("test", case.test)];
    for (key, file) in files.into_iter().filter_map(|(key, file)| file.map(|file| (key, file))) {
        let path = folder.join(file);
        arguments.extend(["--set".into(), format!("data.{key}=\"{}\"", path.display()).into()]);
    }
    arguments.extend(["--workers", &workers.to_string(), "--json"].map(OsString::from));
    Contender {
        name: if workers == 1 {
            "starlings, 1 worker".to_string()
        } else {
            format!("starlings, {workers} workers")
        },
        program: suite.binary.clone(),
        arguments,
        environment: Vec::new(),
        rounds_max: usize::MAX,
    }
}

fn rival(
    suite: &Suite<'_>,
    python: &Path,
    folder: &Path,
    (case, peer): (&Case, &str),
) -> Contender {
    let is_spark = peer.starts_with("Spark");
    let folder = scaled(folder, suite.is_quick);
    let library = match peer {
        "LightGBM" => "lightgbm",
        "XGBoost" => "xgboost",
        "PyTorch, 1 thread" => "single1",
        "PyTorch, 2 threads" => "single2",
        "PyTorch DDP, 2 × 1 thread" => "ddp",
        "faiss" => "faiss",
        "SciPy, scaled by deviation" => "scaled",
        _ if is_spark => "spark",
        _ => "sklearn",
    };
    let mut arguments: Vec<OsString> =
        vec![suite.script(case.script.0).into(), library.into(), case.script.1.into()];
    arguments.extend(
        [Some(case.data.1), case.test].into_iter().flatten().map(|file| folder.join(file).into()),
    );
    Contender {
        name: peer.to_string(),
        program: python.to_path_buf(),
        arguments,
        environment: vec![("PYTHONDONTWRITEBYTECODE", "1".to_string())],
        rounds_max: match is_spark {
            true if !peers::is_there("java") => 0,
            true => SPARK_ROUNDS_MAX,
            false => usize::MAX,
        },
    }
}
