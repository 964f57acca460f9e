//! Trees beyond one training against one peer: two processes of ours against LightGBM's own distributed mode, and
//! prediction. The files are those of the case "gradient boosting" of `learners.rs`.

use super::row::Outcome;
use super::turns::{self, Contender};
use super::{Suite, learners};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROCESSES: &str = "gradient boosting on 2 processes, 1M × 28, 100 trees, 63 leaves";
const PREDICTION: &str = "prediction, 1M × 28 through 100 trees of 63 leaves";

/// Where things are.
struct Scene<'a> {
    suite: &'a Suite<'a>,
    python: PathBuf,
    folder: PathBuf,
}

pub(super) fn run(suite: &Suite<'_>, outcome: &mut Outcome) {
    let wanted: Vec<&str> =
        [PROCESSES, PREDICTION].into_iter().filter(|case| suite.wants(case)).collect();
    let Some(python) = suite.python.clone() else {
        wanted.iter().for_each(|case| outcome.skip(format!("{case}: no Python for the peers")));
        return;
    };
    let folder = learners::scaled(&suite.root.join("target/bench/data"), suite.is_quick);
    let scene = Scene { suite, python, folder };
    for case in wanted {
        eprintln!("{case}");
        match scene.contenders(case) {
            Ok([ours, peer]) => {
                let rounds = if suite.is_quick { 1 } else { 5 };
                let measured = turns::take(&[ours, peer], rounds);
                outcome.enter(case, &measured[..1], &measured[1..]);
            }
            Err(why) => outcome.skip(format!("{case}: {why}")),
        }
    }
}

impl Scene<'_> {
    fn contenders(&self, case: &str) -> Result<[Contender; 2], String> {
        let data = ("collisions", "collisions.parquet");
        learners::made(self.suite, &self.python, &self.folder, data)?;
        match case {
            PROCESSES => Ok(self.processes()),
            _ => self.prediction(),
        }
    }

    fn processes(&self) -> [Contender; 2] {
        let mut arguments = self.training("collisions.parquet");
        let end = ["--workers", "2", "--launcher", "processes", "--json"];
        arguments.extend(end.map(OsString::from));
        let ours = self.ours("starlings, 2 processes", arguments);
        [ours, self.lightgbm("LightGBM, 2 processes", "processes", ["", "-test"])]
    }

    /// Both have a model of a fifth of the rows; what is timed is its prediction of all rows.
    fn prediction(&self) -> Result<[Contender; 2], String> {
        let model = self.suite.root.join("target/bench/boosting.safetensors");
        let mut training = self.training("collisions-some.parquet");
        training.extend(["--workers".into(), "2".into(), "--out".into(), model.clone().into()]);
        let status = Command::new(&self.suite.binary)
            .args(training)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|why| format!("{}: {why}", self.suite.binary.display()))?;
        if !status.success() {
            return Err("the model to predict with could not be trained".to_string());
        }
        let all = self.folder.join("collisions.parquet");
        let arguments = vec![
            "bench".into(),
            "predict".into(),
            model.into(),
            "--data".into(),
            all.into(),
            "--json".into(),
        ];
        let ours = self.ours("starlings, 2 threads", arguments);
        Ok([ours, self.lightgbm("LightGBM, 2 threads", "prediction", ["-some", ""])])
    }

    /// Our training on a file, without what says how many workers.
    fn training(&self, file: &str) -> Vec<OsString> {
        let set = |key: &str, path: &Path| {
            ["--set".into(), format!("data.{key}=\"{}\"", path.display()).into()]
        };
        let job = self.suite.root.join("bench/jobs/boosting.toml");
        let mut arguments: Vec<OsString> = vec!["train".into(), job.into()];
        arguments.extend(set("train", &self.folder.join(file)));
        arguments.extend(set("test", &self.folder.join("collisions-test.parquet")));
        arguments
    }

    fn ours(&self, name: &str, arguments: Vec<OsString>) -> Contender {
        Contender {
            name: name.to_string(),
            program: self.suite.binary.clone(),
            arguments,
            environment: Vec::new(),
            rounds_max: usize::MAX,
        }
    }

    fn lightgbm(&self, name: &str, what: &str, ends: [&str; 2]) -> Contender {
        let files = ends.map(|end| self.folder.join(format!("collisions{end}.parquet")).into());
        let mut arguments: Vec<OsString> =
            vec![self.suite.script("trees.py").into(), "lightgbm".into(), what.into()];
        arguments.extend(files);
        Contender {
            name: name.to_string(),
            program: self.python.clone(),
            arguments,
            environment: vec![("PYTHONDONTWRITEBYTECODE", "1".to_string())],
            rounds_max: usize::MAX,
        }
    }
}
