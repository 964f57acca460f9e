//! `starlings list`: every choice a job file has, from the catalogues.

use crate::output::{say, say_json, table};
use clap::Args;
use serde_json::json;
use starlings::{Listing, Result};

/// Show what a job file can choose from
#[derive(Args)]
#[command(after_long_help = "\
Families: learners, plans, topologies, consistencies, codecs, transports, launchers, sources, preparations; and rules,
from which tables of the library (Flock::open_table) choose, and no job file.

Examples:
  starlings list                    everything, one line each
  starlings list learners           with parameters, defaults and references
  starlings list topologies --json
  starlings list combinations       which choices work together, and why the others do not")]
pub(crate) struct Arguments {
    /// One family, in detail
    family: Option<String>,
    /// As JSON: an array of {family, name, summary, reference, params, gives, needs}
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.family.as_deref() == Some("combinations") {
        return say(&starlings::combinations_table());
    }
    let listings = starlings::list(arguments.family.as_deref())?;
    if arguments.json {
        return say_json(&json!(listings));
    }
    match arguments.family {
        Some(_) => say(&listings.iter().map(detail).collect::<Vec<_>>().join("\n")),
        None => say(&overview(&listings)),
    }
}

fn overview(listings: &[Listing]) -> String {
    let rows: Vec<Vec<String>> = listings
        .iter()
        .map(|it| [it.family, it.name, it.summary].map(str::to_string).to_vec())
        .collect();
    table(&rows) + "\n`starlings list learners` and the like show parameters and references.\n"
}

fn detail(listing: &Listing) -> String {
    let mut text =
        format!("{}\n  {}\n  Reference: {}\n", listing.name, listing.summary, listing.reference);
    let words = |abilities: &[_]| json_words(&json!(abilities));
    if !listing.gives.is_empty() {
        text += &format!("  Gives: {}\n", words(&listing.gives));
    }
    if !listing.needs.is_empty() {
        text += &format!("  Needs: {}\n", words(&listing.needs));
    }
    for param in &listing.params {
        let default = param.default.map_or(", required".to_string(), |it| format!(" = {it}"));
        text += &format!("    {}{default}  ({})\n        {}\n", param.name, param.kind, param.help);
    }
    text
}

fn json_words(names: &serde_json::Value) -> String {
    let names = names.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
    names.collect::<Vec<_>>().join(", ")
}
