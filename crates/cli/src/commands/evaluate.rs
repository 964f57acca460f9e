//! `starlings evaluate`: how good a model is on rows with labels.

use crate::data_arguments::DataArguments;
use crate::output::{say, say_json, table};
use clap::Args;
use serde_json::json;
use starlings::observe::figures;
use starlings::{Predictor, Result};
use std::path::PathBuf;

/// Measure a trained model on rows with labels
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  starlings evaluate digits.safetensors --data digits:test
  starlings evaluate model.safetensors --data held-out.csv --json")]
pub(crate) struct Arguments {
    /// The model file
    model: PathBuf,
    #[command(flatten)]
    data: DataArguments,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let predictor = Predictor::load(&arguments.model)?;
    let evaluation = predictor.evaluate(&arguments.data.spec())?;
    if arguments.json {
        return say_json(&json!({
            "model": arguments.model,
            "data": arguments.data.data,
            "rows": evaluation.rows,
            "metrics": evaluation.metrics,
        }));
    }
    let mut rows = vec![vec!["rows".to_string(), figures::count(evaluation.rows)]];
    let metrics = evaluation.metrics.iter();
    rows.extend(metrics.map(|(name, value)| vec![name.clone(), figures::number(*value)]));
    say(&table(&rows))
}
