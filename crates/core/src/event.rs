//! Events: what a run says while it runs. They are plain data, so that a progress bar, a JSON stream, a
//! dashboard and a replay all read the same thing.

use crate::{Calibration, Confusion, Epoch, Panel, Seat, Step, Validation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thing that happened. Serialised with its kind in `event`, one a line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Workers are still missing.
    Waiting {
        /// Workers here.
        have: u32,
        /// Workers needed.
        want: u32,
        /// For how many more seconds they are waited for.
        #[serde(default)]
        seconds_left: Option<f64>,
        /// What happens then.
        #[serde(default)]
        then: String,
    },
    /// The job is about to run, with everything that was chosen.
    Start {
        /// The job's id in hexadecimal.
        job: String,
        /// The learner's name.
        learner: String,
        /// Workers.
        workers: u32,
        /// Launcher.
        launcher: String,
        /// Plan.
        plan: String,
        /// Topology.
        topology: String,
        /// Consistency model.
        consistency: String,
        /// Codec.
        codec: String,
        /// Seed.
        seed: u64,
        /// Rows of the training data.
        rows: u64,
        /// Features after encoding.
        features: u64,
        /// Steps that will be run at most, where this is known.
        steps_max: Option<u64>,
    },
    /// A worker has taken its seat.
    Worker {
        /// Its rank.
        rank: Seat,
        /// Its process.
        pid: u32,
        /// Its host.
        host: String,
        /// Rows it holds.
        rows: u64,
    },
    /// A step is complete.
    Step {
        /// Which.
        step: Step,
        /// The pass over the data it belongs to.
        epoch: u64,
        /// The objective seen in this step, if the learner knows it.
        objective: Option<f64>,
        /// Rows used so far, all workers together.
        samples: u64,
        /// Seconds since the start of training.
        seconds: f64,
    },
    /// A pass over the data is complete.
    Epoch {
        /// Which, from 0.
        epoch: u64,
        /// Steps so far.
        step: Step,
        /// The mean objective over the pass.
        objective: Option<f64>,
        /// Seconds since the start of training.
        seconds: f64,
    },
    /// Something failed; also listed in the report.
    Fault(FaultReport),
    /// Members have changed, and the flock goes on.
    Regrouped {
        /// How often members have changed.
        epoch: Epoch,
        /// Workers now.
        workers: u32,
        /// The step it goes on with.
        step: Step,
        /// How the step in progress was completed: reweigh, recompute, continue or restore.
        completion: String,
    },
    /// Shards have moved to faster workers: who computes which rows from this step on.
    Dealt {
        /// The first step of the new deal.
        step: Step,
        /// The rank that has each shard.
        holders: Vec<u32>,
    },
    /// A checkpoint is complete.
    Checkpoint {
        /// The step it was cut at: this many steps are done.
        step: Step,
        /// Where it is.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// A model of the cross-validation is trained and measured on the fold that it has not seen.
    Fold {
        /// Which, from 0.
        fold: u32,
        /// How many there are.
        folds: u32,
        /// How good it is there.
        found: Panel,
    },
    /// What a worker did when; told at the end, if the job asks for it.
    Trace {
        /// Its rank.
        rank: Seat,
        /// What it did, in the order of beginning.
        spans: Vec<Span>,
    },
    /// The last event.
    Report(Box<Report>),
}

/// Something that took time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Span {
    /// `work` is what the worker itself does, `wire` what is sent and summed beside it.
    pub lane: String,
    /// What was done.
    pub name: String,
    /// In which step.
    pub step: Step,
    /// When it began, in microseconds of the host's clock.
    pub from: u64,
    /// When it ended.
    pub to: u64,
}

/// How long a worker spent on what, in seconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Pace {
    /// Its rank.
    pub rank: Seat,
    /// Computing contributions.
    pub computation: f64,
    /// Waiting to be admitted to a step.
    pub gate: f64,
    /// Exchanging what was computed.
    pub merge: f64,
}

/// Who failed, where and in which phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct FaultReport {
    /// The rank that failed, where known.
    pub rank: Option<Seat>,
    /// Its host, where known.
    pub host: Option<String>,
    /// What was being done: "merge of step 7: waiting for chunk 3".
    pub phase: String,
    /// The step in progress.
    pub step: Option<Step>,
    /// Who says so.
    pub seen_by: Option<Seat>,
    /// The whole message.
    pub message: String,
}

/// What a run was and what came of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The learner's name.
    pub learner: String,
    /// Workers at the end.
    pub workers: u32,
    /// Most workers that took part at once.
    #[serde(default)]
    pub workers_max: u32,
    /// Launcher.
    pub launcher: String,
    /// Plan.
    pub plan: String,
    /// Topology.
    pub topology: String,
    /// Consistency model.
    pub consistency: String,
    /// Codec.
    pub codec: String,
    /// Seed.
    pub seed: u64,
    /// Steps done.
    pub steps: u64,
    /// Passes over the data done.
    pub epochs: f64,
    /// Rows used, all workers together.
    pub samples: u64,
    /// Seconds of training, without loading.
    pub seconds: f64,
    /// Rows a second.
    pub samples_per_second: f64,
    /// Bytes sent on links by all workers.
    pub bytes_sent: u64,
    /// Bytes that the same contributions have as they are in memory, before a codec makes them smaller.
    pub bytes_raw: u64,
    /// The objective of the final model over all training rows.
    pub objective: f64,
    /// Metrics on the training rows.
    pub metrics: BTreeMap<String, f64>,
    /// Metrics on the test rows, if there are any.
    pub evaluation: BTreeMap<String, f64>,
    /// Which classes of the test rows were taken for which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
    /// Whether chances on the test rows mean what they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What cross-validation found, if the job asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// What failed.
    pub faults: Vec<FaultReport>,
    /// Rows of lost workers that no later step could take up.
    #[serde(default)]
    pub rows_left_out: u64,
    /// Where the model was written, if it was.
    pub model: Option<String>,
    /// Seconds of processor time, all workers together.
    pub cpu_seconds: f64,
    /// Speed-up over one worker divided by workers, where it was measured.
    pub efficiency: Option<f64>,
    /// Seconds of loading before training.
    pub load_seconds: f64,
    /// BLAKE3 of the final weights, in hexadecimal: equal bits, equal digest.
    pub digest: String,
    /// Largest lead any worker had over the slowest, in steps.
    pub lead_max: u64,
    /// Contributions that came too late to count.
    pub dropped: u64,
    /// How long each worker spent on what.
    pub paces: Vec<Pace>,
    /// Workers that held the others up, each with the phase it was slow in.
    pub stragglers: Vec<String>,
}
