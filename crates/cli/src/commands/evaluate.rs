//! `starlings evaluate`: how good a model is on rows with labels.

use crate::data_arguments::DataArguments;
use crate::output::{say, say_json};
use clap::Args;
use serde_json::json;
use starlings::{Predictor, Result, observe};
use std::path::PathBuf;

/// Measure a trained model on rows with labels
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  starlings evaluate digits.safetensors --data digits:test
  starlings evaluate model.safetensors --data held-out.csv --workers 4 --json

Rows count by their weights, where they have any. The figures do not depend on the number of workers: each holds and \
predicts its share of the rows, and the area under the curve is exact.")]
pub(crate) struct Arguments {
    /// The model file
    model: PathBuf,
    #[command(flatten)]
    data: DataArguments,
    /// How many workers (threads of this process) share the rows [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: Option<u32>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let predictor = Predictor::load(&arguments.model)?;
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let workers = arguments.workers.unwrap_or_else(cores);
    let found = predictor.evaluate_with(&arguments.data.spec(), workers)?;
    match arguments.json {
        true => say_json(&json!({
            "model": arguments.model,
            "data": arguments.data.data,
            "workers": workers,
            "rows": found.rows,
            "metrics": found.metrics,
            "confusion": found.confusion,
            "calibration": found.calibration,
        })),
        false => say(&observe::panel(&found)),
    }
}
