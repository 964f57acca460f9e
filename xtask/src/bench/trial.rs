//! One run of a job as its events tell it: the objective after each pass, and what it cost. A mini-batch's objective is
//! noise, so that a curve has one point a pass, the mean of its steps.

use crate::stage::wait;
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a contender did.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Trial {
    pub(super) name: String,
    /// Seconds since the start of training, and the mean objective of the pass that ended then (ours) or the objective
    /// over all rows (a peer).
    pub(super) points: Vec<(f64, f64)>,
    /// Seconds of training.
    pub(super) seconds: f64,
    /// Bytes that went over links, all workers together.
    pub(super) bytes: f64,
    /// Of the final model over all training rows, where the contender computes it.
    pub(super) objective: f64,
    /// What the objective itself is often hard to judge by: accuracy or root mean squared error.
    pub(super) metric: String,
    /// Seconds of computation of each seat.
    pub(super) computation: Vec<f64>,
    /// The first step of each new deal of shards.
    pub(super) deals: Vec<u64>,
    /// Processor seconds of all workers; what a busy machine does not change.
    pub(super) processor_seconds: f64,
}

impl Trial {
    /// Reads what `train --json` printed.
    pub(super) fn from_events(name: &str, text: &str) -> Result<Trial, String> {
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let report = events.iter().rfind(|event| event["event"] == "report");
        let report = report.ok_or("it ended without a report")?;
        let passes = events.iter().filter(|event| event["event"] == "epoch");
        let point =
            |event: &Value| Some((event["seconds"].as_f64()?, event["objective"].as_f64()?));
        let number = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
        Ok(Trial {
            name: name.to_string(),
            points: passes.filter_map(point).collect(),
            seconds: number("seconds"),
            bytes: number("bytes_sent"),
            objective: number("objective"),
            metric: metric(&report["metrics"]),
            computation: computation(&report["paces"]),
            deals: events.iter().filter_map(first_step_dealt).collect(),
            processor_seconds: number("cpu_seconds"),
        })
    }

    /// Reads the last line of a peer, with `seconds`, `objective` and `curve`: seconds, mean loss and objective.
    pub(super) fn from_peer(name: &str, text: &str) -> Result<Trial, String> {
        let lines = text.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.into_iter().find(|line| line["curve"].is_array());
        let line = line.ok_or("it printed no curve")?;
        let pair = |point: &Value| Some((point[0].as_f64()?, point[2].as_f64()?));
        let points = line["curve"].as_array().into_iter().flatten().filter_map(pair).collect();
        Ok(Trial {
            name: name.to_string(),
            points,
            seconds: line["seconds"].as_f64().unwrap_or(f64::NAN),
            bytes: f64::NAN,
            objective: line["objective"].as_f64().unwrap_or(f64::NAN),
            metric: String::new(),
            computation: Vec::new(),
            deals: Vec::new(),
            processor_seconds: f64::NAN,
        })
    }

    /// The mean objective of the last pass.
    pub(super) fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.1)
    }

    /// Seconds until a pass was first at most this good.
    pub(super) fn reached(&self, target: f64) -> Option<f64> {
        self.points.iter().find(|point| point.1 <= target).map(|point| point.0)
    }
}

fn computation(paces: &Value) -> Vec<f64> {
    let seats = paces.as_array().into_iter().flatten();
    seats.filter_map(|pace| pace["computation"].as_f64()).collect()
}

fn first_step_dealt(event: &Value) -> Option<u64> {
    event["step"].as_u64().filter(|_| event["event"] == "dealt")
}

fn metric(metrics: &Value) -> String {
    let known = ["accuracy", "rmse"];
    let named = known.iter().find_map(|name| Some((name, metrics[*name].as_f64()?)));
    named.map_or(String::new(), |(name, value)| format!("{name} {value:.4}"))
}

/// A process of ours with its output in files, which cannot fill up as pipes do. It is ended when nobody holds it.
pub(super) struct Process {
    child: Child,
    said: File,
    complained: File,
}

impl Process {
    pub(super) fn start(command: &mut Command) -> Result<Process, String> {
        let (said, complained) = (super::turns::tempfile()?, super::turns::tempfile()?);
        let copy = |file: &File| file.try_clone().map_err(|why| why.to_string());
        let child = command
            .stdin(Stdio::null())
            .stdout(copy(&said)?)
            .stderr(copy(&complained)?)
            .spawn()
            .map_err(|why| format!("{}: {why}", command.get_program().display()))?;
        Ok(Process { child, said, complained })
    }

    /// Its number.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far. Read by position: the place in the file is shared with the child, whose next line would move
    /// it to the end between a seek and a read.
    pub(super) fn so_far(&self) -> Result<String, String> {
        let whole = || {
            let mut bytes = vec![0; self.said.metadata()?.len() as usize];
            self.said.read_exact_at(&mut bytes, 0).map(|()| bytes)
        };
        let bytes = whole().map_err(|why: std::io::Error| why.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits for its end and returns what it said.
    pub(super) fn finish(&mut self, limit: Duration) -> Result<String, String> {
        let status = wait(&mut self.child, limit)?;
        if status.success() {
            return self.so_far();
        }
        let mut text = String::new();
        let mut file = &self.complained;
        let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
        let sense = text.lines().find(|line| line.starts_with("error:"));
        let last = sense.or_else(|| text.lines().rfind(|line| !line.trim().is_empty()));
        Err(format!("{status}: {}", last.unwrap_or("no message").trim()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"{"event":"epoch","epoch":0,"objective":3.0,"seconds":1.0}
{"event":"epoch","epoch":1,"objective":2.0,"seconds":2.5}
{"event":"report","seconds":2.6,"bytes_sent":10,"objective":1.9,"metrics":{"accuracy":0.5},"cpu_seconds":4.0}"#;

    #[test]
    fn a_curve_has_a_point_a_pass_and_says_when_a_target_was_reached() {
        let trial = Trial::from_events("ours", EVENTS).unwrap();
        assert_eq!(trial.points, [(1.0, 3.0), (2.5, 2.0)]);
        assert_eq!((trial.reached(2.0), trial.reached(1.9), trial.last()), (Some(2.5), None, 2.0));
        assert_eq!((trial.bytes, trial.metric.as_str()), (10.0, "accuracy 0.5000"));
        assert!(Trial::from_events("ours", "{\"event\":\"start\"}").is_err());
    }

    #[test]
    fn a_process_that_fails_says_why() {
        let mut process = Process::start(
            Command::new("sh").args(["-c", "echo error: no >&2; echo help >&2; exit 2"]),
        )
        .unwrap();
        assert!(process.finish(Duration::from_secs(9)).unwrap_err().ends_with("error: no"));
    }
}
